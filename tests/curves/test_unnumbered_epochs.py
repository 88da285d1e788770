"""Steps that start again in a log without epochs: epochs, the same run once more, or not known which."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import align
from align.cli.main import main
from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.errors import UnorderedLogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 60


def losses(count: int, seed: int, rate: float = 60.0) -> np.ndarray:
    """A curve that falls within its first epochs, with the noise of batches."""
    noise = np.random.default_rng(seed).normal(0, 0.02, count)
    return 2.2 * np.exp(-np.arange(count) / rate) + 0.3 + noise


def as_csv(path: Path, values: np.ndarray, first: int) -> None:
    rows = [f"{at % STEPS + first},{value:.5f}" for at, value in enumerate(values)]
    path.write_text("\n".join(["step,loss", *rows, ""]), encoding="utf-8")


def as_json_lines(path: Path, values: np.ndarray, first: int) -> None:
    rows = [json.dumps({"iter": at % STEPS + first, "train_loss": value}) for at, value in enumerate(values)]
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")


def as_lines(path: Path, values: np.ndarray, first: int) -> None:
    rows = [f"[train] batch {at % STEPS + first} loss={value:.5f} lr=0.01" for at, value in enumerate(values)]
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")


WRITERS = [(as_csv, 0), (as_csv, 1), (as_json_lines, 0), (as_json_lines, 1), (as_lines, 1)]


@pytest.mark.parametrize(("written", "first"), WRITERS)
def test_epochs_that_are_not_numbered_are_told_by_a_loss_that_goes_on(
    written: Callable[..., None], first: int, tmp_path: Path
) -> None:
    written(tmp_path / "a.log", losses(4 * STEPS, seed=1), first)
    curve = place_on_axis(read_log(tmp_path / "a.log"))
    assert (curve.steps == np.arange(1, 4 * STEPS + 1)).all()
    assert curve.steps_per_epoch == STEPS


@pytest.mark.parametrize(("written", "first"), WRITERS[:4])
def test_nan_of_an_earlier_epoch_is_never_aligned(written: Callable[..., None], first: int, tmp_path: Path) -> None:
    values, other = losses(4 * STEPS, seed=1), losses(4 * STEPS, seed=2)
    other[STEPS + 5 : 2 * STEPS - 8] = np.nan
    written(tmp_path / "a.log", values, first)
    written(tmp_path / "b.log", other, first)
    assert main(["loss", str(tmp_path / "a.log"), str(tmp_path / "b.log")]) != 0


@pytest.mark.parametrize("written", [as_csv, as_json_lines])
@pytest.mark.parametrize("runs", [2, 3])
def test_a_run_that_is_written_once_more_replaces_the_one_before(
    written: Callable[..., None], runs: int, tmp_path: Path
) -> None:
    values = np.concatenate([losses(STEPS, seed, rate=15.0) for seed in range(runs)])
    written(tmp_path / "a.log", values, 1)
    curve = place_on_axis(read_log(tmp_path / "a.log"))
    assert len(curve.steps) == STEPS
    assert np.allclose(curve.values, values[-STEPS:], atol=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_passes_over_a_flat_curve_are_not_guessed(seed: int, tmp_path: Path) -> None:
    as_csv(tmp_path / "a.csv", 0.5 + np.random.default_rng(seed).normal(0, 0.02, 3 * STEPS), 1)
    files = [str(tmp_path / "a.csv"), str(tmp_path / "a.csv")]
    with pytest.raises(UnorderedLogError, match="start again"):
        align.compare_losses(*files)
    result = align.compare_losses(*files, steps_per_epoch=STEPS)
    assert result.points.count == 3 * STEPS
