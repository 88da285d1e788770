"""What a user gives as `--map`: a map at hand, a map file, or the record of a conversion.

A record is read as the map that it was made with and all that leads back. It knows more than a map: the sources' shapes
and dtypes, which undo a reshape and a cast, the values of small tensors that were left out, and which tensors were one.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.convert.planning.two_way_map import FILLED, TwoWayMap, as_rules, as_two_way
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, Form, read_json
from align.core.dtypes import is_numeric, numpy_dtype
from align.core.name_map import NameMap
from align.core.piece_transforms import is_cut, join_fault
from align.errors import MapError
from align.names.fold_names import as_literal
from align.names.map_file import declared_framework, read_rules
from align.names.parse_transform import parse_transform
from align.names.user_rules import NameRules
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.transforms import Transform

RECORD = Form({"type": "object"})  # what stands in it is told fault by fault
SCHEMAS = "mindalign.convert/2", "mindalign.convert/1"


def read_given_map(given: NameMap | Path | str) -> TwoWayMap:
    """Return a map that can be followed either way; raises MissingFileError, or MapError with all faults."""
    if isinstance(given, NameMap):
        return as_two_way(given, "the map")
    path = existing_file(Path(given), "map file")
    return read_record_map(path) if is_record(path) else TwoWayMap(read_rules(path))


def is_record(path: Path) -> bool:
    """Tell whether a file is meant as a record: it is JSON, not TOML."""
    with path.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"{")


def read_record_map(path: Path) -> TwoWayMap:
    """Read a record; raises MapError listing every fault."""
    try:
        document = RECORD.require(read_json(path))
    except DocumentFault as error:
        raise MapError(path, [str(error)]) from error
    if document.get("schema") not in SCHEMAS:
        fault = say("given_map.schema", schema=document.get("schema"), expected=SCHEMAS[0])
        raise MapError(path, [fault], say("given_map.as_toml"))
    faults: list[str] = []
    tensors = _each(document.get("tensors"), "tensors", _tensor, faults)
    dropped = _by_name(document.get("dropped", {}), "dropped", _text, faults)
    values = _by_name(document.get("dropped_values", {}), "dropped_values", _value, faults)
    ties = _each(document.get("ties", []), "ties", _texts, faults)
    there = set(_each(document.get("dropped_target", []), "dropped_target", _text, faults))
    frameworks = (
        declared_framework(document, "source_framework", faults),
        declared_framework(document, "framework", faults),
    )
    if faults or (faults := list(_repeat_faults(tensors))):
        raise MapError(path, faults)
    made = [tensor for tensor in tensors if tensor.source]
    names, further = as_rules((tensor.source, tensor.target, tensor.transform) for tensor in made)
    filled = {as_literal(tensor.target): FILLED for tensor in tensors if not tensor.source}
    drops = {as_literal(name): reason for name, reason in dropped.items()}
    rules = NameRules(
        f"the record {path}",
        names=names,
        dropped_source={as_literal(name): reason for name, reason in dropped.items() if name not in there},
        dropped_target=drops | filled,  # what the source dropped, the target may have too
        frameworks=frameworks,
        further=further,
    )
    return TwoWayMap(
        rules,
        forms={tensor.source: tensor.source_form for tensor in made},
        target_forms={tensor.target: tensor.form for tensor in made if tensor.form},
        values=values,
        ties=tuple(ties),
    )


class _Tensor(NamedTuple):
    source: str
    target: str
    transform: Transform
    source_form: tuple[Shape, str]
    form: tuple[Shape, str] | None


def _tensor(entry: Any) -> _Tensor:
    return _Tensor(
        _text(entry["source"]),
        _text(entry["target"]),
        parse_transform(entry["transform"]),
        (_shape(entry["source_shape"]), _dtype(entry["source_dtype"])),
        (_shape(entry["shape"]), _dtype(entry["dtype"])) if "shape" in entry else None,
    )


def _repeat_faults(tensors: Sequence[_Tensor]) -> Iterable[str]:
    """Yield what stands against following the record in either direction: names that stand twice, and are no pieces."""
    sources: dict[str, list[_Tensor]] = defaultdict(list)
    targets: dict[str, list[_Tensor]] = defaultdict(list)
    for tensor in tensors:
        targets[tensor.target].append(tensor)
        if tensor.source:
            sources[tensor.source].append(tensor)
    for name, found in sources.items():
        if len(found) > 1 and not all(is_cut(tensor.transform) for tensor in found):
            yield say("given_map.source_of_several", name=name, count=len(found))
    for name, found in targets.items():
        if len(found) > 1 and (fault := join_fault([tensor.transform for tensor in found])):
            yield say("given_map.target_of_several", name=name, count=len(found), fault=fault)


def _value(entry: Any) -> Array:
    shape, dtype = _shape(entry["shape"]), _dtype(entry["dtype"])
    return np.frombuffer(bytes.fromhex(entry["data"]), numpy_dtype(dtype)).reshape(shape)


def _each(entries: Any, where: str, read: Callable[[Any], Any], faults: list[str]) -> list[Any]:
    found = []
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        value, fault = _tried(read, entry)
        faults += [f"{where}[{number}]: {fault}"] if fault else []
        found.append(value)
    return found


def _tried(read: Callable[[Any], Any], entry: Any) -> tuple[Any, str]:
    try:
        return read(entry), ""
    except (KeyError, TypeError, ValueError) as error:
        return None, repr(error)


def _by_name(table: Any, where: str, read: Callable[[Any], Any], faults: list[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        faults.append(say("given_map.no_object", where=where))
        return {}
    return dict(zip(table, _each(list(table.values()), where, read, faults), strict=True))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(say("given_map.no_text", value=value))
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _shape(values: Any) -> Shape:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise TypeError(say("given_map.no_shape", values=values))
    return tuple(values)


def _dtype(name: Any) -> str:
    if not is_numeric(_text(name)):
        raise ValueError(say("given_map.no_dtype", name=name))
    return str(name)
