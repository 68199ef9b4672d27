#!/usr/bin/env python3
"""Trains one shape, activations checkpointed block by block unless --keep-graphs is given, and prints one JSON line.

plain: PyTorch with everything in memory: bf16 weights, fp32 masters, fused AdamW, clipping by global norm.
zero:  DeepSpeed's ZeRO-3 with optimizer state and parameters in a folder on NVMe (ZeRO-Infinity), with the settings that
       were found to be its best here: one buffer for every parameter that is swapped, small live and prefetch limits,
       pipelined reads and writes, requests of 1 MiB. Needs deepspeed, its aio operator (libaio-dev) and
       DS_ACCELERATOR=cpu.
"""
import argparse
import json
import os
import resource
import statistics
import time

import shapes

parser = argparse.ArgumentParser()
parser.add_argument("--engine", choices=["plain", "zero"], default="plain")
parser.add_argument("--folder", help="on the NVMe drive, for zero")
parser.add_argument("--shape", choices=list(shapes.SHAPES), required=True)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warm", type=int, default=3)
parser.add_argument("--clipping", type=float, default=shapes.CLIPPING)
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: with plain alone")
parser.add_argument("--micro", type=int, help="samples of a micro-batch, in place of the shape's")
parser.add_argument("--sequence", type=int, help="tokens of a sample, in place of the shape's")
parser.add_argument("--keep-graphs", action="store_true", help="no activation checkpointing")
options = parser.parse_args()
if options.device == "cuda" and options.engine != "plain":
    parser.error("--device cuda is for --engine plain")
os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
if options.engine == "zero":  # one rank, as its launcher would set it up
    alone = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533",
                 DS_ACCELERATOR="cpu", DS_PIN_MEMORY_BACKEND="native")
    for name, value in alone.items():
        os.environ.setdefault(name, value)

import torch  # noqa: E402  (after the environment)
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

torch.set_num_threads(options.threads)
torch.manual_seed(7)
shape = shapes.SHAPES[options.shape]
shape = shape | {key: getattr(options, key) for key in ("micro", "sequence") if getattr(options, key)}
model = GPT2LMHeadModel(
    GPT2Config(n_layer=shape["layers"], n_embd=shape["width"], n_head=shape["heads"], vocab_size=shape["vocabulary"],
               n_positions=shape["positions"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
model.to(options.device).train()
if not options.keep_graphs:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=options.engine == "zero"))
data = torch.frombuffer(bytearray(shapes.text()), dtype=torch.uint8)
places = torch.Generator().manual_seed(1)


def micro_batch():
    starts = torch.randint(0, len(data) - shape["sequence"], (shape["micro"],), generator=places)
    return torch.stack([data[int(at):int(at) + shape["sequence"]] for at in starts]).long().to(options.device)


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
        torch.nn.utils.clip_grad_norm_(self.masters, options.clipping)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
        return loss


class Zero:
    def __init__(self):
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        sizes = [parameter.numel() for parameter in model.parameters()]
        request = 1 << 20
        drive = dict(device="nvme", nvme_path=options.folder, pin_memory=True)
        swapped = sum(2 * size >= request for size in sizes)
        zero = dict(stage=3, sub_group_size=10**8, contiguous_gradients=True, overlap_comm=False,
                    stage3_max_live_parameters=10**7, stage3_prefetch_bucket_size=10**6,
                    stage3_param_persistence_threshold=0,
                    offload_optimizer=dict(drive, buffer_count=12, pipeline_read=True, pipeline_write=True),
                    offload_param=dict(drive, buffer_count=swapped + 2, buffer_size=max(sizes) + 65536, max_in_cpu=0))
        adam = dict(lr=shapes.LEARNING_RATE, betas=list(shapes.BETAS), eps=shapes.EPSILON,
                    weight_decay=shapes.WEIGHT_DECAY)
        config = dict(train_micro_batch_size_per_gpu=shape["micro"], gradient_accumulation_steps=options.accumulation,
                      gradient_clipping=options.clipping, bf16=dict(enabled=True), zero_optimization=zero,
                      optimizer=dict(type="AdamW", params=adam), steps_per_print=10**9,
                      aio=dict(block_size=request, queue_depth=32, intra_op_parallelism=2, single_submit=False,
                               overlap_events=True))
        self.engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]

    def step(self, batches):
        loss = 0.0
        for batch in batches:
            output = self.engine(input_ids=batch, labels=batch).loss
            self.engine.backward(output)
            self.engine.step()
            loss += float(output.detach()) / len(batches)
        return loss


engine = Zero() if options.engine == "zero" else Plain()
wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
times, losses = [], []
for _ in range(options.steps):
    batches = [micro_batch() for _ in range(options.accumulation)]
    wait()
    begin = time.perf_counter()
    losses.append(engine.step(batches))
    wait()
    times.append(1e3 * (time.perf_counter() - begin))
print(json.dumps(dict(step_ms=statistics.median(times[options.warm:]), first_loss=losses[0], last_loss=losses[-1],
                      peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)), flush=True)
