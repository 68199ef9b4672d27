#!/usr/bin/env python3
"""Makes the figures of bench/README.md, one after the other, on a machine that does nothing else.

    python bench/figures.py --drive FOLDER --out FOLDER [--sluice build/release/sluice] [--peers PYTHON] [--only PART ...]

Each part's output goes to OUT/PART.txt, with the command before it. Parts that need what is not here are passed over,
and said to be: fio needs the program and huge pages; aio, adam_peers and peers run with --peers, a Python that has
torch, transformers and deepspeed.
Needs up to 31 GB of the drive.
"""
import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")


def parts(options):
    """(name, command), in the order of bench/README.md."""
    sluice, drive, python = options.sluice, options.drive, sys.executable
    io = [sluice, "bench", "io", "--path", drive, "--size", "2GiB", "--rounds", "3", "--pattern"]
    yield "io_sequential", [*io, "sequential", "--verify", "off"]
    yield "io_chunks", [*io, "chunks", "--verify", "off"]
    yield "io_checksums", [*io, "chunks", "--verify", "on"]
    yield "io_threads", [*io, "sequential", "--verify", "off", "--backend", "threads"]
    yield "io_two_drives", [sluice, "bench", "io", "--path", f"{drive}/a,{drive}/b", "--size", "1GiB", "--rounds", "3",
                            "--verify", "off", "--depth", "32", "--throttle", "1,0.25"]
    yield "fio", [python, HERE / "peers/fio_side_by_side.py", drive, "--sluice", sluice, "--size", "2GiB", "--rounds", "3"]
    yield "aio", [options.peers, HERE / "peers/aio.py", drive, "--sluice", sluice]
    yield "copy", [sluice, "bench", "copy", "--path", drive, "--size", "512MiB"]
    yield "adam_1", [sluice, "bench", "adam", "--threads", "1"]
    yield "adam_2", [sluice, "bench", "adam", "--threads", "2"]
    yield "adam_peers", [options.peers, HERE / "peers/adam.py", "--sluice", sluice]
    yield "sizes", [python, HERE / "step_sizes.py", "--sluice", sluice, "--drive", drive]
    yield "prediction", [python, HERE / "prediction.py", "--sluice", sluice, "--drive", drive]
    yield "commit_intervals", [python, HERE / "commit_intervals.py", "--sluice", sluice, "--drive", drive]
    side = [options.peers, HERE / "peers/side_by_side.py", "--sluice", sluice, "--drive", drive, "--rounds", "2"]
    yield "peers", [*side, "--engines", "sluice-host", "sluice-recompute", "sluice-nvme", "sluice-budgets",
                   "plain", "plain-graphs", "zero"]
    yield "peers_not_clipped", [*side, "--engines", "sluice-host", "sluice-budgets", "plain", "--clipping", "100"]
    yield "data_sheets", [python, HERE / "data_sheets.py", "--sluice", sluice]


def missing(name, options):
    """Why a part cannot be run here; None where it can."""
    if name == "fio" and not shutil.which("fio"):
        return "there is no fio"
    if name == "fio" and int(HUGE_PAGES.read_text()) < 40:
        return "it needs 40 huge pages (sysctl vm.nr_hugepages=40 before, =0 after)"
    if name in ("aio", "adam_peers", "peers", "peers_not_clipped") and not options.peers:
        return "--peers names no Python"
    return None


def run(name, command, out):
    words = shlex.join(map(str, command))
    with open(out / f"{name}.txt", "w") as file:
        file.write(f"$ {words}\n")
        file.flush()
        return subprocess.run(list(map(str, command)), stdout=file, stderr=subprocess.STDOUT).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drive", required=True, help="a folder on the drive to use")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the outputs")
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--peers", help="a Python with torch, transformers and deepspeed")
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts alone")
    options = parser.parse_args()
    wanted = [(name, command) for name, command in parts(options) if not options.only or name in options.only]
    unknown = set(options.only or []) - {name for name, _ in wanted}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(name for name, _ in parts(options))}")
    os.makedirs(options.drive, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for number, (name, command) in enumerate(wanted, 1):
        why = missing(name, options)
        if why:
            print(f"{number} of {len(wanted)}  {name}: passed over, {why}", flush=True)
            continue
        print(f"{number} of {len(wanted)}  {name} ...", end=" ", flush=True)
        begin = time.monotonic()
        code = run(name, command, options.out)
        print(f"{time.monotonic() - begin:.0f} s" + (f", FAILED ({code})" if code else ""), flush=True)
        if code:
            failed.append(name)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
