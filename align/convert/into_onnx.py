"""The weights of a checkpoint put into the initializers of an ONNX file: a new file, whose graph is the old one's.

The bytes of each initializer are replaced where they lie, so that nothing else of the file can change. What an exporter
did to a weight is done again: matrices are turned, a norm is multiplied into its convolution.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.atomic_files import atomic_path
from align.core.transforms import IDENTITY
from align.errors import CannotRunError, DestinationError, InputsError
from align.models.open_side import SideRequest, open_side
from align.names.map_file import read_map
from align.names.map_parameters import match_sides, read_checkpoint_side
from align.names.map_result import followed_side
from align.names.user_rules import NameRules, check_shapes
from align.words.catalogue import first_few, say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.core.name_map import NameMap
    from align.core.parameters import Array, ParameterSet, StoredTensor
    from align.models.open_side import Side


@dataclass(frozen=True, slots=True)
class IntoResult:
    """How many parameters went into how many initializers of the file that was written.

    `constants` are tensors of no parameter, which stay: nothing tells whether they were computed from old weights.
    """

    destination: Path
    parameters: int
    initializers: int
    unchanged: int
    constants: tuple[str, ...] = ()


def convert_into_onnx(
    source: Path,
    model: Path,
    destination: Path,
    *,
    source_model: str | None = None,
    name_map: Path | str | None = None,
    overwrite: bool = False,
) -> IntoResult:
    """Write `destination`, which is `model` with the weights of `source`, and read it back.

    `source_model` is the model that the checkpoint fits, which knows the epsilon of its norms. Raises DestinationError
    for a file that is there, InputsError listing all parameters that have no counterpart, and CannotRunError where the
    graph has no place for a value: a norm folded into a convolution without `source_model`, an initializer that was
    computed from a parameter, or one that stands for parameters which differ now.
    """
    target = _opened_target(model, destination, overwrite=overwrite)
    theirs, values, target = _weights(source, source_model, target)
    of_target = target.reader.read_parameters(target.model, target.label)
    theirs = replace(theirs, parameters=tuple(replace(parameter, tied_to=None) for parameter in theirs.parameters))
    names = _names(name_map, theirs, of_target)
    given: dict[str, Array] = {}
    for pairing in names.pairings:
        part = pairing.transform.apply(values[pairing.source])  # zeros where other parts belong
        given[pairing.target] = given[pairing.target] + part if pairing.target in given else part
    _refuse_computed(target.model, given)
    new = _initializers(target.model, {**target.reader.read_values(target.model), **given})
    _write(model, destination, target.model.tensors, new)
    held = open_checkpoint(destination).tensors
    wrong = [name for name, value in new.items() if not np.array_equal(held[name].load(), value)]
    if wrong:
        raise CannotRunError.of("into_onnx.not_read_back", destination=destination, names=first_few(wrong))
    unchanged = len(target.model.tensors) - len(new)
    return IntoResult(destination, len(given), len(new), unchanged, tuple(target.model.constants_left()))


def _opened_target(model: Path, destination: Path, *, overwrite: bool) -> Side:
    if destination.exists() and (not overwrite or destination.samefile(model)):
        raise DestinationError.of("into_onnx.exists", destination=destination)
    return open_side(str(model))


def _weights(source: Path, source_model: str | None, target: Side) -> tuple[ParameterSet, Mapping[str, Array], Side]:
    """The parameters of the source with their values, and the target as the model of the source knows it."""
    if source_model is not None:
        side = open_side(SideRequest(source_model, source))
        parameters = side.reader.read_parameters(side.model, side.label)
        return parameters, side.reader.read_values(side.model), followed_side(target, side, same_values=False)
    parameters, tensors = read_checkpoint_side(source)
    return parameters, {name: tensor.load() for name, tensor in tensors.items()}, target


def _names(name_map: Path | str | None, theirs: ParameterSet, of_target: ParameterSet) -> NameMap:
    """The map of both sides; raises InputsError for one that leaves a parameter of either without a counterpart."""
    if name_map is not None:
        names = read_map(Path(name_map), theirs.names, of_target.names)
        check_shapes(names, theirs, of_target)
    else:
        names = match_sides(theirs, of_target, NameRules())
    faults = [f"{unmatched.side} {unmatched.name}: {unmatched.reason}" for unmatched in names.unmatched]
    faults += [f"{first_few([*group.sources, *group.targets])}: {group.reason}" for group in names.ambiguous]
    if faults:
        raise InputsError(*texts("into_onnx.names"), faults=faults)
    return names


def _refuse_computed(model: Any, given: Mapping[str, Array]) -> None:
    """Raise InputsError for values that an export computed from parameters in a way that the file does not tell."""
    in_folds = {name for norm in model.folded for name in norm.names}
    faults = [
        f"{one.name}: {one.initializer}"
        for one in model.parameters
        if one.name in given and one.name not in in_folds and not one.named and one.transform is IDENTITY
    ]
    if faults:
        raise InputsError(*texts("into_onnx.computed"), faults=faults)


def _initializers(model: Any, values: Mapping[str, Array]) -> dict[str, Array]:
    """The new values of initializers; raises CannotRunError for one that would have to hold several."""
    model.load(values)
    places: dict[str, dict[tuple[int, str], str]] = defaultdict(dict)
    for one in model.parameters:
        places[one.initializer] |= dict.fromkeys(one.places, one.name)
    initializers, clashes, others = {}, [], model.constant_uses()
    for name, uses in places.items():
        copies = [model.changed.get(place) for place in uses]
        first = next((value for value in copies if value is not None), None)
        if first is None:
            continue
        if any(value is None or not np.array_equal(value, first) for value in copies):
            clashes.append(say("into_onnx.shared", name=name, parameters=sorted(set(uses.values()))))
        clashes += [say("into_onnx.constant", name=name, node=node) for node in others.get(name, ())]
        initializers[name] = first
    if clashes:
        raise InputsError(*texts("into_onnx.several"), faults=clashes)
    return initializers


def _write(model: Path, destination: Path, tensors: Mapping[str, StoredTensor], new: Mapping[str, Array]) -> None:
    """Copy the model, and files of external data beside it, with other bytes where the new values lie."""
    if lost := [name for name in new if tensors[name].extent is None]:
        raise CannotRunError.of("into_onnx.no_extent", names=first_few(lost))
    beside = sorted({one.extent.path for one in tensors.values() if one.extent and one.extent.path != model})
    folder = model.resolve().parent
    copies = {path: destination.parent / path.resolve().relative_to(folder) for path in beside}
    if taken := [path for path in copies.values() if path.exists()]:
        raise DestinationError.of("into_onnx.data_exists", paths=[str(path) for path in taken])
    new_files: list[Path] = []
    try:
        for path, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copied(path, copy, tensors, new)
            new_files.append(copy)
        with atomic_path(destination) as temporary:
            _copied(model, temporary, tensors, new)
        new_files.clear()
    finally:
        _remove(new_files)


def _copied(path: Path, copy: Path, tensors: Mapping[str, StoredTensor], new: Mapping[str, Array]) -> None:
    shutil.copyfile(path, copy)
    with copy.open("r+b") as stream:
        for name, value in new.items():
            extent = tensors[name].extent
            if extent is not None and extent.path == path:
                stream.seek(extent.offset)
                stream.write(np.ascontiguousarray(value).tobytes())


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
