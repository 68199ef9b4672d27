#!/usr/bin/env python3
"""The store beside DeepSpeed's aio handle on one folder, in turns.

usage: aio.py FOLDER --sluice build/release/sluice [--rounds 3]

Two patterns, each in both directions:
  many  2 GiB in pieces of 4 MiB: a file each there (32 requests submitted, then wait), a record each here
  one   one tensor of 4 GiB there, the best of its settings tried; the store's largest records here
Every round runs all of them once, in an order of its own; medians over rounds, in GB/s (10^9 bytes). The handle moves
bytes from its own page-locked buffer in huge pages (glibc.malloc.hugetlb), which it does not do by itself.
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


def store(command, folder, *more):
    done = subprocess.run([command, "bench", "io", "--path", folder, "--rounds", "1", "--pattern", "sequential",
                           "--json", *more], check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    return {way: figures[way]["gb_per_s"] for way in ("read", "write")}


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
        runs = [("aio many", s, lambda s=s: handles.many(s)) for s in MANY_SETTINGS]
        runs += [("aio one", s, lambda s=s: handles.one(s)) for s in ONE_SETTINGS]
        runs += [("store many", "", lambda: store(arguments.sluice, folder, "--size", "2GiB", "--record", "4MiB")),
                 ("store one", "", lambda: store(arguments.sluice, folder, "--size", "4GiB"))]
        found = {}
        for number in range(arguments.rounds + 1):  # the first round writes new files: not counted
            for name, setting, run in random.Random(number).sample(runs, len(runs)):
                rates = run()
                if number > 0:
                    for way, rate in rates.items():
                        found.setdefault((name, way, setting), []).append(rate)
        best = {}
        for (name, way, setting), rates in found.items():
            median = statistics.median(rates)
            print(f"{name:<12}{way:<7}{median:>7.2f} GB/s  {setting}")
            best[name, way] = max(best.get((name, way), 0), median)
        for pattern in ("many", "one"):
            for way in ("read", "write"):
                ratio = best[f"store {pattern}", way] / best[f"aio {pattern}", way]
                print(f"{pattern:<5} {way:<6} the store moves {ratio:.2f} times the handle's best")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
