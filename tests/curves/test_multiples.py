"""Losses that are a whole multiple of the other side's, and gradients that are no numbers where curves part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align import compare_losses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.curves.loss_log import CurveComparison


def _compare(folder: Path, *sides: tuple[Callable[[int], float], Callable[[int], float | None]]) -> CurveComparison:
    for name, (loss, norm) in zip("ab", sides, strict=True):
        rows = [{"step": step, "loss": round(loss(step), 5), "grad_norm": norm(step)} for step in range(1, 61)]
        kept = [{key: value for key, value in row.items() if value is not None} for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, kept)) + "\n", encoding="utf-8")
    return compare_losses(folder / "a.jsonl", folder / "b.jsonl")


def _loss(step: int) -> float:
    return 1.4 + 1.1 * 0.95**step + 0.003 * (step % 3)


@pytest.mark.parametrize("times", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("norms", "said"),
    [(1.0, "Only what is printed differs: a sum over"), (None, "log the gradient norm"), (0.0, "norms differ too")],
)
def test_a_sum_in_place_of_a_mean_is_named(times: int, norms: float | None, said: str, tmp_path: Path) -> None:
    def norm(factor: float) -> Callable[[int], float | None]:
        return lambda _: None if norms is None else 0.8 * factor

    own = (_loss, norm(1.0))
    other = (lambda step: times * (_loss(step) + 0.001 * (step % 5)), norm(times if norms == 0.0 else 1.0))
    for sides, side in (((own, other), "candidate"), ((other, own), "reference")):
        comparison = _compare(tmp_path, *sides)
        assert comparison.trouble == "a multiple of the reference"
        assert said in comparison.next_command
        assert f"the {side}'s losses are {times} times the other's" in comparison.next_command
        assert "align forward" not in comparison.next_command


@pytest.mark.parametrize("other", [lambda s: 1.5 * _loss(s), lambda s: _loss(s) + 1.4, lambda s: 2 * _loss(s) + s / 50])
def test_other_differences_are_no_multiple(other: Callable[[int], float], tmp_path: Path) -> None:
    assert _compare(tmp_path, (_loss, lambda _: 0.8), (other, lambda _: 0.8)).trouble != "a multiple of the reference"


@pytest.mark.parametrize(("parted", "at"), [(20, 21), (20, 20), (30, 28)])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_gradients_that_are_no_numbers_where_curves_part_decide(
    parted: int, at: int, value: float, tmp_path: Path
) -> None:
    worse = (lambda step: _loss(step) * (1.4 if step >= parted else 1.0), lambda step: value if step == at else 0.8)
    comparison = _compare(tmp_path, (_loss, lambda _: 0.8), worse)
    assert comparison.trouble == "gradients not finite"
    assert comparison.next_command.startswith(f"align nonfinite FACTORY --batch BATCH --steps {at} ")
    far = (worse[0], lambda step: value if step == parted + 20 else 0.8)
    assert _compare(tmp_path, (_loss, lambda _: 0.8), far).trouble != "gradients not finite"
