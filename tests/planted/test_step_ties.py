"""Weights that are tied on one side of a training step only, and on both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

pytestmark = pytest.mark.frameworks

WORDS, WIDTH = 17, 12


def torch_words(*, tied: bool) -> align.Training:
    """An embedding and a head over the words."""
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mid = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(torch.tanh(self.mid(self.embed(x)))).reshape(-1, WORDS)

    torch.manual_seed(0)
    model = Words()
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))


def mindspore_words(*, tied: bool, halved: bool = False) -> align.Training:
    """The port; `halved` lets half of the gradient through in front of the head."""
    from mindspore import nn, ops

    class Words(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mid = nn.Embedding(WORDS, WIDTH), nn.Dense(WIDTH, WIDTH)
            self.head = nn.Dense(WIDTH, WORDS, has_bias=False)
            if tied:
                self.head.weight = self.embed.embedding_table

        def construct(self, x: Any) -> Any:
            hidden = ops.tanh(self.mid(self.embed(x)))
            if halved:
                hidden = 0.5 * hidden + ops.stop_gradient(0.5 * hidden)
            return self.head(hidden).reshape(-1, WORDS)

    model = Words()
    return align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1))


def words() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {"x": random.integers(0, WORDS, (6, 5)), "label": random.integers(0, WORDS, 30)}


def places(reference: align.Training, candidate: align.Training, steps: int = 1) -> list[tuple[str, str, str, str]]:
    result = align.compare_training_step(reference, candidate, batch=words(), steps=steps)
    assert result.verdict.outcome is (Outcome.NOT_ALIGNED if result.culprits else Outcome.ALIGNED)
    return [(one.part, one.candidate, one.cause, one.sureness) for one in result.culprits]


@pytest.mark.parametrize("tied", [True, False])
def test_a_tie_on_both_sides_or_on_none_is_no_fault(tied: bool) -> None:
    assert places(torch_words(tied=tied), mindspore_words(tied=tied), steps=2) == []


def test_a_weight_that_the_port_does_not_tie_is_named_with_both_parts() -> None:
    expected = [("layer", "head", "tied-in-the-reference-only", "confirmed")]
    result = align.compare_training_step(torch_words(tied=True), mindspore_words(tied=False), batch=words(), steps=1)
    assert [(one.part, one.candidate, one.cause, one.sureness) for one in result.culprits] == expected
    assert result.culprits[0].facts == {"tied": "embed.weight = head.weight"}
    assert result.culprits[0].parameters == ("embed.embedding_table", "head.weight")
    assert places(torch_words(tied=True), torch_words(tied=False)) == expected
    assert places(mindspore_words(tied=True), torch_words(tied=False)) == expected


def test_a_weight_that_only_the_port_ties_is_named() -> None:
    expected = [("layer", "head", "tied-in-the-candidate-only", "confirmed")]
    assert places(torch_words(tied=False), mindspore_words(tied=True)) == expected
    assert places(torch_words(tied=False), torch_words(tied=True)) == expected


def test_another_fault_beside_an_unequal_tie_is_named_too() -> None:
    assert places(torch_words(tied=True), mindspore_words(tied=False, halved=True)) == [
        ("layer", "head", "tied-in-the-reference-only", "confirmed"),
        ("code", "", "gradient-factor", "confirmed"),
    ]
