"""Rows of paired outputs: what is compared with what, what is not comparable and why, which is the first to differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.traces import Capture
from align.core.verdicts import Outcome
from align.forward.compare_traces import compare_traces, excuse_uncertain, first_divergence
from align.forward.judge_forward import judge_forward
from align.measure.limits import RoundingNoise
from align.traces.module_calls import Call, CallPair

if TYPE_CHECKING:
    from align.forward.forward_result import LayerComparison

Outputs = dict[str, Any]
NAN, INF = np.nan, np.inf


@dataclass
class Memory:
    """A Trace of arrays."""

    captures: tuple[Capture, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def holds(self, capture: Capture) -> bool:
        return capture.key in self.values

    def value(self, capture: Capture) -> Any:
        return self.values[capture.key]

    def call(self, module: str, outputs: Outputs, kind: str = "linear") -> Call:
        order, captures = len(self.values), []
        for name, value in outputs.items():
            array = np.asarray(value)
            capture = Capture(order, module, 0, name, kind.title(), array.shape, array.dtype.name)
            self.values[capture.key] = array
            captures.append(capture)
            order += 1
        return Call(module, 0, captures[0].order, kind.title(), kind, tuple(captures))


Step = tuple[str, Any, Any]
"""Module, the reference's outputs and the candidate's; a lone array is the output ""."""


def rows(*steps: Step, uncertain: tuple[str, ...] = (), kinds: tuple[str, str] = ("linear", "linear")) -> Any:
    reference, candidate = Memory(), Memory()
    pairs = []
    for module, mine, theirs in steps:
        outputs = [value if isinstance(value, dict) else {"": value} for value in (mine, theirs)]
        calls = reference.call(module, outputs[0], kinds[0]), candidate.call(module, outputs[1], kinds[1])
        pairs.append(CallPair(*calls, certain=module not in uncertain))
    return excuse_uncertain([*compare_traces(reference, candidate, pairs, noise=RoundingNoise({}))])


def one(mine: Any, theirs: Any) -> LayerComparison:
    (row,) = rows(("fc", mine, theirs))
    return row


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


def test_outputs_of_equal_names_are_compared_by_name_in_any_order() -> None:
    found = rows(("fc", {"a": f32(1), "b": f32(2)}, {"b": f32(2), "a": f32(1)}))
    assert [(row.output, row.outcome) for row in found] == [("a", "aligned"), ("b", "aligned")]


def test_other_names_are_compared_by_position() -> None:
    found = rows(("fc", {"0": f32(1), "1": f32(2)}, {"logits": f32(1), "hidden": f32(2)}))
    assert [row.outcome for row in found] == ["aligned", "aligned"]
    assert one({"": f32(3)}, {"logits": f32(3)}).outcome == "aligned"


def test_a_common_name_goes_before_the_position_of_the_others() -> None:
    found = rows(("fc", {"logits": f32(1), "hidden": f32(2)}, {"hidden": f32(2), "scores": f32(1)}))
    assert [row.outcome for row in found] == ["aligned", "aligned"]


def test_positions_are_no_names() -> None:
    """A None before the tensors shifts the numbers of one side."""
    found = rows(("fc", {"1": f32(1), "2": f32(2)}, {"0": f32(1), "1": f32(2)}))
    assert [row.outcome for row in found] == ["aligned", "aligned"]


def test_outputs_in_another_order_differ() -> None:
    found = rows(("fc", {"0": f32(1), "1": f32(2)}, {"0": f32(2), "1": f32(1)}))
    assert [row.outcome for row in found] == ["not aligned", "not aligned"]


@pytest.mark.parametrize("theirs", [{"0": f32(1)}, {"0": f32(1), "1": f32(2), "2": f32(3)}])
def test_a_missing_or_extra_output_is_never_passed_over(theirs: Outputs) -> None:
    found = rows(("", {"0": f32(1), "1": f32(2)}, theirs))
    assert {row.outcome for row in found} == {"not comparable"}
    assert {row.note for row in found} == {f"2 outputs against {len(theirs)}"}
    assert judge_forward(found, (), ()).outcome is Outcome.NOT_COMPARED


@pytest.mark.parametrize(("mine", "theirs"), [((3, 4), (1, 4)), ((2, 3), (2,)), ((1,), (4,)), ((0, 2), (3, 2))])
def test_a_broadcastable_shape_is_not_aligned(mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    row = one(np.ones(mine, np.float32), np.ones(theirs, np.float32))
    assert (row.outcome, row.measurement) == ("not aligned", None)
    assert row.note == f"shapes {list(mine)} and {list(theirs)} differ"


@pytest.mark.parametrize(("mine", "theirs"), [((), (1,)), ((2, 3, 1, 1), (2, 3)), ((2, 3), (3, 2)), ((0, 2), (2, 0))])
def test_another_layout_of_as_many_elements_is_not_comparable(mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    row = one(np.ones(mine, np.float32), np.ones(theirs, np.float32))
    assert (row.outcome, row.measurement) == ("not comparable", None)


def test_unknown_classes_of_other_shapes_are_not_comparable() -> None:
    (row,) = rows(("box", np.ones(2), np.ones(3)), kinds=("", ""))
    assert row.outcome == "not comparable"


def test_the_outputs_of_the_models_themselves_must_have_one_size() -> None:
    (row,) = rows(("", np.ones(2), np.ones(3)), kinds=("", ""))
    assert row.outcome == "not aligned"


def test_nan_on_one_side_is_not_aligned() -> None:
    row = one(f32(1, NAN), f32(1, 2))
    assert (row.outcome, row.factor) == ("not aligned", INF)
    assert one(f32(1, 2), f32(1, INF)).outcome == "not aligned"
    assert one(f32(1, INF), f32(1, -INF)).outcome == "not aligned"


def test_nan_on_both_sides_is_a_stated_exception() -> None:
    row = one(f32(1, NAN, INF), f32(1, NAN, INF))
    assert (row.outcome, row.note) == ("aligned", "2 equal NaN or Inf on both sides are left out")


def test_nothing_but_nan_is_not_comparable_and_no_verdict() -> None:
    found = rows(("", f32(NAN, NAN), f32(NAN, NAN)))
    assert (found[0].outcome, found[0].note) == ("not comparable", "no finite values on either side")
    assert judge_forward(found, (), ()).outcome is Outcome.NOT_COMPARED


def test_an_empty_output_is_not_comparable() -> None:
    row = one(np.empty((0, 4), np.float32), np.empty((0, 4), np.float32))
    assert (row.outcome, row.note) == ("not comparable", "no elements")


def test_an_all_zero_reference_allows_nothing_but_zero() -> None:
    assert one(f32(0, 0), f32(0, 0)).outcome == "aligned"
    assert one(f32(0, 0), f32(0, 1e-30)).outcome == "not aligned"


def test_integers_and_bools_are_exact() -> None:
    assert one(np.array([5, 7]), np.array([5, 7], np.int32)).outcome == "aligned"
    row = one(np.array([5, 7]), np.array([5, 8]))
    assert (row.outcome, row.limit and row.limit.source) == ("not aligned", "exact")
    assert one(np.array([True, False]), np.array([True, True])).outcome == "not aligned"


def test_0d_outputs_are_compared() -> None:
    assert one(np.float32(2.5), np.float32(2.5)).outcome == "aligned"
    assert one(np.float32(2.5), np.float32(2.6)).outcome == "not aligned"


def test_a_coarser_dtype_upstream_counts_for_what_follows() -> None:
    exact, rounded = np.linspace(1, 2, 50), np.linspace(1, 2, 50).astype(np.float16)
    steps = [("half", exact.astype(np.float32), rounded)]
    after = ("single", exact.astype(np.float32), rounded.astype(np.float32))
    assert [row.outcome for row in rows(*steps, after)] == ["aligned", "aligned"]
    assert [row.outcome for row in rows(after)] == ["not aligned"]


def test_a_coarser_dtype_on_both_sides_says_nothing_of_what_follows() -> None:
    half = np.linspace(1, 2, 50).astype(np.float16)
    single = np.linspace(1, 2, 50).astype(np.float32)
    found = rows(("half", half, half), ("single", single, single * np.float32(1.001)))
    assert [row.outcome for row in found] == ["aligned", "not aligned"]


def test_the_first_divergence_and_the_last_aligned_before_it() -> None:
    good, bad = (f32(1), f32(1)), (f32(1), f32(2))
    assert first_divergence(rows(("a", *good), ("b", *good), ("c", *bad), ("d", *good))) == (2, 1)
    assert first_divergence(rows(("a", *bad), ("b", *good))) == (0, None)
    assert first_divergence(rows(("a", *good), ("b", *good))) == (None, 1)
    assert first_divergence(rows(("a", np.empty(0), np.empty(0)), ("b", *bad))) == (1, None)
    assert first_divergence(()) == (None, None)


def test_a_later_layer_that_cancels_an_error_does_not_hide_it() -> None:
    found = rows(("scale", f32(1, 2), f32(2, 4)), ("norm", f32(-1, 1), f32(-1, 1)), ("", f32(-1, 1), f32(-1, 1)))
    assert [row.outcome for row in found] == ["not aligned", "aligned", "aligned"]
    assert judge_forward(found, (), ()).outcome is Outcome.NOT_ALIGNED


GOOD, BAD = (f32(1), f32(1)), (f32(1), f32(2))


def outcomes(*steps: Step) -> list[str]:
    """Outcomes of rows; a module called `box...` is not certain."""
    return [row.outcome for row in rows(*steps, uncertain=tuple(name for name, _, _ in steps if "box" in name))]


def test_an_uncertain_pair_that_differs_is_excused_if_the_next_certain_layer_agrees() -> None:
    found = rows(("a", *GOOD), ("box", *BAD), ("b", *GOOD), uncertain=("box",))
    assert [row.outcome for row in found] == ["aligned", "not comparable", "aligned"]
    assert found[1].factor is None
    assert "the next layer agrees" in found[1].note
    assert judge_forward(found, (), ()).coverage.excluded == 1


def test_an_uncertain_pair_is_not_excused_if_the_next_certain_layer_differs_too() -> None:
    assert outcomes(("a", *GOOD), ("box", *BAD), ("b", *BAD)) == ["aligned", "not aligned", "not aligned"]


def test_an_uncertain_pair_is_not_excused_if_nothing_certain_follows() -> None:
    assert outcomes(("a", *GOOD), ("box", *BAD)) == ["aligned", "not aligned"]


def test_a_later_fault_does_not_accuse_an_uncertain_pair_before_it() -> None:
    found = rows(("box", *BAD), ("b", *GOOD), ("c", *BAD), ("", *BAD), uncertain=("box",))
    assert first_divergence(found) == (2, 1)


def test_uncertain_pairs_in_a_row_share_one_witness() -> None:
    assert outcomes(("box1", *BAD), ("box2", *BAD), ("b", *GOOD)) == ["not comparable", "not comparable", "aligned"]
    assert outcomes(("box1", *BAD), ("box2", *GOOD), ("b", *BAD)) == ["not aligned", "aligned", "not aligned"]


def test_a_layer_that_could_not_be_compared_is_no_witness() -> None:
    empty = (np.empty(0), np.empty(0))
    assert outcomes(("box", *BAD), ("b", *empty), ("c", *BAD)) == ["not aligned", "not comparable", "not aligned"]
    assert outcomes(("box", *BAD), ("b", *empty), ("c", *GOOD)) == ["not comparable", "not comparable", "aligned"]
