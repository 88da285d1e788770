"""What a function keeps between its calls, wherever it keeps it, is put back; what is not its own stays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.training.open_training import kept_put_back

if TYPE_CHECKING:
    from collections.abc import Callable

TOTAL = 0
ARRAY = np.zeros(1)


class Loop:
    def __init__(self) -> None:
        self.calls, self.history = 0, [1.0]

    def step(self) -> int:
        self.calls += 1
        self.history.append(float(self.calls))
        self.last = self.calls
        return self.calls + len(self.history)


def in_a_global() -> int:
    global TOTAL
    TOTAL += 1
    return TOTAL


def in_a_helpers_closure() -> Callable[[], int]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return lambda: count()


def in_a_default(table: dict[str, int] = {"calls": 0}) -> int:  # noqa: B006 - as users write it
    table["calls"] += 1
    table.setdefault("more", table["calls"])
    return table["calls"] + table["more"]


def in_a_part() -> Callable[[], int]:
    def count(state: list[int]) -> int:
        state[0] += 1
        return state[0]

    return partial(count, [0])


@pytest.mark.parametrize(
    "build",
    [lambda: Loop().step, lambda: in_a_global, in_a_helpers_closure, lambda: in_a_default, in_a_part],
    ids=["object", "global", "closure", "default", "part"],
)
def test_each_run_of_calls_begins_where_the_first_one_did(build: Callable[[], Callable[[], int]]) -> None:
    step = build()
    runs = []
    for _ in range(2):
        with kept_put_back(step):
            runs.append([step(), step()])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_what_it_keeps_is_put_back_after_an_error_too() -> None:
    loop = Loop()

    def fails() -> None:
        loop.step()
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"), kept_put_back(fails):
        fails()
    assert (loop.calls, loop.history, hasattr(loop, "last")) == (0, [1.0], False)


def test_arrays_and_iterators_stay_as_the_step_left_them() -> None:
    numbers: Any = iter(range(9))

    def step() -> int:
        ARRAY[0] += 1
        return next(numbers)

    with kept_put_back(step):
        step()
    assert (ARRAY[0], next(numbers)) == (1.0, 1)
    with kept_put_back(None):
        pass
