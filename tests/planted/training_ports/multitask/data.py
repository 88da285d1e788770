"""Images with a class, a box and a map of regions, some places of it ignored."""

import numpy as np

ROWS, SIZE = 6, 16


def inputs():
    """The forward inputs."""
    rng = np.random.default_rng(903)
    return {"image": rng.standard_normal((ROWS, 3, SIZE, SIZE)).astype(np.float32)}


def batch(number=0):
    """A training batch; 255 marks the places of the map that do not count."""
    rng = np.random.default_rng(400 + number)
    mask = rng.integers(0, 4, (ROWS, 8, 8)).astype(np.int32)
    mask[rng.random(mask.shape) < 0.3] = 255
    return {
        "image": rng.standard_normal((ROWS, 3, SIZE, SIZE)).astype(np.float32),
        "label": rng.integers(0, 7, ROWS).astype(np.int32),
        "box": rng.uniform(0, 2, (ROWS, 4)).astype(np.float32),
        "mask": mask,
    }
