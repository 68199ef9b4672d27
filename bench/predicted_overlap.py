"""How long predicted steps are beside their longest resource, over random configurations.

    python bench/predicted_overlap.py [--sluice build/release/sluice] [--machine bench/machines/rtx4090_1_drive.json]
                                      [--count 60] [--seed 1]

Models of 0.1 to 1.2 billion parameters, homes, budgets and micro-batches are drawn by chance, and so is the machine's compute
speed: from a third of the time that the drive needs to three times it. Nothing is measured: each row is `sluice plan --json`.
The aims are those of the README: an efficiency of 0.90 where one resource takes 1.3 times what the others take, 0.80 where the
longest two are equal within 10 %; between the two, 0.85. Rows beneath them begin with "LOW".
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SHAPES = [(12, 768, 512), (12, 768, 1024), (24, 1024, 512), (24, 1024, 1024)]
SHAPES += [(24, 1280, 512), (36, 1280, 256), (12, 1536, 512), (20, 2048, 512)]  # layers, width, tokens
DRIVE_S_A_PARAMETER = 3.1e-9  # with all state there, about
FLOPS_A_TOKEN_AND_PARAMETER = 8  # the forward twice


def draw(chance, machine):
    layers, width, tokens = chance.choice(SHAPES)
    micro_batches, words = chance.choice([1, 1, 2, 4, 8]), chance.choice([4096, 8192, 32768])
    homes = {
        "state": chance.choice(["nvme", "nvme", "nvme", "auto"]),
        "weights": chance.choice(["auto", "host", "nvme"]),
        "gradient": chance.choice(["auto", "auto", "nvme", "host"]),
        "activations": chance.choice(["auto", "auto", "host", "nvme", "device"]),
    }
    config = {
        "model": {"type": "gpt2", "vocab_size": words, "n_positions": tokens, "n_embd": width, "n_layer": layers, "n_head": width // 64},
        "data": {"tokenizer": "byte", "sequence_length": tokens},
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_batches,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "sluice": {
            "device": "cpu", "commit_interval": 1, "placement": homes,
            "device_memory": chance.choice(["256MiB", "512MiB", "1GiB"]),
            "host_memory": chance.choice(["1GiB", "1536MiB", "2GiB", "4GiB"]),
            "update": chance.choice(["auto", "speculative"]),
            "recompute": chance.choice(["always", "auto"]),
        },
    }  # fmt: skip
    parameters = 12 * layers * width**2 + (words + tokens) * width
    flops = FLOPS_A_TOKEN_AND_PARAMETER * parameters * tokens * micro_batches
    of_drive = chance.choice([0.3, 0.7, 1, 1, 1.4, 3])
    speed = of_drive * flops / (parameters * DRIVE_S_A_PARAMETER) / 1e12
    return config, {**machine, "compute_tflop_per_s": speed}


def words_of(config):
    model, sluice = config["model"], config["sluice"]
    homes = ", ".join(f"{group} {home}" for group, home in sluice["placement"].items() if home != "auto")
    shape = f"{model['n_layer']} x {model['n_embd']}, vocabulary {model['vocab_size']}, {model['n_positions']} tokens"
    batch = f"{config['gradient_accumulation_steps']} micro-batches"
    return f"{shape}, {batch}, {sluice['device_memory']} + {sluice['host_memory']}, {sluice['update']}, {homes}"


def plan(config, machine, sluice, folder):
    paths = [Path(folder) / "run.json", Path(folder) / "machine.json"]
    for path, content in zip(paths, (config, machine)):
        path.write_text(json.dumps(content))
    command = [sluice, "plan", str(paths[0]), "--machine", str(paths[1]), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return json.loads(ended.stdout)["prediction"]
    if "budgets are too small" not in ended.stderr:
        sys.exit(f"{' '.join(command)}: {ended.stderr.strip()}")
    return None


def aim(shares):
    return 0.90 if shares >= 1.3 else 0.80 if shares < 1.1 else 0.85


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--machine", default="bench/machines/rtx4090_1_drive.json", help="its speeds but for compute")
    parser.add_argument("--count", type=int, default=60, help="configurations")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    machine = json.loads(Path(arguments.machine).read_text())
    low = refused = 0
    least = 1
    for _ in range(arguments.count):
        config, here = draw(chance, machine)
        with tempfile.TemporaryDirectory() as folder:
            prediction = plan(config, here, arguments.sluice, folder)
        if prediction is None:
            refused += 1
            continue
        alone = prediction["alone_ms"]
        second, longest = sorted(alone.values())[-2:]
        efficiency = longest / prediction["step_ms"]
        is_low = efficiency < aim(longest / second)
        low += is_low
        least = min(least, efficiency)
        times = ", ".join(f"{lane} {ms:.0f}" for lane, ms in alone.items())
        mark = "LOW" if is_low else "   "
        print(f"{mark} {efficiency:.2f} step {prediction['step_ms']:.0f} ms ({times}): {words_of(config)}", flush=True)
    print(f"{arguments.count - refused} planned, {low} beneath the aims, the least {least:.2f}; {refused} do not fit")


if __name__ == "__main__":
    main()
