"""A loss of exactly 0 to the end is NaN, unless it came down to 0 or its gradients go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align import compare_losses
from align.curves.compare_losses import describe_log

if TYPE_CHECKING:
    from pathlib import Path


def _log(folder: Path, losses: list[float], norm: float | None = None, name: str = "b") -> Path:
    path = folder / f"{name}.jsonl"
    beside = {} if norm is None else {"grad_norm": norm}
    rows = [json.dumps({"step": step, "loss": loss, **beside}) for step, loss in enumerate(losses, 1)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


DOWN = [round(2.4 - 0.02 * n, 4) for n in range(40)]


@pytest.mark.parametrize("first", [0, 3, 20, 37])
@pytest.mark.parametrize("norm", [None, float("nan"), 0.0])
def test_zeros_to_the_end_are_nan(first: int, norm: float | None, tmp_path: Path) -> None:
    filtered = _log(tmp_path, DOWN[:first] + [0.0] * (40 - first), norm)
    comparison = compare_losses(_log(tmp_path, DOWN, name="a"), filtered)
    assert (comparison.verdict.outcome.value, comparison.trouble) == ("not aligned", "NaN")
    assert f"exactly 0 from step {first + 1} on" in comparison.verdict.reason
    assert comparison.next_command.startswith(f"align nonfinite FACTORY --batch BATCH --steps {first + 1} ")
    if first:
        assert any("logging_nan_inf_filter" in note for note in describe_log(filtered).notes)


@pytest.mark.parametrize(
    ("losses", "norm"),
    [
        ([*DOWN[:38], 0.0, 0.0], None),
        ([2.0 * 0.5**n for n in range(30)] + [0.0] * 10, None),
        (DOWN[:20] + [0.0] * 20, 0.7),
        ([0.0] * 40, None),
    ],
)
def test_other_zeros_are_losses(losses: list[float], norm: float | None, tmp_path: Path) -> None:
    sides = _log(tmp_path, losses, norm, "a"), _log(tmp_path, losses, norm)
    assert compare_losses(*sides).verdict.outcome.value == "aligned"
