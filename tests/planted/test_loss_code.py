"""Losses written by hand: the functional call that is at fault is named, with its line; the last one alone is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align.training.faults import find_step_faults

torch = pytest.importorskip("torch")
mindspore = pytest.importorskip("mindspore")
nn, ops, Tensor = mindspore.nn, mindspore.ops, mindspore.Tensor

generator = np.random.default_rng(0)
BATCH = {
    "x": generator.standard_normal((8, 6)).astype(np.float32),
    "wanted": (generator.random((8, 5)) < 0.3).astype(np.float32),
    "seen": (generator.random((8, 5)) < 0.6).astype(np.float32),
}
CLASSES = {"x": BATCH["x"], "labels": generator.integers(1, 5, 8)}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(6, 12), torch.nn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.first(x)))


class Port(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dense(6, 12), nn.Dense(12, 5)

    def construct(self, x: Any) -> Any:
        return self.last(ops.tanh(self.first(x)))


def focal(scores: Any, wanted: Any, seen: Any) -> Any:
    """A focal loss over what is seen, and a penalty on large scores."""
    share = torch.sigmoid(scores)
    bce = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    hit = share * wanted + (1 - share) * (1 - wanted)
    weight = 0.25 * wanted + 0.75 * (1 - wanted)
    each = weight * (1 - hit) ** 2 * bce
    mean = (each * seen).sum() / seen.sum()
    return mean + 0.01 * (scores**2).mean()


def ported(fault: str = "") -> Any:
    """The same by MindSpore's functions, with a fault."""

    def loss(scores: Any, wanted: Any, seen: Any) -> Any:
        share = ops.sigmoid(scores)
        bce = ops.relu(scores) - scores * wanted + ops.log1p(ops.exp(-ops.abs(scores)))
        hit = share * wanted + (1 - share) * (1 - wanted)
        alpha = 0.75 if fault == "alpha" else 0.25
        weight = alpha * wanted + (1 - alpha) * (1 - wanted)  # alpha
        each = weight * (1 - hit) ** (1 if fault == "gamma" else 2) * bce  # gamma
        count = seen.size if fault == "unseen" else seen.sum()
        mean = (each * seen).sum() / count  # unseen
        penalty = ops.sum(scores**2) if fault == "penalty" else (scores**2).mean()  # penalty
        return mean + 0.01 * penalty

    return loss


def compared(fault: str) -> Any:
    model, other = Net(), Port()
    first = align.Training(model, focal, torch.optim.SGD(model.parameters(), 0.1))
    second = align.Training(other, ported(fault), nn.SGD(other.trainable_params(), 0.1))
    return align.compare_training_step(first, second, batch=BATCH, steps=2)


def line_of(fault: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {fault}"))


@pytest.mark.parametrize("fault", ["alpha", "gamma", "unseen", "penalty"])
def test_the_call_of_a_loss_that_is_at_fault_is_named_with_its_line(fault: str) -> None:
    result = compared(fault)
    (culprit,) = result.culprits
    assert (culprit.part, culprit.sureness) == ("loss", "confirmed")
    assert culprit.inside is not None
    assert culprit.inside.reference_function
    assert {int(one.rpartition(":")[2]) for one in culprit.inside.lines} == {line_of(fault)}
    assert culprit.inside.lines[0] in str(result)


def test_a_right_loss_that_is_written_otherwise_is_aligned() -> None:
    result = compared("")
    assert result.verdict.exit_code == 0
    assert result.culprits == ()


def by_classes(scores: Any, labels: Any) -> Any:
    """A cross entropy of classes, and one of the scores of the halves of the batch against each other."""
    rows = torch.nn.functional.one_hot(labels.long(), 5).to(scores.dtype)
    first = -(torch.log_softmax(scores, 1) * rows).sum(1).mean()
    apart = torch.nn.functional.mse_loss(scores[:4].mean(0), scores[4:].mean(0))
    return first + 5.0 * apart


def by_classes_ported(fault: str = "") -> Any:
    """The same by MindSpore's functions, with a fault."""
    nothing = Tensor(0.0)

    def entropy(scores: Any, rows: Any) -> Any:
        shares = scores - ops.logsumexp(scores, 1, True)
        return -(shares * rows).sum(1).mean()  # called

    def loss(scores: Any, labels: Any) -> Any:
        labels = labels - 1 if fault == "from one" else labels  # from one
        rows = ops.one_hot(labels, 5, Tensor(1.0), nothing)
        if fault == "no term":
            return entropy(scores, rows)  # no term
        rows = 0.9 * rows + 0.02 if fault == "smooth" else rows  # smooth
        first = entropy(scores, rows)
        gap = scores[:4].mean(0) - scores[4:].mean(0)
        return first + 5.0 * ops.square(gap).mean()

    return loss


@pytest.mark.parametrize(
    ("fault", "difference"),
    [("from one", "extra step"), ("no term", "missing behind"), ("smooth", "")],
)
def test_labels_terms_and_targets_of_a_loss_are_named_with_their_lines(fault: str, difference: str) -> None:
    model, other = Net(), Port()
    first = align.Training(model, by_classes, torch.optim.SGD(model.parameters(), 0.1))
    second = align.Training(other, by_classes_ported(fault), nn.SGD(other.trainable_params(), 0.1))
    result = align.compare_training_step(first, second, batch=CLASSES, steps=2)
    (culprit,) = result.culprits
    assert (culprit.part, culprit.sureness) == ("loss", "confirmed")
    assert culprit.inside is not None
    assert line_of(fault) in {int(one.rpartition(":")[2]) for one in culprit.inside.lines}
    assert not difference or culprit.inside.difference == difference
    assert difference != "missing behind" or culprit.inside.reference_function == "add"


def test_a_right_loss_of_classes_is_aligned() -> None:
    model, other = Net(), Port()
    first = align.Training(model, by_classes, torch.optim.SGD(model.parameters(), 0.1))
    second = align.Training(other, by_classes_ported(), nn.SGD(other.trainable_params(), 0.1))
    assert align.compare_training_step(first, second, batch=CLASSES, steps=2).verdict.exit_code == 0


def test_where_the_steps_for_a_loss_end_without_a_result_a_note_says_so_and_thorough_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find_step_faults, "MOST_CODE_STEPS", 0)
    results = []
    for thorough in (False, True):
        model, other = Net(), Port()
        first = align.Training(model, by_classes, torch.optim.SGD(model.parameters(), 0.1))
        second = align.Training(other, by_classes_ported("smooth"), nn.SGD(other.trainable_params(), 0.1))
        results.append(align.compare_training_step(first, second, batch=CLASSES, steps=1, thorough=thorough))
    codes = [[one.code for one in result.findings if one.code == "search-ended"] for result in results]
    causes = [[one.cause for one in result.culprits] for result in results]
    assert codes == [["search-ended"], []]
    assert causes[0] == [""]
    assert causes[1] != [""]
