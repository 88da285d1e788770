"""Dumps of other tools compared, with each other or with a trace folder, as they are: nothing is converted before.

All that was dumped is compared: what calls returned and were given, parameters, and gradients of all three. Where both
sides tell of parameters, calls pair by the name map, else by names, order and values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import NameMap
from align.core.progress import collector_paused
from align.core.verdicts import Finding
from align.forward.allowances import NO_ALLOWANCES
from align.forward.dumps.dump_culprits import find_dump_culprits
from align.forward.dumps.judge_dumps import judge_dumps
from align.forward.dumps.judge_figures import judge_figures
from align.forward.dumps.parameter_rows import parameter_rows
from align.forward.forward_result import ForwardComparison
from align.forward.layers.compare_traces import compare_traces, excuse_uncertain, first_divergence
from align.forward.layers.judge_forward import accept_deviations, check_allowances
from align.measure.choose_kernel import Kernels
from align.measure.measure_arrays import measured_by
from align.traces.dumped_side import open_dumped_side
from align.traces.module_calls import CallPair
from align.traces.pair_named_calls import pair_named_calls
from align.traces.pair_traces import choose_map, map_in_order, open_names, pair_traces
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.traces import Capture, DumpedTensor, TensorPart
    from align.core.verdicts import Severity
    from align.forward.allowances import Allowances
    from align.forward.forward_result import LayerComparison
    from align.traces.dumped_side import DumpedSide, DumpTrace
    from align.traces.module_calls import Call, CallPairs

Sides = tuple["DumpedSide", "DumpedSide"]
CALL_PARTS: tuple[TensorPart, ...] = ("output", "input", "output gradient", "input gradient")
NOTES: dict[str, tuple[str, Severity]] = {
    "dump_note.not_known": ("dump-not-known", "warning"),
    "dump_note.not_arrays": ("dump-not-known", "warning"),
    "dump_note.overflow": ("dump-overflow", "warning"),
}
PARAMETER_PARTS: tuple[TensorPart, ...] = ("parameter", "parameter gradient")


def compare_dumps(
    reference: Path,
    candidate: Path,
    *,
    name_map: NameMap | Path | str | None = None,
    allowances: Allowances = NO_ALLOWANCES,
) -> ForwardComparison:
    """Compare two dumps, or a dump and a trace folder; layers are judged by what was dumped of their inputs.

    Raises DumpError, or another AlignError, for what cannot be read.
    """
    sides = open_dumped_side(reference), open_dumped_side(candidate)
    parameters = sides[0].parameters, sides[1].parameters
    traces = sides[0].trace("output"), sides[1].trace("output")
    known = all(side.parameters for side in parameters)
    paired = NameMap(parameters[0].label, parameters[1].label)
    if known:
        paired = choose_map(name_map, parameters)
        if name_map is None and not paired.complete:
            paired = map_in_order(traces, parameters, paired)
    calls = pair_traces(traces, parameters, paired) if known else pair_named_calls(traces)
    calls = _with_doubtful_functions(calls, traces)
    check_allowances(allowances, calls.pairs)
    with measured_by(Kernels(sum(side.nbytes for side in sides)).make), collector_paused():
        rows = [*_call_rows(sides, calls, allowances)]
        for part in PARAMETER_PARTS:
            rows += parameter_rows(sides, paired, part, allowances)
    unused = () if known or name_map is None else (_unused_map(sides),)
    return _result(sides, sorted(rows, key=lambda row: row.order), calls, paired, allowances, unused)


def _result(
    sides: Sides,
    rows: Sequence[LayerComparison],
    calls: CallPairs,
    paired: NameMap,
    allowances: Allowances,
    unused: Sequence[Finding],
) -> ForwardComparison:
    culprits = find_dump_culprits(rows, sides)
    judged = accept_deviations(rows, culprits, allowances.accepted)
    first, last = first_divergence(judged.layers)
    alone = _alone(sides, rows)
    return ForwardComparison(
        reference=sides[0].label,
        candidate=sides[1].label,
        layers=judged.layers,
        first_divergent=first,
        last_aligned=last,
        unpaired=calls.unpaired,
        findings=(*_findings(sides), *unused, *_unlike_weights(judged.layers), *open_names(paired)),
        inputs={},
        environment={role: side.environment for role, side in zip(("reference", "candidate"), sides, strict=True)},
        verdict=judge_dumps(judged.layers, alone, _undecided(judged.layers, sides), sides[0].last_output),
        culprits=judged.culprits,
        accepted=judged.accepted,
    )


def _call_rows(sides: Sides, calls: CallPairs, allowances: Allowances) -> Iterator[LayerComparison]:
    known = all(side.parameters.parameters for side in sides)
    for part in CALL_PARTS:
        traces = sides[0].trace(part), sides[1].trace(part)
        pairs = [one for pair in calls.pairs for one in _of_part(pair, traces)]
        full = [all(_holds(trace, call) for trace, call in zip(traces, _both(one), strict=True)) for one in pairs]
        whole = [one for one, is_full in zip(pairs, full, strict=True) if is_full]
        rows = [replace(row, part=part) for row in compare_traces(*traces, whole, None, allowances)]
        yield from (_excused(row, known=known) for row in (excuse_uncertain(rows) if part == "output" else rows))
        for pair, is_full in zip(pairs, full, strict=True):
            if not is_full:
                yield from _by_figures(pair, part, traces)


def _with_doubtful_functions(calls: CallPairs, traces: tuple[DumpTrace, DumpTrace]) -> CallPairs:
    """Pairs of functions are sure only where both modules around call as many: one side may do in two what is one."""
    numbers = [Counter(outer for outer, *_ in {*map(_around, trace.captures)}) for trace in traces]
    pairs = [
        replace(pair, certain=pair.certain and numbers[0][_outer(pair.reference)] == numbers[1][_outer(pair.candidate)])
        if "/" in pair.reference.module
        else pair
        for pair in calls.pairs
    ]
    return replace(calls, pairs=tuple(pairs))


def _around(one: Capture) -> tuple[str, str, int]:
    outer, _, function = one.module.partition("/")
    return (outer, function, one.call) if function else ("/", "", 0)


def _outer(call: Call) -> str:
    return call.module.partition("/")[0]


def _excused(row: LayerComparison, *, known: bool) -> LayerComparison:
    """A function that is paired by its place alone may be a part of what the other side does in one.

    Nor are gradients of functions alike: torch's hooks see the last operation of a function only. Without parameters
    that are known, what is paired by order and shape alone may be something else.
    """
    if row.outcome != "not aligned":
        return row
    if not known and not row.certain:
        return replace(row, outcome="not comparable", factor=None, note=sentence("dump_row.paired_by_order"))
    if "/" not in row.reference:
        return row
    if row.part == "input gradient":
        return replace(row, outcome="not comparable", factor=None, note=sentence("dump_row.function_gradient"))
    if row.certain:
        return row
    return replace(row, outcome="not comparable", factor=None, note=sentence("dump_row.other_function"))


def _by_figures(pair: CallPair, part: TensorPart, traces: tuple[DumpTrace, DumpTrace]) -> Iterator[LayerComparison]:
    """Rows without figures of their own: the reason stays where one is not about values that were not kept."""
    for row in compare_traces(*traces, [pair], None):
        mine, theirs = (trace.dumped(call.outputs[0]) for trace, call in zip(traces, _both(pair), strict=True))
        told = replace(row, outcome="not comparable", note="", part=part)
        yield (
            judge_figures(told, mine, theirs) if row.reference_shape == row.candidate_shape else replace(row, part=part)
        )


def _of_part(pair: CallPair, traces: tuple[DumpTrace, DumpTrace]) -> Iterator[CallPair]:
    """The tensors of one part of two calls, each as a pair of its own."""
    own = [trace.of_call(call.module, call.call) for trace, call in zip(traces, _both(pair), strict=True)]
    is_function = "/" in pair.reference.module
    for mine, theirs in _pair_unmistakable(*own) if is_function else _pair_items(*own):
        yield CallPair(
            replace(pair.reference, outputs=(mine,)), replace(pair.candidate, outputs=(theirs,)), pair.certain
        )


def _pair_unmistakable(mine: list[Capture], theirs: list[Capture]) -> Iterator[tuple[Capture, Capture]]:
    """Those of a function, which have no names of their own: by their shape, where one on each side has it."""
    counts = Counter(one.shape for one in mine), Counter(one.shape for one in theirs)
    for one in mine:
        if counts[0][one.shape] == counts[1][one.shape] == 1:
            yield one, next(other for other in theirs if other.shape == one.shape)


def _pair_items(mine: list[Capture], theirs: list[Capture]) -> Iterator[tuple[Capture, Capture]]:
    """By name where the shapes agree, others in order by their shape, and namesakes of other shapes at last."""
    left, right = list(mine), list(theirs)
    for fits in (_is_namesake, _has_shape, _is_unlike_namesake):
        for one in list(left):
            other = next((other for other in right if fits(one, other)), None)
            if other is not None:
                left.remove(one)
                right.remove(other)
                yield one, other


def _is_namesake(one: Capture, other: Capture) -> bool:
    return one.output == other.output and one.shape == other.shape


def _has_shape(one: Capture, other: Capture) -> bool:
    return one.shape == other.shape


def _is_unlike_namesake(one: Capture, other: Capture) -> bool:
    return one.output == other.output


def _both(pair: CallPair) -> tuple[Call, Call]:
    return pair.reference, pair.candidate


def _holds(trace: DumpTrace, call: Call) -> bool:
    return all(trace.holds(one) for one in call.outputs)


def _undecided(rows: Sequence[LayerComparison], sides: Sides) -> list[LayerComparison]:
    """Rows that have no outcome because no values were dumped."""
    bare = [{_place(one) for one in side.dump.tensors if one.load is None} for side in sides]
    return [
        row
        for row in rows
        if row.outcome == "not comparable"
        and 0 not in row.reference_shape
        and (
            (row.part, row.reference, row.call, row.output) in bare[0]
            or (row.part, row.candidate, row.call, row.output) in bare[1]
        )
    ]


def _alone(sides: Sides, rows: Sequence[LayerComparison]) -> tuple[int, int]:
    """How many tensors of each side no row is about."""
    counts = [
        sum(len(own) for part, own in side.by_part.items() if part not in PARAMETER_PARTS)
        + sum(len(side.of_parameters(part)) for part in PARAMETER_PARTS)
        for side in sides
    ]
    return max(counts[0] - len(rows), 0), max(counts[1] - len(rows), 0)


def _place(one: DumpedTensor) -> tuple[str, str, int, str]:
    return one.part, one.module, one.call, one.item


def _unlike_weights(rows: Sequence[LayerComparison]) -> Iterator[Finding]:
    """Parameters that differ: no layer is at fault for what it makes of other weights."""
    for row in rows:
        if row.part == "parameter" and row.outcome == "not aligned":
            subject = f"{row.candidate}.{row.output}" if row.candidate else row.output
            yield Finding("weights-differ", "error", subject, sentence("dump_finding.weights_differ"))


def _unused_map(sides: Sides) -> Finding:
    """A name map pairs parameters; where a side tells of none it is not looked at."""
    bare = next(side.label for side in sides if not side.parameters.parameters)
    return Finding("map-not-used", "warning", bare, sentence("dump_finding.map_not_used"))


def _findings(sides: Sides) -> Iterator[Finding]:
    yield Finding("dumps-compared", "note", sides[0].label, sentence("dump_finding.compared"))
    for side in sides:
        for note in side.dump.notes:
            code, severity = NOTES.get(getattr(note, "key", ""), ("dump-note", "note"))
            yield Finding(code, severity, side.label, note)
