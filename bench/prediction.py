"""Predicted against measured step times, over models, batches, homes, update modes and precisions.

    python bench/prediction.py --sluice build/release/sluice --drive FOLDER [--runs 5] [--json]

Every configuration runs several times, in turns with the others: `sluice bench step`, one round of three steps. The
machine's speeds are measured anew at the start, its drives' by every command. A row's figures are medians of its runs;
its error is the median prediction against the median step. Takes about eight minutes; needs 3 GiB in FOLDER, and nothing
else running.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL = {"n_embd": 192, "n_layer": 6, "n_head": 6, "vocab_size": 4096}
MIDDLE = {"n_embd": 512, "n_layer": 6, "n_head": 8, "vocab_size": 8192}
LARGE = {"n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 8192}

STATE = {"weights": "host", "state": "nvme"}
ALL = {"weights": "nvme", "state": "nvme"}
NONE = {"weights": "host", "state": "host"}


def row(name, model, tokens, homes, update="speculative", **more):
    """tokens: of a micro-batch. more: micro_batches, precision, host (MiB), waits (ms a visit, in place of compute)."""
    return {"name": name, "model": model, "tokens": tokens, "homes": homes, "update": update, **more}


ROWS = [
    row("3 M, 128 tokens", SMALL, 128, STATE),
    row("3 M, 512 tokens, fp32, deferred", SMALL, 512, STATE, "deferred", precision="fp32"),
    row("23 M, 128 tokens, deferred", MIDDLE, 128, STATE, "deferred"),
    row("23 M, 256 tokens", MIDDLE, 256, STATE),
    row("23 M, 4 x 128 tokens", MIDDLE, 128, STATE, micro_batches=4),
    row("23 M, 128 tokens, fp32", MIDDLE, 128, STATE, precision="fp32"),
    row("23 M, 128 tokens, all on NVMe", MIDDLE, 128, ALL),
    row("23 M, 128 tokens, little host memory, deferred", MIDDLE, 128, ALL, "deferred", host=80),
    row("23 M, 256 tokens, nothing on NVMe", MIDDLE, 256, NONE),
    row("49 M, 128 tokens", LARGE, 128, STATE),
    row("49 M, 128 tokens, all on NVMe, deferred", LARGE, 128, ALL, "deferred"),
    row("23 M, waits of 1 ms, deferred", MIDDLE, 128, STATE, "deferred", waits=1),
    row("23 M, waits of 8 ms", MIDDLE, 128, STATE, waits=8),
    row("49 M, waits of 4 ms, all on NVMe", LARGE, 128, ALL, waits=4),
]


def configuration(row, drive):
    micro_batches = row.get("micro_batches", 1)
    return {
        "model": {"type": "gpt2", "n_positions": row["tokens"], **row["model"]},
        "data": {"tokenizer": "byte", "sequence_length": row["tokens"]},
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_batches,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "bf16": {"enabled": row.get("precision", "bf16") == "bf16"},
        "sluice": {
            "device": "cpu",
            "device_memory": "512MiB",
            "host_memory": f"{row.get('host', 1024)}MiB",
            "nvme": [drive],
            "placement": row["homes"],
            "commit_interval": 1,
            "update": row["update"],
        },
    }


def run(row, arguments, folder):
    config = Path(folder) / "run.json"
    config.write_text(json.dumps(configuration(row, arguments.drive)))
    command = [arguments.sluice, "bench", "step", str(config), "--json", "--rounds", "1", "--steps", "3"]
    if "waits" in row:
        command += ["--compute-ms-per-visit", str(row["waits"])]
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode != 0:
        sys.exit(f"{row['name']}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)


def measure(arguments):
    runs = [[] for _ in ROWS]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.runs):
            for which, row in enumerate(ROWS):
                print(f"run {number + 1} of {arguments.runs}: {row['name']:<60}", end="\r", file=sys.stderr)
                runs[which].append(run(row, arguments, folder))
    print(file=sys.stderr)
    return runs


def figures_of(row, runs):
    measured = statistics.median(each["step_ms"] for each in runs)
    predicted = statistics.median(each["predicted_step_ms"] for each in runs)
    return {
        "name": row["name"],
        "binding": statistics.mode(each["binding_lane"] for each in runs),
        "measured_ms": measured,
        "predicted_ms": predicted,
        "error": predicted / measured - 1,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--drive", required=True, help="a folder on the drive to use")
    parser.add_argument("--runs", type=int, default=5, help="of each configuration")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    arguments = parser.parse_args()
    arguments.drive = str(Path(arguments.drive).resolve())
    figures = [figures_of(row, runs) for row, runs in zip(ROWS, measure(arguments))]
    errors = sorted(abs(each["error"]) for each in figures)
    summary = {"rows": figures, "median_error": statistics.median(errors), "worst_error": errors[-1]}
    if arguments.json:
        print(json.dumps(summary))
        return
    print(f"{'configuration':<48}{'bound by':>10}{'measured':>12}{'predicted':>12}{'error':>8}")
    for each in figures:
        print(
            f"{each['name']:<48}{each['binding']:>10}{each['measured_ms']:>9.1f} ms{each['predicted_ms']:>9.1f} ms"
            f"{100 * each['error']:>+6.0f} %"
        )
    print(f"median error {100 * summary['median_error']:.0f} %, worst {100 * summary['worst_error']:.0f} %")


if __name__ == "__main__":
    main()
