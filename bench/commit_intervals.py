"""The commit interval that `auto` chooses beside fixed ones, measured: whole training runs with no homes named.

    python bench/commit_intervals.py --drive FOLDER [--sluice build/release/sluice] [--runs 3] [--steps 110]

Every configuration trains with each interval, in turns with the others. A figure is the median over the runs of a run's
mean step after its first ten, commits included: --steps of 110 hold one commit of an interval of 100. Takes about half
an hour; needs 2 GiB in FOLDER, and nothing else running.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

INTERVALS = ["auto", 1, 10, 100]
FIRST_STEPS = 10  # of a run, which its start slows down
MIDDLE = {"n_embd": 512, "n_layer": 6, "n_head": 8, "vocab_size": 8192}
LARGE = {"n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 8192}
# Name, model, tokens of a micro-batch, micro-batches, MiB of host memory.
ROWS = [
    ("23 M, 128 tokens, 128 MiB", MIDDLE, 128, 1, 128),
    ("23 M, 128 tokens, 256 MiB", MIDDLE, 128, 1, 256),
    ("23 M, 128 tokens, 512 MiB", MIDDLE, 128, 1, 512),
    ("23 M, 2 x 256 tokens, 192 MiB", MIDDLE, 256, 2, 192),
    ("49 M, 128 tokens, 400 MiB", LARGE, 128, 1, 400),
    ("49 M, 128 tokens, 900 MiB", LARGE, 128, 1, 900),
]


def configuration(row, interval, drive):
    _, model, tokens, micro_batches, host_mib = row
    return {
        "model": {"type": "gpt2", "n_positions": tokens, **model},
        "data": {"tokenizer": "byte", "sequence_length": tokens},
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_batches,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
        "sluice": {
            "device": "cpu",
            "device_memory": "512MiB",
            "host_memory": f"{host_mib}MiB",
            "nvme": [drive],
            "commit_interval": interval,
        },
    }


def train(row, interval, arguments, folder):
    """The mean step, ms, and the interval that the plan has."""
    config, out = Path(folder) / "run.json", Path(folder) / "run"
    config.write_text(json.dumps(configuration(row, interval, str(Path(folder) / "drive"))))
    command = [arguments.sluice, "train", str(config), "--data", str(Path(__file__).with_name("README.md"))]
    command += ["--out", str(out), "--steps", str(arguments.steps), "--overwrite"]
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode != 0:
        sys.exit(f"{row[0]}, {interval}: {ended.stderr.strip()}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step_ms"] for line in lines if "step_ms" in line]
    return statistics.fmean(steps[FIRST_STEPS:]), re.search(r"commit every (\d+) step", ended.stdout + ended.stderr)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--drive", required=True, help="a folder on the drive to use")
    parser.add_argument("--runs", type=int, default=3, help="of each configuration with each interval")
    parser.add_argument("--steps", type=int, default=110, help="of a run")
    arguments = parser.parse_args()
    taken = {}
    with tempfile.TemporaryDirectory(dir=arguments.drive) as folder:
        for number in range(arguments.runs):
            for row in ROWS:
                for interval in INTERVALS:
                    print(f"run {number + 1} of {arguments.runs}: {row[0]}, {interval:<8}", end="\r", file=sys.stderr)
                    taken.setdefault((row[0], interval), []).append(train(row, interval, arguments, folder))
    print(file=sys.stderr)
    print(f"{'ms a step':<34}" + "".join(f"{interval!s:>10}" for interval in INTERVALS))
    for row in ROWS:
        medians = [statistics.median(ms for ms, _ in taken[row[0], interval]) for interval in INTERVALS]
        chosen = statistics.mode(every for _, every in taken[row[0], "auto"])
        print(f"{row[0]:<34}" + "".join(f"{ms:>10.1f}" for ms in medians) + f"   auto: {chosen}")


if __name__ == "__main__":
    main()
