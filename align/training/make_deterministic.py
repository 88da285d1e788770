"""Every random number from one seed, and kernels that give the same each time: one call for both frameworks."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass

import numpy as np

from align.core.registry import model_readers
from align.core.training import SeedSetter
from align.errors import UsageError


@dataclass(frozen=True, slots=True)
class Determinism:
    """What `make_deterministic` set, one line each."""

    seed: int
    settings: tuple[str, ...]


def make_deterministic(seed: int = 0, *, threads: int | None = None) -> Determinism:
    """Seed Python, NumPy and each framework that is imported, and ask it for kernels that give the same each time.

    Call it after the imports, before models and datasets are made; it holds for the rest of the process. In torch it
    covers all devices, cuDNN and cuBLAS, and what `DataLoader` shuffles; in MindSpore operators, initial values and
    `mindspore.dataset`. `threads` limits the threads of kernels and of the data pipeline: sums of another order differ
    in the last places. An operation that has no such kernel warns in torch. Raises UsageError for a seed or a number
    of threads that there is not.

    >>> make_deterministic(7).settings[:2]
    ('python: random.seed(7)', 'numpy: numpy.random.seed(7)')
    """
    if not 0 <= seed < 2**32:
        raise UsageError.of("training_error.no_seed", seed=seed)
    if threads is not None and threads < 1:
        raise UsageError.of("training_error.no_threads", threads=threads)
    random.seed(seed)
    np.random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes that are started from here
    settings = [f"python: random.seed({seed})", f"numpy: numpy.random.seed({seed})"]
    for name, reader in model_readers().items():
        if isinstance(reader, SeedSetter) and all(package in sys.modules for package in reader.requires):
            settings += [f"{name}: {one}" for one in reader.set_seed(seed, threads)]
    return Determinism(seed, tuple(settings))
