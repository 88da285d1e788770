import numpy as np


def inputs():
    g = np.random.default_rng(31)
    words = np.arange(1, 61)
    # every word at least once before a padded sentence comes
    src = np.concatenate([g.permutation(words), g.permutation(words)])[:96].reshape(6, 16)
    src[4, 11:] = 0
    src[5, 8:] = 0
    tgt = np.concatenate([g.permutation(words), g.permutation(words)])[:96].reshape(6, 16)
    return {"src": src.astype("int64"), "tgt": tgt.astype("int64")}
