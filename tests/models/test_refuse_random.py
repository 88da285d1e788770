"""Two runs of one model are the same but for the order in which kernels add."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.traces import Capture
from align.models.call_model import NondeterminismSink

VALUES = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


class Earlier:
    """The Trace of an earlier run in which both modules returned VALUES."""

    captures = tuple(Capture(order, path, 0, "", "Odd", (4, 8), "float32") for order, path in enumerate("ab"))

    def value(self, _: Capture) -> Any:
        return VALUES


def first_to_differ(*returned: Any) -> str | None:
    """Path of the first module whose tensor is another one than it was."""
    sink = NondeterminismSink(Earlier())  # type: ignore[arg-type]
    for order, (path, value) in enumerate(zip("abc", returned, strict=False)):
        sink.add(Capture(order, path, 0, "", "Odd", value.shape, value.dtype.name), value)
    return None if sink.first is None else sink.first.module


def test_equal_values_and_those_within_the_limit_of_the_dtype_are_the_same() -> None:
    assert first_to_differ(VALUES, VALUES * np.float32(1 + 1e-6)) is None


def test_the_first_tensor_that_differs_is_kept_whatever_follows() -> None:
    assert first_to_differ(VALUES, VALUES[::-1]) == "b"
    assert first_to_differ(-VALUES, -VALUES) == "a"


@pytest.mark.parametrize("value", [VALUES[:2], np.full_like(VALUES, np.nan)])
def test_another_shape_and_nan_are_not_the_same(value: Any) -> None:
    assert first_to_differ(value) == "a"


def test_a_module_that_the_earlier_run_did_not_call_says_nothing() -> None:
    assert first_to_differ(VALUES, VALUES, -VALUES) is None
