"""Noise, classes and images with a stripe that depends on the class."""

import numpy as np

LATENT, CLASSES, ROWS = 16, 5, 8


def inputs():
    """The forward inputs."""
    rng = np.random.default_rng(901)
    return {
        "noise": rng.standard_normal((ROWS, LATENT)).astype(np.float32),
        "labels": rng.integers(0, CLASSES, ROWS).astype(np.int32),
    }


def batch(number=0):
    """Real images with their classes, and noise for each of the two updates."""
    rng = np.random.default_rng(200 + number)
    labels = rng.integers(0, CLASSES, ROWS).astype(np.int32)
    image = rng.normal(0.3, 0.1, (ROWS, 1, 16, 16))
    for row, label in enumerate(labels):
        image[row, 0, 3 * label : 3 * label + 3] += 0.5
    return {
        "image": np.clip(image, 0, 1).astype(np.float32),
        "labels": labels,
        "noise_d": rng.standard_normal((ROWS, LATENT)).astype(np.float32),
        "noise_g": rng.standard_normal((ROWS, LATENT)).astype(np.float32),
    }
