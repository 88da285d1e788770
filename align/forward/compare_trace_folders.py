"""Two trace folders compared: neither framework is needed, nor the machines that the models ran on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import NameMap
from align.core.protocols import collector_paused
from align.core.verdicts import Finding
from align.errors import UnlikeTracesError
from align.forward.caveats import not_judged, with_caveats
from align.forward.compare_traces import compare_traces, described_rows, excuse_uncertain, first_divergence, with_texts
from align.forward.forward_result import NO_ALLOWANCES, ForwardComparison
from align.forward.judge_dumps import find_dump_culprits, judge_dumps, judge_figures, parameter_rows
from align.forward.judge_forward import (
    LAYER_OUTPUTS,
    accept_deviations,
    check_allowances,
    coarser_layers,
    judge_forward,
    unseen_findings,
    unseen_modules,
    with_unseen,
)
from align.lint.compare_settings import compare_settings, pair_layers
from align.measure.limits import RoundingNoise
from align.measure.measure_arrays import Kernels, measured_by
from align.models.inputs import read_batches
from align.rules.pitfalls import pitfalls
from align.traces.dumped_side import is_trace_folder, open_dumped_side, pair_named_calls
from align.traces.module_calls import CallPair, comparable_captures, parts_of
from align.traces.open_trace import (
    TracedSide,
    compare_weights,
    open_trace,
    read_noise,
    trace_faults,
    weights_never_given,
)
from align.traces.pair_traces import choose_map, left_out, map_in_order, open_names, pair_traces
from align.traces.trace_folder import TraceFolder, kept_places
from align.words.catalogue import joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import SideOf
    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Measurement, TensorPart
    from align.core.verdicts import Severity, Verdict
    from align.forward.forward_result import Allowances, LayerComparison, UnseenModule
    from align.forward.judge_forward import Deviations
    from align.traces.dumped_side import DumpedSide, DumpTrace
    from align.traces.module_calls import Call, CallPairs


TracedSides = tuple[TracedSide, TracedSide]
_INPUTS = "inputs.npz"  # in a trace folder
Traces = tuple[TraceFolder, TraceFolder]
_Place = tuple[str, int, str]


def compare_trace_folders(
    reference: Path | str,
    candidate: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    partial: bool = False,
    allowances: Allowances = NO_ALLOWANCES,
) -> ForwardComparison:
    """Compare two folders that `align capture` wrote, as compare_forward compares two models.

    Of two folders `backward` inside of these, the gradients are compared, in the order in which they arise. Names,
    weights, settings and the reference's noise come from the folders. Layers are not isolated: that takes the
    candidate itself. Raises UnlikeTracesError for runs on different inputs or in different modes, and for a trace that
    was cut short unless `partial` allows it: then what both have is compared. `allowances` are as in compare_forward.
    Dumps of other tools are taken as they are (docs/dumps.md).

    >>> import numpy as np, tempfile
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> from align.traces.capture_trace import capture_trace
    >>> weights = {"weight": np.eye(3)}
    >>> model = ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in "ab":
    ...         _ = capture_trace(model, f"{folder}/{name}", inputs={"x": np.ones(3)})
    ...     compare_trace_folders(f"{folder}/a", f"{folder}/b").verdict.outcome.value
    'aligned'
    """
    paths = Path(reference), Path(candidate)
    if not all(map(is_trace_folder, paths)):
        return compare_dumps(*paths, name_map=name_map, allowances=allowances)
    sides = open_trace(paths[0]), open_trace(paths[1])
    cut = _check(sides, paths, partial=partial)
    paired = _names(sides, name_map)
    parts = _CommonPart(*sides), _CommonPart(*sides[::-1])
    calls = pair_traces(parts, _parameters(sides), paired)
    check_allowances(allowances, calls.pairs)
    known, unmeasured = _compared_layers(sides, parts, calls, allowances)
    unseen = (*_unseen("reference", sides[0]), *_unseen("candidate", sides[1]))
    findings = (*cut, *_trace_findings(sides, paired, calls, unseen, unmeasured, allowances.coarsest))
    backward = sides[0].head.direction == "backward"
    what = sentence("forward_unit.gradients_of_layer_outputs" if backward else LAYER_OUTPUTS)
    verdict = judge_forward(known.layers, calls.unpaired, findings, what=what)
    verdict = with_unseen(verdict, unseen, _parameters(sides))
    result = _trace_result(sides, known, calls, findings, unseen, verdict)
    return with_caveats(result, _kept_inputs(sides[0].trace.folder))


def _parameters(sides: TracedSides) -> tuple[ParameterSet, ParameterSet]:
    return sides[0].parameters, sides[1].parameters


def _traces(sides: TracedSides) -> Traces:
    return sides[0].trace, sides[1].trace


def _names(sides: TracedSides, name_map: NameMap | Path | str | None) -> NameMap:
    """The map that is given, or one by names, and by the order of calls where names leave something open."""
    paired = choose_map(name_map, _parameters(sides))
    if name_map is None and not paired.complete:
        return map_in_order(_traces(sides), _parameters(sides), paired)
    return paired


def _compared_layers(
    sides: TracedSides, parts: tuple[_CommonPart, _CommonPart], calls: CallPairs, allowances: Allowances
) -> tuple[Deviations, list[Finding]]:
    """The compared layers with accepted deviations told apart, and whether the noise was not kept."""
    noise, missing = read_noise(sides[0].trace.folder)
    own = None if noise is None else RoundingNoise(noise)
    compared = with_texts(compare_traces(*parts, calls.pairs, own, allowances), _traces(sides))
    layers = described_rows([parts[0].described(row) for row in compared], parts)
    unmeasured = [*_unmeasured(sides[0].parameters, noise, missing)]
    return accept_deviations(layers, (), allowances.accepted), unmeasured


def _trace_findings(
    sides: TracedSides,
    paired: NameMap,
    calls: CallPairs,
    unseen: Sequence[UnseenModule],
    unmeasured: Sequence[Finding],
    coarsest: str,
) -> Iterator[Finding]:
    traces, parameters = _traces(sides), _parameters(sides)
    if sides[0].head.direction == "backward":
        yield from missing_gradients(traces, parameters, paired)
    for role, own in zip(("reference", "candidate"), parameters, strict=True):
        yield from unseen_findings([one for one in unseen if one.side == role], own.label)
    yield from unmeasured
    yield from left_out(traces, [one.label for one in parameters])
    yield from open_names(paired)
    yield from _differences(sides, paired)
    yield from coarser_layers(traces[1].captures, coarsest)
    yield from not_judged(parameters, (sides[0].settings, sides[1].settings), paired, calls)


def _trace_result(
    sides: TracedSides,
    known: Deviations,
    calls: CallPairs,
    findings: tuple[Finding, ...],
    unseen: tuple[UnseenModule, ...],
    verdict: Verdict,
) -> ForwardComparison:
    first, last = first_divergence(known.layers)
    roles = zip(("reference", "candidate"), sides, strict=True)
    return ForwardComparison(
        reference=sides[0].parameters.label,
        candidate=sides[1].parameters.label,
        layers=known.layers,
        first_divergent=first,
        last_aligned=last,
        unpaired=calls.unpaired,
        findings=findings,
        inputs=sides[0].head.inputs,
        environment={f"{role} ({one.head.framework})": one.trace.environment for role, one in roles},
        verdict=verdict,
        accepted=known.accepted,
        unseen=unseen,
    )


def _kept_inputs(folder: Path) -> Inputs | None:
    path = folder / _INPUTS
    return read_batches(path) if path.is_file() else None


def _check(sides: TracedSides, folders: tuple[Path, Path], *, partial: bool) -> list[Finding]:
    """Raise UnlikeTracesError, listing all reasons, for traces that must not be compared; report those cut short."""
    faults = list(trace_faults(sides[0].head, sides[1].head))
    cut = [(folder, side.ending) for folder, side in zip(folders, sides, strict=True) if side.ending]
    if not partial:
        faults += [say("forward_fault.cut_short", folder=folder, ending=ending) for folder, ending in cut]
    mine, theirs = _returned(sides)
    if not (faults or cut) and mine != theirs:
        faults.append(say("forward_fault.other_structure", reference=mine, candidate=theirs))
    if faults:
        only_cut = not partial and len(faults) == len(cut)
        hint = say("forward_hint.cut_short" if only_cut else "forward_hint.capture_alike")
        both = say("trace_fault.both", reference=str(folders[0]), candidate=str(folders[1]))
        raise UnlikeTracesError(both, faults, hint)
    return [Finding("trace-cut-short", "warning", str(folder), ending) for folder, ending in cut]


def _returned(sides: TracedSides) -> list[int]:
    """How many parts that must be there on both sides the models returned in their last calls."""
    captures = sides[0].trace.captures, sides[1].trace.captures
    counts = []
    for captured in comparable_captures(captures, [parts_of(side.trace) for side in sides]):
        own = [one for one in captured if not one.module]
        counts.append(sum(one.call == own[-1].call for one in own) if own else 0)
    return counts


def _unseen(role: SideOf, side: TracedSide) -> tuple[UnseenModule, ...]:
    """Modules that a whole run forward does not show; of a compiled network nothing inside is ever seen."""
    hidden = side.trace.environment.get("mode") == "GRAPH" or side.head.direction == "backward"
    return () if hidden or side.ending else unseen_modules(role, side.parameters, side.trace)


def _unmeasured(reference: ParameterSet, noise: Mapping[str, Measurement] | None, missing: str) -> Iterator[Finding]:
    if noise is None:
        unmeasured = sentence("side_finding.noise_unmeasured", reason=missing)
        yield Finding("noise-unmeasured", "note", reference.label, unmeasured)
    yield Finding("folders-only", "note", reference.label, sentence("forward_finding.folders_only"))


def _differences(sides: TracedSides, name_map: NameMap) -> Iterator[Finding]:
    mine, theirs = sides[0].values or {}, sides[1].values or {}
    pairings = tuple(pairing for pairing in name_map.pairings if pairing.source in mine and pairing.target in theirs)
    if missing := len(name_map.pairings) - len(pairings):
        message = sentence("forward_finding.values_not_kept", count=missing)
        yield Finding("weights-unknown", "warning", name_map.source, message)
    differ = compare_weights(mine, theirs, kept := replace(name_map, pairings=pairings))
    buffers = {parameter.name for parameter in sides[1].parameters.parameters if parameter.buffer}
    lacking = weights_never_given(differ, (mine, theirs), kept, buffers=buffers)
    yield from (lacking,) if lacking else differ
    pairs, _ = pair_layers((sides[0].parameters, sides[1].parameters), name_map, (sides[0].settings, sides[1].settings))
    for difference in compare_settings(pairs, [rule for rule in pitfalls() if not rule.training_only]).findings:
        # The outputs show whether it matters.
        severity: Severity = "note" if difference.severity == "note" else "warning"
        subject = f"{difference.reference} -> {difference.candidate}"
        message = sentence(
            "forward_finding.setting_differs",
            reference=difference.reference_setting,
            candidate=difference.candidate_setting,
            change=difference.change,
        )
        yield Finding("setting-differs", severity, subject, message)


class _CommonPart:
    """A trace as far as the other one kept the same elements."""

    def __init__(self, side: TracedSide, other: TracedSide) -> None:
        self._trace = side.trace
        self._cut = side.head.kept.elements is None
        self.kept = other.head.kept if self._cut else side.head.kept
        self.captures, self.environment = side.trace.captures, side.trace.environment
        self.manifest = side.trace.manifest
        self.inputs = tuple(one for one in side.trace.inputs if side.trace.holds(one))

    def holds(self, capture: Capture) -> bool:
        return self._trace.holds(capture)

    def value(self, capture: Capture) -> Array:
        value = self._trace.value(capture)
        places = kept_places(self.kept, value.size) if self._cut else None
        return value if places is None else value.reshape(-1)[places]

    def described(self, row: LayerComparison) -> LayerComparison:
        """Say of a row how many elements it rests on, and where the worst one is in the whole tensor."""
        size, measured = prod(row.reference_shape), row.measurement
        places = kept_places(self.kept, size)
        if measured is None or places is None:
            return row
        place = np.unravel_index(places[measured.worst[0]], row.reference_shape) if measured.worst else ()
        placed = replace(measured, worst=tuple(map(int, place)))
        kept = sentence("forward_note.some_elements", count=measured.count, total=size)
        note = joined("; ", [kept, row.note] if row.note else [kept])
        return replace(row, measurement=placed, note=note, left_out=("elements", *row.left_out))


def missing_gradients(
    back: Traces, parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[Finding]:
    """Yield an error for each side that lacks gradients which its counterpart has, and one note on what is compared."""
    yield Finding("gradients-compared", "note", parameters[0].label, sentence("forward_finding.gradients_compared"))
    forward = TraceFolder(back[0].folder.absolute().parent), TraceFolder(back[1].folder.absolute().parent)
    pairs = [one for one in pair_traces(forward, parameters, name_map).pairs if one.certain]
    arrived = [_arrived(trace, trace.captures) for trace in back]
    order = {_place_of_capture(one): one.order for trace in back for one in reversed(trace.captures)}
    for side, other, role in ((0, 1, "reference"), (1, 0, "candidate")):
        lost = [ends for ends in _ends(pairs) if ends[other] in arrived[other] and ends[side] not in arrived[side]]
        if lost:
            lost.sort(key=lambda ends: order[ends[other]])
            names = [ends[side][0] or sentence("model_part.models_output") for ends in lost]
            yield Finding("gradient-missing", "error", role, sentence("forward_finding.no_gradient", names=names))


def _arrived(trace: TraceFolder, captures: Iterable[Capture]) -> set[_Place]:
    """Where a gradient came back that is not zero throughout; of one whose values were not kept nobody knows."""
    return {_place_of_capture(one) for one in captures if not trace.holds(one) or np.any(trace.value(one))}


def _place_of_capture(capture: Capture) -> _Place:
    return capture.module, capture.call, capture.output


def _ends(pairs: Iterable[CallPair]) -> Iterator[tuple[_Place, _Place]]:
    for pair in pairs:
        if len(pair.reference.outputs) == len(pair.candidate.outputs):
            for one, other in zip(pair.reference.outputs, pair.candidate.outputs, strict=True):
                yield _place_of_capture(one), _place_of_capture(other)


# Dumps of other tools compared, with each other or with a trace folder, as they are: nothing is converted before.
#
# All that was dumped is compared: what calls returned and were given, parameters, and gradients of all three. Where
# both sides tell of parameters, calls pair by the name map, else by names, order and values.

DumpedSides = tuple["DumpedSide", "DumpedSide"]
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
    return _dump_result(sides, sorted(rows, key=lambda row: row.order), calls, paired, allowances, unused)


def _dump_result(
    sides: DumpedSides,
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
        findings=(*_dump_findings(sides), *unused, *_unlike_weights(judged.layers), *open_names(paired)),
        inputs={},
        environment={role: side.environment for role, side in zip(("reference", "candidate"), sides, strict=True)},
        verdict=judge_dumps(judged.layers, alone, _undecided(judged.layers, sides), sides[0].last_output),
        culprits=judged.culprits,
        accepted=judged.accepted,
    )


def _call_rows(sides: DumpedSides, calls: CallPairs, allowances: Allowances) -> Iterator[LayerComparison]:
    known = all(side.parameters.parameters for side in sides)
    for part in CALL_PARTS:
        traces = sides[0].trace(part), sides[1].trace(part)
        pairs = [part_pair for pair in calls.pairs for part_pair in _of_part(pair, traces)]
        full = [
            all(
                all(trace.holds(capture) for capture in call.outputs)
                for trace, call in zip(traces, _both(pair), strict=True)
            )
            for pair in pairs
        ]
        whole = [pair for pair, is_full in zip(pairs, full, strict=True) if is_full]
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
    """Pair tensors of a function, which have no names, by their shape where one on each side has it."""
    counts = Counter(one.shape for one in mine), Counter(one.shape for one in theirs)
    for one in mine:
        if counts[0][one.shape] == counts[1][one.shape] == 1:
            yield one, next(other for other in theirs if other.shape == one.shape)


def _pair_items(mine: list[Capture], theirs: list[Capture]) -> Iterator[tuple[Capture, Capture]]:
    """Pair by name where the shapes agree, then in order by shape, and at last namesakes of other shapes."""
    left, right = list(mine), list(theirs)
    for fits in (_is_namesake, _has_shape, _is_unlike_namesake):
        for capture in list(left):
            other = next((other for other in right if fits(capture, other)), None)
            if other is not None:
                left.remove(capture)
                right.remove(other)
                yield capture, other


def _is_namesake(one: Capture, other: Capture) -> bool:
    return one.output == other.output and one.shape == other.shape


def _has_shape(one: Capture, other: Capture) -> bool:
    return one.shape == other.shape


def _is_unlike_namesake(one: Capture, other: Capture) -> bool:
    return one.output == other.output


def _both(pair: CallPair) -> tuple[Call, Call]:
    return pair.reference, pair.candidate


def _undecided(rows: Sequence[LayerComparison], sides: DumpedSides) -> list[LayerComparison]:
    """Rows that have no outcome because no values were dumped."""
    bare = [
        {(one.part, one.module, one.call, one.item) for one in side.dump.tensors if one.load is None} for side in sides
    ]
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


def _alone(sides: DumpedSides, rows: Sequence[LayerComparison]) -> tuple[int, int]:
    """How many tensors of each side no row is about."""
    counts = [
        sum(len(own) for part, own in side.by_part.items() if part not in PARAMETER_PARTS)
        + sum(len(side.of_parameters(part)) for part in PARAMETER_PARTS)
        for side in sides
    ]
    return max(counts[0] - len(rows), 0), max(counts[1] - len(rows), 0)


def _unlike_weights(rows: Sequence[LayerComparison]) -> Iterator[Finding]:
    """Parameters that differ: no layer is at fault for what it makes of other weights."""
    for row in rows:
        if row.part == "parameter" and row.outcome == "not aligned":
            subject = f"{row.candidate}.{row.output}" if row.candidate else row.output
            yield Finding("weights-differ", "error", subject, sentence("dump_finding.weights_differ"))


def _unused_map(sides: DumpedSides) -> Finding:
    """A name map pairs parameters; where a side tells of none it is not looked at."""
    bare = next(side.label for side in sides if not side.parameters.parameters)
    return Finding("map-not-used", "warning", bare, sentence("dump_finding.map_not_used"))


def _dump_findings(sides: DumpedSides) -> Iterator[Finding]:
    yield Finding("dumps-compared", "note", sides[0].label, sentence("dump_finding.compared"))
    for side in sides:
        for note in side.dump.notes:
            code, severity = NOTES.get(getattr(note, "key", ""), ("dump-note", "note"))
            yield Finding(code, severity, side.label, note)
