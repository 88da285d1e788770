"""Gradients and values of parameters on both sides, paired through the name map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name
from align.core.piece_transforms import Pad, apart_from_whole
from align.models.spilled_arrays import MadeArrays
from align.training.steps.gradient_relations import UNKNOWN, GradientRelation, relate_gradients
from align.training.steps.judge_step import is_half, is_noise, judged
from align.training.steps.record_step import value_capture
from align.training.updates.apply_rule import gradient_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet


@dataclass(frozen=True, slots=True)
class PairedValue:
    """A pairing with the reference's value brought into the candidate's layout, and the candidate's; None for none."""

    pairing: Pairing
    meant: Array | None
    value: Array | None


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """Figures of a paired value; `is_noise` if it is rounding on the reference's side already. L2 `norms` of both."""

    pairing: Pairing
    measurement: Measurement | None
    limit: Limit | None
    factor: float
    is_noise: bool = False
    relation: GradientRelation = UNKNOWN
    norms: tuple[float | None, float | None] = (None, None)


def paired_values(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> Iterator[PairedValue]:
    """Bring the source's values over; those of which neither side has any, and padded ones, are left out."""
    for pairing in name_map.pairings:
        found = paired_value(pairing, source.get(pairing.source), target.get(pairing.target))
        if found is not None:
            yield found


def values_of_both(
    name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]
) -> Iterator[tuple[Pairing, Array, Array]]:
    """Yield what both sides have: the pairing, the source's value brought over, and the target's."""
    for one in paired_values(name_map, source, target):
        if one.meant is not None and one.value is not None:
            yield one.pairing, one.meant, one.value


def paired_value(pairing: Pairing, mine: Array | None, theirs: Array | None) -> PairedValue | None:
    """Bring one value over; None where neither side has any, where it is padded, and where the shapes are unlike."""
    change, part = apart_from_whole(pairing.transform)
    if (mine is None and theirs is None) or any(isinstance(one, Pad) for one in pairing.transform.steps):
        return None
    meant = None if mine is None else change.apply(mine)
    if theirs is not None and part is not None and part.shape == theirs.shape:
        theirs = theirs[part.region]
    fits = meant is None or theirs is None or meant.shape == theirs.shape
    return PairedValue(pairing, meant, theirs) if fits else None


def judge_values(
    pairs: Iterator[PairedValue],
    noise: Mapping[str, Measurement] | None,
    what: tuple[int, str],
    *,
    alone: bool,
    earlier: Mapping[Pairing, Sequence[Array]] | None = None,
    coarser: Callable[[str], tuple[str, str]] = lambda _target: ("", ""),
) -> Iterator[JudgedValue]:
    """Hold each against its limit; `what` is the step and kind of value by which its noise is known.

    `coarser` are the coarsest dtypes in which the sides computed a value, named as on the candidate.
    """
    for one in pairs:
        norms = _norm(one.meant), _norm(one.value)
        if one.meant is None or one.value is None:
            relation = relate_gradients(one.meant, one.value)
            off = bool(relation.cause)
            yield JudgedValue(one.pairing, None, None, np.inf if off else 0.0, not off, relation, norms)
            continue
        key = value_capture(one.pairing.source, *what, one.meant).key
        dtypes, low = (dtype_name(one.meant.dtype), dtype_name(one.value.dtype)), coarser(one.pairing.target)
        found = judged(one.meant, one.value, _known(noise, key), key, dtypes, alone=alone, coarser=low)
        rounding = is_noise(one.meant, found.limit) and not found.part
        rounding |= found.factor <= 1.0 and not np.isfinite(one.meant).all()  # on both sides: it shows nothing
        before = (earlier or {}).get(one.pairing, ())
        relation = UNKNOWN if found.factor <= 1.0 else relate_gradients(one.meant, one.value, before, half=is_half(low))
        yield JudgedValue(one.pairing, found.measurement, found.limit, found.factor, rounding, relation, norms)


def _norm(value: Array | None) -> float | None:
    return None if value is None else gradient_norm(value)


def owners_of(parameters: ParameterSet) -> dict[str, str]:
    """The module of each parameter."""
    return {one.name: one.module for one in parameters.parameters}


def _known(noise: Mapping[str, Measurement] | None, key: str) -> Mapping[str, Measurement] | None:
    """The noise of the whole tensor alone: parts of the reference's layout are none of the candidate's."""
    if noise is None or key not in noise:
        return None
    return {key: noise[key]}


def carried_over(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> Mapping[str, Array]:
    """What the target would hold with the source's values, whole tensors of its paired names; made when it is read."""
    paired: dict[str, list[Pairing]] = {}
    for one in name_map.pairings:
        if one.source in source and one.target in target and _fits(one, source[one.source], target[one.target]):
            paired.setdefault(one.target, []).append(one)
    return MadeArrays({name: partial(_carried, own, source, target[name]) for name, own in paired.items()})


def _fits(pairing: Pairing, mine: Array, held: Array) -> bool:
    change, part = apart_from_whole(pairing.transform)
    return (part is not None and part.shape == held.shape) or change.apply(mine).shape == held.shape


def _carried(pairings: Sequence[Pairing], source: Mapping[str, Array], held: Array) -> Array:
    """One whole tensor, of one of the source's or of several parts."""
    found = held
    for pairing in pairings:
        change, part = apart_from_whole(pairing.transform)
        meant = change.apply(source[pairing.source])
        if part is not None and part.shape == held.shape:
            found = np.array(found) if found is held else found
            found[part.region] = meant
        else:
            found = np.asarray(meant, dtype=held.dtype)
    return found
