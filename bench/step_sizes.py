"""How well lanes overlap, and how a step's time grows, from 0.1 to 1.2 billion parameters.

    python bench/step_sizes.py --drive FOLDER [--sluice build/release/sluice] [--layers 8 24 48 96] [--balance 24]

Each row is `sluice bench step` with waits in place of compute, so that compute can be set against the drive as a GPU
machine would have it: a first call measures both. "balance" rows are of one size, state on NVMe and weights in host
memory, with compute that is faster than the drive by 1.5, equal, and slower by 1.5, with the clip not engaging; then with
the clip engaging in every step, with updates deferred, with weights and gradients on NVMe too, and with activations there
too. Rows of sizes have weights, state and gradients at home on NVMe and the same budgets. Needs 26 bytes a parameter in
FOLDER (31 GB for 1.2 billion, one size at a time), and nothing else running.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH, PARAMETERS_A_LAYER = 1024, 12 * 1024**2 + 13 * 1024
ALL_ON_NVME = {"host_memory": "768MiB", "placement": {"weights": "nvme", "state": "nvme", "gradient": "nvme"}}
STATE_ON_NVME = {"host_memory": "2GiB", "placement": {"weights": "host", "state": "nvme"}}
ACTIVATIONS_TOO = {"host_memory": "2GiB", "placement": {"weights": "host", "state": "nvme", "activations": "nvme"}}


def configuration(layers, drive, homes, clipping=1.0, update="auto"):
    return {
        "model": {"type": "gpt2", "n_positions": 128, "n_embd": WIDTH, "n_layer": layers, "n_head": 16, "vocab_size": 256},
        "data": {"tokenizer": "byte", "sequence_length": 128},
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "gradient_clipping": clipping,
        "bf16": {"enabled": True},
        "sluice": {
            "device": "cpu", "device_memory": "512MiB", "nvme": [drive], "commit_interval": 1, "update": update,
            **homes,
        },
    }  # fmt: skip


def bench_step(config, waits, sluice, turns):
    """`turns`: rounds and steps of each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_text(json.dumps(config))
        command = [sluice, "bench", "step", str(path), "--json", "--compute-ms-per-visit", f"{waits:.3f}"]
        command += ["--rounds", str(turns[0]), "--steps", str(turns[1])]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)


def show(name, found):
    replays = ", ".join(f"{lane} {found['replay_ms'][lane]:.0f}" for lane in ("nvme", "cpu", "copies", "compute"))
    reached = " ".join(f"{found['replay_percent_of_ceiling'][lane]:.0f}" for lane in ("nvme", "cpu", "copies"))
    print(
        f"| {name} | {found['step_ms']:.0f} | {replays} | {reached} | {found['overlap_efficiency']:.2f} | {found['binding_lane']} "
        f"| {found['predicted_step_ms']:.0f} |",
        flush=True,
    )


def header(first):
    columns = [first, "step, ms", "replayed alone, ms", "nvme, cpu, copies: % of the ceiling", "efficiency", "bound by", "predicted, ms"]
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")


def balance(layers, arguments):
    """Compute against the drive: (what the row is called, compute by drive, what else the configuration says)."""
    waits = 10
    config = configuration(layers, arguments.drive, STATE_ON_NVME)
    measured = bench_step(config, waits, arguments.sluice, (2, 2))["replay_ms"]
    waits_of_equal = waits * measured["nvme"] / measured["compute"]
    rows = [("compute 1/1.5 of NVMe", 1 / 1.5, {}), ("compute equal to NVMe", 1, {}), ("compute 1.5 of NVMe", 1.5, {})]
    more_rows = [("clip in every step", {"clipping": 0.01}), ("deferred", {"update": "deferred"})]
    more_rows += [("weights and gradients on NVMe too", {"homes": ALL_ON_NVME})]
    more_rows += [("activations on NVMe too", {"homes": ACTIVATIONS_TOO})]
    rows += [(f"{name}, {words}", by, more) for words, more in more_rows for name, by, _ in rows]
    header(f"{layers * PARAMETERS_A_LAYER / 1e9:.2f} B parameters")
    for name, by, more in rows:
        config = configuration(layers, arguments.drive, **{"homes": STATE_ON_NVME, **more})
        show(name, bench_step(config, by * waits_of_equal, arguments.sluice, (3, 4)))


def sizes(arguments):
    header("parameters, updates deferred")
    per_parameter = []
    for layers in arguments.layers:
        parameters = layers * PARAMETERS_A_LAYER
        config = configuration(layers, arguments.drive, ALL_ON_NVME, update="deferred")
        found = bench_step(config, 0.1, arguments.sluice, (1, 3))
        per_parameter.append(found["step_ms"] / parameters * 1e6)
        show(f"{parameters / 1e9:.2f} B", found)
    middle = statistics.median(per_parameter)
    spread = max(abs(each / middle - 1) for each in per_parameter)
    each = ", ".join(f"{value:.3f}" for value in per_parameter)
    print(f"\nns a parameter: {each}; at most {100 * spread:.0f} % from their median")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--drive", required=True, help="a folder on the drive to use")
    parser.add_argument("--layers", type=int, nargs="*", default=[8, 24, 48, 96], help="sizes, 12.6 M parameters a layer")
    parser.add_argument("--balance", type=int, nargs="*", default=[24], help="sizes whose compute is set against the drive")
    arguments = parser.parse_args()
    arguments.drive = os.path.realpath(arguments.drive)
    for layers in arguments.balance:
        balance(layers, arguments)
    if arguments.layers:
        sizes(arguments)


if __name__ == "__main__":
    main()
