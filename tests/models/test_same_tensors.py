"""A tensor is taken for the same only while nothing was written to it."""

from __future__ import annotations

import pytest

from align.core.traces import Capture
from align.models.adapter_parts.torch.state import writes
from align.models.record_calls import LatestTensors

CAPTURE = Capture(0, "fc", 0, "", "Linear", (3,), "float32")


@pytest.mark.frameworks
def test_a_torch_tensor_is_known_until_it_is_written_to_or_another_call_ends() -> None:
    import torch

    latest, tensor = LatestTensors(writes), torch.ones(3)
    latest.note(tensor, CAPTURE)
    assert latest.same(tensor) is None  # its call has not ended
    latest.finish()
    assert latest.same(tensor) is CAPTURE
    assert latest.same(tensor.clone()) is None
    tensor.view(3).add_(1)  # a view shares its memory
    assert latest.same(tensor) is None
    latest.finish()
    assert latest.same(tensor) is None


@pytest.mark.frameworks
def test_what_nobody_counts_is_never_known() -> None:
    import torch

    with torch.inference_mode():
        inference = torch.ones(3)
    for count, tensor in ((writes, inference), (lambda _: None, torch.ones(3))):
        latest = LatestTensors(count)
        latest.note(tensor, CAPTURE)
        latest.finish()
        assert latest.same(tensor) is None
