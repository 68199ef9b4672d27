"""Loss curves of runs beside each other, as an SVG.

    python bench/loss_curves.py OUT.svg NAME=RUN_FOLDER [NAME=RUN_FOLDER]... [--mean 20]

Each point is the mean of --mean steps; the lower panel is each run's difference from the first. Needs matplotlib.
"""

import argparse
import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "sluice"  # the same file from the same runs
import matplotlib.pyplot as plt  # noqa: E402


def losses_of(folder):
    lines = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def means(losses, steps):
    return [statistics.mean(losses[first : first + steps]) for first in range(0, len(losses) - steps + 1, steps)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN_FOLDER")
    parser.add_argument("--mean", type=int, default=20, help="steps of a point")
    arguments = parser.parse_args()
    curves = {name: means(losses_of(folder), arguments.mean) for name, folder in (run.split("=", 1) for run in arguments.runs)}
    first = next(iter(curves.values()))
    figure, (loss, difference) = plt.subplots(2, 1, sharex=True, figsize=(8, 5), height_ratios=(3, 1), layout="constrained")
    for name, curve in curves.items():
        steps = [arguments.mean * (point + 1) for point in range(len(curve))]
        loss.plot(steps, curve, label=f"{name}: last {curve[-1]:.3f}", linewidth=1.5)
        difference.plot(steps[: len(first)], [mine - theirs for mine, theirs in zip(curve, first)], linewidth=1.5)
    loss.set_ylabel(f"training loss, mean of {arguments.mean} steps")
    loss.legend()
    difference.set_ylabel("difference")
    difference.set_xlabel("step")
    for axes in (loss, difference):
        axes.grid(alpha=0.3)
    figure.savefig(arguments.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
