"""Sentences of unequal length with words of unequal length."""

import numpy as np

CHARS, WORDS, TAGS, LENGTH, SPELLING = 27, 60, 7, 8, 6
STEM = np.random.default_rng(1).integers(1, CHARS, (WORDS, SPELLING))
SIZE = np.random.default_rng(2).integers(2, SPELLING + 1, WORDS)


def sentences(rng, count):
    """Words, characters and both lengths; the shortest sentence is not the last."""
    lengths = rng.permutation(np.r_[LENGTH, 2, rng.integers(3, LENGTH, count - 2)])
    real = np.arange(LENGTH) < lengths[:, None]
    words = rng.integers(1, WORDS, (count, LENGTH)) * real
    char_lengths = SIZE[words] * real
    chars = STEM[words] * (np.arange(SPELLING) < char_lengths[..., None])
    return {
        "words": words.astype(np.int32),
        "lengths": lengths.astype(np.int32),
        "chars": chars.astype(np.int32),
        "char_lengths": char_lengths.astype(np.int32),
    }


def inputs():
    """Inputs of the forward pass."""
    return sentences(np.random.default_rng(50), 3)


def batch(number=0):
    """One training batch; tags are 0 where there is no word."""
    made = sentences(np.random.default_rng(500 + number), 5)
    tags = 1 + (made["words"] * 5 + np.roll(made["words"], 1, axis=1)) % (TAGS - 1)
    return {**made, "tags": np.where(made["words"] > 0, tags, 0).astype(np.int32)}
