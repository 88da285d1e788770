"""Images with captions of unequal length."""

import numpy as np

SIZE, VOCAB, LENGTH, BATCH = 16, 50, 10, 8


def pairs(rng, count):
    """Images and tokens, 0 for padding."""
    image = rng.normal(0, 1, (count, 3, SIZE, SIZE)).astype(np.float32)
    tokens = rng.integers(1, VOCAB, (count, LENGTH))
    lengths = rng.integers(3, LENGTH + 1, (count, 1))
    tokens = np.where(np.arange(LENGTH) < lengths, tokens, 0)
    image += (tokens[:, :3, None, None] / VOCAB - 0.5).astype(np.float32)
    return {"image": image, "tokens": tokens.astype(np.int32)}


def inputs():
    """Inputs of the forward pass."""
    return pairs(np.random.default_rng(40), 3)


def batch(number=0):
    """One training batch."""
    return pairs(np.random.default_rng(400 + number), BATCH)
