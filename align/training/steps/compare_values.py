"""Gradients and values of parameters on both sides, paired through the name map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.piece_transforms import Pad, apart_from_whole
from align.core.transforms import steps_of
from align.training.steps.gradient_relations import UNKNOWN, GradientRelation, relate_gradients
from align.training.steps.judge_step import is_half, is_noise, judged
from align.training.steps.record_step import value_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement
    from align.core.name_map import NameMap, Pairing


@dataclass(frozen=True, slots=True)
class PairedValue:
    """A pairing with the reference's value brought into the candidate's layout, and the candidate's; None for none."""

    pairing: Pairing
    meant: Array | None
    value: Array | None


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """Figures of a paired value; `noise` if it is rounding on the reference's side already."""

    pairing: Pairing
    measurement: Measurement | None
    limit: Limit | None
    factor: float
    is_noise: bool = False
    relation: GradientRelation = UNKNOWN


def paired_values(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> Iterator[PairedValue]:
    """Bring the source's values over; those of which neither side has any, and padded ones, are left out."""
    for pairing in name_map.pairings:
        change, part = apart_from_whole(pairing.transform)
        mine, theirs = source.get(pairing.source), target.get(pairing.target)
        if (mine is None and theirs is None) or any(isinstance(one, Pad) for one in steps_of(pairing.transform)):
            continue
        meant = None if mine is None else change.apply(mine)
        if theirs is not None and part is not None and part.shape == theirs.shape:
            theirs = theirs[part.region]
        if meant is None or theirs is None or meant.shape == theirs.shape:
            yield PairedValue(pairing, meant, theirs)


def judge_values(
    pairs: Iterator[PairedValue],
    noise: Mapping[str, Measurement] | None,
    what: tuple[int, str],
    *,
    alone: bool,
    earlier: Mapping[str, Sequence[Array]] | None = None,
    coarser: Callable[[str], tuple[str, str]] = lambda _target: ("", ""),
) -> Iterator[JudgedValue]:
    """Hold each against its limit; `what` is the step and kind of value by which its noise is known.

    `coarser` are the coarsest dtypes in which the sides computed a value, named as on the candidate.
    """
    for one in pairs:
        if one.meant is None or one.value is None:
            relation = relate_gradients(one.meant, one.value)
            off = bool(relation.cause)
            yield JudgedValue(one.pairing, None, None, np.inf if off else 0.0, is_noise=not off, relation=relation)
            continue
        key = value_capture(one.pairing.source, *what, one.meant).key
        dtypes, low = (one.meant.dtype.name, one.value.dtype.name), coarser(one.pairing.target)
        found = judged(one.meant, one.value, _known(noise, key), key, dtypes, alone=alone, coarser=low)
        rounding = is_noise(one.meant, found.limit) and not found.part
        before = (earlier or {}).get(one.pairing.target, ())
        relation = UNKNOWN if found.factor <= 1.0 else relate_gradients(one.meant, one.value, before, half=is_half(low))
        yield JudgedValue(one.pairing, found.measurement, found.limit, found.factor, rounding, relation)


def _known(noise: Mapping[str, Measurement] | None, key: str) -> Mapping[str, Measurement] | None:
    """The noise of the whole tensor alone: parts of the reference's layout are none of the candidate's."""
    if noise is None or key not in noise:
        return None
    return {key: noise[key]}


def carried_over(name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]) -> dict[str, Array]:
    """What the target would hold with the source's values, whole tensors of its paired names."""
    found: dict[str, Array] = {}
    for pairing in name_map.pairings:
        if pairing.source not in source or pairing.target not in target:
            continue
        change, part = apart_from_whole(pairing.transform)
        meant, held = change.apply(source[pairing.source]), target[pairing.target]
        if part is not None and part.shape == held.shape:
            found.setdefault(pairing.target, np.array(held))[part.region] = meant
        elif meant.shape == held.shape:
            found[pairing.target] = np.asarray(meant, dtype=held.dtype)
    return found
