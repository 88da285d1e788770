import numpy as np


def inputs():
    rng = np.random.default_rng(17)
    steps, batch = 5, 4
    first = np.zeros((steps, batch), "float32")
    first[3, 1] = first[2, 3] = 1
    actions = np.concatenate([rng.permutation(7), rng.integers(0, 7, steps * batch - 7)])
    return {
        "frames": rng.normal(size=(steps, batch, 3, 20, 20)).astype("float32"),
        "sensors": (1.5 * rng.normal(size=(steps, batch, 12))).astype("float32"),
        "prev_action": actions.reshape(steps, batch).astype("int64"),
        "first": first,
    }
