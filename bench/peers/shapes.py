"""The shapes of the side by side: the same model, tokens and clipping for every engine."""
import glob
import os

SHAPES = {
    "25M": dict(layers=8, width=512, heads=8, vocabulary=256, positions=128, sequence=128, micro=2),
    "124M": dict(layers=12, width=768, heads=12, vocabulary=50257, positions=1024, sequence=128, micro=1),
    "355M": dict(layers=24, width=1024, heads=16, vocabulary=50257, positions=1024, sequence=128, micro=1),
    "1.5B": dict(layers=48, width=1600, heads=25, vocabulary=50257, positions=1024, sequence=1024, micro=8),
}
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY, CLIPPING = 3e-4, (0.9, 0.999), 1e-8, 0.1, 1.0


def text():
    """Real bytes that every machine with Python has: its own library."""
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:120]
    return b"".join(open(file, "rb").read() for file in files)
