"""What a port keeps of one batch and uses in the next: seen only where several run without a reset between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

RNG = np.random.default_rng(0)
BATCHES = [{"x": RNG.standard_normal((size, 6, 8)).astype(np.float32)} for size in (4, 4, 3)]


def torch_model(*, counts: bool = False) -> Any:
    """A masked layer; one that `counts` scales by the number of its call, and keeps that number in a buffer."""
    import torch
    from torch import nn

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x: Any) -> Any:
            self.calls += int(counts)
            return self.fc(x) * (x[..., :1] > 0) * (1 + self.calls)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = Masked(), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x)).mean(1)

    torch.manual_seed(0)
    return Net()


def mindspore_model(cache: str = "right", *, counts: bool = False) -> Any:
    """The port keeps its mask: for the very tensor ("right"), or for all that come after ("stale")."""
    import mindspore
    from mindspore import nn

    class Masked(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(8, 8)
            self.mask = self.of = None
            self.calls = 0

        def construct(self, x: Any) -> Any:
            self.calls += int(counts)
            fits = self.of is x if cache == "right" else self.mask is not None and self.mask.shape[0] == x.shape[0]
            if not fits:
                self.mask, self.of = (x[..., :1] > 0).astype(mindspore.float32), x
            return self.fc(x) * self.mask * (1 + self.calls)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = Masked(), nn.Dense(8, 5)

        def construct(self, x: Any) -> Any:
            return self.head(self.body(x)).mean(1)

    return Net()


def sides(cache: str = "right", *, counts: bool = False) -> tuple[Any, Any]:
    reference, port = torch_model(counts=counts), mindspore_model(cache, counts=counts)
    side = align.open_side(port)
    side.reader.load_values(port, {name: value.numpy() for name, value in reference.state_dict().items()})
    return reference, side


def compare(batches: Any, cache: str = "right", *, counts: bool = False) -> ForwardComparison:
    return align.compare_forward(*sides(cache, counts=counts), inputs=batches)


def test_a_stale_mask_is_found_at_its_layer_in_the_batch_in_which_it_shows() -> None:
    result = compare(BATCHES, "stale")
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "body (Masked) -> body (Masked) in batch 2 of 3" in result.verdict.reason
    (culprit,) = result.culprits
    assert (culprit.candidate, culprit.call, culprit.facts["batch"]) == ("body", 1, "2 of 3")
    wrong = [(row.candidate, row.batch) for row in result.layers if row.isolated and row.isolated.outcome != "aligned"]
    assert wrong == [("body", 2)]


def test_the_first_batch_alone_does_not_show_it() -> None:
    assert compare(BATCHES[:1], "stale").verdict.outcome is Outcome.ALIGNED


def test_a_right_cache_is_aligned_over_all_batches() -> None:
    result = compare(BATCHES)
    assert result.verdict.outcome is Outcome.ALIGNED
    own = [(row.call, row.batch, row.reference_shape) for row in result.layers if not row.reference]
    assert own == [(0, 1, (4, 5)), (1, 2, (4, 5)), (2, 3, (3, 5))]
    assert list(result.inputs) == ["batch1/x", "batch2/x", "batch3/x"]
    assert result.power is not None
    assert result.power.inputs
    assert not [one for one in result.power.parameters if one.state == "blind"]


def test_a_model_that_counts_its_batches_agrees_with_a_port_that_does() -> None:
    reference, side = sides(counts=True)
    for _ in range(2):  # what was counted is forgotten after each comparison
        assert align.compare_forward(reference, side, inputs=BATCHES).verdict.outcome is Outcome.ALIGNED
    assert (float(reference.body.calls), side.model.body.calls) == (0.0, 0)


def test_one_that_counts_differs_from_a_port_that_does_not() -> None:
    reference, _ = sides(counts=True)
    _, side = sides()
    assert align.compare_forward(reference, side, inputs=BATCHES).verdict.outcome is Outcome.NOT_ALIGNED


def data(batches: list[dict[str, Any]]) -> list[Any]:
    return [(batch["x"], np.arange(len(batch["x"])) % 5) for batch in batches]


@pytest.mark.parametrize(("cache", "outcome"), [("stale", Outcome.NOT_ALIGNED), ("right", Outcome.ALIGNED)])
def test_validation_keeps_what_models_keep_from_batch_to_batch(cache: str, outcome: Outcome) -> None:
    reference, side = sides(cache)
    for _ in range(2):  # and gives it back after the pass
        assert align.validate_models(reference, side, data=data(BATCHES)).verdict.outcome is outcome
    assert side.model.body.mask is None


def test_validation_of_models_that_count_their_batches_is_aligned() -> None:
    result = align.validate_models(*sides(counts=True), data=data(BATCHES))
    assert result.verdict.outcome is Outcome.ALIGNED
