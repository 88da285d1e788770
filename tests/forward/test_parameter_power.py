"""Blind and weakly seen parameters from gradients and a run, without any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.traces import Capture, Limit
from align.forward.judge_forward import parameter_rms, perturb_elements
from align.forward.measure_power import (
    names_without_effect,
    parameter_move,
    parameter_powers,
    suspect_elements,
    tensor_scales,
)
from align.forward.thresholds import LEAST_POWER_LIMIT, MOST_POWER_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ONES = {"w": np.ones((2, 3))}


def row(gradient: Any, blind: Any = None, tensors: int = 1) -> Any:
    masks = {} if blind is None else {"w": np.asarray(blind)}
    (only,) = parameter_powers({"w": parameter_move(1.0, np.asarray(gradient, np.float64))}, masks, tensors)
    return only


def test_a_scale_is_the_length_of_a_difference_at_its_limit() -> None:
    class Trace:
        captures = (
            Capture(0, "a", 0, "", "A", (4, 25), "float32"),
            Capture(1, "b", 0, "", "B", (2,), "int64"),
            Capture(2, "zero", 0, "", "C", (4,), "float32"),
            Capture(3, "not compared", 0, "", "D", (4,), "float32"),
        )

    nothing = Limit(0.0, 0.0, "exact")
    limits = {"a#0": Limit(1.0, 0.5, "noise"), "b#0": nothing, "zero#0": nothing}
    assert tensor_scales(Trace(), limits) == {"a#0": 5.0, "zero#0": 2 * LEAST_POWER_LIMIT}  # type: ignore[arg-type]


def test_the_size_of_a_parameter_that_is_zero_is_one() -> None:
    assert parameter_rms(np.array([3.0, -3.0])) == 3.0
    assert parameter_rms(np.zeros(3)) == 1.0
    assert parameter_rms(np.zeros((0, 3))) == 1.0


def test_large_parameters_of_float32_have_their_size_too_whatever_it_is() -> None:
    values = np.random.default_rng(0).standard_normal((3, 1 << 19)).astype(np.float32)
    for size in (1.0, 1e-30, 1e30):
        wide = values.astype(np.float64) * size
        assert parameter_rms(wide.astype(np.float32)) == pytest.approx(np.sqrt(np.mean(wide**2)), rel=1e-5)


def test_an_empty_parameter_is_neither_suspect_nor_listed() -> None:
    empty = np.zeros((0, 3))
    assert suspect_elements(empty, parameter_rms(empty)) is None
    assert list(parameter_powers({"w": parameter_move(parameter_rms(empty), empty)}, {}, 1)) == []


def test_a_change_shows_from_the_root_of_the_number_of_tensors_over_what_it_moves() -> None:
    found = row(np.full((2, 3), 1e4), tensors=4)
    assert found.shows_at == pytest.approx(2 / (1e4 * np.sqrt(6)))
    assert found.state == "seen"


def test_a_parameter_is_weakly_seen_if_a_hundredth_need_not_show() -> None:
    assert row(np.full((2, 3), 10.0)).state == "weakly seen"


def test_a_parameter_without_gradient_that_a_run_shows_is_unknown() -> None:
    found = row(np.zeros((2, 3)))
    assert (found.state, found.shows_at, found.blind) == ("unknown", None, 0)


def test_blind_elements_are_counted() -> None:
    some = np.array([[True, False, False], [True, False, False]])
    assert (row(np.full((2, 3), 1e4), some).state, row(np.full((2, 3), 1e4), some).blind) == ("partly blind", 2)
    assert row(np.zeros((2, 3)), np.ones((2, 3), bool)).state == "blind"


def suspected(gradient: np.ndarray[Any, Any]) -> Any:
    mask = suspect_elements(gradient, 1.0)
    assert mask is not None
    return mask.tolist()


def test_elements_without_gradient_are_suspect_and_in_vectors_those_with_rounding_only() -> None:
    gradient = np.array([1e4, 1e-3, 0.0, -2e4, 0.1, 1e3])
    assert suspected(gradient) == [False, True, True, False, False, False]
    assert suspected(gradient.reshape(2, 3)) == [[False, False, True], [False, False, False]]
    assert suspected(gradient.reshape(2, 3) * (1 + 1j)) == [[False, False, True], [False, False, False]]


def test_all_of_a_parameter_that_moves_next_to_nothing_is_suspect() -> None:
    assert suspected(np.full((2, 3), -1e-4)) == [[True] * 3] * 2
    assert suspect_elements(np.full((2, 3), 1e4), 1.0) is None


def test_only_suspect_elements_are_changed_by_the_size_of_their_parameter() -> None:
    mask = np.zeros((2, 3), bool)
    mask[1] = True
    new = perturb_elements({**ONES, "other": np.ones(2)}, {"w": mask})
    assert [*new] == ["w"]
    assert np.array_equal(new["w"][0], np.ones(3))
    assert (np.abs(new["w"][1] - 1) > 1e-3).all()


def effects(*guilty: str) -> tuple[Callable[[Sequence[str]], bool], list[list[str]]]:
    asked: list[list[str]] = []

    def has_effect(names: Sequence[str]) -> bool:
        asked.append(list(names))
        return any(name in guilty for name in names)

    return has_effect, asked


def test_suspects_that_move_nothing_together_take_one_run() -> None:
    has_effect, asked = effects()
    assert names_without_effect(["a", "b", "c"], has_effect) == {"a", "b", "c"}
    assert len(asked) == 1
    assert names_without_effect([], has_effect) == set()
    assert len(asked) == 1


def test_the_one_that_moves_something_is_told_from_the_others() -> None:
    has_effect, _ = effects("b")
    assert names_without_effect(["a", "b", "c", "d"], has_effect) == {"a", "c", "d"}


def test_what_is_open_when_the_runs_are_spent_is_not_called_blind() -> None:
    names = [f"p{i}" for i in range(256)]
    has_effect, asked = effects(*names[::2])
    assert not names_without_effect(names, has_effect) & set(names[::2])
    assert len(asked) == MOST_POWER_RUNS
