"""Ten steps from random states: the update against torch.optim.AdamW and torch.optim.Adam.

usage: adam_against_torch.py PATH_OF_THE_DRIVER
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

ELEMENTS = 20000
STEPS = 10
RELATIVE, ABSOLUTE = 2e-6, 1e-7
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def random_state(generator, gradient_dtype):
    def normal(scale):
        return torch.randn(ELEMENTS, generator=generator) * scale

    gradients = [normal(1e-2).to(DTYPES[gradient_dtype]).float() for _ in range(STEPS)]
    return normal(0.1), normal(1e-2), normal(1e-2).square(), gradients


def by_torch(kind, options, first_step, state):
    p, m, v, gradients = state
    parameter = torch.nn.Parameter(p.clone())
    make = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[kind]
    optimizer = make([parameter], foreach=False, **options)
    optimizer.state[parameter] = {
        "step": torch.tensor(float(first_step - 1)),
        "exp_avg": m.clone(),
        "exp_avg_sq": v.clone(),
    }
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def by_driver(driver, kind, formats, options, first_step, state):
    p, m, v, gradients = state
    with tempfile.TemporaryDirectory() as folder:
        given, result = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        given.write_bytes(torch.cat([p, m, v, *gradients]).numpy().tobytes())
        numbers = [options["lr"], *options["betas"], options["eps"], options["weight_decay"], first_step, STEPS]
        subprocess.run([driver, kind, *formats, *map(repr, numbers), str(given), str(result)], check=True)
        return torch.from_numpy(numpy.fromfile(result, dtype=numpy.float32))


def main():
    driver = sys.argv[1]
    generator = torch.Generator().manual_seed(1)
    failures = 0
    for kind in ("adamw", "adam"):
        for formats in (("bf16", "bf16"), ("bf16", "fp32"), ("fp16", "fp16"), ("fp16", "fp32"), ("fp32", "fp32")):
            for first_step, lr, decay in ((1, 1e-3, 0.01), (2, 3e-4, 0.1), (1000, 1e-2, 0.0)):
                options = {"lr": lr, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": decay}
                state = random_state(generator, formats[1])
                expected = by_torch(kind, options, first_step, state).double()
                got = by_driver(driver, kind, formats, options, first_step, state).double()
                excess = (got - expected).abs() - (RELATIVE * expected.abs() + ABSOLUTE)
                moved = (expected - state[0].double()).abs().max().item()
                good = got.numel() == ELEMENTS and bool((excess <= 0).all()) and moved > lr
                failures += not good
                print(kind, *formats, f"from step {first_step}: largest difference",
                      f"{(got - expected).abs().max().item():.2e}, moved by {moved:.2e}", "" if good else "FAILED")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
