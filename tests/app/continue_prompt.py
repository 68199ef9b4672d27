"""Continues a prompt of bytes greedily with a Hugging Face folder: what `sluice generate --temperature 0` must print."""
import sys

import torch
from transformers import GPT2LMHeadModel

folder, prompt, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
model, report = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
    assert not report[kind], report
model.eval()
ids = list(prompt.encode())
with torch.no_grad():
    for _ in range(tokens):
        logits = model(torch.tensor([ids[-model.config.n_positions:]])).logits[0, -1]
        following = int(logits[:256].argmax())
        if following == 0:
            break
        ids.append(following)
sys.stdout.buffer.write(bytes(ids) + b"\n")
