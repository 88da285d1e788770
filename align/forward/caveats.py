"""What a verdict does not rest on: what was left out, inputs that cannot show a fault, precision, what trains alone.

Layers that drop a share of their values are compared one by one where they are surely one layer, the others by the
shares that each side has: which of them is which is not known, and one side may drop in code.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from align.core.name_map import SIDES
from align.core.parameters import is_float
from align.core.verdicts import Finding, Outcome
from align.forward.thresholds import (
    DRAWN_LENGTH,
    LARGE_LIMIT_SHARE,
    LEAST_LIMITS_MOVED,
    LEAST_OTHER_LENGTH,
    LEAST_SATURATED_ELEMENTS,
    SHARE_DIGITS,
)
from align.lint.compare_settings import LayerPair, compare_settings, pair_layers
from align.measure.limits import HALF, coarsest_dtype
from align.measure.tensor_statistics import drawn_from, is_structure
from align.models.inputs import batches_from_names, batches_of
from align.names.user_rules import fold_alike
from align.rules.layer_rules import role_of
from align.rules.pitfalls import equal_settings, pitfalls
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeGuard

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter, ParameterSet
    from align.core.protocols import Batch, Inputs, LayerSettings, Setting
    from align.core.traces import Trace
    from align.forward.forward_result import ForwardComparison, LayerComparison, Power, UnseenModule
    from align.traces.module_calls import CallPairs


# Findings that name more that was not compared.
NOT_COMPARED = {
    "outputs-only": "forward_caveat.compiled_layers",
    "names-open": "forward_caveat.values_not_paired",
    "weights-unknown": "forward_caveat.values_not_kept",
}


def with_caveats(result: ForwardComparison, inputs: Inputs | None = None) -> ForwardComparison:
    """The comparison with the caveats of its verdict; those of inputs and precision only if the models agree.

    Of inputs that are not at hand the described shapes alone say something.
    """
    outputs = [layer for layer in result.layers if not layer.reference]
    caveats = [*_not_compared(result), *_left_out(outputs)]
    if result.verdict.outcome is Outcome.ALIGNED:
        batches = batches_from_names(_hollow(result.inputs)) if inputs is None else batches_of(inputs)
        caveats += [*_single(batches), *(_constant(batches) if inputs is not None else ())]
        caveats += [*_precision(result.layers, outputs), *_little_power(result.power), *_hidden(result)]
    return replace(result, verdict=replace(result.verdict, caveats=tuple(caveats)))


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
    measured = [output.measurement for output in outputs if output.measurement]
    same_places = [figures for figures in measured if not figures.non_finite_mismatch]
    count = sum(figures.nan_reference + figures.inf_reference for figures in same_places)
    if count:
        total = sum(figures.count for figures in measured)
        yield sentence("forward_caveat.non_finite_on_both_sides", count=count, total=total)
    cut = [output for output in outputs if output.measurement and "elements" in output.left_out]
    if cut:
        kept = sum(output.measurement.count for output in cut if output.measurement)
        total = sum(prod(output.reference_shape) for output in cut)
        yield sentence("forward_caveat.some_elements", count=kept, total=total)
    if any("padding" in output.left_out for output in outputs):
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
        if _is_one_value(np.concatenate([array for _, array in values])):
            yield sentence("forward_caveat.constant", name=name, value=values[0][1][0])
            continue
        parts = [
            sentence("forward_caveat.value_in_batch", value=array[0], batch=number)
            for number, array in values
            if _is_one_value(array)
        ]
        if parts:
            yield sentence("forward_caveat.constant_in_batches", name=name, parts=parts)


def _is_one_value(values: Array) -> bool:
    return values.size > 1 and bool((values == values[0]).all())


def _precision(layers: Sequence[LayerComparison], outputs: Sequence[LayerComparison]) -> Iterator[str]:
    """The coarsest dtype of the candidate, and from which share of an output on a difference would have shown."""
    dtype = coarsest_dtype(*(layer.candidate_dtype for layer in layers))
    own = coarsest_dtype(*(layer.reference_dtype for layer in layers))
    coarser = sentence("forward_caveat.judged_in_coarser", dtype=dtype, reference_dtype=own)
    judged = coarser if dtype != own else sentence("forward_caveat.judged_in", dtype=dtype)
    shares = [
        output.limit.rmse / output.measurement.reference_rms
        for output in outputs
        if output.limit and output.measurement and output.limit.source != "exact" and output.measurement.reference_rms
    ]
    in_part = any(output.left_out for output in outputs)
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
    for run in result.further:
        if run.outcome == "could not compare" and run.kind != "neutral values":
            yield sentence("forward_caveat.blind_spots", spots=run.subjects, reason=run.reason)
    frameworks = result.environment.keys() - {"host"}
    if power and len(frameworks) == 1:
        yield sentence("forward_caveat.one_framework", framework=min(frameworks))
    states = [output.state for output in power.outputs if not output.module] if power else []
    if states and all(state == "whole" for state in states):
        yield sentence("forward_caveat.whole_outputs")


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
    spots_by_name = {name: spots for name in names if (spots := _blind_spots(name, batches))}
    turned = [sentence("blind_spot.turned", name=name) for name in names if _stays_turned(name, batches)]
    if turned:  # as the edges of a graph, which have no direction
        yield OtherInputs(tuple(turned), ())
    if spots_by_name:
        generator = np.random.default_rng(_SEED)
        drawn = [
            {name: _other_values(value, generator) if name in spots_by_name else value for name, value in batch.items()}
            for batch in batches
        ]
        yield OtherInputs(tuple(spot for spots in spots_by_name.values() for spot in spots), tuple(drawn))
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
    if any(_is_constant(value) or _is_mask_or_order(value) for value in values):
        return []
    spots: list[str] = []
    if all(value.ndim and value.shape[0] > 1 and _is_constant_along(value, 0) for value in values):
        spots.append(sentence("blind_spot.samples", name=name))
    least = min(value.ndim for value in values)
    axes = [axis for axis in range(1, least) if all(value.shape[axis] > 1 for value in values)]
    same = [axis for axis in axes if all(_is_constant_along(value, axis) for value in values)]
    spots += [sentence("blind_spot.along_axis", name=name, axis=axis) for axis in same]
    others = [axis for axis in axes if axis not in same]
    flipped = [axis for axis in others if all(np.array_equal(value, np.flip(value, axis)) for value in values)]
    spots += [sentence("blind_spot.symmetric", name=name, axis=axis) for axis in flipped]
    return spots


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
    resized = tuple(
        {name: _resized(value, length, other, generator) for name, value in batch.items()} for batch in batches
    )
    key = "blind_spot.one_token" if length == 1 else "blind_spot.one_length"
    return OtherInputs((sentence(key, length=length, other=other),), resized, lengths=True)


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
    rises = value.dtype.kind in "iu" and length > 1 and bool((np.diff(value, axis=axis) == 1).all())
    more = [last + step if rises else last for step in range(1, other - length + 1)]
    longer = np.concatenate([value, *more], axis)
    return longer if is_structure(value) and value.size > 1 else _drawn_anew(longer, generator)


def _drawn_anew(value: Array, generator: np.random.Generator) -> Array:
    """Whole numbers up to the largest given one, floats of the given size."""
    if value.dtype.kind in "iu":
        largest = int(value.max(initial=0))
        return generator.integers(0, largest + 1, value.shape).astype(value.dtype) if value.min() >= 0 else value
    if not is_float(value.dtype.name):
        return value
    size = float(np.sqrt(np.mean(np.square(value.astype(np.float64)))))
    return (size * generator.standard_normal(value.shape)).astype(value.dtype)


# What matters in training alone, of which a run in evaluation mode shows nothing: it is reported, and not judged.


Settings = tuple["Mapping[str, LayerSettings]", "Mapping[str, LayerSettings]"]
_EXACT = ("int", "uint", "bool")  # dtypes that no optimizer trains
# Layers of users' own classes: what they are called, and where they keep the share that they drop, or keep.
_DROPS = re.compile(r"drop|stochastic_?depth", re.IGNORECASE)
_PATH = re.compile(r"path|depth", re.IGNORECASE)
_CHANNELS = re.compile(r"[123]d")
_DROPPED = ("p", "drop_prob", "drop_rate", "drop_path", "drop_path_prob", "dropout", "dropout_prob", "prob", "rate")
_KEPT = "keep_prob"


def not_judged(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, name_map: NameMap, calls: CallPairs
) -> Iterator[Finding]:
    """Tell settings that are unlike and show in training only, and parameters that one side alone trains.

    One note a kind. `settings` are by path, empty where they are not read. Layers are paired as in the run, and those
    that neither run called by their place.
    """
    if all(settings):
        pairs = _pairs(sides, settings, name_map, calls)
        labels = [side.label for side in sides]
        lint = shlex.join(["align", "lint", *labels]) if all(":" in label for label in labels) else ""
        yield from _shares(sides, settings, pairs, calls)
        yield from _settings(pairs, sides[1].label, lint)
    yield from _frozen(sides, name_map)


def _pairs(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, name_map: NameMap, calls: CallPairs
) -> list[LayerPair]:
    """The pairs of the run; beside them, what is paired by the models alone of layers that are in none."""
    called: dict[tuple[str, str], bool] = {}
    for pair in calls.pairs:
        key = pair.reference.module, pair.candidate.module
        if key[0] in settings[0] and key[1] in settings[1]:
            called[key] = called.get(key, False) or pair.certain
    run = [LayerPair(settings[0][one], settings[1][other], sure) for (one, other), sure in called.items()]
    done = {one for one, _ in called}, {other for _, other in called}
    built, _ = pair_layers(sides, name_map, (settings[0], settings[1]))
    return run + [one for one in built if one.reference.path not in done[0] and one.candidate.path not in done[1]]


def _shares(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, pairs: Sequence[LayerPair], calls: CallPairs
) -> Iterator[Finding]:
    """What layers drop in training, one by one where they are surely the same."""
    sure = [(pair.reference.path, pair.candidate.path) for pair in pairs if pair.certain]
    mine, theirs = (frozenset(one.module for one in calls.unpaired if one.side == side) for side in SIDES)
    compared = compare_shares(settings, sure, (mine, theirs))
    if shares := describe_shares(compared):
        layers = len(compared.pairs) + sum(map(len, compared.alone))
        message = sentence("forward_finding.dropped_shares_not_judged", shares=shares)
        yield _note(sides[1].label, message, "dropout", layers)


def _settings(pairs: Sequence[LayerPair], label: str, lint: str) -> Iterator[Finding]:
    """Other settings of layers that surely correspond, a note for each rule."""
    rules = [rule for rule in pitfalls() if rule.training_only and rule.absent is None]
    found = [finding for finding in compare_settings(pairs, rules).findings if finding.certain]
    for rule, group in groupby(sorted(found, key=lambda one: one.rule), key=lambda one: one.rule):
        findings = list(group)
        first = findings[0]
        message = sentence(
            "forward_finding.setting_not_judged",
            setting=first.setting,
            count=len(findings),
            layers=folded_paths([finding.candidate for finding in findings]),
            reference=first.reference_setting,
            candidate=first.candidate_setting,
            effect=first.effect,
            change=first.change,
            command=lint,
        )
        yield _note(label, message, rule, len(findings))


def _frozen(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> Iterator[Finding]:
    """Parameters that training moves on one side alone: frozen, or no parameters, on the other."""
    still: dict[str, list[str]] = {side: [] for side in SIDES}
    for pairing in name_map.pairings:
        mine, theirs = sides[0].by_name.get(pairing.source), sides[1].by_name.get(pairing.target)
        trained = _is_trained(mine), _is_trained(theirs)
        if trained == (False, True):
            still["reference"].append(pairing.source)
        if trained == (True, False):
            still["candidate"].append(pairing.target)
    for side, names in still.items():
        if unlike := list(dict.fromkeys(names)):
            message = sentence(
                "forward_finding.frozen_not_judged", count=len(unlike), side=side, parameters=folded_paths(unlike)
            )
            yield _note(sides[1].label, message, "requires_grad", len(unlike), "parameters")


def _is_trained(parameter: Parameter | None) -> bool | None:
    """None where it is not known, or where no training could move it."""
    if parameter is None or parameter.dtype.startswith(_EXACT):
        return None
    return False if parameter.buffer else parameter.trainable


def _note(label: str, message: str, setting: str, number: int, counts: str = "layers") -> Finding:
    return Finding("not-judged", "note", label, message, {"setting": setting, counts: number})


@dataclass(frozen=True, slots=True)
class DroppedShare:
    """The share that one layer drops, as its class is given it, and what it drops: values, channels or paths."""

    path: str
    share: float
    setting: str
    drops: str


@dataclass(frozen=True, slots=True)
class ComparedShares:
    """Layers of both sides that drop another share, and the layers of either side whose share the other one lacks."""

    pairs: tuple[tuple[DroppedShare, DroppedShare], ...]
    alone: tuple[tuple[DroppedShare, ...], tuple[DroppedShare, ...]]


def compare_shares(
    settings: Settings, sure: Iterable[tuple[str, str]], called: tuple[frozenset[str], frozenset[str]]
) -> ComparedShares:
    """Compare the shares of two models; `sure` are the paths of layers that correspond, `called` ran without any."""
    mine, theirs = ({one.path: one for one in _dropped_shares(side)} for side in settings)
    pairs = [(mine[left], theirs[right]) for left, right in sure if left in mine and right in theirs]
    first = _Side(settings[0], mine, frozenset(one.path for one, _ in pairs), called[0])
    second = _Side(settings[1], theirs, frozenset(other.path for _, other in pairs), called[1])
    unlike = tuple(pair for pair in pairs if not equal_settings(pair[0].share, pair[1].share))
    return ComparedShares(unlike, (tuple(_alone(first, second)), tuple(_alone(second, first))))


@dataclass(frozen=True, slots=True)
class _Side:
    """The layers that drop, by path, those that are `paired`, and those that were `called` without a counterpart."""

    settings: Mapping[str, LayerSettings]
    layers: Mapping[str, DroppedShare]
    paired: frozenset[str]
    called: frozenset[str]

    @property
    def kept_in_code(self) -> set[float]:
        """Shares that modules keep which drop nothing themselves, as `self.dropout = 0.1` for a function."""
        values = [
            value
            for path, layer in self.settings.items()
            if not self.layers.keys() & {path, *_ancestors(path)}
            for name, value in layer.values.items()
            if _DROPS.search(name) and _is_share(value)
        ]
        return {round(share, SHARE_DIGITS) for value in values for share in (value, 1 - value)}


def describe_shares(compared: ComparedShares) -> str:
    """Say which shares are unlike, and which one side alone has; "" if none."""
    unlike: dict[tuple[str, str], list[str]] = {}
    for mine, theirs in compared.pairs:
        unlike.setdefault((mine.setting, theirs.setting), []).append(theirs.path)
    parts: list[str] = []
    for (one, other), paths in unlike.items():
        key = "forward_finding.shares_unlike"
        parts.append(sentence(key, reference=one, candidate=other, count=len(paths), layers=folded_paths(paths)))
    for side, shares in zip(SIDES, compared.alone, strict=True):
        alone: dict[str, list[str]] = {}
        for share in shares:
            alone.setdefault(share.setting, []).append(share.path)
        for setting, paths in alone.items():
            key = "forward_finding.share_of_one_side"
            parts.append(sentence(key, setting=setting, side=side, count=len(paths), layers=folded_paths(paths)))
    return joined("; ", parts) if parts else ""


def folded_paths(paths: list[str]) -> list[str]:
    """The paths of layers, those that differ in their numbers only as one."""
    return [path or sentence("model_part.model_itself") for path, _ in fold_alike((path, None) for path in paths)]


def _dropped_shares(settings: Mapping[str, LayerSettings]) -> list[DroppedShare]:
    """All shares of a side; a layer inside one that drops is a part of it."""
    found = [share for layer in settings.values() if (share := _dropped_share(layer))]
    paths = {one.path for one in found}
    return [one for one in found if paths.isdisjoint(_ancestors(one.path))]


def _dropped_share(layer: LayerSettings) -> DroppedShare | None:
    for rule in pitfalls():
        form = rule.form_of(layer.classes) if rule.absent is not None else None
        if form and form.readable(layer.values) and _is_share(value := form.read(layer.values, layer.classes)):
            return _named(layer, value, form.show(layer.values, layer.classes))
    if not _DROPS.search(layer.class_name):
        return None
    for name in (*_DROPPED, _KEPT):
        if _is_share(value := layer.values.get(name)):
            return _named(layer, 1 - value if name == _KEPT else value, f"{name}={value}")
    return None


def _named(layer: LayerSettings, share: float, setting: str) -> DroppedShare:
    name = layer.class_name
    drops = "paths" if _PATH.search(name) else "channels" if _CHANNELS.search(name) else "values"
    return DroppedShare(layer.path, round(share, SHARE_DIGITS), setting, drops)


def _alone(side: _Side, other: _Side) -> Iterator[DroppedShare]:
    """Layers without a sure counterpart whose share the other side has nowhere, nor keeps for its code.

    One that ran must have its counterpart among the layers that are not paired either; another one may be a second
    name of one that is.
    """
    dropped_there = {(layer.drops, layer.share) for layer in other.layers.values()}
    free = {(layer.drops, layer.share) for path, layer in other.layers.items() if path not in other.paired}
    in_code = other.kept_in_code
    for path, layer in side.layers.items():
        known = (layer.drops, layer.share) in (free if path in side.called else dropped_there)
        if layer.share and path not in side.paired and not known and layer.share not in in_code:
            yield layer


def _is_share(value: Setting) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _ancestors(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
