"""Parameters whose values hide what is made of them, and those values moved alike on both sides.

A bias of zeros may be left out, a scale of ones be used twice, copies of one value be exchanged, and a symmetric matrix
be turned: nothing shows. Fresh layers hold such values. They are moved by a fixed draw, through the map, so that a
right port agrees as before. Scales and variances keep their sign. The draw has few digits: every dtype holds it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.protocols import OriginFollower
from align.forward.thresholds import LARGEST_NEUTRAL_DRAW, LEAST_COPIED_ELEMENTS, NEUTRAL_SCALE_SHARE, SMALL_CONSTANT
from align.models.open_side import fill_in_order
from align.rules.layer_rules import role_of
from align.traces.compare_weights import compare_weights, expected_weights
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSet
    from align.models.open_side import Side

_SEED = 2  # no limit: of its own generator


@dataclass(frozen=True, slots=True)
class MovedValues:
    """What was moved: the reference's names, the candidate's, and all that the candidate holds meanwhile."""

    names: tuple[str, ...]
    targets: tuple[str, ...]
    held: Mapping[str, Array]


def neutral_parameters(side: ParameterSet, values: Mapping[str, Array]) -> dict[str, str]:
    """Say of each parameter whose value hides what is made of it why, by its name.

    `values` are by the names of `side`. Running statistics count; other buffers, and single numbers that are never
    trained, may be sizes or tables that the code computes, and do not.
    """
    classes = {module.path: module.classes for module in side.modules}
    found: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for one in side.parameters:
        value = values.get(one.name)
        if value is None or one.tied_to or not value.size or not is_float(value.dtype.name):
            continue
        is_statistic = role_of(classes.get(one.module, ()), one.attribute) in ("mean", "variance")
        if (one.buffer and not is_statistic) or (value.size == 1 and not one.trainable):
            continue
        if why := _why_neutral(one, value, seen):
            found[one.name] = why
    return found


def _why_neutral(parameter: Parameter, value: Array, seen: dict[tuple[object, ...], str]) -> str:
    """What makes a value neutral, "" if nothing does; `seen` are the values of those before."""
    flat = value.reshape(-1)
    if (flat == flat[0]).all():
        number = float(flat[0])
        return sentence("neutral_value.constant", value=number) if value.size > 1 or number in (0.0, 1.0) else ""
    if not parameter.trainable or value.size < LEAST_COPIED_ELEMENTS:
        return ""
    key = (value.shape, value.dtype.name, value.tobytes())
    if (first := seen.setdefault((*key[:2], hash(key[2])), parameter.name)) != parameter.name:
        return sentence("neutral_value.copy", name=first)
    square = value.ndim == 2 and value.shape[0] == value.shape[1]
    return sentence("neutral_value.symmetric") if square and np.array_equal(value, value.T) else ""


@contextmanager
def moved_alike(
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    parameters: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
) -> Iterator[tuple[dict[str, str], MovedValues | None]]:
    """Move the reference's neutral values on both sides, and put all values back at the end.

    Yields why values are neutral by name, and what was moved: None if nothing can be moved alike. `names` are those of
    both sides' values before any run.
    """
    own = tuple(
        dict(zip(named, side.reader.read_values(side.model).values(), strict=True))
        for named, side in zip(names, sides, strict=True)
    )
    neutral = neutral_parameters(parameters[0], own[0])
    groups = list(_groups(neutral, parameters, name_map))
    if not groups or any(isinstance(side.reader, OriginFollower) for side in sides):
        yield neutral, None
        return
    source = own[0] | _drawn(groups, own[0])
    moved = {name for group in groups for name in group}
    of_moved = replace(name_map, pairings=tuple(one for one in name_map.pairings if one.source in moved))
    changed = expected_weights(source, own[1], of_moved)
    try:
        for side, values in zip(sides, (source, {**own[1], **changed}), strict=True):
            fill_in_order(side, values)
        held = tuple(
            dict(zip(named, side.reader.read_values(side.model).values(), strict=True))
            for named, side in zip(names, sides, strict=True)
        )
        if _agree_as_before(own, held, name_map):
            yield neutral, MovedValues(tuple(sorted(moved)), tuple(changed), held[1])
        else:
            yield neutral, None
    finally:
        for side, values in zip(sides, own, strict=True):
            fill_in_order(side, values)


def _agree_as_before(
    own: Sequence[Mapping[str, Array]], held: Sequence[Mapping[str, Array]], name_map: NameMap
) -> bool:
    """Tell whether the values agree by the map wherever they did: a tensor may be another one too."""
    before = {one.subject for one in compare_weights(own[0], own[1], name_map)}
    return {one.subject for one in compare_weights(held[0], held[1], name_map)} <= before


def _groups(
    neutral: Mapping[str, str], parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap
) -> Iterator[tuple[str, ...]]:
    """Paired neutral parameters, those together that are one tensor on either side; only where all of it is neutral."""
    first = [{one.name: one.tied_to or one.name for one in side.parameters} for side in parameters]
    tied: dict[str, set[str]] = {}
    for pairing in name_map.pairings:
        mine = {first[0].get(pairing.source, pairing.source)}
        own = tied.setdefault(first[1].get(pairing.target, pairing.target), mine)
        own |= mine
    members: dict[str, set[str]] = {}
    for together in tied.values():
        whole = set().union(together, *(members.get(name, ()) for name in together))
        members |= dict.fromkeys(whole, whole)
    for group in {id(one): one for one in members.values()}.values():
        if group <= neutral.keys():
            yield tuple(sorted(group))


def _drawn(groups: Iterable[tuple[str, ...]], values: Mapping[str, Array]) -> dict[str, Array]:
    """New values by name; those of one group of one shape are alike as before."""
    generator = np.random.default_rng(_SEED)
    found: dict[str, Array] = {}
    for group in sorted(groups):
        drawn: dict[tuple[int, ...], Array] = {}
        for name in group:
            value = values[name]
            if value.shape not in drawn:
                drawn[value.shape] = _moved(value, generator)
            found[name] = drawn[value.shape]
    return found


def _moved(value: Array, generator: np.random.Generator) -> Array:
    """Another value: of the size that fresh layers draw in the place of zeros, else around the old one."""
    noise = generator.uniform(-1.0, 1.0, value.shape)
    wide = value.astype(np.float64)
    fans = prod(value.shape[1:]) if value.ndim > 1 else 1
    size = min(LARGEST_NEUTRAL_DRAW, 1.0 / sqrt(fans))
    largest = float(np.abs(wide).max())
    if largest == 0.0:
        new = size * noise
    elif largest < SMALL_CONSTANT and (wide == wide.flat[0]).all():
        new = np.sign(wide) * size * (1.0 + NEUTRAL_SCALE_SHARE * noise) / 2.0
    elif (wide == wide.flat[0]).all():
        new = wide * (1.0 + NEUTRAL_SCALE_SHARE * noise)
    else:
        new = wide + NEUTRAL_SCALE_SHARE * float(np.sqrt(np.mean(np.square(wide)))) * noise
    return _with_few_digits(new).astype(value.dtype)


def _with_few_digits(value: Array) -> Array:
    """Rounded to the seven bits of bfloat16, so that a cast to any dtype leaves it as it is."""
    mantissa, exponent = np.frexp(value)
    rounded: Array = np.ldexp(np.round(mantissa * 128.0) / 128.0, exponent)
    return rounded
