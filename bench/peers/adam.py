#!/usr/bin/env python3
"""`sluice bench adam` beside torch.optim.AdamW (for-each, fused) and, where it is installed, DeepSpeed's CPU Adam.

usage: adam.py --sluice build/release/sluice [--elements 33554432] [--threads 1,2] [--reps 5]

All do the same work on as many parameters: bf16 gradient in, clip, AdamW, bf16 weights out ("sequence"); "kernel" is
the optimizer's own call on fp32 gradients. One JSON line for each thread count and variant; in each
repetition sluice runs first, and each thread count is a process of its own. Needs torch and, for DeepSpeed,
`deepspeed ninja py-cpuinfo` and DS_ACCELERATOR=cpu.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time


def variants_of(torch, elements):
    hyper = dict(lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    generator = torch.Generator().manual_seed(1)
    master = torch.empty(elements).normal_(0, 0.02, generator=generator)
    gradient16 = torch.empty(elements, dtype=torch.bfloat16).normal_(0, 1e-3, generator=generator)
    gradient, weights16 = gradient16.float(), master.bfloat16()
    moment1, moment2 = torch.zeros(elements), torch.zeros(elements)
    parameter = torch.nn.Parameter(master)
    parameter.grad = gradient

    def optimizer(**form):
        made = torch.optim.AdamW([parameter], **hyper, **form)
        made.state[parameter] = dict(step=torch.tensor(0.0), exp_avg=moment1, exp_avg_sq=moment2)
        return made.step

    def sequence(core):
        def run():
            gradient.copy_(gradient16)
            gradient.mul_(0.999)
            core()
            weights16.copy_(master)
        return run

    fused, foreach = optimizer(fused=True), optimizer(foreach=True)
    variants = {"torch_fused_kernel": fused, "torch_fused_sequence": sequence(fused),
                "torch_foreach_sequence": sequence(foreach)}
    if importlib.util.find_spec("deepspeed"):
        from deepspeed.ops.op_builder import CPUAdamBuilder
        op = CPUAdamBuilder().load()
        op.create_adam(0, hyper["lr"], 0.9, 0.999, hyper["eps"], hyper["weight_decay"], True, False)
        step = [0]

        def deepspeed():
            step[0] += 1
            op.adam_update(0, step[0], hyper["lr"], 0.9, 0.999, hyper["eps"], hyper["weight_decay"], True, master,
                           gradient, moment1, moment2)
        variants["deepspeed_kernel"] = deepspeed
        variants["deepspeed_sequence"] = sequence(deepspeed)
    return variants


def measure(given):
    import torch
    torch.set_num_threads(given.child)
    variants = variants_of(torch, given.elements)
    sluice = [given.sluice, "bench", "adam", "--elements", str(given.elements), "--threads", str(given.child), "--json"]
    times = {name: [] for name in variants}
    times["sluice_sequence"] = []
    with torch.no_grad():
        for repetition in range(given.reps + 1):
            row = json.loads(subprocess.run(sluice, check=True, capture_output=True, text=True).stdout)
            times["sluice_sequence"].append(row["ns_per_param"])
            for name, run in variants.items():
                begin = time.perf_counter()
                run()
                taken = (time.perf_counter() - begin) / given.elements * 1e9
                if repetition > 0:  # the first touches pages and loads code
                    times[name].append(taken)
    ours = statistics.median(times["sluice_sequence"])
    for name, values in times.items():
        median = statistics.median(values)
        print(json.dumps({"variant": name, "threads": given.child, "elements": given.elements,
                          "ns_per_param": round(median, 4), "times_sluice": round(median / ours, 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--elements", type=int, default=32 << 20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return measure(given)
    for threads in given.threads.split(","):
        subprocess.run([sys.executable, __file__, "--sluice", given.sluice, "--elements", str(given.elements),
                        "--reps", str(given.reps), "--child", threads],
                       env=dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads), check=True)


if __name__ == "__main__":
    main()
