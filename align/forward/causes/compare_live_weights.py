"""The values of both live models compared, and what the candidate holds instead where it differs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from align.core.piece_transforms import Slice
from align.core.transforms import IDENTITY
from align.forward.causes.weight_causes import weight_causes
from align.traces.compare_weights import compare_weights, expected_weights, weights_never_given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.transforms import Transform
    from align.core.verdicts import Finding
    from align.forward.relations.relation import Fact, Relation
    from align.models.open_side import Side


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
    """One finding for each parameter that differs, and the values of the candidate as they are and should be."""

    findings: tuple[Finding, ...]
    weights: Weights


def compare_live_weights(
    sides: tuple[Side, Side], owners: tuple[Mapping[str, str], Mapping[str, str]], name_map: NameMap
) -> ComparedWeights:
    """Compare before any run: a MindSpore cell may rename its parameters in it.

    `owners` are the paths of both sides' modules by the names of their parameters.
    """
    values = [side.reader.read_values(side.model) for side in sides]
    findings = compare_weights(values[0], values[1], name_map)
    if not findings:
        return ComparedWeights((), Weights(values[1], owners=_counterparts(owners, name_map)))
    if lacking := weights_never_given(findings, (values[0], values[1]), name_map, **_known(sides)):
        meant, own = expected_weights(values[0], values[1], name_map), _counterparts(owners, name_map)
        return ComparedWeights((lacking,), Weights(values[1], meant, owners=own, never_given=True))
    causes = weight_causes(values[0], values[1], name_map)
    explained = (
        replace(one, facts={**one.facts, **_facts(causes.get(one.subject.rpartition(" -> ")[2]))}) for one in findings
    )
    by_module = {owners[1][name]: cause for name, cause in causes.items() if name in owners[1]}
    meant = expected_weights(values[0], values[1], name_map)
    modules = frozenset(owners[1][name] for name in meant if name in owners[1])
    weights = Weights(values[1], meant, modules, by_module, _counterparts(owners, name_map))
    return ComparedWeights(tuple(explained), weights)


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
