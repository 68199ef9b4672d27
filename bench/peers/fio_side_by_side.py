#!/usr/bin/env python3
"""The store beside fio on one folder, in turns.

usage: fio_side_by_side.py FOLDER --sluice build/release/sluice [--size 4GiB] [--rounds 5] [--json]

For requests of 1, 4 and 16 MiB: fio (io_uring, O_DIRECT, huge pages) reads and writes one file, `sluice bench io` its
records in file order; both with so many requests in flight that they are 16, 32 or 64 MiB together, and each figure is
of the best of these. The store also moves a model's chunks, checksums included, in its default requests of 1 MiB. Every
round runs all of them once, in an order of its own, each on a file made for it: where on a drive a file lies may change
how fast it is written by a fifth. Medians over rounds, in GB/s (10^9 bytes).
Needs fio (Debian package fio), 40 huge pages (`sysctl vm.nr_hugepages=40` before and `=0` after), and room in the folder
for twice --size.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys

MIB = 1 << 20
BLOCKS_MIB, IN_FLIGHT_MIB, CHUNKS_MIB = [1, 4, 16], [16, 32, 64], 1
HUGE_PAGES = max(IN_FLIGHT_MIB) // 2 + 8
AIMS = {"sequential": 95, "chunks": 90}  # percent of fio


def size_in_bytes(text):
    for unit, scale in (("GiB", 1 << 30), ("MiB", MIB)):
        if text.endswith(unit) and text[:-len(unit)].isdigit():
            return int(text[:-len(unit)]) * scale
    raise argparse.ArgumentTypeError(f"{text}: give a size like 4GiB or 512MiB")


def check_needs():
    if not shutil.which("fio"):
        sys.exit("fio is missing: install the Debian package fio (apt-get install fio)")
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    if int(fields["HugePages_Free"]) < HUGE_PAGES:
        sys.exit(f"{HUGE_PAGES} free huge pages are needed, {int(fields['HugePages_Free'])} are there: "
                 f"sysctl vm.nr_hugepages={HUGE_PAGES} before, vm.nr_hugepages=0 after")


def run(command):
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")
    return json.loads(ended.stdout[ended.stdout.index("{"):])


def fio(options, file, block_mib, in_flight_mib):
    rates = {}
    for way in ("write", "write", "read"):  # the first one meets extents that were never written: not counted
        end = run(["fio", "--name=peer", f"--filename={file}", f"--size={options.size}", f"--rw={way}",
                   "--ioengine=io_uring", "--direct=1", f"--bs={block_mib}m", f"--iodepth={in_flight_mib // block_mib}",
                   "--iomem=mmaphuge", "--hugepage-size=2m", "--output-format=json", *options.fio.split()])
        rates[way] = end["jobs"][0][way]["bw_bytes"] / 1e9
    os.unlink(file)
    return rates


def store(options, folder, pattern, block_mib, in_flight_mib):
    record_mib = 64 if pattern == "chunks" else max(4, block_mib)
    end = run([options.sluice, "bench", "io", "--path", folder, "--size", f"{options.size // MIB}MiB", "--rounds", "1",
               "--pattern", pattern, "--verify", "on" if pattern == "chunks" else "off", "--block", f"{block_mib}MiB",
               "--record", f"{record_mib}MiB", "--depth", str(in_flight_mib // block_mib), "--json"])
    return {way: end[way]["gb_per_s"] for way in ("read", "write")}


def measure(options, folder):
    """{(what, block in MiB, way): {MiB in flight: [GB/s of each round]}}"""
    file = os.path.join(folder, "fio.bin")
    sizes = [(block, flight) for block in BLOCKS_MIB for flight in IN_FLIGHT_MIB]
    runs = [("fio", *size, lambda size=size: fio(options, file, *size)) for size in sizes]
    runs += [("sequential", *size, lambda size=size: store(options, folder, "sequential", *size)) for size in sizes]
    runs += [("chunks", CHUNKS_MIB, flight, lambda flight=flight: store(options, folder, "chunks", CHUNKS_MIB, flight))
             for flight in IN_FLIGHT_MIB]
    found = {}
    for number in range(options.rounds):
        for i, (what, block, flight, measured) in enumerate(random.Random(number).sample(runs, len(runs))):
            print(f"\rround {number + 1} of {options.rounds}: {i + 1} of {len(runs)} ", end="", file=sys.stderr)
            for way, rate in measured().items():
                found.setdefault((what, block, way), {}).setdefault(flight, []).append(rate)
    print(file=sys.stderr)
    return found


def rows_of(found):
    """The best number in flight of each, and the store's percent of fio's with the same requests and of fio's best."""
    best = {key: max((statistics.median(rates), flight) for flight, rates in by_flight.items())
            for key, by_flight in found.items()}
    rows = []
    for (what, block, way), (rate, flight) in sorted(best.items(), key=lambda each: (each[0][0], each[0][2], each[0][1])):
        rates = found[what, block, way][flight]
        row = dict(what=what, direction=way, block_mib=block, in_flight_mib=flight, gb_per_s=round(rate, 3),
                   least=round(min(rates), 3), most=round(max(rates), 3))
        if what != "fio":
            of_all = max(found_rate for (name, _, to), (found_rate, _) in best.items() if (name, to) == ("fio", way))
            row |= dict(percent_of_fio=round(100 * rate / best["fio", block, way][0], 1),
                        percent_of_fios_best=round(100 * rate / of_all, 1), aim_percent=AIMS[what])
        rows.append(row)
    return rows


def print_table(rows):
    print(f"{'what':<12}{'way':<7}{'request':>8}{'in flight':>11}{'GB/s':>8}  {'(least - most)':<17}"
          f"{'% of fio':>9}{'% of its best':>15}{'aim':>6}")
    for row in rows:
        line = (f"{row['what']:<12}{row['direction']:<7}{row['block_mib']:>4} MiB{row['in_flight_mib']:>7} MiB"
                f"{row['gb_per_s']:>8.2f}  {'(%.2f - %.2f)' % (row['least'], row['most']):<17}")
        if "aim_percent" in row:
            line += f"{row['percent_of_fio']:>9.1f}{row['percent_of_fios_best']:>15.1f}{row['aim_percent']:>6}"
        print(line.rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--size", type=size_in_bytes, default=size_in_bytes("4GiB"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fio", default="", help="more options for fio: --fio='--fixedbufs --registerfiles'")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    check_needs()
    folder = os.path.join(options.folder, "sluice-peers")
    os.makedirs(folder, exist_ok=True)
    try:
        load = os.getloadavg()[0]
        rows = rows_of(measure(options, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(dict(size_bytes=options.size, rounds=options.rounds, fio_options=options.fio, load=load,
                              rows=rows)))
        return
    print_table(rows)
    print(f"medians of {options.rounds} rounds of {options.size / MIB / 1024:.1f} GiB, load {load:.1f} at the start")


if __name__ == "__main__":
    main()
