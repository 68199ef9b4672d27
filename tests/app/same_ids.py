"""The tokenizer of a Hugging Face folder gives a text the ids in a JSON file, and of them makes the text again.

Of entries with scores, of which several sequences may have the same sum, it may give another one with that.
"""
import json
import pathlib
import sys

from transformers import AutoConfig, AutoTokenizer

folder = pathlib.Path(sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="") as file:
    text = file.read()
with open(sys.argv[3]) as file:
    wanted = json.load(file)
tokenizer = AutoTokenizer.from_pretrained(folder)
encoded = tokenizer(text)
assert set(encoded) == {"input_ids", "attention_mask"}, set(encoded)
ids = encoded["input_ids"]
assert len(ids) == len(wanted) and sorted(ids) == sorted(wanted), (len(ids), len(wanted))
different = [at for at, (one, other) in enumerate(zip(ids, wanted)) if one != other]
entries = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
if isinstance(entries, list):
    assert len(different) < len(wanted) / 100, [wanted[at] for at in different]
    total, wanted_total = (sum(entries[each][1] for each in sequence) for sequence in (ids, wanted))
    assert abs(total - wanted_total) < 1e-9 * abs(total), (total, wanted_total)
else:
    assert not different, different
assert tokenizer.decode(ids) == tokenizer.decode(wanted) == text
assert tokenizer.decode(ids + [tokenizer.eos_token_id], skip_special_tokens=True) == text
config = AutoConfig.from_pretrained(folder)
assert tokenizer.eos_token_id == config.eos_token_id == int(sys.argv[4]), (tokenizer.eos_token_id, config)
assert tokenizer.model_max_length == config.n_positions and len(tokenizer) <= config.vocab_size
