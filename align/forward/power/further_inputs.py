"""Inputs that cannot tell some faults: what they have all alike, and others that would tell, drawn from them.

Samples that are equal hide a batch in another order, tokens that are equal hide their order, values that are symmetric
hide a flip, one token hides what tokens do with each other, and one length hides a table of that length. Values of one
sign hide which activation they are given to: `relu` and `abs` are one there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.forward.thresholds import DRAWN_LENGTH, LEAST_OTHER_LENGTH, LEAST_SATURATED_ELEMENTS
from align.measure.draw_inputs import drawn_from, is_structure
from align.rules.layer_rules import role_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.protocols import Batch
    from align.core.traces import Trace

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
