"""Every tensor of one Hugging Face folder is the other's in the type that is given, to the nearest: ties go either way."""
import sys

import torch
from safetensors.torch import load_file

rounded, masters, dtype = (load_file(f"{sys.argv[1]}/model.safetensors"), load_file(f"{sys.argv[2]}/model.safetensors"),
                           getattr(torch, sys.argv[3]))
assert rounded.keys() == masters.keys() and len(masters) > 10, (rounded.keys(), masters.keys())
exact = 0
for name, master in masters.items():
    assert master.dtype == torch.float32 and rounded[name].dtype == dtype, (name, master.dtype, rounded[name].dtype)
    off, nearest = (rounded[name].double() - master).abs(), (master.to(dtype).double() - master).abs()
    assert torch.equal(off, nearest), name
    exact += torch.equal(rounded[name].float(), master)
assert exact < len(masters), "masters say no more than the weights"
