#!/usr/bin/env python3
"""Whole steps of sluice beside plain PyTorch and DeepSpeed: same shapes, tokens and clipping, taking turns.

    python side_by_side.py --sluice ../../build/release/sluice --drive FOLDER [--rounds 3] [--engines sluice plain]

Each run is a process of its own; a figure is the median over the rounds of the runs' medians. sluice: every state
record at home on NVMe, a commit every step, 512 MiB of device and 1 GiB of host memory, weights in host memory and as a
copy on the device; "sluice-host" has no copy there but of blocks whose graphs are kept, "sluice-nvme" keeps the weights
on NVMe. "sluice-budgets" has the same budgets and commits and says nothing of homes, as people's configurations do: the
planner chooses them. All of these keep a block's graph where the device budget has room for it and checkpoint its
activations elsewhere; "sluice-recompute" is sluice-host with every block checkpointed. "plain" and "zero":
train_torch.py, every block checkpointed; "plain-graphs": none. "zero" is left out where deepspeed is not installed. All
compute on the CPU. The folders made below --drive are removed.
"""
import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import shapes

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--sluice", default=os.path.join(here, "../../build/release/sluice"))
parser.add_argument("--drive", required=True, help="a folder on the NVMe drive")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warm", type=int, default=3, help="first steps that do not count")
parser.add_argument("--shapes", nargs="+", choices=list(shapes.SHAPES), default=["25M", "124M"])
parser.add_argument("--accumulation", nargs="+", type=int, default=[1, 4], help="micro-batches in a step")
PLACEMENTS = {"sluice": dict(state="nvme", weights="host+device"), "sluice-host": dict(state="nvme", weights="host"),
              "sluice-recompute": dict(state="nvme", weights="host"), "sluice-nvme": dict(state="nvme", weights="nvme"),
              "sluice-budgets": {}}
ENGINES = [*PLACEMENTS, "plain", "plain-graphs", "zero"]
parser.add_argument("--clipping", type=float, default=shapes.CLIPPING,
                    help="the largest norm of a step's gradients: 1 engages in every one of these first steps")
parser.add_argument("--engines", nargs="+", choices=ENGINES,
                    default=ENGINES if importlib.util.find_spec("deepspeed") else ENGINES[:-1])
parser.add_argument("--json", action="store_true", help="one JSON line for each row")
options = parser.parse_args()


def run_sluice(engine, folder, shape, accumulation):
    size = shapes.SHAPES[shape]
    config = dict(
        model=dict(type="gpt2", n_layer=size["layers"], n_embd=size["width"], n_head=size["heads"],
                   vocab_size=size["vocabulary"], n_positions=size["positions"]),
        data=dict(tokenizer="byte", sequence_length=size["sequence"]),
        train_micro_batch_size_per_gpu=size["micro"], gradient_accumulation_steps=accumulation,
        optimizer=dict(type="AdamW", params=dict(lr=shapes.LEARNING_RATE, betas=list(shapes.BETAS),
                                                 eps=shapes.EPSILON, weight_decay=shapes.WEIGHT_DECAY)),
        gradient_clipping=options.clipping, bf16=dict(enabled=True),
        sluice=dict(device="cpu", device_memory="512MiB", host_memory="1GiB", commit_interval=1,
                    recompute="always" if engine == "sluice-recompute" else "auto", placement=PLACEMENTS[engine]))
    with open(os.path.join(folder, "run.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write(shapes.text().decode("utf-8", "ignore"))
    command = [options.sluice, "train", os.path.join(folder, "run.json"), "--data", os.path.join(folder, "text.txt"),
               "--steps", str(options.steps), "--out", os.path.join(folder, "run")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    words = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("sluice failed:\n" + words)
    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
        steps = [line for line in map(json.loads, file) if "step_ms" in line]
    return dict(step_ms=statistics.median(step["step_ms"] for step in steps[options.warm:]),
                first_loss=steps[0]["loss"], last_loss=steps[-1]["loss"], peak_bytes=usage.ru_maxrss * 1024)


def run_peer(engine, folder, shape, accumulation):
    name, _, graphs = engine.partition("-")
    command = [sys.executable, os.path.join(here, "train_torch.py"), "--engine", name, "--folder", folder, "--shape",
               shape, "--accumulation", str(accumulation), "--steps", str(options.steps), "--warm", str(options.warm),
               "--clipping", str(options.clipping)] + (["--keep-graphs"] if graphs else [])
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{engine} failed:\n{ended.stdout}{ended.stderr}")
    return json.loads(lines[-1])


def run(engine, shape, accumulation):
    folder = tempfile.mkdtemp(prefix="sluice-peers-", dir=options.drive)
    try:
        if engine in PLACEMENTS:
            return run_sluice(engine, folder, shape, accumulation)
        return run_peer(engine, folder, shape, accumulation)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


os.makedirs(options.drive, exist_ok=True)
for shape in options.shapes:
    for accumulation in options.accumulation:
        runs = {engine: [] for engine in options.engines}
        for _ in range(options.rounds):
            for engine in options.engines:
                runs[engine].append(run(engine, shape, accumulation))
        for engine, results in runs.items():
            times = [result["step_ms"] for result in results]
            row = dict(shape=shape, micro_batches=accumulation, engine=engine, step_ms=statistics.median(times),
                       step_ms_least=min(times), step_ms_most=max(times),
                       peak_bytes=max(result["peak_bytes"] for result in results),
                       first_loss=results[0]["first_loss"], last_loss=results[0]["last_loss"],
                       load=os.getloadavg()[0])
            if options.json:
                print(json.dumps(row), flush=True)
                continue
            print(f"{shape:>5} x {accumulation}  {engine:<16} {row['step_ms']:8.0f} ms "
                  f"({row['step_ms_least']:.0f} to {row['step_ms_most']:.0f})  peak {row['peak_bytes'] / 2**30:5.2f} GiB  "
                  f"loss {row['first_loss']:.3f} -> {row['last_loss']:.3f}  load {row['load']:.1f}", flush=True)
