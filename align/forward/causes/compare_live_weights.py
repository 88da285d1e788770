"""The values of both live models compared, and what the candidate holds instead where it differs.

It may hold another parameter's values, turned, permuted or rounded ones, or those that it was never filled over. Values
are looked up by their hash among those of the same shape, so that the cost grows with their bytes and not with their
pairs; only what is related to the right value is asked for a relation.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf, prod, sqrt
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from align.core.dtypes import EPSILON, dtype_name, is_float
from align.core.measurements import Limit
from align.core.piece_transforms import Slice, apart_from_whole
from align.core.protocols import OriginFollower
from align.core.transforms import IDENTITY
from align.forward.relations.output_relations import likeliest_relation
from align.forward.relations.relation import Relation, at_places, sample_places
from align.forward.thresholds import (
    CHANCE_CORRELATION_OF_WEIGHTS,
    CLOSE_KURTOSIS,
    DRAWN_DEVIATIONS,
    LEAST_CORRELATED_ELEMENTS,
    LEAST_DRAWN_ELEMENTS,
    ROUNDED_WEIGHT_UNITS,
)
from align.measure.thresholds import SAMPLED_ELEMENTS
from align.models.thresholds import FOLDED_ROUNDING_UNITS
from align.traces.compare_weights import compare_weights, expected_weights, paired_values, weights_never_given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.transforms import Transform
    from align.core.verdicts import Finding
    from align.forward.relations.relation import Fact
    from align.models.open_side import Side

    Pair = tuple[Pairing, Array, Array]
    Names = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Owner:
    """The reference's layer that owns the parameters of one of the candidate's, and which piece of them these are."""

    path: str
    piece: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class Weights:
    """The candidate's values before any run, whose names a run may change, and those that it should hold instead.

    `modules` are the paths of those that own them; `causes` say, by the same, what those that differ are. `owners` are
    the reference's modules by the candidate's that own the same parameters. `never_given`: all of them differ.
    """

    held: Mapping[str, Array]
    meant: Mapping[str, Array] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    causes: Mapping[str, Relation] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    never_given: bool = False


@dataclass(frozen=True, slots=True)
class ComparedWeights:
    """One finding for each parameter that differs, and the values of the candidate as they are and should be.

    `source_names` are those of the reference's values, in their order.
    """

    findings: tuple[Finding, ...]
    weights: Weights
    source_names: tuple[str, ...] = ()


def compare_live_weights(
    sides: tuple[Side, Side], owners: tuple[Mapping[str, str], Mapping[str, str]], name_map: NameMap
) -> ComparedWeights:
    """Compare before any run: a MindSpore cell may rename its parameters in it.

    `owners` are the paths of both sides' modules by the names of their parameters.
    """
    values = [side.reader.read_values(side.model) for side in sides]
    source_names = tuple(values[0])
    findings = compare_weights(values[0], values[1], name_map)
    if findings and all(isinstance(side.reader, OriginFollower) for side in sides):
        rounded = _rounded(values[0], values[1], name_map)
        findings = tuple(one for one in findings if one.subject not in rounded)
    if not findings:
        return ComparedWeights((), Weights(values[1], owners=_counterparts(owners, name_map)), source_names)
    if lacking := weights_never_given(findings, (values[0], values[1]), name_map, **_known(sides)):
        meant, own = expected_weights(values[0], values[1], name_map), _counterparts(owners, name_map)
        return ComparedWeights((lacking,), Weights(values[1], meant, owners=own, never_given=True), source_names)
    causes = weight_causes(values[0], values[1], name_map)
    explained = (
        replace(one, facts={**one.facts, **_facts(causes.get(one.subject.rpartition(" -> ")[2]))}) for one in findings
    )
    by_module = {owners[1][name]: cause for name, cause in causes.items() if name in owners[1]}
    meant = expected_weights(values[0], values[1], name_map)
    modules = frozenset(owners[1][name] for name in meant if name in owners[1])
    weights = Weights(values[1], meant, modules, by_module, _counterparts(owners, name_map))
    return ComparedWeights(tuple(explained), weights, source_names)


def _rounded(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> set[str]:
    """What differs between two exports by no more than the rounding of a product that each exporter computed."""
    found = set()
    for pairing in name_map.pairings:
        meant, held, _ = paired_values(pairing, source, target)
        if meant.shape == held.shape and is_float(held.dtype.name) and held.size:
            unit = max(EPSILON.get(one.dtype.name, EPSILON["float32"]) for one in (meant, held))
            off = np.abs(meant.astype(np.float64) - held)
            if off.max() <= FOLDED_ROUNDING_UNITS * unit * np.abs(held.astype(np.float64)).max():
                found.add(f"{pairing.source} -> {pairing.target}")
    return found


class _Known(TypedDict):
    buffers: frozenset[str]
    filled: tuple[bool, bool]


def _known(sides: tuple[Side, Side]) -> _Known:
    """What the candidate computes for itself, and which of them a checkpoint filled."""
    read = sides[1].reader.read_parameters(sides[1].model, sides[1].label).parameters
    buffers = frozenset(one.name for one in read if one.buffer)
    return {"buffers": buffers, "filled": (sides[0].filled, sides[1].filled)}


def _counterparts(owners: tuple[Mapping[str, str], Mapping[str, str]], name_map: NameMap) -> dict[str, Owner]:
    """The reference's module that owns the first of a candidate's module's parameters, by the latter's path."""
    found: dict[str, Owner] = {}
    for one in name_map.pairings:
        if one.source in owners[0] and one.target in owners[1]:
            piece = one.transform
            rows = Slice(0, piece.start, piece.stop) if isinstance(piece, Slice) and piece.axis == 0 else IDENTITY
            found.setdefault(owners[1][one.target], Owner(owners[0][one.source], rows))
    return found


def _facts(cause: Relation | None) -> dict[str, Fact]:
    return {"cause": cause.id, **cause.facts} if cause else {}


NORMAL_KURTOSIS, UNIFORM_KURTOSIS = 3.0, 1.8  # no limit: of these distributions
CUT_NORMAL = 0.8796  # no limit: standard deviation of a normal distribution cut at two


def weight_causes(
    reference: Mapping[str, Array], candidate: Mapping[str, Array], name_map: NameMap
) -> dict[str, Relation]:
    """For each target parameter whose values differ from what the map says: the relation that was found, if any.

    Beside those of an output: `swapped-weights` and `weights-of-another` (`holds` names the reference's parameter
    whose value it is), `initial-value` (all one number), `shuffled` (the right values in an order that is not
    known), `not-loaded` (drawn as fresh layers are) and `unrelated`.
    """
    pairs = [_pair(pairing, reference, candidate) for pairing in name_map.pairings]
    apart = [pair for pair in pairs if not _equal(*pair[1:])]
    elsewhere = _elsewhere(pairs, apart)
    causes: dict[str, Relation] = {}
    for pairing, meant, held in apart:
        if pairing.target not in causes and (found := elsewhere.get(_names(pairing)) or _cause(meant, held)):
            causes[pairing.target] = found
    return causes


def _pair(pairing: Pairing, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> Pair:
    """A pairing with what the target should hold, or a piece of it, and what is there."""
    change, part = apart_from_whole(pairing.transform)
    meant, held = change.apply(reference[pairing.source]), candidate[pairing.target]
    return pairing, meant, held[part.region] if part and part.shape == held.shape else held


def _equal(meant: Array, held: Array) -> bool:
    return meant.shape == held.shape and np.array_equal(_as_held(meant, held), held)


def _as_held(meant: Array, held: Array) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return meant.astype(held.dtype, copy=False)


def _elsewhere(pairs: Sequence[Pair], apart: Sequence[Pair]) -> dict[Names, Relation]:
    """Values that another parameter, or another piece of a fused one, should have."""
    shapes = {held.shape for _, _, held in apart}
    owners: dict[bytes, list[Names]] = defaultdict(list)
    for pairing, meant, held in pairs:
        if meant.shape in shapes and _varies(meant):
            owners[_digest(_as_held(meant, held))].append(_names(pairing))
    holds = {_names(pairing): owners.get(_digest(held), []) for pairing, _, held in apart}
    return {
        names: Relation(
            "swapped-weights" if names in holds.get(others[0], []) else "weights-of-another",
            0.0,
            facts={"holds": others[0][0]},
        )
        for names, others in holds.items()
        if others and names not in others  # NaN is unlike itself
    }


def _names(pairing: Pairing) -> Names:
    return pairing.source, pairing.target


def _digest(values: Array) -> bytes:
    head = f"{dtype_name(values.dtype)}{values.shape}".encode()
    return hashlib.blake2b(head + values.tobytes(), digest_size=16).digest()


def _varies(values: Array) -> bool:
    return bool(values.size > 1 and np.any(values != values.reshape(-1)[0]))


def _cause(meant: Array, held: Array) -> Relation | None:
    """The likeliest relation of one parameter's value to what it should be."""
    if held.size > 1 and _varies(meant) and not _varies(held):
        return Relation("initial-value", inf, 0.0, facts={"value": float(np.real(held.reshape(-1)[0]))})
    apart = meant.shape == held.shape and _uncorrelated(meant, held)
    common = not apart or _have_common_values(meant, held)
    if common and (found := likeliest_relation(meant, held, _rounding(meant, held))):
        return found
    if common and _varies(meant) and _same_values(meant, held):
        return Relation("shuffled", inf, 0.0)
    return _fresh(held) if apart else None


def _uncorrelated(meant: Array, held: Array) -> bool:
    places = sample_places(meant.size, SAMPLED_ELEMENTS)
    ours, theirs = (at_places(np.real(one), places) for one in (meant, held))
    spread = float(ours.std() * theirs.std())
    if meant.size < LEAST_CORRELATED_ELEMENTS or not np.isfinite(spread) or spread == 0.0:
        return False
    correlation = float(np.mean((ours - ours.mean()) * (theirs - theirs.mean()))) / spread
    return abs(correlation) * sqrt(places.size) < CHANCE_CORRELATION_OF_WEIGHTS


def _have_common_values(meant: Array, held: Array) -> bool:
    """Whether more than a few sizes of the one are also sizes of the other; so by chance in dtypes of few values."""
    sample = held.reshape(-1)[sample_places(held.size, SAMPLED_ELEMENTS)]
    return bool(np.isin(np.abs(sample), np.abs(_as_held(meant, held))).mean() > 1.0 / LEAST_CORRELATED_ELEMENTS)


def _same_values(meant: Array, held: Array) -> bool:
    return meant.size == held.size and np.array_equal(np.sort(_as_held(meant, held), None), np.sort(held, None))


def _fresh(held: Array) -> Relation:
    name = initial_distribution(np.real(held))
    facts: dict[str, Fact] = {"distribution": name} if name else {}
    return Relation("not-loaded" if name else "unrelated", inf, 0.0, facts=facts)


def _rounding(meant: Array, held: Array) -> Limit:
    """Some units in the last place of the coarser dtype; exact for whole numbers."""
    names = [dtype_name(one.dtype) for one in (meant, held)]
    if not all(map(is_float, names)) or not meant.size:
        return Limit(0.0, 0.0, "exact")
    unit = ROUNDED_WEIGHT_UNITS * max(EPSILON[name] for name in names)
    sizes = np.abs(meant.astype(np.float64))
    return Limit(unit * float(sizes.max()), unit * sqrt(float(np.mean(sizes**2))), "rounding")


def initial_distribution(values: Array) -> str:
    """Name of the distribution that the values seem drawn from, with its width; "" if none is known or they are few."""
    if values.size < LEAST_DRAWN_ELEMENTS:
        return ""
    flat = values.reshape(-1).astype(np.float64)
    spread, middle = float(flat.std()), float(flat.mean())
    if spread == 0.0 or abs(middle) * sqrt(flat.size) > DRAWN_DEVIATIONS * spread:
        return ""
    kurtosis = float(np.mean(((flat - middle) / spread) ** 4))
    allowed = CLOSE_KURTOSIS + DRAWN_DEVIATIONS * sqrt(24.0 / flat.size)
    names = []
    if abs(kurtosis - UNIFORM_KURTOSIS) < allowed:
        names += [name for name, bound in _bounds(values.shape).items() if _is_uniform(flat, bound)]
    if kurtosis > UNIFORM_KURTOSIS + CLOSE_KURTOSIS and kurtosis < NORMAL_KURTOSIS + allowed:
        names += [name for name, width in _widths(values.shape).items() if _close(spread, width, flat.size)]
    return " or ".join(names)


def _is_uniform(values: Array, bound: float) -> bool:
    largest = float(np.abs(values).max())
    return bound * (1.0 - 20.0 / values.size) < largest <= bound * (1.0 + 1e-6)


def _close(spread: float, width: float, count: int) -> bool:
    return abs(spread / width - 1.0) < DRAWN_DEVIATIONS / sqrt(2.0 * count)


def _bounds(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "uniform 1/sqrt(fan_in)": 1.0 / sqrt(inside),
        "uniform sqrt(6/fan_in)": sqrt(6.0 / inside),
        "uniform sqrt(6/(fan_in+fan_out))": sqrt(6.0 / (inside + outside)),
    }


def _widths(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "normal 0.01": 0.01,
        "normal 0.02": 0.02,
        "truncated normal 0.02": 0.02 * CUT_NORMAL,
        "normal 1": 1.0,
        "normal sqrt(1/fan_in)": sqrt(1.0 / inside),
        "normal sqrt(2/fan_in)": sqrt(2.0 / inside),
        "normal sqrt(2/fan_out)": sqrt(2.0 / outside),
        "normal sqrt(2/(fan_in+fan_out))": sqrt(2.0 / (inside + outside)),
    }


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit, of a weight whose outputs come first."""
    window = prod(shape[2:])
    return (prod(shape[1:]) or 1) if len(shape) > 1 else shape[0], shape[0] * window
