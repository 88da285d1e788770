"""What tests of training share: settings of a whole process are put back."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def settings_put_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is set for a whole process must not reach other tests."""
    states = random.getstate(), np.random.get_state()
    imported = {"torch", "mindspore"} <= sys.modules.keys()
    with frameworks_put_back() if imported or request.node.get_closest_marker("frameworks") else nullcontext():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@contextmanager
def frameworks_put_back() -> Iterator[None]:
    import mindspore
    import torch

    states = torch.random.get_rng_state(), mindspore.get_rng_state()
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    workers, seed = mindspore.dataset.config.get_num_parallel_workers(), mindspore.dataset.config.get_seed()
    yield
    torch.random.set_rng_state(states[0])
    mindspore.set_rng_state(states[1])
    torch.use_deterministic_algorithms(before[0])
    torch.set_num_threads(before[1])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    mindspore.dataset.config.set_num_parallel_workers(workers)
    mindspore.dataset.config.set_seed(seed)
    mindspore.set_context(deterministic="OFF")
