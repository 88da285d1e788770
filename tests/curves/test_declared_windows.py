"""Means that a user's own logger prints, compared with single steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.cli.main import main
from align.curves.compare_losses import compare_losses
from align.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LOSSES = 3 / np.arange(1, 201) ** 0.3 + 0.2 * np.random.default_rng(0).standard_normal(200)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    """Every step of a run, and the means of ten steps of the same run, in CSV."""
    steps, means = tmp_path / "steps.csv", tmp_path / "means.csv"
    steps.write_text("step,loss\n" + "".join(f"{n},{loss!r}\n" for n, loss in enumerate(LOSSES.tolist(), start=1)))
    of_ten = LOSSES.reshape(-1, 10).mean(axis=1).tolist()
    means.write_text("step,loss\n" + "".join(f"{10 * n},{loss!r}\n" for n, loss in enumerate(of_ten, start=1)))
    return steps, means


@pytest.mark.parametrize("window", ["mean of last 10", "since last print"])
def test_what_is_said_of_one_side_makes_its_means_comparable(logs: tuple[Path, Path], window: str) -> None:
    assert compare_losses(*logs).verdict.outcome.value == "not aligned"
    said = compare_losses(*logs, window=(None, window))
    assert said.verdict.outcome.value == "aligned"
    assert float(np.abs(said.points.difference).max()) < 1e-12


def test_the_options_reach_their_side_and_other_words_are_refused(logs: tuple[Path, Path]) -> None:
    steps, means = map(str, logs)
    assert main(["loss", steps, means, "--candidate-window", "mean of last 10"]) == 0
    assert main(["loss", means, steps, "--reference-window", "mean of last 10"]) == 0
    assert main(["loss", steps, means, "--candidate-window", "smooth"]) == 2
    with pytest.raises(UsageError, match="cannot be 'smooth'"):
        compare_losses(*logs, window="smooth")
