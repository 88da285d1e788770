"""The verdict over two dumps: what agrees as far as statistics show may differ, and is no agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.verdicts import Coverage, Outcome, Verdict
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.traces import DumpedTensor
    from align.forward.forward_result import LayerComparison


def judge_dumps(
    rows: Sequence[LayerComparison],
    alone: tuple[int, int],
    undecided: Sequence[LayerComparison],
    last_output: DumpedTensor | None = None,
) -> Verdict:
    """Aligned if all compared tensors are, none is `undecided`, and the `last_output` of the reference is compared.

    `alone` counts the tensors of each side without a counterpart.
    """
    compared = [row for row in rows if row.outcome in ("aligned", "not aligned")]
    wrong = [row for row in compared if row.outcome == "not aligned"]
    coverage = Coverage(sentence("dump_verdict.unit"), len(compared), len(rows) - len(compared), *alone)
    if wrong:
        facts = {"count": len(wrong), "total": len(compared), "what": coverage.unit, "first": named_row(_first(wrong))}
        return Verdict(Outcome.NOT_ALIGNED, sentence("forward_verdict.layers_differ", **facts), coverage)
    if undecided:
        reason = sentence("dump_verdict.open", count=len(undecided), total=len(rows))
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    if not compared:
        note = next((row.note for row in rows if row.note), "")
        return Verdict(Outcome.NOT_COMPARED, sentence("forward_verdict.no_layer_compared", note=note), coverage)
    last = max((row for row in rows if row.part == "output"), key=lambda row: row.order, default=None)
    if last is not None and last.outcome == "not comparable":
        facts = {"name": named_row(last), "note": last.note}
        return Verdict(Outcome.NOT_COMPARED, sentence("dump_verdict.last_open", **facts), coverage)
    if last_output is not None and not any(_is_about(row, last_output) for row in rows):
        name = last_output.module or sentence("model_part.model_itself")
        reason = sentence("dump_verdict.last_missing", name=name, class_name=last_output.class_name)
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    accepted = len([row for row in rows if row.outcome == "accepted"])
    reason = sentence("forward_verdict.layers_agree", count=len(compared), what=coverage.unit, accepted=accepted)
    return Verdict(Outcome.ALIGNED, reason, coverage)


def _first(wrong: Sequence[LayerComparison]) -> LayerComparison:
    """The first row that differs; a parameter before what its layer returns, which it explains."""
    held = (row for row in wrong if row.part == "parameter" and row.candidate == wrong[0].candidate)
    return next(held, wrong[0]) if wrong[0].part == "output" else wrong[0]


def _is_about(row: LayerComparison, one: DumpedTensor) -> bool:
    return row.part == "output" and (row.reference, row.call, row.output) == (one.module, one.call, one.item)


def named_row(row: LayerComparison) -> str:
    """What a row is about, in the words of both sides."""
    return sentence(
        "dump_verdict.row",
        part=sentence(f"dump_part.{row.part.replace(' ', '_')}"),
        item=row.output,
        reference=row.reference or sentence("model_part.model_itself"),
        reference_class=row.reference_class,
        candidate=row.candidate or sentence("model_part.model_itself"),
        candidate_class=row.candidate_class,
    )
