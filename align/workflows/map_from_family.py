"""The name map of a known model family: its paths by the family's rules, the layers at them by the layer rules."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.names import Dropped, NameMap
from align.core.words import some
from align.errors import MapError
from align.workflows.map_from_file import map_from_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.families import ModelFamily
    from align.steps.infer_names import InferredNames
    from align.steps.translations import TargetFamily


def map_from_family(
    family: ModelFamily, tensors: Mapping[str, StoredTensor], to: TargetFamily, layers: Sequence[str]
) -> InferredNames:
    """Return the map to MindSpore's names, or back to torch's; its moves are checked to lead back.

    Raises MapError listing every name that the family does not know, OpenNamesError and UsageError as `map_from_file`.
    """
    if to == "torch":
        return _to_torch(family, tensors, layers)
    drops = {name: reason for name in tensors if (reason := _reason(family, name))}
    kept = {name: tensor for name, tensor in tensors.items() if name not in drops}
    _moves(family, kept, backwards=False)
    inferred = map_from_file(kept, to, layers, _told(family, kept))
    moved = _moves(family, [pairing.target for pairing in inferred.name_map.pairings], backwards=False)
    pairings = (replace(one, target=moved[one.target]) for one in inferred.name_map.pairings)
    dropped = (Dropped(name, "source", reason) for name, reason in drops.items())
    name_map = replace(inferred.name_map, pairings=tuple(pairings), dropped=(*inferred.name_map.dropped, *dropped))
    return replace(inferred, name_map=name_map)


def _to_torch(family: ModelFamily, tensors: Mapping[str, StoredTensor], layers: Sequence[str]) -> InferredNames:
    torch_paths = _moves(family, tensors, backwards=True)
    there = {torch_paths[name]: tensor for name, tensor in tensors.items()}
    inferred = map_from_file(there, "torch", layers, _told(family, there))
    names = {moved: name for name, moved in torch_paths.items()}
    pairings = tuple(replace(one, source=names[one.source]) for one in inferred.name_map.pairings)
    lost = [f"{glob} ({reason})" for glob, reason in family.dropped.items()]
    warnings = (f"the family drops on the way to MindSpore, and so leaves out: {some(lost)}",) if lost else ()
    name_map: NameMap = replace(inferred.name_map, pairings=pairings)
    return replace(inferred, name_map=name_map, warnings=(*inferred.warnings, *warnings))


def _told(family: ModelFamily, names: Iterable[str]) -> dict[str, list[str]]:
    prefixes = {name.rpartition(".")[0] for name in names}
    return {
        prefix: [choice.kind for choice in family.layers if fnmatchcase(prefix, choice.pattern)] for prefix in prefixes
    }


def _reason(family: ModelFamily, name: str) -> str:
    return next((reason for glob, reason in family.dropped.items() if fnmatchcase(name, glob)), "")


def _moves(family: ModelFamily, names: Iterable[str], *, backwards: bool) -> dict[str, str]:
    """Each name at its new place; raises MapError unless all are known, lead back and stay apart."""
    moved: dict[str, str] = {}
    faults = []
    for name in names:
        new = family.moved(name, backwards=backwards)
        if new is None:
            faults.append(f"{name}: the family has no such name")
        elif (back := family.moved(new, backwards=not backwards)) != name:
            faults.append(f"{name} becomes {new}, which leads back to {back}")
        else:
            moved[name] = new
    if faults:
        raise MapError(
            f"the family {family.name} ({family.about})",
            faults,
            "check that the file is of this family and has no prefix (`align inspect`), or give a map with --map",
        )
    return moved
