"""Packs the suite for GPU machines and runs its small part from another folder, on this machine.

Usage: gpu_suite_test.py SOURCE_FOLDER BUILD_FOLDER TORCH_DIR
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run(command, torch_dir=None):
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH_DIR", "LD_LIBRARY_PATH")}
    if torch_dir:
        environment["TORCH_DIR"] = str(torch_dir)
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def expect(condition, words):
    if not condition:
        sys.exit(words)


def check_results(folder):
    results = json.loads((folder / "results.json").read_text())
    expect(results["device"] == "cpu", f"the device is {results['device']}")
    expect(results["demo"]["steps"] == 1, "the demo made no step")
    expect(all(test["passed"] + test["skipped"] > 0 for test in results["tests"].values()), "a test program ran no test")
    reasons = sum((test["reasons"] for test in results["tests"].values()), [])
    expect(any("GPU" in reason for reason in reasons), f"nothing was skipped for want of a GPU: {reasons}")
    expect([row["home"] for row in results["steps"]] == ["host"] * 2 + ["NVMe"] * 2 + ["device"] * 2, "steps are missing")
    for row in results["steps"]:
        expect(row["step_ms"] > 0 and row["exposed_ms"].keys() >= {"read", "upload"}, f"no figures: {row}")
    check_critical(results["critical"])
    tables = (folder / "results.md").read_text()
    for words in ("tokens/s", "close_gradient", "NVMe to device", "efficiency", "ratio (at most 1.05)"):
        expect(words in tables, f"the tables have no {words}")


def check_critical(critical):
    rows = critical.get("rows", [])
    expect(len(rows) == 2, f"no step at and above the critical batch: {critical}")
    expect(rows[0]["tokens"] >= critical["critical_tokens"], f"a step below the critical batch: {critical}")
    expect(rows[1]["tokens"] == 2 * rows[0]["tokens"], f"a step at the critical batch alone: {critical}")
    for row in rows:
        expect(row["host_ms"] > 0 and row["graphs_kept_ms"] > 0, f"no figures: {row}")
        expect(abs(row["ratio"] - row["host_ms"] / row["device_ms"]) < 1e-9, f"not a ratio of the two steps: {row}")


def main():
    source, build, torch_dir = map(Path, sys.argv[1:4])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        archive = root / "suite.tar.gz"
        status, said = run([source / "scripts" / "gpu_suite.sh", build, archive])
        expect(status == 0, said)
        subprocess.run(["tar", "-xzf", archive, "-C", root], check=True)
        suite = root / "sluice_gpu_suite"
        libraries = [file.name for file in (suite / "lib").iterdir()]
        expect(not [name for name in libraries if "torch" in name or name.startswith("libc.")], f"packed: {libraries}")

        start = suite / "run_suite.sh"
        status, said = run([start])
        expect(status != 0 and "TORCH_DIR is not set" in said, said)
        other = root / "torch"
        other.mkdir()
        (other / "version.py").write_text("__version__ = '1.0'\n")
        status, said = run([start], other)
        expect(status != 0 and "torch 1.0" in said, said)

        status, said = run([start, "--device", "cpu", "--demo-steps", "1", "--out", root / "out"], torch_dir)
        print(said)
        expect(status == 0, "the suite failed")
        expect("left out of the small part" in said, "nothing says what is left out")
        status, said = run([start, "--device", "cpu", "--only", "demo,kernels", "--out", root / "out"], torch_dir)
        expect(status == 2 and "there is no kernels" in said, f"a part that is not there: {said}")
        again = ["--device", "cpu", "--only", "demo", "--demo-steps", "1", "--out", root / "out"]
        status, said = run([start, *again], torch_dir)
        expect(status == 0 and "goal" not in said, f"a part alone: {said}")
        check_results(root / "out")


main()
