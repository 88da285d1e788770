"""What a verdict does not rest on, in few words: what was left out, inputs that cannot show a fault, the precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING, cast

import numpy as np

from align.core.dtypes import is_float
from align.core.traces import smallest_factor
from align.core.verdicts import Finding, Outcome
from align.forward.compare_traces import compare_traces, paired_outputs
from align.forward.forward_result import WitnessComparison, WitnessedLayer
from align.forward.run_both_models import trace_run
from align.forward.thresholds import (
    DRAWN_LENGTH,
    LARGE_LIMIT_SHARE,
    LEAST_LIMITS_MOVED,
    LEAST_OTHER_LENGTH,
    LEAST_SATURATED_ELEMENTS,
    NEARER_THAN_WITNESS,
)
from align.measure.limits import HALF, coarsest_dtype
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import drawn_from, find_permuted_layout, is_structure
from align.models.inputs import batches_from_names, batches_of, run_fitted
from align.names.map_sides import followed_side
from align.rules.layer_rules import role_of
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import keys_of, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture, Limit, Trace
    from align.forward.forward_result import Deviates, ForwardComparison, LayerComparison, Power, UnseenModule
    from align.forward.run_both_models import BothRuns
    from align.models.open_side import Side
    from align.traces.module_calls import CallPairs


# Findings that name more that was not compared.
NOT_COMPARED = {
    "outputs-only": "forward_caveat.compiled_layers",
    "names-open": "forward_caveat.values_not_paired",
    "weights-unknown": "forward_caveat.values_not_kept",
}
# What the note of an output says that was not judged as a whole.
SOME_ELEMENTS, PADDED = "forward_note.some_elements", "forward_note.padded"
IN_PART = {SOME_ELEMENTS, PADDED, "forward_note.judged_apart", "forward_note.non_finite_left_out"}


def with_caveats(result: ForwardComparison, inputs: Inputs | None = None) -> ForwardComparison:
    """The comparison with the caveats of its verdict; those of inputs and precision only if the models agree.

    Of inputs that are not at hand the described shapes alone say something.
    """
    outputs = [layer for layer in result.layers if not layer.reference]
    found = [*_not_compared(result), *_left_out(outputs)]
    if result.verdict.outcome is Outcome.ALIGNED:
        batches = batches_from_names(_hollow(result.inputs)) if inputs is None else batches_of(inputs)
        found += [*_single(batches), *(_constant(batches) if inputs is not None else ())]
        found += [*_precision(result.layers, outputs), *_little_power(result.power), *_hidden(result)]
    return replace(result, verdict=replace(result.verdict, caveats=tuple(found)))


def _not_compared(result: ForwardComparison) -> Iterator[str]:
    """Parts of the outputs, and modules; where modules are why nothing could be compared, the verdict says it."""
    codes = {finding.code for finding in result.findings}
    parts = [*_parts(result.findings)]
    if result.verdict.outcome is not Outcome.NOT_COMPARED:
        parts += _modules(result.unseen)
    parts += [sentence(key) for code, key in NOT_COMPARED.items() if code in codes]
    if parts:
        yield sentence("forward_caveat.not_compared", parts=parts)


def _parts(findings: Iterable[Finding]) -> Iterator[str]:
    """How many parts each side returned that were not compared; mostly both return the same."""
    counts = [int(one.facts["parts"]) for one in findings if one.code == "outputs-left-out"]
    if counts and len(set(counts)) == 1:
        yield sentence("forward_caveat.output_parts", count=counts[0])
    elif counts:
        yield sentence("forward_caveat.output_parts_of_each", counts=counts)


def _modules(unseen: Iterable[UnseenModule]) -> Iterator[str]:
    for (side, state), count in Counter((one.side, one.state) for one in unseen).items():
        yield sentence("forward_caveat.modules", count=count, side=side, state=state)


def _left_out(outputs: Sequence[LayerComparison]) -> Iterator[str]:
    measured = [one.measurement for one in outputs if one.measurement]
    alike = sum(one.nan_reference + one.inf_reference for one in measured if not one.non_finite_mismatch)
    if alike:
        total = sum(one.count for one in measured)
        yield sentence("forward_caveat.non_finite_on_both_sides", count=alike, total=total)
    cut = [one for one in outputs if one.measurement and SOME_ELEMENTS in keys_of(one.note)]
    if cut:
        kept = sum(one.measurement.count for one in cut if one.measurement)
        total = sum(prod(one.reference_shape) for one in cut)
        yield sentence("forward_caveat.some_elements", count=kept, total=total)
    if any(PADDED in keys_of(one.note) for one in outputs):
        yield sentence("forward_caveat.differs_at_padding")


def _hollow(inputs: Mapping[str, Mapping[str, object]]) -> dict[str, Array]:
    """Arrays of the described shapes, which take no memory."""
    shapes = {name: cast("Sequence[int]", one.get("shape", ())) for name, one in inputs.items()}
    return {name: np.broadcast_to(np.zeros((), np.int8), shape) for name, shape in shapes.items()}


def _single(batches: Sequence[Batch]) -> Iterator[str]:
    """The first input of two axes or more shows how many samples there are; positions, say, have but one."""
    arrays = [[value for value in batch.values() if value.ndim] for batch in batches]
    first = [next((one for one in own if one.ndim > 1), own[0]) for own in arrays if own]
    if first and all(one.shape[0] == 1 for one in first):
        yield sentence("forward_caveat.batch_of_one")


def _constant(batches: Sequence[Batch]) -> Iterator[str]:
    """Inputs of one value in all batches, or in some of them, which are named."""
    for name in dict.fromkeys(name for batch in batches for name in batch):
        values = [(number, batch[name].reshape(-1)) for number, batch in enumerate(batches, 1) if name in batch]
        if _is_one_value(np.concatenate([own for _, own in values])):
            yield sentence("forward_caveat.constant", name=name, value=values[0][1][0])
            continue
        parts = [
            sentence("forward_caveat.value_in_batch", value=own[0], batch=number)
            for number, own in values
            if _is_one_value(own)
        ]
        if parts:
            yield sentence("forward_caveat.constant_in_batches", name=name, parts=parts)


def _is_one_value(values: Array) -> bool:
    return values.size > 1 and bool((values == values[0]).all())


def _precision(layers: Sequence[LayerComparison], outputs: Sequence[LayerComparison]) -> Iterator[str]:
    """The coarsest dtype of the candidate, and from which share of an output on a difference would have shown."""
    dtype = coarsest_dtype(*(one.candidate_dtype for one in layers))
    own = coarsest_dtype(*(one.reference_dtype for one in layers))
    coarser = sentence("forward_caveat.judged_in_coarser", dtype=dtype, reference_dtype=own)
    judged = coarser if dtype != own else sentence("forward_caveat.judged_in", dtype=dtype)
    shares = [
        one.limit.rmse / one.measurement.reference_rms
        for one in outputs
        if one.limit and one.measurement and one.limit.source != "exact" and one.measurement.reference_rms
    ]
    in_part = any(not IN_PART.isdisjoint(keys_of(one.note)) for one in outputs)
    if dtype and shares:
        yield sentence("forward_caveat.would_show", judged=judged, share=max(shares), in_part=in_part)
    if shares and max(shares) > LARGE_LIMIT_SHARE and dtype not in HALF:
        yield sentence("forward_caveat.rounding_amplified")


def _little_power(power: Power | None) -> Iterator[str]:
    factors = [one.factor for one in power.outputs if not one.module and one.factor is not None] if power else []
    if factors and max(factors) < LEAST_LIMITS_MOVED:
        yield sentence("forward_caveat.little_power", factor=max(factors))


def _hidden(result: ForwardComparison) -> Iterator[str]:
    """What the given state hides and no further comparison showed: neutral values, inputs, outputs of whole numbers."""
    power = result.power
    if power and power.neutral:
        named = [sentence("neutral_value.named", name=name, why=why) for name, why in power.neutral.items()]
        yield sentence("forward_caveat.neutral_values", count=len(named), names=named)
    for one in result.further:
        if one.outcome == "could not compare" and one.kind != "neutral values":
            yield sentence("forward_caveat.blind_spots", spots=one.subjects, reason=one.reason)
    frameworks = result.environment.keys() - {"host"}
    if power and len(frameworks) == 1:
        yield sentence("forward_caveat.one_framework", framework=min(frameworks))
    states = [one.state for one in power.outputs if not one.module] if power else []
    if states and all(one == "whole" for one in states):
        yield sentence("forward_caveat.whole_outputs")


# A third side beside reference and candidate: at each layer, which of the three deviates from the other two.
#
# All three differences of a layer are held against one limit, that of the layer between reference and candidate,
# which comes from the reference's noise. Two sides that agree are right by majority. Where no two do, the third
# deviates if two are far nearer to each other than either is to it.

_NOBODY = ("none", "unclear")


def compare_witness(
    sides: tuple[Side, Side], witness: Side, run: BothRuns, calls: CallPairs, layers: Sequence[LayerComparison]
) -> WitnessComparison:
    """Run the witness on the reference's inputs and hold its layers against those of both sides.

    `calls` pair reference and candidate, `layers` are their rows. The trace of the witness is kept beside theirs.
    Raises ModelFailedError if the witness fails, and NothingInCommonError if no layer of it pairs with the reference's.
    """
    seen = _Three(run, _run_witness(sides[0], witness, run), calls)
    rows = [found for row in layers if (found := seen.row(row)) is not None]
    judged = sum(row.limit is not None for row in layers)
    first = next((place for place, one in enumerate(rows) if one.deviates not in _NOBODY), None)
    return WitnessComparison(witness.label, tuple(rows), first, judged - len(rows), _conclusion(rows, first))


def without_witness(result: ForwardComparison) -> ForwardComparison:
    """The result of a candidate that failed, which says that the witness was not run."""
    note = Finding("witness-not-run", "note", result.candidate, sentence("witness.not_run"))
    return replace(result, findings=(*result.findings, note))


@dataclass(frozen=True, slots=True)
class _Witnessed:
    """The trace of the witness, its rows against the reference, and its captures by the reference's keys."""

    trace: Trace
    rows: Mapping[str, LayerComparison]
    captures: Mapping[str, Capture]


def _run_witness(reference: Side, witness: Side, run: BothRuns) -> _Witnessed:
    witness = followed_side(witness, reference)
    folder: Path = run.reference.folder.with_name("witness")
    run_fitted(witness, run.inputs[0], partial(trace_run, witness, folder))
    traces = run.reference, TraceFolder(folder)
    both = (
        reference.reader.read_parameters(reference.model, reference.label),
        witness.reader.read_parameters(witness.model, witness.label),
    )
    name_map = choose_map(None, both)
    if not name_map.complete:
        name_map = map_in_order(traces, both, name_map)
    pairs = pair_traces(traces, both, name_map)
    rows = compare_traces(*traces, pairs.pairs, run.noise.accumulated, padding=run.padding)
    return _Witnessed(traces[1], {row.key: row for row in rows}, _captures(pairs))


def _captures(pairs: CallPairs) -> dict[str, Capture]:
    """What stands for each tensor of the reference, by its key."""
    both = (found for pair in pairs.pairs for found in paired_outputs(pair.reference, pair.candidate))
    return {mine.key: theirs for mine, theirs, unlike in both if not unlike or mine.module}


class _Three:
    """The three traces, and a row for each layer that all of them have."""

    def __init__(self, run: BothRuns, witness: _Witnessed, calls: CallPairs) -> None:
        self._run, self._witness = run, witness
        self._candidates = _captures(calls)
        self._references = {one.key: one for one in run.reference.captures}

    def row(self, row: LayerComparison) -> WitnessedLayer | None:
        """Who deviates at one layer; None where it was not judged, or the witness has none such."""
        other = self._witness.rows.get(row.key)
        if row.limit is None or row.factor is None or other is None or other.limit is None or other.factor is None:
            return None
        between = self._between(row.key, row.limit)
        if between is None:
            return None
        factors = row.factor, other.factor, between
        return WitnessedLayer(
            row.reference, row.candidate, other.candidate, row.call, row.output, who_deviates(*factors), *factors
        )

    def _between(self, key: str, limit: Limit) -> float | None:
        """By how much candidate and witness differ, as a multiple of the limit."""
        mine, one, other = (group.get(key) for group in (self._references, self._candidates, self._witness.captures))
        if mine is None or one is None or other is None:
            return None
        value = self._run.reference.value(mine)
        left = _laid_out(value, self._run.candidate.value(one))
        right = _laid_out(value, self._witness.trace.value(other))
        return None if left is None or right is None else smallest_factor(measure(left, right), limit)


def _laid_out(reference: Array, value: Array) -> Array | None:
    view = find_permuted_layout(reference, value)
    return None if view is None else view.to_reference(value)


def who_deviates(candidate: float, witness: float, between: float) -> Deviates:
    """Which side deviates, by the factors of reference and candidate, reference and witness, candidate and witness.

    >>> who_deviates(0.3, 40.0, 41.0), who_deviates(40.0, 0.3, 41.0), who_deviates(40.0, 41.0, 0.3)
    ('witness', 'candidate', 'reference')
    """
    factors: dict[Deviates, float] = {"witness": candidate, "candidate": witness, "reference": between}
    agree = [third for third, factor in factors.items() if factor <= 1.0]
    if len(agree) == len(factors):
        return "none"
    if len(agree) > 1:
        return "unclear"
    third = agree[0] if agree else min(factors, key=lambda one: factors[one])
    others = min(factor for one, factor in factors.items() if one != third)
    nearer = factors[third] < inf and factors[third] * NEARER_THAN_WITNESS <= others
    return third if agree or nearer else "all"


def _conclusion(rows: Sequence[WitnessedLayer], first: int | None) -> str:
    if not rows:
        return sentence("witness.nothing")
    counts = Counter(row.deviates for row in rows)
    if first is None:
        key = "witness.unclear" if counts["unclear"] else "witness.none"
        return sentence(key, count=len(rows), unclear=counts["unclear"])
    who = rows[first].deviates
    layer = rows[first].reference or sentence("model_part.model_itself")
    return sentence(f"witness.{who}", layer=layer, count=counts[who], total=len(rows))


# Inputs that cannot tell some faults: what they have all alike, and others that would tell, drawn from them.
#
# Samples that are equal hide a batch in another order, tokens that are equal hide their order, values that are
# symmetric hide a flip, one token hides what tokens do with each other, and one length hides a table of that length.
# Values of one sign hide which activation they are given to: `relu` and `abs` are one there.

_SEED = 3  # no limit: of its own generator
_LARGER = 8  # no limit: a power of two, by which inputs may outgrow a bias
TOKENS = 1  # no limit: the axis of tokens, behind that of samples


@dataclass(frozen=True, slots=True)
class OtherInputs:
    """Inputs in the place of the given ones: what these cannot tell in words, and whether `lengths` are other ones.

    `signs`: they have signs that the given ones lack, which the model may never be given.
    There are no `batches` where nobody knows which others the model takes.
    """

    blind_spots: tuple[str, ...]
    batches: tuple[Batch, ...] = field(repr=False)
    lengths: bool = False
    signs: bool = False


def telling_inputs(batches: Sequence[Batch], one_signed: Sequence[str] = ()) -> Iterator[OtherInputs]:
    """Yield inputs that tell what the given ones cannot: with unlike values, other signs, and of another length.

    `one_signed` says which layers return values of one sign, as `one_signed_layers` does.
    """
    names = dict.fromkeys(name for batch in batches for name in batch)
    alike = {name: spots for name in names if (spots := _blind_spots(name, batches))}
    turned = [sentence("blind_spot.turned", name=name) for name in names if _stays_turned(name, batches)]
    if turned:  # as the edges of a graph, which have no direction
        yield OtherInputs(tuple(turned), ())
    if alike:
        generator = np.random.default_rng(_SEED)
        drawn = [
            {name: _other_values(value, generator) if name in alike else value for name, value in batch.items()}
            for batch in batches
        ]
        yield OtherInputs(tuple(spot for spots in alike.values() for spot in spots), tuple(drawn))
    if (signs := _of_other_signs(batches, names, one_signed)) is not None:
        yield signs
    if (length := _only_length(batches)) is not None:
        yield _of_other_length(batches, length)


def one_signed_layers(trace: Trace, side: ParameterSet) -> Iterator[str]:
    """Say of the framework's layers with parameters, but for the last, that all they return has one sign."""
    classes = {module.path: module.classes for module in side.modules}
    owners = {one.module for one in side.parameters if role_of(classes.get(one.module, ()), one.attribute)}
    outputs = [one for one in trace.captures if one.module in owners and is_float(one.dtype) and trace.holds(one)]
    for capture in outputs[:-1]:  # what the last one returns is compared itself
        value = trace.value(capture)
        if value.size >= LEAST_SATURATED_ELEMENTS and (lacking := _lacking_sign(value)):
            yield sentence("blind_spot.layer_signs", name=capture.module, kind=capture.class_name, sign=lacking)


def _of_other_signs(batches: Sequence[Batch], names: Iterable[str], one_signed: Sequence[str]) -> OtherInputs | None:
    """Half of the values with the other sign where an input has one sign; else all, and larger, where layers do."""
    floats = {name: values for name in names if (values := _signed(name, batches))}
    lacking = {name: sign for name, values in floats.items() if (sign := _lacking_sign(*values))}
    spots = [sentence("blind_spot.signs", name=name, sign=sign) for name, sign in lacking.items()]
    turned = [*lacking] or ([*floats] if one_signed else [])
    if not turned:
        return None
    generator = np.random.default_rng(_SEED)
    drawn = tuple(
        {
            name: _turned(value, generator, half=bool(lacking)) if name in turned else value
            for name, value in one.items()
        }
        for one in batches
    )
    return OtherInputs((*spots, *one_signed), drawn, signs=True)


def _signed(name: str, batches: Sequence[Batch]) -> list[Array]:
    """The values of an input of floats in all batches; none where they are constant, a mask, or a number a sample."""
    values = [batch[name] for batch in batches if name in batch]
    rows = any(one.ndim > 1 for batch in batches for one in batch.values())
    usable = all(is_float(one.dtype.name) and not _is_constant(one) and not is_structure(one) for one in values)
    return values if usable and not (rows and any(one.ndim < 2 for one in values)) else []


def _lacking_sign(*values: Array) -> str:
    """The sign that no value has, "" where both are there, or NaN is."""
    if all((one >= 0).all() for one in values):
        return "negative"
    return "positive" if all((one <= 0).all() for one in values) else ""


def _turned(value: Array, generator: np.random.Generator, *, half: bool) -> Array:
    signs = generator.choice([-1, 1], value.shape) if half else np.full(value.shape, -_LARGER)
    turned: Array = value * signs.astype(value.dtype)
    return turned


def _blind_spots(name: str, batches: Sequence[Batch]) -> list[str]:
    """What an input has alike in all batches; a constant one, an order and a mask are such by their nature."""
    values = [batch[name] for batch in batches if name in batch]
    if any(_is_constant(one) or _is_mask_or_order(one) for one in values):
        return []
    found: list[str] = []
    if all(one.ndim and one.shape[0] > 1 and _is_constant_along(one, 0) for one in values):
        found.append(sentence("blind_spot.samples", name=name))
    least = min(one.ndim for one in values)
    axes = [axis for axis in range(1, least) if all(one.shape[axis] > 1 for one in values)]
    same = [axis for axis in axes if all(_is_constant_along(one, axis) for one in values)]
    found += [sentence("blind_spot.along_axis", name=name, axis=axis) for axis in same]
    flipped = [
        axis for axis in axes if axis not in same and all(np.array_equal(one, np.flip(one, axis)) for one in values)
    ]
    found += [sentence("blind_spot.symmetric", name=name, axis=axis) for axis in flipped]
    return found


def _stays_turned(name: str, batches: Sequence[Batch]) -> bool:
    """Tell whether an input is symmetric over its last two axes in all batches."""
    values = [batch[name] for batch in batches if name in batch]
    known = all(one.ndim > 2 and _is_symmetric(one) for one in values)
    return known and not any(_is_constant(one) or _is_mask_or_order(one) for one in values)


def _other_values(value: Array, generator: np.random.Generator) -> Array:
    """Other values that the model takes as well: rows of words keep what they are filled up with at their ends."""
    if value.dtype.kind not in "iu" or value.ndim < 2 or _is_constant_along(value, -1):
        return drawn_from(value, generator)
    rows = value.reshape(-1, value.shape[-1]).copy()
    for row in rows:
        filled = row == row[-1]
        end = value.shape[-1] - int(np.argmin(filled[::-1])) if not filled.all() else value.shape[-1]
        end = end if value.shape[-1] - end > 1 else value.shape[-1]
        row[:end] = generator.permutation(row[:end])
    return rows.reshape(value.shape)


def _is_mask_or_order(value: Array) -> bool:
    """Tell whether an input is alike by its nature; rows of one word, of two words in all, are none."""
    if value.dtype.kind not in "iu":
        return is_structure(value)
    rises = np.diff(value, axis=-1).any() if value.ndim else False
    return is_structure(value) and (int(value.max()) <= 1 or (bool(rises) and np.unique(value).size > 2))


def _is_constant(value: Array) -> bool:
    return value.size < 2 or bool((value == value.reshape(-1)[0]).all())


def _is_constant_along(value: Array, axis: int) -> bool:
    return bool((value == np.take(value, [0], axis)).all())


def _is_symmetric(value: Array) -> bool:
    square = value.shape[-1] == value.shape[-2] > 1
    return square and np.array_equal(value, np.swapaxes(value, -1, -2)) and not _is_constant_along(value, -1)


def _only_length(batches: Sequence[Batch]) -> int | None:
    """The one number of tokens in all batches, None if there are several or no tokens.

    Rows of whole numbers are tokens, and so are the rows of floats in three axes.
    """
    lengths = {value.shape[TOKENS] for batch in batches for value in _tokens(batch)}
    if len(lengths) != 1:
        return None
    (length,) = lengths
    whole = [value for batch in batches for value in batch.values() if value.dtype.kind in "iu"]
    # Other whole numbers may be lengths or places of tokens, which are others in inputs of another length.
    return length if all(one.ndim == TOKENS + 1 and one.shape[TOKENS] == length for one in whole) else None


def _tokens(batch: Batch) -> Iterator[Array]:
    for value in batch.values():
        is_ids = value.dtype.kind in "iu" and value.ndim == TOKENS + 1
        if (is_ids or (is_float(value.dtype.name) and value.ndim == TOKENS + 2)) and value.size:
            yield value
            return  # what stands beside the first may have lengths of other things


def _of_other_length(batches: Sequence[Batch], length: int) -> OtherInputs:
    """Inputs of half the length, or of a few tokens where one was given."""
    generator = np.random.default_rng(_SEED)
    other = max(LEAST_OTHER_LENGTH, length // 2) if length > 1 else DRAWN_LENGTH
    if length == LEAST_OTHER_LENGTH:
        other = DRAWN_LENGTH
    made = tuple(
        {name: _resized(value, length, other, generator) for name, value in batch.items()} for batch in batches
    )
    key = "blind_spot.one_token" if length == 1 else "blind_spot.one_length"
    return OtherInputs((sentence(key, length=length, other=other),), made, lengths=True)


def _resized(value: Array, length: int, other: int, generator: np.random.Generator) -> Array:
    """Every axis of that length behind the samples cut, or drawn longer; orders go on, and masks repeat their end."""
    for axis in range(TOKENS, value.ndim):
        if value.shape[axis] == length and (length > 1 or axis == TOKENS):
            value = _along(value, axis, other, generator)
    return value


def _along(value: Array, axis: int, other: int, generator: np.random.Generator) -> Array:
    length = value.shape[axis]
    if other <= length:
        return np.take(value, range(other), axis)
    last = np.take(value, [length - 1], axis)
    more = [last + step if _rises(value, axis) else last for step in range(1, other - length + 1)]
    longer = np.concatenate([value, *more], axis)
    return longer if is_structure(value) and value.size > 1 else _drawn_anew(longer, generator)


def _rises(value: Array, axis: int) -> bool:
    return value.dtype.kind in "iu" and value.shape[axis] > 1 and bool((np.diff(value, axis=axis) == 1).all())


def _drawn_anew(value: Array, generator: np.random.Generator) -> Array:
    """Whole numbers up to the largest given one, floats of the given size."""
    if value.dtype.kind in "iu":
        largest = int(value.max(initial=0))
        return generator.integers(0, largest + 1, value.shape).astype(value.dtype) if value.min() >= 0 else value
    if not is_float(value.dtype.name):
        return value
    size = float(np.sqrt(np.mean(np.square(value.astype(np.float64)))))
    return (size * generator.standard_normal(value.shape)).astype(value.dtype)
