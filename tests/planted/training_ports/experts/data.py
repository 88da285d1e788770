"""Token batches for the decoder with experts."""

import numpy as np

VOCAB, LENGTH, BATCH = 61, 14, 8


def inputs():
    """Inputs of the forward pass."""
    rng = np.random.default_rng(5)
    return {"tokens": rng.integers(0, VOCAB, (3, LENGTH)).astype(np.int32)}


def batch(number=0):
    """One training batch; sequences end at different places."""
    rng = np.random.default_rng(100 + number)
    first = rng.integers(0, VOCAB, (BATCH, 1))
    stride = rng.integers(1, 7, (BATCH, 1))
    tokens = (first + stride * np.arange(LENGTH) + rng.integers(0, 2, (BATCH, LENGTH))) % VOCAB
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, (BATCH, 1))
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    return {"tokens": (tokens * mask).astype(np.int32), "mask": mask}
