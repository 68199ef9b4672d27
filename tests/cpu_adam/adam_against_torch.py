"""Ten and a hundred steps from random states: the update against torch.optim, and Lion against its paper's formula.

usage: adam_against_torch.py PATH_OF_THE_DRIVER
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

ELEMENTS = 20000
FORMATS = (("bf16", "bf16"), ("bf16", "fp32"), ("fp16", "fp16"), ("fp16", "fp32"), ("fp32", "fp32"))
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Steps: relative and absolute tolerance. Every step rounds the parameter once, so errors add up like a random walk.
TOLERANCES = {10: (2e-6, 1e-7), 100: (1e-5, 1e-6)}


class Lion(torch.optim.Optimizer):
    """Chen et al., "Symbolic discovery of optimization algorithms" (NeurIPS 2023), algorithm 2."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.closest_to_zero = torch.full((ELEMENTS,), torch.inf)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p]["exp_avg"]
                c = beta1 * m + (1 - beta1) * p.grad
                self.closest_to_zero = torch.minimum(self.closest_to_zero, c.abs())
                p -= group["lr"] * (c.sign() + group["weight_decay"] * p)
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


def make_optimizer(kind, parameter, numbers):
    lr, decay, betas = numbers["lr"], numbers["weight_decay"], numbers["betas"]
    if kind in ("adamw", "adam"):
        make = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[kind]
        return make([parameter], foreach=False, lr=lr, betas=betas, eps=numbers["eps"], weight_decay=decay)
    if kind == "adagrad":
        return torch.optim.Adagrad([parameter], foreach=False, lr=lr, eps=numbers["eps"], weight_decay=decay)
    if kind == "lion":
        return Lion([parameter], lr=lr, betas=betas, weight_decay=decay)
    return torch.optim.SGD([parameter], foreach=False, lr=lr, momentum=numbers["momentum"], weight_decay=decay)


def initial_state(kind, first_step, m, v):
    step = torch.tensor(float(first_step - 1))
    return {
        "adamw": {"step": step, "exp_avg": m, "exp_avg_sq": v},
        "adam": {"step": step, "exp_avg": m, "exp_avg_sq": v},
        "adagrad": {"step": step, "sum": m},
        "lion": {"exp_avg": m},
        "sgd": {"momentum_buffer": m},
    }[kind]


def random_state(generator, kind, gradient_dtype, steps):
    def normal(scale):
        return torch.randn(ELEMENTS, generator=generator) * scale

    gradients = [normal(1e-2).to(DTYPES[gradient_dtype]).float() for _ in range(steps)]
    p, m, v = normal(0.1), normal(1e-2), normal(1e-2).square()
    return p, m.square() if kind == "adagrad" else m, v, gradients


def by_torch(kind, numbers, first_step, state):
    """The parameter, and which elements mean something."""
    p, m, v, gradients = state
    parameter = torch.nn.Parameter(p.clone())
    optimizer = make_optimizer(kind, parameter, numbers)
    optimizer.state[parameter] = initial_state(kind, first_step, m.clone(), v.clone())
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    # A sign that hung on a rounding may be the other one.
    means = optimizer.closest_to_zero > 1e-8 if kind == "lion" else torch.ones(ELEMENTS, dtype=torch.bool)
    return parameter.detach(), means


def by_driver(driver, kind, formats, numbers, first_step, state):
    p, m, v, gradients = state
    with tempfile.TemporaryDirectory() as folder:
        given, result = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        given.write_bytes(torch.cat([p, m, v, *gradients]).numpy().tobytes())
        words = [numbers["lr"], *numbers["betas"], numbers["eps"], numbers["weight_decay"], numbers["momentum"]]
        words += [first_step, len(gradients)]
        subprocess.run([driver, kind, *formats, *map(repr, words), str(given), str(result)], check=True)
        return torch.from_numpy(numpy.fromfile(result, dtype=numpy.float32))


def compare(driver, generator, kind, formats, steps, numbers, first_step):
    state = random_state(generator, kind, formats[1], steps)
    expected, means = by_torch(kind, numbers, first_step, state)
    got = by_driver(driver, kind, formats, numbers, first_step, state).double()
    relative, absolute = TOLERANCES[steps]
    expected = expected.double()
    difference = (got - expected).abs() * means
    moved = (expected - state[0].double()).abs().max().item()
    good = got.numel() == ELEMENTS and bool((difference <= relative * expected.abs() + absolute).all())
    good = good and moved > numbers["lr"] / 10 and means.float().mean().item() > 0.99
    print(kind, *formats, f"{steps} steps from step {first_step}: largest difference",
          f"{difference.max().item():.2e}, of what is allowed",
          f"{(difference / (relative * expected.abs() + absolute)).max().item():.2f}, moved by {moved:.2e}",
          "" if good else "FAILED")
    return good


def main():
    driver = sys.argv[1]
    generator = torch.Generator().manual_seed(1)
    results = []
    for kind in ("adamw", "adam", "adagrad", "lion", "sgd"):
        for formats in FORMATS:
            for first_step, lr, decay in ((1, 1e-3, 0.01), (2, 3e-4, 0.1), (1000, 1e-2, 0.0)):
                numbers = {"lr": lr, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": decay, "momentum": 0.9}
                results.append(compare(driver, generator, kind, formats, 10, numbers, first_step))
            numbers = {"lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1, "momentum": 0.9}
            results.append(compare(driver, generator, kind, formats, 100, numbers, 1))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
