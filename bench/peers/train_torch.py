#!/usr/bin/env python3
"""Trains one shape with plain PyTorch on the CPU, everything in memory: bf16 weights, fp32 masters, fused AdamW,
clipping by global norm, activations checkpointed block by block. Prints one JSON line."""
import argparse
import json
import os
import resource
import statistics
import time

import shapes

parser = argparse.ArgumentParser()
parser.add_argument("--shape", choices=list(shapes.SHAPES), required=True)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warm", type=int, default=3)
parser.add_argument("--threads", type=int, default=os.cpu_count())
options = parser.parse_args()
os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))

import torch  # noqa: E402  (after the environment)
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

torch.set_num_threads(options.threads)
torch.manual_seed(7)
shape = shapes.SHAPES[options.shape]
model = GPT2LMHeadModel(
    GPT2Config(n_layer=shape["layers"], n_embd=shape["width"], n_head=shape["heads"], vocab_size=shape["vocabulary"],
               n_positions=shape["positions"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
model.train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
data = torch.frombuffer(bytearray(shapes.text()), dtype=torch.uint8)
places = torch.Generator().manual_seed(1)


def micro_batch():
    starts = torch.randint(0, len(data) - shape["sequence"], (shape["micro"],), generator=places)
    return torch.stack([data[int(at):int(at) + shape["sequence"]] for at in starts]).long()


class Plain:
    """Weights in bf16 for the compute, masters in fp32 for the optimizer."""

    def __init__(self):
        model.to(torch.bfloat16)
        self.weights = list(model.parameters())
        self.masters = [weight.detach().float().requires_grad_() for weight in self.weights]
        self.adam = torch.optim.AdamW(self.masters, lr=shapes.LEARNING_RATE, betas=shapes.BETAS, eps=shapes.EPSILON,
                                      weight_decay=shapes.WEIGHT_DECAY, fused=True)

    def step(self, batches):
        loss = 0.0
        for batch in batches:
            output = model(input_ids=batch, labels=batch).loss
            (output / len(batches)).backward()
            loss += float(output.detach()) / len(batches)
        for master, weight in zip(self.masters, self.weights):
            master.grad, weight.grad = weight.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.masters, shapes.CLIPPING)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
        return loss


engine = Plain()
times, losses = [], []
for _ in range(options.steps):
    batches = [micro_batch() for _ in range(options.accumulation)]
    begin = time.perf_counter()
    losses.append(engine.step(batches))
    times.append(1e3 * (time.perf_counter() - begin))
print(json.dumps(dict(step_ms=statistics.median(times[options.warm:]), first_loss=losses[0], last_loss=losses[-1],
                      peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)), flush=True)
