"""Step times that data sheets predict: GPT-style models of 7 to 175 billion parameters on published machine shapes.

    python bench/data_sheets.py --sluice build/release/sluice [--machines bench/machines] [--models 7,13,70,175]

Prints the Markdown table of bench/README.md. Every row is `sluice plan --machine FILE`: the program that a run would
execute, simulated with the speeds of the file, each of which names its source there. Nothing is measured. A step has
8192 tokens, sequences of 2048.

Sluice has one rank: a machine with N GPUs is one device with N times one's speeds and memory, as if every record lived
on one of N ranks and the exchange of weights and gradients between them took no time. What that exchange moves at the
least (both fetches of the weights, one reduction of the gradients, over NVLink) stands in a column of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SEQUENCE, SAMPLES = 2048, 4

# Billions of parameters: shapes of GPT-3 (Brown et al. 2020, table 2.1), but for 70, whose width is that of the
# published step times below.
MODELS = {
    7: {"n_embd": 4096, "n_layer": 32, "n_head": 32},
    13: {"n_embd": 5120, "n_layer": 40, "n_head": 40},
    70: {"n_embd": 8192, "n_layer": 86, "n_head": 64},
    175: {"n_embd": 12288, "n_layer": 96, "n_head": 96},
}


class Machine:
    """micro: samples of a micro-batch. nvlink_gb_per_s: of one GPU, one way. only: of all models these."""

    def __init__(self, words, file, gpus, device, host, drives, micro, nvlink_gb_per_s=0, tiles=1, only=None):
        self.words, self.file, self.gpus, self.device, self.host = words, file, gpus, device, host
        self.drives, self.micro, self.nvlink_gb_per_s, self.tiles = drives, micro, nvlink_gb_per_s, tiles
        self.only = only or MODELS


# Budgets: nine tenths of the devices' memory, seven eighths of the host's.
MACHINES = [
    Machine("RTX 4090, 128 GB, 1 drive", "rtx4090_1_drive.json", 1, "21GiB", "104GiB", 1, 1, tiles=4),
    Machine("4 x A100, 512 GB, 1 drive", "a100_x4_1_drive.json", 4, "268GiB", "417GiB", 1, 4, 300, only=[70]),
    Machine("4 x A100, 512 GB, 4 drives", "a100_x4_4_drives.json", 4, "268GiB", "417GiB", 4, 4, 300),
    Machine("8 x H200, 2 TB, 8 drives", "h200_x8_8_drives.json", 8, "945GiB", "1630GiB", 8, 4, 450),
]


def configuration(model, machine):
    return {
        "model": {
            "type": "gpt2",
            "vocab_size": 50257,
            "n_positions": SEQUENCE,
            **model,
            "tiling": {"linear": machine.tiles, "embedding": machine.tiles},
        },
        "data": {"tokenizer": "byte", "sequence_length": SEQUENCE},
        "train_batch_size": SAMPLES,
        "train_micro_batch_size_per_gpu": machine.micro,
        "bf16": {"enabled": True},
        "sluice": {
            "device_memory": machine.device,
            "host_memory": machine.host,
            "nvme": [f"drive{number}" for number in range(machine.drives)],
        },
    }


def plan(model, machine, arguments):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.json"
        config.write_text(json.dumps(configuration(model, machine)))
        command = [arguments.sluice, "plan", str(config), "--json", "--machine", str(arguments.machines / machine.file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{machine.words}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)


def exchange_seconds(parameters, machine):
    if machine.gpus == 1:
        return 0.0
    received = 3 * 2 * parameters * (machine.gpus - 1) / machine.gpus  # bytes a GPU: twice the weights, once gradients
    return received / machine.nvlink_gb_per_s / 1e9


def row(billions, machine, arguments):
    print(f"{billions} B, {machine.words}", file=sys.stderr)
    planned = plan(MODELS[billions], machine, arguments)
    prediction, moved = planned["prediction"], planned["moves_per_step"]
    seconds = prediction["step_ms"] / 1e3
    alone = ", ".join(f"{name} {ms / 1e3:.1f}" for name, ms in prediction["alone_ms"].items())
    nvme_gb = sum(each["bytes"] for each in moved if each["link"].startswith("nvme")) / 1e9
    exchange = exchange_seconds(planned["parameters"], machine)
    return (
        f"| {machine.words} | {planned['parameters'] / 1e9:.1f} B | {seconds:.1f} | {prediction['binding']} | {alone} "
        f"| {nvme_gb:.0f} | {SEQUENCE * SAMPLES / seconds:.0f} | {planned['commit_interval']} | {f'{exchange:.1f}' if exchange else '-'} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default="build/release/sluice", help="the command")
    parser.add_argument("--machines", type=Path, default=Path(__file__).parent / "machines", help="folder of the files")
    parser.add_argument("--models", default="7,13,70,175", help="billions of parameters")
    arguments = parser.parse_args()
    models = [int(each) for each in arguments.models.split(",")]
    columns = ["machine", "parameters", "predicted step, s", "bound by", "alone, s", "NVMe, GB a step", "tokens/s"]
    columns += ["commit every", "exchange, s"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for machine in MACHINES:
        for billions in (each for each in models if each in machine.only):
            print(row(billions, machine, arguments), flush=True)


if __name__ == "__main__":
    main()
