"""Token batches of seven rows with padded ends."""

import numpy as np

VOCAB, LENGTH, ROWS = 61, 16, 7


def _tokens(seed, length):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, VOCAB, (ROWS, length)).astype(np.int32)
    for row, end in enumerate(rng.integers(5, length + 1, ROWS)):
        tokens[row, end:] = 0
    return tokens


def inputs():
    """The forward inputs."""
    return {"tokens": _tokens(900, LENGTH)}


def batch(number=0):
    """A training batch; targets are the tokens moved by one."""
    return {"tokens": _tokens(100 + number, LENGTH + 1)}
