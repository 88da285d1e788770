"""What tests of training share: settings of a whole process are put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def settings_put_back() -> Any:
    """What is set for a whole process must not reach other tests."""
    import mindspore
    import torch

    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state(), mindspore.get_rng_state()
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    workers, seed = mindspore.dataset.config.get_num_parallel_workers(), mindspore.dataset.config.get_seed()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.random.set_rng_state(states[2])
    mindspore.set_rng_state(states[3])
    torch.use_deterministic_algorithms(before[0])
    torch.set_num_threads(before[1])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    mindspore.dataset.config.set_num_parallel_workers(workers)
    mindspore.dataset.config.set_seed(seed)
    mindspore.set_context(deterministic="OFF")
