"""Two trace folders compared: neither framework is needed, nor the machines that the models ran on."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Finding
from align.errors import UnlikeTracesError
from align.forward.allowances import NO_ALLOWANCES
from align.forward.caveats import with_caveats
from align.forward.compare_dumps import compare_dumps
from align.forward.forward_result import ForwardComparison
from align.forward.layers.compare_traces import compare_traces, described_rows, first_divergence, with_texts
from align.forward.layers.judge_forward import (
    LAYER_OUTPUTS,
    accept_deviations,
    check_allowances,
    coarser_layers,
    judge_forward,
)
from align.forward.layers.not_judged import not_judged
from align.forward.layers.unseen_modules import unseen_findings, unseen_modules, with_unseen
from align.lint.compare_settings import compare_settings, pair_layers
from align.measure.limits import RoundingNoise
from align.models.inputs import read_batches
from align.rules.pitfalls import pitfalls
from align.traces.compare_weights import compare_weights, weights_never_given
from align.traces.dumped_side import is_trace_folder
from align.traces.kept_elements import kept_places
from align.traces.open_trace import TracedSide, open_trace, trace_faults
from align.traces.pair_traces import choose_map, left_out, map_in_order, open_names, pair_traces
from align.traces.returned_parts import comparable_captures, parts_of
from align.traces.rounding_noise import read_noise
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.name_map import NameMap, SideOf
    from align.core.parameters import ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture
    from align.core.verdicts import Severity, Verdict
    from align.forward.allowances import Allowances
    from align.forward.forward_result import LayerComparison, UnseenModule
    from align.forward.layers.judge_forward import Deviations
    from align.traces.module_calls import CallPair, CallPairs

Sides = tuple[TracedSide, TracedSide]
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
    findings = (*cut, *_findings(sides, paired, calls, unseen, unmeasured, allowances.coarsest))
    backward = sides[0].head.direction == "backward"
    what = sentence("forward_unit.gradients_of_layer_outputs" if backward else LAYER_OUTPUTS)
    verdict = judge_forward(known.layers, calls.unpaired, findings, what=what)
    verdict = with_unseen(verdict, unseen, _parameters(sides))
    result = _result(sides, known, calls, findings, unseen, verdict)
    return with_caveats(result, _kept_inputs(sides[0].trace.folder))


def _parameters(sides: Sides) -> tuple[ParameterSet, ParameterSet]:
    return sides[0].parameters, sides[1].parameters


def _traces(sides: Sides) -> Traces:
    return sides[0].trace, sides[1].trace


def _names(sides: Sides, name_map: NameMap | Path | str | None) -> NameMap:
    """The map that is given, or one by names, and by the order of calls where names leave something open."""
    paired = choose_map(name_map, _parameters(sides))
    if name_map is None and not paired.complete:
        return map_in_order(_traces(sides), _parameters(sides), paired)
    return paired


def _compared_layers(
    sides: Sides, parts: tuple[_CommonPart, _CommonPart], calls: CallPairs, allowances: Allowances
) -> tuple[Deviations, list[Finding]]:
    """The compared layers with accepted deviations told apart, and whether the noise was not kept."""
    noise, missing = read_noise(sides[0].trace.folder)
    own = None if noise is None else RoundingNoise(noise)
    compared = with_texts(compare_traces(*parts, calls.pairs, own, allowances), _traces(sides))
    layers = described_rows([parts[0].described(row) for row in compared], parts)
    unmeasured = [*_unmeasured(sides[0].parameters, noise, missing)]
    return accept_deviations(layers, (), allowances.accepted), unmeasured


def _findings(
    sides: Sides,
    paired: NameMap,
    calls: CallPairs,
    unseen: Sequence[UnseenModule],
    unmeasured: Sequence[Finding],
    coarsest: str,
) -> Iterator[Finding]:
    """All that is to be known beside the layers' rows."""
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


def _result(
    sides: Sides,
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
    """What the model was given, where it was kept."""
    path = folder / _INPUTS
    return read_batches(path) if path.is_file() else None


def _check(sides: Sides, folders: tuple[Path, Path], *, partial: bool) -> list[Finding]:
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
        raise UnlikeTracesError(f"{folders[0]} and {folders[1]}", faults, hint)
    return [Finding("trace-cut-short", "warning", str(folder), ending) for folder, ending in cut]


def _returned(sides: Sides) -> list[int]:
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
        unmeasured = sentence("forward_finding.noise_not_kept", reason=missing)
        yield Finding("noise-unmeasured", "note", reference.label, unmeasured)
    yield Finding("folders-only", "note", reference.label, sentence("forward_finding.folders_only"))


def _differences(sides: Sides, name_map: NameMap) -> Iterator[Finding]:
    """What the values of the parameters and the settings of the layers differ by."""
    mine, theirs = sides[0].values or {}, sides[1].values or {}
    held = tuple(one for one in name_map.pairings if one.source in mine and one.target in theirs)
    if missing := len(name_map.pairings) - len(held):
        message = sentence("forward_finding.values_not_kept", count=missing)
        yield Finding("weights-unknown", "warning", name_map.source, message)
    differ = compare_weights(mine, theirs, kept := replace(name_map, pairings=held))
    buffers = {one.name for one in sides[1].parameters.parameters if one.buffer}
    lacking = weights_never_given(differ, (mine, theirs), kept, buffers=buffers)
    yield from (lacking,) if lacking else differ
    pairs, _ = pair_layers((sides[0].parameters, sides[1].parameters), name_map, (sides[0].settings, sides[1].settings))
    for found in compare_settings(pairs, [rule for rule in pitfalls() if not rule.training_only]).findings:
        severity: Severity = "note" if found.severity == "note" else "warning"  # the outputs show whether it matters
        subject = f"{found.reference} -> {found.candidate}"
        message = sentence(
            "forward_finding.setting_differs",
            reference=found.reference_setting,
            candidate=found.candidate_setting,
            change=found.change,
        )
        yield Finding("setting-differs", severity, subject, message)


class _CommonPart:
    """A trace as far as the other one kept the same elements."""

    def __init__(self, own: TracedSide, other: TracedSide) -> None:
        self._trace = own.trace
        self._cut = own.head.kept.elements is None
        self.kept = other.head.kept if self._cut else own.head.kept
        self.captures, self.environment = own.trace.captures, own.trace.environment
        self.manifest = own.trace.manifest
        self.inputs = tuple(one for one in own.trace.inputs if own.trace.holds(one))

    def holds(self, capture: Capture) -> bool:
        """Tell whether elements of a tensor were kept."""
        return self._trace.holds(capture)

    def value(self, capture: Capture) -> Array:
        """The elements that both traces kept."""
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
        return replace(row, measurement=placed, note=joined("; ", [kept, row.note] if row.note else [kept]))


def missing_gradients(
    back: Traces, parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[Finding]:
    """Yield an error for each side that lacks gradients which its counterpart has, and one note on what is compared."""
    yield Finding("gradients-compared", "note", parameters[0].label, sentence("forward_finding.gradients_compared"))
    forward = TraceFolder(back[0].folder.absolute().parent), TraceFolder(back[1].folder.absolute().parent)
    pairs = [one for one in pair_traces(forward, parameters, name_map).pairs if one.certain]
    arrived = [_arrived(trace, trace.captures) for trace in back]
    order = {_place(one): one.order for trace in back for one in reversed(trace.captures)}
    for side, other, role in ((0, 1, "reference"), (1, 0, "candidate")):
        lost = [ends for ends in _ends(pairs) if ends[other] in arrived[other] and ends[side] not in arrived[side]]
        if lost:
            lost.sort(key=lambda ends: order[ends[other]])
            names = [ends[side][0] or sentence("model_part.models_output") for ends in lost]
            yield Finding("gradient-missing", "error", role, sentence("forward_finding.no_gradient", names=names))


def _arrived(trace: TraceFolder, captures: Iterable[Capture]) -> set[_Place]:
    """Where a gradient came back that is not zero throughout; of one whose values were not kept nobody knows."""
    return {_place(one) for one in captures if not trace.holds(one) or np.any(trace.value(one))}


def _place(capture: Capture) -> _Place:
    return capture.module, capture.call, capture.output


def _ends(pairs: Iterable[CallPair]) -> Iterator[tuple[_Place, _Place]]:
    for pair in pairs:
        if len(pair.reference.outputs) == len(pair.candidate.outputs):
            for one, other in zip(pair.reference.outputs, pair.candidate.outputs, strict=True):
                yield _place(one), _place(other)
