"""Tests and benchmarks of a packed build, on the machine at hand (scripts/gpu_suite.sh packs, run_suite.sh calls this).

Prints every part's end as it comes. OUT/results.json has all of it, OUT/results.md the tables for bench/README.md. A part
that cannot run here says why; where one fails the others still run, and the exit status is 1.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Programs, and which of their tests; of the small part those with a filter of its own.
TESTS = {
    "device_test": "*",
    "device_kernels_test": "*",
    "gradient_kernels_test": "*",
    "update_kernel_test": "*",
    "engine_device_state_test": "*",
    "engine_machine_probe_test": "*DeviceSpeedsOf*",
    "engine_placement_test": "*",
    "engine_kill_test": "*",
    "cuda_module_test": "*",
    "gpt2_cuda_test": "OnCuda*",
    "models_test": "*",
    "app_kill_test": "*",
    "app_command_test": "*",
}
SMALL_TESTS = {
    "device_test": "*",
    "engine_device_state_test": "*EveryOptimizer*",
    "engine_kill_test": "*deferred",
    "gpt2_cuda_test": "OnCuda*",
}

GPT2 = {"type": "gpt2", "vocab_size": 50257, "n_positions": 1024}
MODELS = {  # and samples of a micro-batch
    "GPT-2 small, 124 M": ({**GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12}, 16),
    "GPT-2 XL, 1.5 B": ({**GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25}, 8),
}
SMALL_MODELS = {
    "small": ({"type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 2}, 2)
}
HOMES = {
    "host": {"weights": "host", "state": "host"},
    "NVMe": {"weights": "nvme", "state": "nvme"},
    "device": {"state": "device"},
}
KERNELS = ["update", "add_gradient", "close_gradient"]
FORMATS = [[], ["--precision", "fp16"], ["--precision", "fp32"], ["--moments", "bf16"]]  # of the kernels' benchmark
# What a GPU should reach: a step with all state in host memory by one of the same operations with everything on the
# device, at the critical batch and above; copies in percent of the link's best; kernels in percent of a copy's.
MOST_OF_DEVICE = 1.05
LEAST_OF_LINK = 95
LEAST_OF_MEMORY = 85
MOST_MICRO_BATCHES = 64  # of a step that is tried for it


class Suite:
    def __init__(self, arguments):
        self.arguments = arguments
        self.out = arguments.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.device, self.why = chosen_device(arguments.device)
        if self.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # nothing here sees a GPU
        self.computes_on = ["--device", self.device]
        self.small = arguments.small or self.device == "cpu"
        self.failed = []
        about = {"device": self.device, "torch": read(HERE / "torch_version"), "commit": read(HERE / "commit")}
        about["small"] = self.small
        self.results = self.results_before(about) | about | {"machine": self.run(["info"]).stdout}

    def results_before(self, about):
        """Parts that ran here before, of this build, size and kind of device: --only goes on with them."""
        file = self.out / "results.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        return before if all(before.get(key) == value for key, value in about.items()) else {}

    def keep(self, part, result):
        self.results[part] = result
        (self.out / "results.json").write_text(json.dumps(self.results, indent=2) + "\n")
        (self.out / "results.md").write_text(markdown(self.results))

    def run(self, command, timeout=1800):
        """The command's end; it is not judged."""
        command = [str(HERE / "bin" / "sluice"), *map(str, command)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", f"longer than {timeout} s")

    def figures(self, name, command):
        """What a benchmark prints as JSON, or why there is none."""
        begin = time.monotonic()
        ended = self.run([*command, "--json"])
        if ended.returncode != 0:
            return self.fail(name, last_line(ended.stderr))
        say(f"{name}: {time.monotonic() - begin:.0f} s")
        try:
            return json.loads(ended.stdout)
        except json.JSONDecodeError as error:
            return self.fail(name, f"what it printed is not JSON: {error}")

    def fail(self, name, reason):
        self.failed.append(name)
        say(f"{name}: FAILED: {reason}")
        return {"failed": reason}

    def tests(self):
        chosen = SMALL_TESTS if self.small else TESTS
        for name in TESTS.keys() - chosen.keys():
            say(f"{name}: left out of the small part")
        results = {}
        for name in chosen:
            results[name] = self.test(name, chosen[name])
            self.keep("tests", results)  # a machine may be taken away before the last
        return results

    def environment(self, name):
        """Stores go to the drive. Whole runs that are killed and resumed compute where the rest of the suite does."""
        settings = {"TMPDIR": str(self.drive()), "OMP_WAIT_POLICY": "passive"}
        return os.environ | settings | ({"SLUICE_TEST_DEVICE": self.device} if name == "app_kill_test" else {})

    def test(self, name, only):
        report = self.out / f"{name}.xml"
        report.unlink(missing_ok=True)
        command = [str(HERE / "bin" / name), f"--gtest_filter={only}", f"--gtest_output=xml:{report}"]
        with open(self.out / f"{name}.log", "w") as log:
            try:
                status = subprocess.run(
                    command, stdout=log, stderr=log, timeout=900, check=False, env=self.environment(name)
                ).returncode
            except subprocess.TimeoutExpired:
                return self.fail(name, "longer than 900 s")
        if not report.exists():
            return self.fail(name, f"no report; see {log.name}")
        cases = list(ElementTree.parse(report).iter("testcase"))
        failed = [f"{case.get('classname')}.{case.get('name')}" for case in cases if case.find("failure") is not None]
        skipped = [case.find("skipped") for case in cases if case.find("skipped") is not None]
        reasons = sorted({last_line(reason.get("message", "")) for reason in skipped})
        counts = {"passed": len(cases) - len(failed) - len(skipped), "skipped": len(skipped), "reasons": reasons}
        if not cases:
            return {**counts, **self.fail(name, f"it has no test {only}")}
        if status != 0 or failed:
            return {**counts, **self.fail(name, f"{', '.join(failed) or f'ended with {status}'}; see {log.name}")}
        if self.device == "cuda" and any(reason.startswith("no GPU") for reason in reasons):
            return {**counts, **self.fail(name, f"skipped where a GPU is to be tested: {reasons}")}
        say(f"{name}: {counts['passed']} passed, {counts['skipped']} skipped" + "".join(f"; {each}" for each in reasons))
        return counts

    def demo(self):
        run = self.out / "demo"
        shutil.rmtree(run, ignore_errors=True)
        # The configuration is a CPU's: on a GPU cuBLAS alone takes half of its device memory.
        room = ["--set", "sluice.device_memory=256MiB"] if self.device == "cuda" else []
        ended = self.run(
            ["train", HERE / "configs" / "demo.json", "--data", HERE / "text", "--out", run]
            + ["--steps", self.arguments.demo_steps, *self.computes_on, *room]
        )
        if ended.returncode != 0:
            return self.fail("demo", last_line(ended.stderr))
        steps = [json.loads(line) for line in read(run / "metrics.jsonl").splitlines()]
        steps = [step for step in steps if "loss" in step]
        shutil.rmtree(run)
        say(f"demo: {len(steps)} steps, loss {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}")
        return {"steps": len(steps), "first_loss": steps[0]["loss"], "last_loss": steps[-1]["loss"]}

    def copy(self):
        size = "64MiB" if self.small else "1GiB"
        return self.figures("bench copy", ["bench", "copy", "--device", self.device, "--size", size, "--path", self.drive()])

    def adam(self):
        formats = FORMATS[:1] if self.small else FORMATS
        named = {" ".join(each).replace("--", "") or "precision bf16": each for each in formats}
        return {
            name: self.figures(f"bench adam, {name}", ["bench", "adam", "--device", self.device, *each])
            for name, each in named.items()
        }

    def steps(self):
        rows = []
        for model, (shape, samples) in (SMALL_MODELS if self.small else MODELS).items():
            for home in HOMES:
                for micro_batches in (1, 4):
                    rows.append(self.step(model, shape, samples, home, micro_batches))
                    self.keep("steps", rows)
        return rows

    def step(self, model, shape, samples, home, micro_batches, recompute="auto"):
        row = {"model": model, "home": home, "tokens": samples * micro_batches * shape["n_positions"]}
        config = self.write_config(shape, samples, home, micro_batches, recompute)
        rounds = ["--rounds", 1 if self.small else 2]
        name = f"step of {model}, {row['tokens']} tokens, {home}"
        return row | self.figures(name, ["bench", "step", config, *self.computes_on, *rounds])

    def critical(self):
        """State in host memory against everything on the device, at the critical batch and at twice as much."""
        model, (shape, samples) = next(iter((SMALL_MODELS if self.small else MODELS).items()))
        of_micro_batch = samples * shape["n_positions"]
        name = f"critical batch of {model}"
        plan = ["plan", self.write_config(shape, samples, "host", 1, "always"), *self.computes_on]
        planned = self.figures(name, plan)
        if "failed" in planned:
            return planned
        tokens = (planned["prediction"] or {}).get("critical_tokens")
        if tokens is None:
            return self.leave_out(name, "compute is predicted to be the longest with no number of tokens a step")
        if tokens > MOST_MICRO_BATCHES * of_micro_batch:
            return self.leave_out(name, f"{tokens} tokens are more than {MOST_MICRO_BATCHES} micro-batches")
        at = max(1, math.ceil(tokens / of_micro_batch))
        rows = [self.against_device(model, shape, samples, micro_batches) for micro_batches in (at, 2 * at)]
        return {"model": model, "critical_tokens": tokens, "most": MOST_OF_DEVICE, "rows": rows}

    def against_device(self, model, shape, samples, micro_batches):
        host = self.step(model, shape, samples, "host", micro_batches, "always")
        device = self.step(model, shape, samples, "device", micro_batches, "always")
        graphs = self.step(model, shape, samples, "device", micro_batches)  # kept: less is computed
        row = {"tokens": host["tokens"], "micro_batches": micro_batches}
        if any("failed" in step for step in (host, device, graphs)):
            return row | {"failed": "a step of it failed"}
        row |= {"host_ms": host["step_ms"], "device_ms": device["step_ms"], "graphs_kept_ms": graphs["step_ms"]}
        return row | {"ratio": row["host_ms"] / row["device_ms"], "binding_lane": host["binding_lane"]}

    def leave_out(self, name, reason):
        say(f"{name}: left out: {reason}")
        return {"left_out": reason}

    def write_config(self, *step):
        config = self.out / "step.json"
        config.write_text(json.dumps(self.configuration(*step)))
        return config

    def configuration(self, shape, samples, home, micro_batches, recompute):
        budgets = {"device_memory": self.arguments.device_memory, "host_memory": self.arguments.host_memory}
        if self.small:
            budgets = dict.fromkeys(budgets, "64MiB")
        return {
            "model": shape,
            "data": {"tokenizer": "byte", "sequence_length": shape["n_positions"]},
            "train_micro_batch_size_per_gpu": samples,
            "gradient_accumulation_steps": micro_batches,
            "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "sluice": {
                "nvme": [str(self.drive())],
                "placement": HOMES[home],
                "recompute": recompute,
            }
            | {key: budget for key, budget in budgets.items() if budget},
        }

    def drive(self):
        folder = (self.arguments.drive or self.out / "drive").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def chosen_device(wanted):
    """cuda or cpu, and why not a GPU."""
    if wanted != "auto":
        return wanted, ""
    if shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0:
        return "cuda", ""
    return "cpu", "no GPU answers nvidia-smi: the small part runs on the CPU"


def read(path):
    return path.read_text().strip() if path.exists() else "unknown"


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def say(words):
    print(words, flush=True)


def table(columns, rows):
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows]) + "\n\n"


def percent(figure):
    return f"{figure['gb_per_s']:.1f} ({figure['percent_of_ceiling']:.0f})"


def markdown(results):
    """Tables of what there is; GB/s with percent of the ceiling in brackets."""
    text = f"Device {results['device']}, torch {results['torch']}, commit {results['commit']}.\n\n"
    copy = results.get("copy", {})
    if "copies" in copy:
        rows = [[each["bytes"], *(percent(each[way]) for way in ("upload", "download", "both"))] for each in copy["copies"]]
        text += copy["device"] + "\n\n" + table(["bytes of a copy", "upload, GB/s (%)", "download", "both"], rows)
        text += f"NVMe to device: {percent(copy['nvme_to_device'])}\n\n" if "nvme_to_device" in copy else ""
    rows = [
        [name, f"{adam['ceiling_gb_per_s']:.0f}", *(percent(adam[each]) for each in KERNELS)]
        for name, adam in measured_kernels(results).items()
    ]
    text += table(["kernels of", "a copy, GB/s", *(f"{each}, GB/s (%)" for each in KERNELS)], rows) if rows else ""
    steps = [row for row in results.get("steps", []) if "step_ms" in row]
    if steps:
        lanes = list(steps[0]["exposed_ms"])
        columns = ["model", "weights, state", "tokens a step", "step, ms", "tokens/s", "TFLOP/s", "efficiency", "longest"]
        rows = [
            [row["model"], row["home"], row["tokens"], f"{row['step_ms']:.1f}", f"{row['tokens_per_s']:.0f}"]
            + [f"{row['tflop_per_s']:.1f}", f"{row['overlap_efficiency']:.2f}", row["binding_lane"]]
            + [f"{row['exposed_ms'][lane]:.1f}" for lane in lanes]
            for row in steps
        ]
        text += table(columns + [f"{lane} beside no compute, ms" for lane in lanes], rows)
    text += critical_markdown(results.get("critical", {}))
    rows = [[goal, figure, "met" if met else "missed"] for goal, figure, met in goals(results)]
    return text + (table(["goal", "worst figure", "end"], rows) if rows else "")


def measured_kernels(results):
    return {name: adam for name, adam in results.get("adam", {}).items() if "ceiling_gb_per_s" in adam}


def goals(results):
    """What a GPU should reach, the worst figure of each, and whether it does; of what was measured on a GPU."""
    if results["device"] != "cuda":
        return
    copies = results.get("copy", {}).get("copies", [])
    large = [each[way]["percent_of_ceiling"] for each in copies[-1:] for way in ("upload", "download", "both")]
    adam = measured_kernels(results).values()
    of_memory = [each[kernel]["percent_of_ceiling"] for each in adam for kernel in KERNELS]
    ratios = [row["ratio"] for row in results.get("critical", {}).get("rows", []) if "ratio" in row]
    if large:
        worst = min(large)
        yield f"the largest copies reach {LEAST_OF_LINK} % of the link", f"{worst:.0f} %", worst >= LEAST_OF_LINK
    if "nvme_to_device" in results.get("copy", {}):
        reached = results["copy"]["nvme_to_device"]["percent_of_ceiling"]
        goal = f"from NVMe to the device {LEAST_OF_LINK} % of the slower half are reached"
        yield goal, f"{reached:.0f} %", reached >= LEAST_OF_LINK
    if of_memory:
        worst = min(of_memory)
        yield f"kernels reach {LEAST_OF_MEMORY} % of a copy", f"{worst:.0f} %", worst >= LEAST_OF_MEMORY
    if ratios:
        worst = max(ratios)
        goal = f"a step with state in host memory takes {MOST_OF_DEVICE} of the device's time at most"
        yield goal, f"{worst:.3f}", worst <= MOST_OF_DEVICE


def critical_markdown(critical):
    rows = [row for row in critical.get("rows", []) if "ratio" in row]
    if not rows:
        return ""
    text = f"{critical['model']}: compute is predicted to bind above {critical['critical_tokens']} tokens a step.\n\n"
    columns = ["tokens a step", "state in host memory, ms", "on the device, ms", f"ratio (at most {critical['most']})", "longest"]
    columns += ["on the device with graphs kept, ms"]
    figures = [
        [row["tokens"], f"{row['host_ms']:.1f}", f"{row['device_ms']:.1f}", f"{row['ratio']:.3f}", row["binding_lane"]]
        + [f"{row['graphs_kept_ms']:.1f}"]
        for row in rows
    ]
    return text + table(columns, figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--small", action="store_true", help="a part of everything, small (always so with cpu)")
    parser.add_argument("--only", default="tests,demo,copy,adam,steps,critical", help="parts, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for results")
    parser.add_argument("--drive", type=Path, help="folder of the drive to use; default: in OUT")
    parser.add_argument("--demo-steps", type=int, default=20)
    parser.add_argument("--device-memory", help="of the steps; default: four fifths of what the GPU has free")
    parser.add_argument("--host-memory", help="of the steps; default: half of what is free")
    parser.add_argument("--list-tests", action="store_true", help="print the test programs and end")
    arguments = parser.parse_args()
    if arguments.list_tests:
        return print("\n".join(TESTS))
    parts = arguments.only.split(",")
    known = parser.get_default("only").split(",")
    if unknown := [part for part in parts if part not in known]:
        parser.error(f"--only: there is no {', '.join(unknown)}; parts are {', '.join(known)}")
    suite = Suite(arguments)
    if suite.why:
        say(suite.why)
    for part in parts:
        suite.keep(part, getattr(suite, part)())
    for goal, figure, met in goals(suite.results):
        say(f"goal {'met' if met else 'MISSED'}: {goal}: {figure}")
    say(f"{suite.out / 'results.md'}: " + (f"failed: {', '.join(suite.failed)}" if suite.failed else "all is well"))
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
