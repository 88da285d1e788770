"""Epochs of unlike length: told first, compared batch by batch or by shares of epochs; and partly common steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align import compare_losses
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.curves.loss_log import CurveComparison


def _loss(done: float) -> float:
    return 0.4 + 2.0 * math.exp(-done)


def _mindcv(
    length: int, epochs: int, every: int, loss: Callable[[float], float], noise: float = 0.0, seed: int = 1
) -> str:
    drawn = 1.0 + noise * np.random.default_rng(seed).standard_normal((epochs, length))
    return "".join(
        f"Epoch: [{e + 1}/{epochs}], batch: [{b + 1}/{length}], loss: {loss(e + b / length) * drawn[e, b]:.6f}\n"
        for e in range(epochs)
        for b in range(0, length, every)
    )


def _compare(folder: Path, reference: str, candidate: str) -> CurveComparison:
    for name, text in (("a.log", reference), ("b.log", candidate)):
        (folder / name).write_text(text, encoding="utf-8")
    return compare_losses(folder / "a.log", folder / "b.log")


@pytest.mark.parametrize(("length", "every"), [(313, 20), (40, 1), (100, 7)])
def test_one_batch_more_is_a_last_batch_that_one_side_drops(length: int, every: int, tmp_path: Path) -> None:
    texts = [_mindcv(size, 4, every, _loss) for size in (length, length - 1)]
    for sides in (texts, texts[::-1]):
        comparison = _compare(tmp_path, *sides)
        assert comparison.verdict.outcome is Outcome.ALIGNED
        assert comparison.verdict.reason.startswith("an epoch has ")
        assert "drop_last" in comparison.verdict.reason
        assert comparison.verdict.coverage.unmatched_reference == comparison.verdict.coverage.unmatched_candidate == 0


@pytest.mark.parametrize(
    ("wrong", "trouble"),
    [
        (lambda done: _loss(done) if done < 1 else math.nan, "NaN"),
        (lambda done: _loss(done) if done < 1 else 4.8, "explosion"),
        (lambda done: _loss(done) + 0.2 * (done > 2), "epochs of unlike length"),
    ],
)
@pytest.mark.parametrize("length", [312, 156, 250])
def test_a_fault_behind_the_first_epoch_is_seen(
    wrong: Callable[[float], float], trouble: str, length: int, tmp_path: Path
) -> None:
    comparison = _compare(tmp_path, _mindcv(313, 4, 10, _loss), _mindcv(length, 4, 5, wrong))
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert comparison.trouble == trouble


@pytest.mark.parametrize("lengths", [(313, 156), (128, 512), (300, 200)])
def test_other_batch_sizes_are_compared_by_shares_of_epochs(lengths: tuple[int, int], tmp_path: Path) -> None:
    comparison = _compare(tmp_path, *(_mindcv(length, 4, 4, _loss, 0.004, length) for length in lengths))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "batch size, number of devices" in comparison.verdict.reason
    assert "compared by means over shares of 1/10 epoch" in comparison.verdict.reason


@pytest.mark.parametrize(("lengths", "every"), [((313, 156), 20), ((313, 101), 20), ((250, 120), 25)])
def test_points_that_lie_early_in_their_shares_are_no_fault(
    lengths: tuple[int, int], every: int, tmp_path: Path
) -> None:
    right, wrong = (
        _compare(tmp_path, *(_mindcv(length, 4, every, loss) for length, loss in zip(lengths, losses, strict=True)))
        for losses in ((_loss, _loss), (_loss, lambda done: 1.05 * _loss(done)))
    )
    assert right.verdict.outcome is Outcome.ALIGNED
    assert wrong.verdict.outcome is Outcome.NOT_ALIGNED


def test_noise_of_other_batches_is_no_fault(tmp_path: Path) -> None:
    for length in (313, 157):
        texts = _mindcv(314, 4, 10, _loss, 0.04, 5), _mindcv(length, 4, 10, _loss, 0.04, 6)
        comparison = _compare(tmp_path, *texts)
        assert comparison.verdict.outcome is Outcome.NOT_COMPARED
        assert "different batches alone make as much noise" in comparison.verdict.reason


def test_too_few_points_of_unlike_epochs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="an epoch has 300 steps in the reference and 100 in the candidate"):
        _compare(tmp_path, _mindcv(300, 3, 200, _loss), _mindcv(100, 3, 80, _loss))


def _csv(steps: list[int], change: Callable[[int, float], float] = lambda _, loss: loss) -> str:
    return "step,loss\n" + "".join(f"{step},{change(step, _loss(step / 100)):.6f}\n" for step in steps)


@pytest.mark.parametrize("often", [2, 3, 5])
def test_steps_that_meet_in_a_small_part_are_not_compared(often: int, tmp_path: Path) -> None:
    first = [*range(1, 41), *range(42, 600, 6 * often)]
    second = [*range(1, 41), *range(43, 600, 6 * often)]
    many = [*range(1, 11), *range(12, 600, often + 1)]
    other = [*range(1, 11), *range(13, 600, often + 1)]
    assert "have no common step near them" in _compare(tmp_path, _csv(many), _csv(other)).verdict.reason
    comparison = _compare(tmp_path, _csv(first), _csv(second, lambda step, loss: math.nan if step > 41 else loss))
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, "NaN")


def test_a_part_alone_is_said_to_be_one(tmp_path: Path) -> None:
    comparison = _compare(tmp_path, _csv([*range(1, 401)]), _csv([*range(201, 401)]))
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.verdict.reason.startswith(
        "this holds only for steps 201 to 400: 199 of the 400 points of the reference"
    )
    assert _compare(tmp_path, _csv([*range(1, 401)]), _csv([*range(381, 401)])).verdict.outcome is Outcome.NOT_COMPARED


@pytest.mark.parametrize("at", [5, 205, 399])
def test_nan_that_the_other_log_does_not_print_is_never_aligned(at: int, tmp_path: Path) -> None:
    dense = _csv([*range(1, 401)], lambda step, loss: math.nan if step == at else loss)
    for sides in ((dense, _csv([*range(10, 401, 10)])), (_csv([*range(10, 401, 10)]), dense)):
        comparison = _compare(tmp_path, *sides)
        assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, "NaN")
        assert f"--steps {at} " in comparison.next_command


def test_one_file_given_twice_is_said(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    log.write_text(_csv([1, 2, 3]), encoding="utf-8")
    (tmp_path / "again").symlink_to(log)
    for other in (log, str(log), tmp_path / "again"):
        assert compare_losses(log, other).verdict.reason.startswith("both logs are one file")
