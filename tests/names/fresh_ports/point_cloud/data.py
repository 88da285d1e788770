import numpy as np


def inputs():
    rng = np.random.default_rng(5)
    spread = np.array([1.0, 0.6, 1.4])[None, :, None] * rng.uniform(0.5, 1.5, (10, 3, 1))
    return {"points": (rng.normal(size=(10, 3, 20)) * spread).astype("float32")}
