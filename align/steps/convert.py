"""The plan of a conversion: which target tensors are made of which source tensors, and all that stands against it.

Nothing is read here. A transform that leaves the bytes as they are keeps the source's extent, so that the writer can
copy them without loading; any other is applied when the target tensor is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from align.core.checkpoints import StoredTensor
from align.core.transforms import Identity, Reshape
from align.core.words import MOST_LISTED, counted, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.core.dtypes import Array
    from align.core.names import NameMap, Pairing
    from align.core.transforms import Transform


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One target tensor and where it comes from."""

    source: str
    transform: Transform
    target: StoredTensor


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Targets in the source's order. With `problems`, nothing must be written. `ties` holds the targets' names."""

    tensors: tuple[PlannedTensor, ...]
    dropped: dict[str, str]
    ties: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


def plan_conversion(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> ConversionPlan:
    """Apply a name map to a checkpoint's tensors; all problems are collected, none is raised."""
    planned: list[PlannedTensor] = []
    problems = [*_map_problems(name_map), *_name_problems(tensors, name_map)]
    for pairing in name_map.pairings:
        if pairing.source in tensors:
            try:
                planned.append(_planned(tensors[pairing.source], pairing))
            except ValueError as error:
                problems.append(f"{pairing.source} -> {pairing.target}: {error}")
    order = {name: place for place, name in enumerate(tensors)}
    planned.sort(key=lambda tensor: order[tensor.source])
    return ConversionPlan(
        tuple(planned),
        {drop.name: drop.reason for drop in name_map.dropped if drop.side == "target" or drop.name in tensors},
        _ties(tensors, planned),
        tuple(_warnings(tensors, name_map)),
        tuple(problems),
    )


def _planned(source: StoredTensor, pairing: Pairing) -> PlannedTensor:
    transform = pairing.transform
    same_bytes = isinstance(transform, (Identity, Reshape))

    def load() -> Array:
        return transform.apply(source.load())

    target = StoredTensor(
        name=pairing.target,
        shape=transform.output_shape(source.shape),
        dtype=transform.output_dtype(source.dtype),
        load=load,
        storage=source.storage,
    )
    if same_bytes:
        target = replace(target, extent=source.extent, pieces=source.pieces)
    return PlannedTensor(source.name, transform, target)


def _map_problems(name_map: NameMap) -> Iterable[str]:
    for ambiguity in name_map.ambiguous:
        yield f"ambiguous: {', '.join(ambiguity.sources)} for {', '.join(ambiguity.targets)} ({ambiguity.reason})"
    for unmatched in name_map.unmatched:
        closest = f"; closest: {', '.join(unmatched.suggestions)}" if unmatched.suggestions else ""
        yield f"unmatched {unmatched.side} tensor {unmatched.name}: {unmatched.reason}{closest}"
    takers: dict[str, list[str]] = {}
    for pairing in name_map.pairings:
        takers.setdefault(pairing.target, []).append(pairing.source)
    for target, sources in takers.items():
        if len(sources) > 1:
            yield f"{target} is the target of {len(sources)} tensors: {', '.join(sources)}"


def _name_problems(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    for pairing in name_map.pairings:
        if pairing.source not in tensors:
            close = get_close_matches(pairing.source, tensors, MOST_LISTED)
            closest = f"; closest: {', '.join(close)}" if close else ""
            yield f"{pairing.source} is in the map, not in the checkpoint (for {pairing.target}){closest}"
    mentioned = {p.source for p in name_map.pairings} | {d.name for d in name_map.dropped if d.side == "source"}
    mentioned |= {u.name for u in name_map.unmatched} | {name for a in name_map.ambiguous for name in a.sources}
    for name, tensor in tensors.items():
        if name not in mentioned:
            yield f"{name} {tensor.shape} is in the checkpoint, not in the map"


def _warnings(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    absent = [drop.name for drop in name_map.dropped if drop.side == "source" and drop.name not in tensors]
    if absent:
        yield f"the map drops {counted(len(absent), 'name')} that the checkpoint does not have: {some(absent)}"
    if name_map.unused_rules:
        unused = name_map.unused_rules
        yield f"the map has {counted(len(unused), 'rule')} that nothing follows: {some(unused)}"


def _ties(tensors: Mapping[str, StoredTensor], planned: Iterable[PlannedTensor]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for tensor in planned:
        storage = tensors[tensor.source].storage
        if storage is not None and tensor.target.nbytes:
            groups.setdefault(storage, []).append(tensor.target.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
