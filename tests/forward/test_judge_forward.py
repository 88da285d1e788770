"""The verdict of a forward comparison: something must have been compared, and nothing compared may be off."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from align.core.verdicts import Finding, Outcome, Verdict
from align.forward.forward_result import LayerComparison
from align.forward.judge_forward import judge_forward, no_part_at_fault
from align.traces.module_calls import UnpairedLayer

if TYPE_CHECKING:
    from align.core.verdicts import LayerOutcome

ERROR = Finding("weights-differ", "error", "fc.weight -> head.weight", "values differ by up to 0.5")
NOTE = Finding("noise-unmeasured", "note", "port:model", "limits come from a table by dtype")
ALONE = UnpairedLayer("reference", "drop", "Dropout", 0, "no such module")


def layer(reference: str, outcome: LayerOutcome = "aligned") -> LayerComparison:
    float32 = {"reference_dtype": "float32", "candidate_dtype": "float32", "outcome": outcome}
    shapes = {"reference_shape": (1,), "candidate_shape": (1,), "measurement": None, "limit": None, "factor": None}
    classes = {"reference_class": "Linear", "candidate_class": "Dense", "candidate": reference and f"port.{reference}"}
    return LayerComparison(order=0, reference=reference, call=0, output="", **float32, **shapes, **classes)  # type: ignore[arg-type]


def verdict(*layers: LayerComparison, findings: tuple[Finding, ...] = ()) -> Verdict:
    return judge_forward(layers, (ALONE,), findings)


def test_all_layers_and_the_output_within_limits_is_aligned_with_its_coverage() -> None:
    found = verdict(layer("fc"), layer("act", "not comparable"), layer(""))
    assert found.outcome is Outcome.ALIGNED
    assert (found.coverage.compared, found.coverage.excluded, found.coverage.unmatched_reference) == (2, 1, 1)


def test_one_layer_outside_is_not_aligned_even_if_the_output_agrees() -> None:
    found = verdict(layer("fc"), layer("mid", "not aligned"), layer("end", "not aligned"), layer(""))
    assert found.outcome is Outcome.NOT_ALIGNED
    assert found.reason == "2 of 4 layer outputs differ, first at mid (Linear) -> port.mid (Dense)"


def test_the_output_itself_is_named_in_words() -> None:
    assert "at the output (Linear) -> the output (Dense)" in verdict(layer("", "not aligned")).reason


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (layer("fc", "not comparable"),),
        (layer("fc"),),
        (layer("fc"), layer("", "not comparable")),
        (layer("fc"), layer(""), layer("", "not comparable")),
    ],
)
def test_nothing_compared_or_no_output_compared_is_no_verdict(layers: tuple[LayerComparison, ...]) -> None:
    found = verdict(*layers)
    assert found.outcome is Outcome.NOT_COMPARED
    assert found.exit_code == 2


def test_weights_that_differ_are_not_aligned_whatever_the_layers_say() -> None:
    found = verdict(layer("fc"), layer(""), findings=(NOTE, ERROR))
    assert found.outcome is Outcome.NOT_ALIGNED
    said = "all compared layers agree, but fc.weight -> head.weight: values differ by up to 0.5 (weights-differ)"
    assert found.reason == said


def test_of_several_errors_the_first_is_told_and_notes_are_none() -> None:
    coarse = Finding("precision-too-coarse", "error", "head", "1 output is coarser than float32")
    found = verdict(layer("fc"), layer(""), findings=(coarse, NOTE, ERROR))
    assert "but 2 findings are errors, the first: head: 1 output is coarser than float32 (precision-" in found.reason
    assert verdict(layer("fc"), layer(""), findings=(NOTE,)).outcome is Outcome.ALIGNED


@pytest.mark.parametrize(
    ("labels", "batches", "told"),
    [
        (
            ("a.py:ref", "my port.py:net"),
            1,
            "`align bisect a.py:ref 'my port.py:net'` with the same `--inputs` (or `--inputs DIR/",
        ),
        (
            ("a.py:ref", "pkg.port:net"),
            2,
            "`align bisect a.py:ref pkg.port:net` with one batch of the same `--inputs`, the",
        ),
        (
            ("Deep", "MDeep"),
            1,
            "`align.bisect_port(reference, candidate, inputs=...)` with the same models and the same inputs",
        ),
        (
            ("a.py:ref", "MDeep"),
            2,
            "`align.bisect_port(reference, candidate, inputs=...)` with the same models and one batch",
        ),
    ],
)
def test_what_to_run_next_can_be_run(labels: tuple[str, str], batches: int, told: str) -> None:
    wrong = replace(layer("", "not aligned"), batches=batches)
    (found,) = no_part_at_fault([wrong], (), labels)
    assert f"To see where: {told}" in found.message
    assert list(no_part_at_fault([layer("")], (), labels)) == []


def test_notes_and_warnings_change_no_verdict() -> None:
    assert verdict(layer("fc"), layer(""), findings=(NOTE,)).outcome is Outcome.ALIGNED
