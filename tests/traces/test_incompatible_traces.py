"""Two runs that must not be compared are told apart by what their traces say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.core.traces import KeptValues, TraceHead
from align.models.inputs import describe_inputs
from align.traces.open_trace import trace_faults

X = np.ones((2, 3), np.float32)
HEAD = TraceHead("a:b", "torch", describe_inputs({"x": X, "mask": X[0]}))


def faults(**changes: object) -> list[str]:
    return [*trace_faults(HEAD, replace(HEAD, **changes))]  # type: ignore[arg-type]


def test_alike_runs_may_have_other_models_frameworks_and_names_of_inputs() -> None:
    assert faults(side="c:d", framework="mindspore", inputs=describe_inputs({"image": X, "m": X[0]})) == []
    assert faults(inputs=describe_inputs({"mask": X[0], "x": X})) == []
    assert faults(functions=True, kept=KeptValues(("layers.*",), 100)) == []


@pytest.mark.parametrize("field", ["mode", "step", "seed", "direction"])
def test_another_mode_step_seed_or_direction_is_a_fault(field: str) -> None:
    assert faults(**{field: 7}) == [f"different {field}: {getattr(HEAD, field)} and 7"]


def test_other_inputs_are_a_fault_by_count_kind_and_value() -> None:
    assert faults(inputs=describe_inputs({"x": X})) == ["different inputs: 2 inputs and 1"]
    wide = describe_inputs({"x": X.astype(np.float64), "mask": X[0]})
    assert faults(inputs=wide) == ["different inputs: x is float32[2, 3] and float64[2, 3]"]
    [fault] = faults(inputs=describe_inputs({"x": 2 * X, "mask": X[0]}))
    assert fault.startswith("different inputs: x has other values (SHA-256 ")
    swapped = (
        TraceHead("", "", describe_inputs({"a": X, "b": 2 * X})),
        TraceHead("", "", describe_inputs({"b": X, "a": 2 * X})),
    )
    assert len([*trace_faults(*swapped)]) == 2


def test_other_elements_are_a_fault_unless_one_side_keeps_all() -> None:
    first, sample = replace(HEAD, kept=KeptValues(elements=9)), replace(HEAD, kept=KeptValues(elements=9, sampled=True))
    assert [*trace_faults(first, sample)] == ["different elements are kept: the first 9 and a sample of 9"]
    assert [*trace_faults(first, first)] == [*trace_faults(HEAD, sample)] == []
