"""Small images of waves with noise and timesteps."""

import numpy as np

ROWS, SIZE, STEPS = 6, 8, 50


def _images(rng):
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    phase = rng.uniform(0, 2 * np.pi, (ROWS, 2, 1, 1))
    rate = rng.uniform(2, 9, (ROWS, 2, 1, 1))
    return np.sin(rate * x + phase + 3 * y).astype(np.float32)


def inputs():
    """The forward inputs."""
    rng = np.random.default_rng(902)
    return {"sample": _images(rng), "timestep": rng.integers(0, STEPS, ROWS).astype(np.int32)}


def batch(number=0):
    """Clean images, the noise that is added to them and the timesteps."""
    rng = np.random.default_rng(300 + number)
    return {
        "clean": _images(rng) * np.float32(rng.uniform(0.4, 1.6)),
        "noise": rng.standard_normal((ROWS, 2, SIZE, SIZE)).astype(np.float32),
        "timestep": rng.permutation(np.linspace(1, STEPS - 1, ROWS).astype(np.int32) - number % 2),
    }
