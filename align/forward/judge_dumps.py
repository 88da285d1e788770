"""The verdict over two dumps: what agrees as far as statistics show may differ, and is no agreement."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod, sqrt
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from align.core.parameters import EPSILON, is_float
from align.core.traces import Limit, Measurement, smallest_factor
from align.core.transforms import IDENTITY
from align.core.verdicts import Coverage, Outcome, Verdict
from align.forward.compare_traces import left_out_of, outcome_of, shapes_differ
from align.forward.forward_result import Culprit, LayerComparison
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import GRADIENT_SUM_UNITS
from align.measure.limits import coarsest_dtype, judge_tensor, limit_for
from align.measure.measure_arrays import DECADES
from align.measure.tensor_statistics import summarize_tensor
from align.rules.layer_rules import role_of, rule_for
from align.traces.open_trace import paired_values
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array
    from align.core.traces import DumpedTensor, TensorPart, TensorStatistics
    from align.forward.forward_result import Allowances
    from align.forward.relations.relation import Relation
    from align.traces.dumped_side import DumpedSide


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
    outputs = {(row.reference, row.call, row.output) for row in rows if row.part == "output"}
    if last_output is not None and (last_output.module, last_output.call, last_output.item) not in outputs:
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


# Two tensors of which only figures or checksums are known: what these show, and that they prove nothing else.
#
# Neither the largest, the smallest nor the mean value can differ by more than the largest difference of two elements,
# and the root mean squares not by more than that of the differences. So figures show that tensors differ, and by how
# much at least; where they agree nobody knows. Equal checksums are equal bytes.

_CRC = "crc32:"
_WHOLE = ("int", "uint", "bool")  # dtypes whose values must be equal


def judge_figures(
    row: LayerComparison, mine: DumpedTensor, theirs: DumpedTensor, floor: float = 0.0, *, same_order: bool = True
) -> LayerComparison:
    """The row with what the figures show; `same_order` says that elements of both lie in the same places.

    `floor` is what both may differ by at least.
    """
    if prod(mine.shape) != prod(theirs.shape):
        shapes = {"reference": list(mine.shape), "candidate": list(theirs.shape)}
        return replace(row, note=sentence("forward_note.shapes_differ", **shapes))
    if not prod(mine.shape):
        return replace(row, note=sentence("forward_note.no_elements"))
    sums = _digest(mine, theirs), _digest(theirs, mine)
    known = bool(sums[0] and sums[1]) and same_order and mine.dtype == theirs.dtype
    if known and sums[0] == sums[1]:
        return _equal(row, mine)
    if known and mine.dtype.startswith(_WHOLE):
        limit = limit_for(_measured(0, 0.0, 0.0, (0.0, 0.0)), (mine.dtype, theirs.dtype), None)
        return replace(row, outcome="not aligned", limit=limit, factor=inf, note=sentence("dump_row.other_numbers"))
    return _by_figures(row, (mine, theirs), floor, known=known)


def _by_figures(
    row: LayerComparison, pair: tuple[DumpedTensor, DumpedTensor], floor: float, *, known: bool
) -> LayerComparison:
    """What figures show of tensors whose checksums, where they are `known`, differ."""
    mine, theirs = pair
    reference, candidate = _figures(mine), _figures(theirs)
    if reference is None or candidate is None:
        key = "dump_row.other_checksum" if known else "dump_row.nothing_dumped"
        return replace(row, note=sentence(key))
    least = _least_difference(reference, candidate)
    floor = max(floor, (mine.precision + theirs.precision) * least.reference_max)
    limit = raised(limit_for(least, (mine.dtype, theirs.dtype), None), floor)
    if _one_is_finite(reference, candidate):
        note = sentence("dump_row.one_is_finite")
        return replace(row, outcome="not aligned", limit=limit, factor=inf, note=note)
    factor = smallest_factor(least, limit)
    if factor > 1.0:
        note = sentence("dump_row.figures_differ", difference=least.max_abs)
        return replace(row, outcome="not aligned", limit=limit, factor=factor, note=note)
    return replace(row, note=sentence("dump_row.only_checksums" if known else "dump_row.figures_agree"))


def _one_is_finite(mine: TensorStatistics, theirs: TensorStatistics) -> bool:
    """Tell whether one holds NaN or Inf and the other none: the norm and the mean of such a tensor are no numbers."""
    odd = [bool(one.nan or one.inf) for one in (mine, theirs)]
    other = theirs if odd[0] else mine
    return odd[0] != odd[1] and (other.rms, other.mean) != (None, None)


def raised(limit: Limit, floor: float) -> Limit:
    """The limit, or the floor where that is larger."""
    return Limit(max(limit.max_abs, floor), max(limit.rmse, floor), limit.source)


def _least_difference(mine: TensorStatistics, theirs: TensorStatistics) -> Measurement:
    """What two tensors differ by at least, as a measurement without all that figures do not tell."""
    pairs = ((getattr(mine, name), getattr(theirs, name)) for name in ("min", "max", "mean"))
    largest = max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=0.0)
    rms = abs((mine.rms or 0.0) - (theirs.rms or 0.0)) if None not in (mine.rms, theirs.rms) else 0.0
    sizes = [abs(one) for one in (mine.min, mine.max) if one is not None]
    scale = max(sizes, default=mine.rms or abs(mine.mean or 0.0))
    return _measured(0, max(largest, rms), rms, (scale, scale if mine.rms is None else mine.rms))


def _equal(row: LayerComparison, tensor: DumpedTensor) -> LayerComparison:
    known = _figures(tensor)
    scale = max((abs(size) for size in (known.min, known.max) if size is not None), default=0.0) if known else 0.0
    measurement = _measured(prod(tensor.shape), 0.0, 0.0, (scale, (known.rms if known else None) or 0.0))
    limit = limit_for(measurement, (tensor.dtype, tensor.dtype), None)
    note = sentence("dump_row.same_checksum")
    return replace(row, outcome="aligned", measurement=measurement, limit=limit, factor=0.0, note=note)


def _measured(count: int, largest: float, rms: float, scale: tuple[float, float]) -> Measurement:
    return Measurement(
        count=count, max_abs=largest, max_rel=None, mean_abs=0.0, rmse=rms, relative_l2=0.0 if not rms else None,
        cosine=None, reference_max=scale[0], reference_rms=scale[1], nan_reference=0, nan_candidate=0, inf_reference=0,
        inf_candidate=0, non_finite_mismatch=0, mismatched=0, worst=(), decades=(0,) * DECADES,
    )  # fmt: skip


def _figures(one: DumpedTensor) -> TensorStatistics | None:
    """The figures of the dump, or of the tensor where that was dumped."""
    return one.statistics if one.load is None else summarize_tensor(one.load())


def _digest(tensor: DumpedTensor, other: DumpedTensor) -> str:
    """The checksum of the dump; of a tensor that was dumped, the one that the other side has."""
    if tensor.digest or tensor.load is None or not other.digest.startswith(_CRC):
        return tensor.digest
    return f"{_CRC}{crc32(np.ascontiguousarray(tensor.load()).tobytes()):08x}"


# Parameters and their gradients of two dumps, paired by the name map.
#
# The gradient of a bias is the sum of what comes back to its layer's output, that of a weight a sum of products with
# the input. Where the terms cancel, as they do in front of a BatchNorm, what is left is the rounding of the terms: a
# gradient may differ by some units of the sum of their sizes, however small it is itself.

Sides = tuple["DumpedSide", "DumpedSide"]


def parameter_rows(
    sides: Sides, name_map: NameMap, part: TensorPart, allowances: Allowances
) -> Iterator[LayerComparison]:
    """One row for each parameter, or gradient of one, that both sides dumped."""
    mine, theirs = (side.of_parameters(part) for side in sides)
    for pairing in name_map.pairings:
        if pairing.source in mine and pairing.target in theirs:
            one, other = mine[pairing.source], theirs[pairing.target]
            floor = _floor(sides, one) if part == "parameter gradient" else 0.0
            yield _judged(_row(one, other, part), pairing, (one, other), floor, allowances)


def _judged(
    row: LayerComparison,
    pairing: Pairing,
    pair: tuple[DumpedTensor, DumpedTensor],
    floor: float,
    allowances: Allowances,
) -> LayerComparison:
    reference, candidate = pair
    if reference.load is None or candidate.load is None:
        return judge_figures(row, reference, candidate, floor, same_order=pairing.transform is IDENTITY)
    meant, value, _ = paired_values(pairing, {pairing.source: reference.load()}, {pairing.target: candidate.load()})
    if unlike := shapes_differ(meant.shape, value.shape):
        return replace(row, outcome="not comparable", note=unlike)

    def limit_of(measurement: Measurement, label: str) -> Limit | None:
        if label:
            return None
        limit = limit_for(measurement, (reference.dtype, candidate.dtype), None)
        return allowances.limit(raised(limit, floor), reference.module, candidate.module)

    figures = judge_tensor(meant, value, limit_of)
    outcome, note = outcome_of(figures)
    judged = replace(row, outcome=outcome, note=note)
    if outcome == "not comparable":
        return judged
    left_out = left_out_of(figures)
    return replace(
        judged, measurement=figures.measurement, limit=figures.limit, factor=figures.factor, left_out=left_out
    )


def _floor(sides: Sides, gradient: DumpedTensor) -> float:
    """What rounding alone makes of a gradient, by the size of the terms that it is the sum of; 0 where none is known.

    The error of a sum is a few units in the last place of the sum of the sizes of its terms (N. Higham, Accuracy and
    Stability of Numerical Algorithms, 4.2), and each term brings its own.
    """
    reference = sides[0]
    if not is_float(gradient.dtype):
        return 0.0
    back = [tensor for tensor in reference.by_part.get("output gradient", ()) if tensor.module == gradient.module]
    sums = sum(_largest_sum(tensor, gradient) for tensor in back)
    if len(gradient.shape) > 1:
        given = [tensor for tensor in reference.by_part.get("input", ()) if tensor.module == gradient.module]
        sums *= max((_largest(tensor) for tensor in given), default=0.0)
    return GRADIENT_SUM_UNITS * EPSILON[coarsest_dtype(gradient.dtype)] * sums


def _largest_sum(back: DumpedTensor, gradient: DumpedTensor) -> float:
    """The largest sum of sizes over all but the axis of the layer's channels, or a bound on it.

    Figures bound it: a sum of n sizes is at most sqrt(n) times the norm of all.
    """
    channels = gradient.shape[0] if gradient.shape else 1
    axes = [
        axis
        for axis in {min(1, len(back.shape) - 1), len(back.shape) - 1}
        if axis >= 0 and back.shape[axis] == channels
    ]
    if not axes or not prod(back.shape):
        return 0.0
    if back.load is None:
        rms = back.statistics.rms if back.statistics else None
        count = prod(back.shape)
        return 0.0 if rms is None else sqrt(count / channels) * sqrt(count) * rms
    sizes = np.abs(back.load().astype(np.float64))
    return max(float(sizes.sum(axis=tuple(one for one in range(sizes.ndim) if one != axis)).max()) for axis in axes)


def _largest(tensor: DumpedTensor) -> float:
    if not tensor.item.isdecimal() or not is_float(tensor.dtype):
        return 0.0
    if tensor.load is not None:
        return float(np.abs(tensor.load()).max(initial=0.0))
    known = (tensor.statistics.min, tensor.statistics.max) if tensor.statistics else ()
    return max((abs(value) for value in known if value is not None), default=0.0)


def _row(reference: DumpedTensor, candidate: DumpedTensor, part: TensorPart) -> LayerComparison:
    return LayerComparison(
        order=reference.order,
        reference=reference.module,
        candidate=candidate.module,
        reference_class=reference.class_name,
        candidate_class=candidate.class_name,
        call=reference.call,
        output=reference.item,
        reference_shape=reference.shape,
        candidate_shape=candidate.shape,
        reference_dtype=reference.dtype,
        candidate_dtype=candidate.dtype,
        outcome="not comparable",
        measurement=None,
        limit=None,
        factor=None,
        depth=reference.depth,
        part=part,
    )


# Which layers are at fault by what was dumped of them: right inputs and parameters, and a wrong output.
#
# Where a dump holds what a layer was given, no run is needed to tell a fault from one that is carried on. Of calls
# inside one another the innermost is at fault.

_Key = tuple[str, int]


def find_dump_culprits(rows: Sequence[LayerComparison], sides: tuple[DumpedSide, DumpedSide]) -> tuple[Culprit, ...]:
    """The layers whose output is off although all that they were given is right, in the order in which they ended."""
    by_call: dict[_Key, list[LayerComparison]] = {}
    for row in rows:
        if row.part in ("output", "input", "parameter"):
            by_call.setdefault((row.candidate, row.call if row.part != "parameter" else 0), []).append(row)
    culprits: list[Culprit] = []
    for (module, call), own in by_call.items():
        wrong = [row for row in own if row.part == "output" and row.outcome == "not aligned" and row.certain]
        given = [row for row in own if row.part == "input"]
        held = [row for row in by_call.get((module, 0), ()) if row.part == "parameter"]
        right = bool(given) and all(row.outcome == "aligned" for row in (*given, *held))
        inside = any(not module or one.candidate.startswith((f"{module}.", f"{module}/")) for one in culprits)
        if wrong and right and not inside:
            culprits.append(_culprit(wrong[0], sides, call))
    return tuple(culprits)


def _culprit(row: LayerComparison, sides: tuple[DumpedSide, DumpedSide], call: int) -> Culprit:
    cause = next(iter(_causes(row, sides, call)), None)
    return Culprit(
        reference=row.reference,
        candidate=row.candidate,
        reference_class=row.reference_class,
        candidate_class=row.candidate_class,
        call=row.call,
        part="layer",
        factor=row.factor or 0.0,
        cause=cause.id if cause else "",
        sureness="suspected" if cause else "unknown",
        facts=dict(cause.facts) if cause else {},
        line=sides[1].dump.places.get((row.candidate, row.call), ""),
    )


def _causes(row: LayerComparison, sides: tuple[DumpedSide, DumpedSide], call: int) -> Iterator[Relation]:
    """The relations between what was given and returned that would explain the difference."""
    kind = _kind(sides[1], row.candidate)
    outputs = [
        _outputs(side, path, call).get(row.output)
        for side, path in zip(sides, (row.reference, row.candidate), strict=True)
    ]
    if row.limit is None or outputs[0] is None or outputs[1] is None or outputs[0].shape != outputs[1].shape:
        return
    given = _given(sides[0], row.reference, call)
    values = _parameters(sides[1], row.candidate)
    found = explain_layer(kind, given, values, outputs[0], outputs[1], row.limit)
    yield from (one for one in found if one.explains)


def _kind(side: DumpedSide, path: str) -> str:
    classes = next((one.classes for one in side.parameters.modules if one.path == path), ())
    known = rule_for(classes)
    return known[0].kind if known else ""


def _outputs(side: DumpedSide, path: str, call: int) -> Mapping[str, Array]:
    own = (one for one in side.by_part.get("output", ()) if (one.module, one.call) == (path, call))
    return {one.item: one.load() for one in own if one.load is not None}


def _given(side: DumpedSide, path: str, call: int) -> dict[str, Array]:
    own = (one for one in side.by_part.get("input", ()) if (one.module, one.call) == (path, call))
    return {one.item: one.load() for one in own if one.load is not None}


def _parameters(side: DumpedSide, path: str) -> dict[str, Array]:
    classes = next((one.classes for one in side.parameters.modules if one.path == path), ())
    own = (one for one in side.by_part.get("parameter", ()) if one.module == path and one.load is not None)
    return {role_of(classes, one.item) or one.item: one.load() for one in own if one.load is not None}
