"""Losses of the users' own that port a right one wrongly, each named by what it does; and clean twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

WORDS = 11


def batch() -> dict[str, Any]:
    """Texts of six words, each its own labels."""
    words = np.random.default_rng(0).integers(0, WORDS, (4, 6))
    return {"ids": words, "label": words}


def loss(kind: str) -> Callable[[Any, Any], Any]:
    """A loss of outputs (text, position, word)."""
    from torch.nn.functional import cross_entropy, nll_loss

    def own(outputs: Any, label: Any) -> Any:
        if kind == "next":
            outputs, label = outputs[:, :-1], label[:, 1:]
        if kind == "other class":
            label = (label + 1) % WORDS
        if kind == "softmax":
            outputs = outputs.softmax(-1)
        flat, words = outputs.reshape(-1, WORDS), label.reshape(-1)
        if kind == "logarithms":
            return nll_loss(flat, words)
        summed = "sum" if kind == "smoothed sum" else "mean"
        return cross_entropy(flat, words, label_smoothing=0.1 if "smoothed" in kind else 0.0, reduction=summed)

    return own


def side(kind: str, *, end: Callable[[Any], Any] = lambda value: value, inside: bool = False) -> align.Training:
    """A net of three layers; `end` is done to its outputs, and with the loss `inside` it returns that itself."""
    import torch
    from torch import nn

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.hidden, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, WORDS)

        def forward(self, ids: Any) -> Any:
            return end(self.head(torch.tanh(self.hidden(self.words(ids)))))

    class WithLoss(Text):
        def forward(self, ids: Any, label: Any) -> Any:
            outputs = super().forward(ids)
            return {"loss": loss(kind)(outputs, label), "outputs": outputs}

    torch.manual_seed(0)
    model = WithLoss() if inside else Text()
    return align.Training(model, None if inside else loss(kind), torch.optim.SGD(model.parameters(), 0.1))


def compared(reference: Any, candidate: Any, given: dict[str, Any] | None = None) -> Any:
    return align.compare_training_step(reference, candidate, batch=given or batch(), steps=1)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("kinds", "cause", "facts"),
    [
        (("next", "plain"), "labels-shifted", {"positions": "+1 vs +0"}),
        (("plain", "other class"), "labels-of-other-classes", {"classes": "+0 vs +1"}),
        (("plain", "softmax"), "softmax-twice", {"outputs are taken for": "logits vs logits after a softmax"}),
        (("plain", "smoothed"), "cross-entropy-smoothing", {"label_smoothing": "0 vs 0.1"}),
    ],
)
def test_what_a_loss_does_otherwise_is_named(
    kinds: tuple[str, str], cause: str, facts: dict[str, Any], inside: bool
) -> None:
    (culprit,) = compared(*(side(kind, inside=inside) for kind in kinds)).culprits
    assert (culprit.kind, culprit.part, culprit.cause, culprit.sureness) == ("loss", "loss", cause, "confirmed")
    assert culprit.facts == facts
    if not inside:
        assert compared(side(kinds[1]), side(kinds[1])).culprits == ()


def test_two_differences_of_a_loss_are_both_named() -> None:
    (culprit,) = compared(side("plain"), side("smoothed sum")).culprits
    assert culprit.cause == "cross-entropy-smoothing + mean-against-sum"
    assert culprit.facts == {"label_smoothing": "0 vs 0.1", "factor": 24.0}


def test_a_softmax_at_the_end_of_one_model_is_named() -> None:
    def shares(value: Any) -> Any:
        return value.softmax(-1)

    for ends, where in (((None, shares), "candidate"), ((shares, None), "reference")):
        (culprit,) = compared(*(side("plain", end=one) if one else side("plain") for one in ends)).culprits
        assert (culprit.kind, culprit.cause, culprit.facts) == ("forward", "softmax-at-the-end", {"softmax": where})
    assert compared(side("plain", end=shares), side("plain", end=shares)).culprits == ()


def test_logarithms_of_shares_are_logits_too_and_raw_logits_no_logarithms() -> None:
    def logarithms(value: Any) -> Any:
        return value.log_softmax(-1)

    for kinds in (("logarithms", "plain"), ("plain", "logarithms")):
        assert compared(*(side(kind, end=logarithms) for kind in kinds)).culprits == ()
    (culprit,) = compared(side("plain"), side("logarithms")).culprits
    assert culprit.cause == "outputs-taken-otherwise"


def looping(term: Callable[[Any, Any, Any], Any] | None) -> align.Training:
    """A loop that adds a term to the loss, of the model, its inputs and outputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))
    whole, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        values = given["x"].clone().requires_grad_()
        outputs = model(values)
        value = whole(outputs, given["label"]) + (term(model, values, outputs) if term else 0.0)
        value.backward()
        optimizer.step()
        return value.detach()

    return align.Training(model, whole, optimizer, step)


def vectors() -> dict[str, Any]:
    values = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    return {"x": values, "label": np.arange(12) % 3}


def squares(share: float, *, weights: bool = False) -> Callable[[Any, Any, Any], Any]:
    return lambda model, _values, _outputs: (
        share * sum((one**2).sum() for one in model.parameters() if one.ndim > 1 or not weights)
    )


def sizes(model: Any, _values: Any, _outputs: Any) -> Any:
    return 0.01 * sum(one.abs().sum() for one in model.parameters())


def penalty(share: float) -> Callable[[Any, Any, Any], Any]:
    """Of the gradient of the outputs with respect to the inputs."""
    import torch

    def term(_model: Any, values: Any, outputs: Any) -> Any:
        (gradient,) = torch.autograd.grad(outputs.sum(), values, create_graph=True)
        return share * (gradient**2).sum()

    return term


def test_a_multiple_of_the_parameters_in_the_loss_is_named_with_its_coefficient() -> None:
    cases: list[tuple[Any, ...]] = [
        (None, squares(0.01), "loss-term-l2", [{"coefficient": 0.01, "decay": 0.02}], [5]),
        (
            squares(0.01),
            squares(0.05, weights=True),
            "loss-term-l2",
            [{"coefficient": 0.04, "decay": 0.08}, {"coefficient": -0.01, "decay": -0.02}],
            [2, 3],
        ),
        (None, sizes, "loss-term-l1", [{"coefficient": 0.01}], [5]),
    ]
    for reference, candidate, cause, facts, counts in cases:
        found = compared(looping(reference), looping(candidate), vectors()).culprits
        assert {(one.kind, one.part, one.cause) for one in found} == {("loss", "loss", cause)}
        assert [one.facts for one in found] == facts
        assert [len(one.parameters) for one in found] == counts
    for term in (squares(0.05, weights=True), sizes):
        assert compared(looping(term), looping(term), vectors()).culprits == ()


def test_a_penalty_of_gradients_that_differs_is_a_term_beside_the_outputs() -> None:
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (penalty(0.1), penalty(0.5), {"times the reference's": 5.0}),
        (penalty(0.1), None, {"only in": "reference"}),
        (None, penalty(0.1), {"only in": "candidate"}),
    ]
    for reference, candidate, facts in cases:
        (culprit,) = compared(looping(reference), looping(candidate), vectors()).culprits
        assert (culprit.part, culprit.cause, culprit.facts) == ("loss", "loss-term-beside-outputs", facts)
    result = compared(looping(penalty(0.1)), looping(penalty(0.1)), vectors())
    assert (result.culprits, [one.code for one in result.findings if one.severity != "note"]) == ((), [])


def calling(times: int, momentum: float) -> align.Training:
    """A BatchNorm that a step calls several times."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.head = nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            for _ in range(times):
                x = torch.relu(self.norm(self.stem(x)))
            return self.head(x)

    torch.manual_seed(0)
    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))


def test_the_momentum_of_statistics_that_are_updated_several_times_is_told() -> None:
    for times, momentum, cause in ((2, 0.9, "statistics-momentum-swapped"), (3, 0.2, "statistics-momentum")):
        (culprit,) = compared(calling(times, 0.1), calling(times, momentum), vectors()).culprits
        assert (culprit.candidate, culprit.cause) == ("norm", cause)
        assert culprit.facts == {"share of the batch": f"0.1 vs {momentum:g}"}
    assert compared(calling(3, 0.2), calling(3, 0.2), vectors()).culprits == ()
