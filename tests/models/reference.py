"""Writes what GPT-2 must reproduce: Hugging Face folders of random models, and losses, gradients and training runs of
transformers' GPT2LMHeadModel on them. Usage: reference.py OUT."""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, SEQUENCE, VOCABULARY, STEPS, ACCUMULATION = 3, 33, 331, 20, 3
PROMPT = 9
LEARNING_RATE, CLIP = 1e-3, 1.0


def make_model(tied):
    torch.manual_seed(7 if tied else 8)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=40, n_embd=72, n_layer=3, n_head=3, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.1, tie_word_embeddings=tied,
                        n_inner=None if tied else 200)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():  # biases of 0 and norms of 1 would hide mistakes
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def make_tokens():
    torch.manual_seed(9)
    ids = torch.randint(0, VOCABULARY, (STEPS * ACCUMULATION, BATCH, SEQUENCE))
    labels = ids.clone()
    labels[torch.rand(labels.shape) < 0.1] = -100
    labels[1, :2] = -100  # whole tiles without a target
    return ids, labels


def targets_of(labels):
    """transformers shifts labels by one; sluice is given the token that follows."""
    return torch.cat([labels[..., 1:], torch.full_like(labels[..., :1], -100)], dim=-1)


def gradients(out, name, model, ids, labels):
    for micro_batch in range(2):
        model.zero_grad()
        loss = model(input_ids=ids[micro_batch], labels=labels[micro_batch]).loss
        loss.backward()
        out[f"{name}.loss.{micro_batch}"] = loss.detach().reshape(1)
        for parameter, value in model.named_parameters():
            out[f"{name}.gradient.{micro_batch}.{parameter}"] = value.grad.clone()
    with torch.no_grad():
        logits = model(input_ids=ids[0, :1, :PROMPT]).logits[0, -1].clone()
    out[f"{name}.logits"] = logits


def groups_of(name, model):
    """"grouped": biases and norms without decay at twice the rate; positions with much decay."""
    if name != "grouped":
        return list(model.parameters())
    own = {"positions": [], "plain": [], "others": []}
    for parameter, value in model.named_parameters():
        plain = parameter.endswith(".bias") or ".ln_" in parameter
        own["plain" if plain else "positions" if ".wpe." in parameter else "others"].append(value)
    return [{"params": own["plain"], "weight_decay": 0.0, "lr": 2 * LEARNING_RATE},
            {"params": own["positions"], "weight_decay": 20.0, "betas": (0.5, 0.9)}, {"params": own["others"]}]


def train(out, name, model, ids, labels):
    optimizer = torch.optim.AdamW(groups_of(name, model), lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for micro_batch in range(step * ACCUMULATION, (step + 1) * ACCUMULATION):
            loss = model(input_ids=ids[micro_batch], labels=labels[micro_batch]).loss / ACCUMULATION
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        losses.append(total)
    out[f"{name}.losses"] = torch.tensor(losses)
    out[f"{name}.norms"] = torch.tensor(norms)
    for parameter, value in model.named_parameters():
        out[f"{name}.trained.{parameter}"] = value.detach().clone()


def write_variants(folder, tied):
    """The same weights as other people write them."""
    weights = {name: value.detach().clone() for name, value in tied.state_dict().items() if name != "lm_head.weight"}
    config = json.loads((folder / "tied" / "config.json").read_text())
    for name, tensors in {
            "bf16": {k: v.bfloat16() for k, v in weights.items()},
            "fp16": {k: v.half() for k, v in weights.items()},
            "plain_names": {k.removeprefix("transformer."): v for k, v in weights.items()} |
                           {"h.0.attn.bias": torch.ones(1, 1, 40, 40), "h.0.attn.masked_bias": torch.tensor(-1e4)},
    }.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    tied.save_pretrained(folder / "sharded", max_shard_size="200KB")
    assert (folder / "sharded" / "model.safetensors.index.json").exists()


def check_export(exported, original, dtype):
    """The exported folder opens in transformers without a warning about its tensors, with the original's values."""
    model, info = GPT2LMHeadModel.from_pretrained(exported, output_loading_info=True, dtype="auto")
    faults = {k: v for k, v in info.items() if v}
    assert not faults, faults
    weights = load_file(pathlib.Path(exported) / "model.safetensors")
    wanted = load_file(pathlib.Path(original) / "model.safetensors")
    assert weights.keys() == wanted.keys(), weights.keys() ^ wanted.keys()
    for name, value in weights.items():
        assert value.dtype == getattr(torch, dtype), (name, value.dtype)
        # bf16 weights round ties away from zero, torch to even: one unit in the last place
        torch.testing.assert_close(value.float(), wanted[name].to(value.dtype).float(),
                                   rtol=2.0**-7 if dtype == "bfloat16" else 0, atol=0)
    assert model.dtype == getattr(torch, dtype)
    assert model.config.tie_word_embeddings == ("lm_head.weight" not in weights)
    ids = torch.arange(8).reshape(1, 8)
    reference = GPT2LMHeadModel.from_pretrained(original)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits.float(), reference(ids).logits, rtol=0.1 if dtype == "bfloat16" else 1e-6,
                                   atol=0.1 if dtype == "bfloat16" else 1e-6)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if sys.argv[1] == "--check-export":
        for exported, original, dtype in zip(sys.argv[2::3], sys.argv[3::3], sys.argv[4::3]):
            check_export(exported, original, dtype)
        return
    folder = pathlib.Path(sys.argv[1])
    ids, labels = make_tokens()
    out = {"ids": ids.float(), "targets": targets_of(labels).float()}
    for name in ("tied", "untied", "grouped"):
        model = make_model(name != "untied")
        model.save_pretrained(folder / name)
        if name == "tied":
            write_variants(folder, model)
        if name != "grouped":
            gradients(out, name, model, ids, labels)
        train(out, name, model, ids, labels)
    save_file({name: value.contiguous() for name, value in out.items()}, folder / "reference.safetensors")


main()
