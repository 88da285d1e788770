"""What a verdict says that it does not rest on, from plain values: each caveat with the twin that needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.traces import Limit
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.forward.caveats import with_caveats
from align.forward.forward_result import ForwardComparison, LayerComparison, LeftOut, UnseenModule
from align.measure.measure_arrays import measure
from align.models.inputs import describe_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.protocols import Batch, Inputs

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(4, 6)
ONES = np.ones((4, 6), np.int64)
MIXED = np.arange(24).reshape(4, 6) % 2
BATCH_OF_1 = "the batch holds 1 sample: a fault that mixes samples does not show"
LEFT_OUT = Finding("outputs-left-out", "warning", "net", "left out of the comparison: outputs.cfg", {"parts": 2})


def output(left_out: tuple[LeftOut, ...] = (), elements: int = 24) -> LayerComparison:
    return LayerComparison(
        **dict.fromkeys(("reference", "candidate", "reference_class", "candidate_class", "output"), ""),
        **dict.fromkeys(("reference_shape", "candidate_shape"), X.shape),
        **dict.fromkeys(("reference_dtype", "candidate_dtype"), "float32"),
        order=0,
        call=0,
        outcome="aligned",
        measurement=measure(X.reshape(-1)[:elements], X.reshape(-1)[:elements]),
        limit=Limit(1e-6, 1e-6, "noise"),
        factor=0.0,
        left_out=left_out,
    )


def result(
    inputs: Inputs,
    *,
    left_out: tuple[LeftOut, ...] = (),
    elements: int = 24,
    findings: Sequence[Finding] = (),
    unseen: Sequence[UnseenModule] = (),
    outcome: Outcome = Outcome.ALIGNED,
) -> ForwardComparison:
    return ForwardComparison(
        reference="Net",
        candidate="Net",
        layers=(output(left_out, elements),),
        first_divergent=None,
        last_aligned=0,
        unpaired=(),
        findings=tuple(findings),
        inputs=describe_inputs(inputs),
        environment={},
        verdict=Verdict(outcome, "", Coverage("layer outputs", 1)),
        unseen=tuple(unseen),
    )


def caveats(inputs: Inputs, **facts: object) -> tuple[str, ...]:
    found = with_caveats(result(inputs, **facts), inputs).verdict.caveats  # type: ignore[arg-type]
    return tuple(one for one in found if not one.startswith("judged in"))


def judged(**facts: object) -> str:
    found = with_caveats(result({"x": X}, **facts), {"x": X}).verdict.caveats  # type: ignore[arg-type]
    return next(one for one in found if one.startswith("judged in"))


@pytest.mark.parametrize("other", [np.arange(5), np.eye(3, dtype=np.float32), np.float32(3.0)])
def test_the_first_input_of_two_axes_tells_a_batch_of_one(other: np.ndarray) -> None:
    assert caveats({"x": X[:1], "other": other}) == (BATCH_OF_1,)
    assert caveats({"x": X, "other": other}) == ()


def test_positions_in_front_tell_no_batch() -> None:
    assert caveats({"position_ids": np.arange(6), "x": X[:1]}) == (BATCH_OF_1,)
    assert caveats({"steps": np.arange(1), "x": X}) == ()
    assert caveats([{"x": X[:1]}, {"x": X}]) == ()
    assert caveats([{"x": X[:1]}, {"x": X[1:2]}]) == (BATCH_OF_1,)


@pytest.mark.parametrize(
    ("masks", "told"),
    [
        ([MIXED], ""),
        ([MIXED, MIXED], ""),
        ([ONES], "1 throughout: a wrong use of it may not show"),
        ([ONES, ONES], "1 throughout: a wrong use of it may not show"),
        ([MIXED, ONES], "1 throughout in batch 2: a wrong use of it there may not show"),
        (
            [0 * ONES, MIXED, ONES],
            "0 throughout in batch 1, 1 throughout in batch 3: a wrong use of it there may not show",
        ),
    ],
)
def test_a_constant_input_is_told_with_its_batch(masks: list[np.ndarray], told: str) -> None:
    batches: list[Batch] = [{"x": X, "attention_mask": mask} for mask in masks]
    assert caveats(batches) == ((f"attention_mask is {told}",) if told else ())


def test_outputs_left_out_are_told() -> None:
    given = {"x": X}
    assert caveats(given) == ()
    assert caveats(given, findings=[LEFT_OUT]) == ("not compared: 2 parts of the outputs",)
    assert caveats(given, findings=[LEFT_OUT, LEFT_OUT]) == ("not compared: 2 parts of the outputs",)
    one = Finding("outputs-left-out", "warning", "net", "", {"parts": 1})
    assert caveats(given, findings=[one, LEFT_OUT]) == ("not compared: 1 and 2 parts of the two outputs",)


def test_values_and_layers_that_were_not_compared_are_told() -> None:
    findings = [Finding(code, "note", "net", "") for code in ("outputs-only", "weights-unknown", "noise-unmeasured")]
    said = "not compared: layers inside of a compiled network, the values of parameters that were not kept"
    assert caveats({"x": X}, findings=findings) == (said,)
    assert caveats({"x": X}, findings=findings[2:]) == ()


def test_modules_that_were_not_seen_are_told() -> None:
    past = [UnseenModule("candidate", name, "Dense", 8, "bypassed") for name in "ab"]
    never = UnseenModule("reference", "c", "Linear", 8, "never called")
    said = "not compared: 2 modules of the candidate (bypassed), 1 module of the reference (never called)"
    assert caveats({"x": X}, unseen=[*past, never]) == (said,)
    assert caveats({"x": X}, unseen=[*past, never], outcome=Outcome.NOT_ALIGNED) == (said,)
    assert caveats({"x": X}, unseen=past, outcome=Outcome.NOT_COMPARED) == ()


def test_what_would_show_is_not_claimed_of_what_was_left_out() -> None:
    assert judged() == "judged in float32: a relative difference of 2e-06 in an output would show"
    for left_out in ("padding", "non-finite", "part", "elements"):
        assert (
            judged(left_out=(left_out,))
            == "judged in float32: elsewhere a relative difference of 2e-06 in an output would show"
        )


def test_without_the_inputs_their_shapes_tell_a_batch_of_one() -> None:
    for inputs, told in (({"x": X[:1]}, True), ({"x": X}, False), ([{"x": X[:1]}, {"x": X}], False)):
        assert (BATCH_OF_1 in with_caveats(result(inputs)).verdict.caveats) is told


def test_elements_that_a_trace_did_not_keep_are_told() -> None:
    said = "outputs are compared on 5 of 24 elements"
    assert caveats({"x": X}, left_out=("elements",), elements=5) == (said,)
