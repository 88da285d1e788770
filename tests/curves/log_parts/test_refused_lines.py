"""Logs of unknown lines that are easily read as what they are not: refused, with what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.errors import EmptyLogError, MixedProcessesError, NoNumberError, NoStepError, SeveralRunsError

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.loss_log import Curve

PASS = [(1, 0.9), (2, 0.8), (3, 0.7)]
NEXT = [(1, 0.95), (2, 0.85), (3, 0.65)]


def _curve(folder: Path, lines: list[str]) -> Curve:
    path = folder / "train.log"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return place_on_axis(read_log(path))


@pytest.mark.parametrize(
    ("lines", "error", "text"),
    [
        (["Step 900 | loss 3.0", "Step 1,000 | loss 2.9", "Step 1,100 | loss 2.8"], NoStepError, "'1,000' in line 2"),
        (["Iter 1,000/20,000: loss 2.9", "Iter 2,000/20,000: loss 2.8"], NoStepError, "'1,000' in line 1"),
        (["step 1_000 loss 2.9", "step 2_000 loss 2.8"], NoStepError, "'1_000'"),
        (["iter 1k loss 2.9", "iter 2k loss 2.8"], NoStepError, "'1k'"),
        (["step 1, loss: 11,064.5", "step 2, loss: 964.5"], NoNumberError, "'11,064.5' in line 1"),
        (["epoch 1 loss 0,53", "epoch 2 loss 0,48"], NoNumberError, "'0,53'"),
    ],
)
def test_parts_of_a_number_are_not_taken_for_it(
    lines: list[str], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        _curve(tmp_path, lines)


def test_a_comma_in_a_bracket_parts_an_epoch_and_its_step(tmp_path: Path) -> None:
    curve = _curve(tmp_path, ["[1,100] loss: 2.5", "[1,200] loss: 2.4", "[1,300] loss: 2.3"])
    assert (curve.steps.tolist(), curve.values.tolist()) == ([100, 200, 300], [2.5, 2.4, 2.3])


@pytest.mark.parametrize("line", ["epoch {} losses: [{}, 0.3, 0.2]", "loss@{}: {}", "loss[{}] = {}"])
def test_lists_and_numbered_losses_name_no_loss(line: str, tmp_path: Path) -> None:
    with pytest.raises(EmptyLogError):
        _curve(tmp_path, [line.format(*point) for point in PASS])


@pytest.mark.parametrize(
    "numbered",
    ["Fold {run} Epoch {step} loss {loss}", "Trial {run}: epoch {step} loss {loss}", "{head}\tstep {step} loss {loss}"],
)
def test_runs_that_a_number_tells_apart_are_not_put_on_one_curve(numbered: str, tmp_path: Path) -> None:
    passes = [
        (run, [numbered.format(run=run, step=step, loss=loss, head="") for step, loss in points])
        for run, points in ((1, PASS), (2, NEXT))
    ]
    lines = [line for run, told in passes for line in ([f"=== Fold {run} ==="] * ("head" in numbered) + told)]
    with pytest.raises(SeveralRunsError):
        _curve(tmp_path, lines)
    resumed = [line.replace("2 Epoch", "1 Epoch").replace("Trial 2", "Trial 1") for line in lines if "=" not in line]
    assert _curve(tmp_path, resumed).values.tolist() == [0.95, 0.85, 0.65]


def test_a_section_of_validation_is_no_resumed_training(tmp_path: Path) -> None:
    told, later = ([f"step {step} loss {loss}" for step, loss in points] for points in (PASS, NEXT))
    with pytest.raises(MixedProcessesError):
        _curve(tmp_path, ["=== Training ===", *told, "=== Evaluation ===", *later])
    resumed = _curve(tmp_path, [*told, "Evaluating ...", "=== Training ===", *later])
    assert resumed.values.tolist() == [0.95, 0.85, 0.65]


def test_losses_above_their_steps_are_not_given_to_the_steps_before(tmp_path: Path) -> None:
    lines = [line for step, loss in PASS for line in (f"loss: {loss}", f"step {step} done in 3 s")]
    with pytest.raises(EmptyLogError):
        _curve(tmp_path, ["Epoch 1", *lines])
    assert _curve(tmp_path, ["Epoch 1", *lines[1:], "loss: 0.6"]).values.tolist() == [0.8, 0.7, 0.6]
