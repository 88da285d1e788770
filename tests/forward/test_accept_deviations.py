"""Accepted deviations: what they take out of the verdict, and what they never do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.verdicts import Outcome
from align.forward.forward_result import AcceptedDeviation, Culprit, IsolatedComparison, LayerComparison
from align.forward.judge_forward import accept_deviations, judge_forward

if TYPE_CHECKING:
    from align.core.verdicts import LayerOutcome
    from align.forward.forward_result import IsolatedOutcome
    from align.forward.judge_forward import Deviations


def row(path: str, outcome: LayerOutcome, alone: IsolatedOutcome | None = "aligned") -> LayerComparison:
    isolated = None if alone is None else IsolatedComparison(alone)
    kinds = {"reference_dtype": "float32", "candidate_dtype": "float32", "outcome": outcome, "isolated": isolated}
    shapes = {"reference_shape": (1,), "candidate_shape": (1,), "measurement": None, "limit": None}
    names = {"reference": path, "candidate": path and f"port.{path}", "reference_class": "A", "candidate_class": "B"}
    return LayerComparison(order=0, call=0, output="", factor=7.0, **kinds, **shapes, **names)  # type: ignore[arg-type]


def culprit(path: str) -> Culprit:
    return Culprit(path, f"port.{path}", "A", "B", 0, "layer", 7.0)


LAYERS = [
    row("stem", "aligned"),
    row("act", "not aligned", "not aligned"),
    row("head", "not aligned"),
    row("", "not aligned"),
]


def accept(glob: str, layers: list[LayerComparison], *culprits: Culprit) -> Deviations:
    return accept_deviations(layers, culprits, [AcceptedDeviation(glob, "the kernel of the CPU")])


def test_an_accepted_layer_and_what_carries_its_deviation_on_leave_the_verdict_and_stay_in_the_coverage() -> None:
    found = accept("port.a*", LAYERS, culprit("act"))
    assert [one.outcome for one in found.layers] == ["aligned", "accepted", "accepted", "accepted"]
    carried = "right by itself: it passes an accepted deviation on"
    assert [one.note for one in found.layers[1:]] == ["the kernel of the CPU", carried, carried]
    assert found.culprits == ()
    assert (found.accepted[0].candidates, found.accepted[0].factor) == (("port.act",), 7.0)
    verdict = judge_forward(found.layers, (), (), found.culprits)
    assert verdict.outcome is Outcome.ALIGNED
    assert verdict.reason.endswith("3 more deviate for reasons that were accepted")
    assert (verdict.coverage.compared, verdict.coverage.excluded) == (1, 3)


def test_while_anything_else_is_at_fault_nothing_is_said_to_carry_an_accepted_deviation_on() -> None:
    found = accept("act", LAYERS, culprit("act"), culprit("head"))
    assert [one.outcome for one in found.layers] == ["aligned", "accepted", "not aligned", "not aligned"]
    assert [one.reference for one in found.culprits] == ["head"]
    assert judge_forward(found.layers, (), (), found.culprits).outcome is Outcome.NOT_ALIGNED


def test_what_was_not_judged_alone_is_never_said_to_carry_an_accepted_deviation_on() -> None:
    unjudged = [replace(one, isolated=None) for one in LAYERS]
    found = accept("act", unjudged)
    assert [one.outcome for one in found.layers] == ["aligned", "accepted", "not aligned", "not aligned"]


def test_what_comes_before_an_accepted_layer_is_judged_as_ever() -> None:
    found = accept("head", [*LAYERS[:2], row("head", "not aligned", "not aligned")], culprit("head"))
    assert [one.outcome for one in found.layers] == ["aligned", "not aligned", "accepted"]


def test_an_allowance_that_nothing_needs_is_listed_with_no_layer() -> None:
    found = accept("stem", LAYERS)
    assert found.layers == tuple(LAYERS)
    assert found.accepted[0].candidates == ()


def test_accepted_layers_alone_are_no_alignment() -> None:
    found = accept("*", LAYERS[1:])
    assert judge_forward(found.layers, (), ()).outcome is Outcome.NOT_COMPARED
