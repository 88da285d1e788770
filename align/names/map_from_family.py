"""The name map of a known model family: where each layer stands, the family says; its parameters, the layer rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.name_map import Dropped, Pairing
from align.core.piece_transforms import Part, Slice
from align.core.transforms import IDENTITY, Reshape, Transform, chained
from align.errors import MapError
from align.names.infer_names import map_from_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Parameter, Shape
    from align.names.infer_names import InferredNames
    from align.rules.directed_rules import TargetFamily
    from align.rules.model_families import ModelFamily, Place


def map_from_family(
    family: ModelFamily, tensors: Mapping[str, StoredTensor | Parameter], to: TargetFamily
) -> InferredNames:
    """Return the map to the names of the family's MindSpore model, or back to torch's, with or without its prefixes.

    Raises MapError listing every name that the family does not know, OpenNamesError and UsageError as `map_from_file`.
    """
    backwards = to == "torch"
    family = family.form_of(tensors, backwards=backwards)
    here, there = ("mindspore", "torch") if backwards else ("torch", "mindspore")
    drops = {name: reason for name in tensors if (reason := family.reason_to_drop(name, here))}
    places = _places(family, [name for name in tensors if name not in drops], backwards=backwards)
    of_layers = {name: tensors[name] for name, place in places.items() if place.rule.kind}
    told = {name.rpartition(".")[0]: [places[name].rule.kind] for name in of_layers}
    inferred = map_from_file(of_layers, to, told=told)
    by_name = inferred.name_map.by_source
    gone = {drop.name: drop.reason for drop in inferred.name_map.dropped}
    pairings = [
        moved
        for name, place in places.items()
        if name not in gone
        for moved in _moved(name, tensors[name].shape, place, by_name.get(name), backwards=backwards)
    ]
    dropped = tuple(Dropped(name, "source", reason) for name, reason in (gone | drops).items())
    paths = {name.rpartition(".")[0]: place.paths[0] for name, place in places.items() if place.rule.kind}
    fills = tuple(replace(fill, name=_under(paths[fill.name.rpartition(".")[0]], fill.name)) for fill in inferred.fills)
    name_map = replace(inferred.name_map, pairings=tuple(pairings), dropped=dropped)
    own = [f"{glob} ({reason})" for glob, reason in family.dropped[there].items()]
    warnings = (f"what only {there} has is not written: {first_few(own)}",) if own else ()
    return replace(inferred, name_map=name_map, fills=fills, warnings=(*inferred.warnings, *warnings))


def _places(family: ModelFamily, names: Sequence[str], *, backwards: bool) -> dict[str, Place]:
    places = {name: family.place(name, backwards=backwards) for name in names}
    if faults := [f"{name}: the family has no such name" for name, place in places.items() if place is None]:
        raise MapError(
            f"the family {family.name} ({family.about})",
            faults,
            "check that the file is of this family and has no prefix (`align inspect`), or give a map with --map",
        )
    return {name: place for name, place in places.items() if place is not None}


def _moved(name: str, shape: Shape, place: Place, inferred: Pairing | None, *, backwards: bool) -> Iterator[Pairing]:
    """The pairings of a parameter: one for each piece of a layer that is fused on this side alone."""
    if inferred is None:
        yield Pairing(name, place.paths[0], "rule", 1.0, _reshaped(name, shape, place, backwards=backwards))
        return
    for index, path in enumerate(place.paths):
        cut = _cut(name, inferred.transform.output_shape(shape), place, index)
        yield replace(inferred, target=_under(path, inferred.target), transform=chained(inferred.transform, cut))


def _cut(name: str, shape: Shape, place: Place, index: int) -> Transform:
    """What takes a piece out of the whole, or puts one into it, along the first axis."""
    if place.piece is not None:
        number, of = place.piece
        return Part(0, number * shape[0], (number + 1) * shape[0], (of * shape[0], *shape[1:]))
    if len(place.paths) == 1:
        return IDENTITY
    size, rest = divmod(shape[0], len(place.paths))
    if rest:
        raise MapError("the family", [f"{name}: {shape} cannot be cut into {len(place.paths)} equal pieces"])
    return Slice(0, index * size, (index + 1) * size, shape)


def _reshaped(name: str, shape: Shape, place: Place, *, backwards: bool) -> Transform:
    """The change of shape of a parameter without a layer."""
    if place.rule.shapes is None:
        return IDENTITY
    before, after = place.rule.shapes[:: -1 if backwards else 1]
    if len(before) != len(shape) or any(n not in (0, length) for n, length in zip(before, shape, strict=True)):
        raise MapError("the family", [f"{name}: {shape} has not the axes {before}, of which 0 is any"])
    return Reshape(tuple(shape[axis] if n == 0 else n for axis, n in enumerate(after)), shape)


def _under(path: str, name: str) -> str:
    return f"{path}.{name.rpartition('.')[2]}"
