"""Counters of memory that do not know how the tool counts."""

from __future__ import annotations

from typing import Any

import pytest


def kept_for_the_way_back(output: Any, left_out: Any) -> int:
    """Bytes of all storages that the nodes behind an output keep, each once, by walking from node to node."""
    import torch

    sizes: dict[int, int] = {}
    nodes, seen = [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                values = getattr(node, name)
                for value in values if isinstance(values, (tuple, list)) else (values,):
                    if isinstance(value, torch.Tensor):
                        storage = value.untyped_storage()
                        sizes[storage.data_ptr()] = storage.nbytes()
        nodes += [follower for follower, _ in node.next_functions]
    for tensor in left_out:
        sizes.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


def allocator_peak(step: Any) -> int:
    """What a step takes at most beyond what was there, by the events of torch's own profiler."""
    from torch.autograd.profiler import profile

    with profile(profile_memory=True) as profiler:
        step()
    events = [one for one in profiler.kineto_results.events() if one.name() == "[memory]"]
    now = most = 0
    for one in sorted(events, key=lambda event: event.start_ns()):
        now += one.nbytes()
        most = max(most, now)
    return most


@pytest.fixture
def kept() -> Any:
    return kept_for_the_way_back


@pytest.fixture
def peak_by_allocator() -> Any:
    return allocator_peak
