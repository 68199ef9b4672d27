#!/usr/bin/env python3
"""The store beside DeepSpeed's aio handle on one folder, in turns.

usage: aio.py FOLDER --sluice build/release/sluice [--rounds 3]

Two patterns, each in both directions:
  many  2 GiB in pieces of 4 MiB: a file each there (32 requests submitted, then wait), a record each here
  one   one tensor of 4 GiB there, the best of its settings tried; the store's largest records here
The store moves with checksums and without; the handle has none. A round is the handle with all of its settings, then the
store, or the other way round, each on files of its own that are gone before the other's are made: where on a drive a
file lies may change how fast it is written by a fifth. Medians over rounds, in GB/s (10^9 bytes). The handle moves bytes
from its own page-locked buffer in huge pages (glibc.malloc.hugetlb), which it does not do by itself.
Needs a Python that has torch and deepspeed, libaio's headers, and 9 GiB in the folder.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
MANY_FILES, FILE_BYTES, ONE_BYTES = 512, 4 * MIB, 4096 * MIB
MANY_SETTINGS = [(MIB, 8, 1), (MIB, 32, 2), (8 * MIB, 128, 8)]  # block, queue depth, threads
ONE_SETTINGS = [(MIB, 32, 1), (MIB, 128, 2), (8 * MIB, 32, 8)]
CHECKSUMS = {"checksums off": "off", "checksums on": "on"}


class Handles:
    def __init__(self, folder):
        from deepspeed.ops.op_builder import AsyncIOBuilder
        import torch
        self.folder, self.aio = folder, AsyncIOBuilder().load()
        self.owner = self.aio.aio_handle(MIB, 8, False, True, 1)
        self.buffer = self.owner.new_cpu_locked_tensor(ONE_BYTES, torch.empty(0, dtype=torch.uint8))
        self.buffer.view(torch.int64).random_(0, 1 << 40)

    def one(self, setting):
        block, depth, threads = setting
        handle = self.aio.aio_handle(block, depth, False, True, threads)
        path, rates = os.path.join(self.folder, "one.bin"), {}
        for way, move in (("write", handle.sync_pwrite), ("read", handle.sync_pread)):
            begin = time.perf_counter()
            move(self.buffer, path, 0)
            rates[way] = ONE_BYTES / (time.perf_counter() - begin) / 1e9
        return rates

    def many(self, setting, batch=32):
        block, depth, threads = setting
        handle = self.aio.aio_handle(block, depth, False, True, threads)
        rates = {}
        for way, move in (("write", handle.async_pwrite), ("read", handle.async_pread)):
            begin = time.perf_counter()
            for first in range(0, MANY_FILES, batch):
                for i in range(first, first + batch):
                    piece = self.buffer.narrow(0, i * FILE_BYTES, FILE_BYTES)
                    move(piece, os.path.join(self.folder, f"{i}.bin"), 0)
                if handle.wait() != batch:
                    sys.exit("the handle did not finish its requests")
            rates[way] = MANY_FILES * FILE_BYTES / (time.perf_counter() - begin) / 1e9
        return rates

    def remove_files(self):
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))


def store(command, folder, *more):
    done = subprocess.run([command, "bench", "io", "--path", folder, "--rounds", "1", "--pattern", "sequential",
                           "--json", *more], check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    return {way: figures[way]["gb_per_s"] for way in ("read", "write")}


def store_round(command, folder):
    """{(name, setting): rates}"""
    sizes = {"many": ["--size", "2GiB", "--record", "4MiB"], "one": ["--size", "4GiB"]}
    return {(f"store {pattern}", setting): store(command, folder, *size, "--verify", verify)
            for pattern, size in sizes.items() for setting, verify in CHECKSUMS.items()}


def handle_round(handles, number):
    runs = [("aio many", handles.many, setting) for setting in MANY_SETTINGS]
    runs += [("aio one", handles.one, setting) for setting in ONE_SETTINGS]
    for _, move, setting in (runs[0], runs[-1]):
        move(setting)  # makes the files: not counted
    rates = {(name, setting): move(setting) for name, move, setting in random.Random(number).sample(runs, len(runs))}
    handles.remove_files()
    return rates


def print_results(found):
    best = {}
    for (name, way, setting), rates in sorted(found.items(), key=lambda each: (each[0][0], each[0][1])):
        median = statistics.median(rates)
        print(f"{name:<12}{way:<7}{median:>7.2f} GB/s  ({min(rates):.2f} - {max(rates):.2f})  {setting}")
        best[name, way] = max(best.get((name, way), 0), median)
    for pattern in ("many", "one"):
        for way in ("read", "write"):
            for setting in CHECKSUMS:
                rate = statistics.median(found[f"store {pattern}", way, setting])
                print(f"{pattern:<5} {way:<6} the store, {setting}, moves {rate / best[f'aio {pattern}', way]:.2f} "
                      "times the handle's best")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if "hugetlb" not in os.environ.get("GLIBC_TUNABLES", ""):
        more = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **more})
    folder = os.path.join(arguments.folder, "sluice-peers")
    os.makedirs(folder, exist_ok=True)
    try:
        handles = Handles(folder)
        sides = [lambda number: handle_round(handles, number), lambda _: store_round(arguments.sluice, folder)]
        found = {}
        for number in range(arguments.rounds):
            print(f"\rround {number + 1} of {arguments.rounds} ", end="", file=sys.stderr)
            for side in sides[number % 2:] + sides[:number % 2]:
                for (name, setting), rates in side(number).items():
                    for way, rate in rates.items():
                        found.setdefault((name, way, setting), []).append(rate)
        print(file=sys.stderr)
        print_results(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
