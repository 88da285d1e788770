"""Values turned into plain JSON data, the form in which run folders keep them and `--json` prints them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.piece_transforms import Crop, Pad, Part, Reorder, Share, Slice, Sum
from align.core.transforms import Cast, Chain, Identity, Permute, Reshape
from align.words.catalogue import ENGLISH, Sentence, Text, in_language

if TYPE_CHECKING:
    from collections.abc import Mapping

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_TRANSFORMS = (Identity, Reshape, Permute, Cast, Slice, Part, Sum, Share, Crop, Pad, Reorder, Chain)
ORIGIN = "_from"  # ends the name of what a sentence was made from


def to_json_data(value: Any) -> Any:
    """Return dicts, lists, strings, numbers, booleans and None only.

    NaN and the infinities, which JSON lacks, become the strings "NaN", "Infinity" and "-Infinity"; `float()` reads
    them back. Dataclasses become objects of their fields, without fields that are kept out of their repr. Beside a
    field that holds a sentence, or a list or dict of some, stands what it was made from: as `reason_from` beside
    `reason`.
    """
    if type(value) in _AS_THEY_ARE:  # most of a document
        return value
    if names := _shown_fields(value.__class__):
        return _object({name: getattr(value, name) for name in names})
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, float) and not math.isfinite(value):
        return _non_finite(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _compound(value)


def _compound(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return _object({str(key): item for key, item in value.items()})
    if isinstance(value, np.ndarray):
        return _column(value)
    if isinstance(value, (list, tuple)):
        return [*value] if _AS_THEY_ARE.issuperset(map(type, value)) else [to_json_data(item) for item in value]
    if isinstance(value, _TRANSFORMS):
        return value.as_table()
    if dataclasses.is_dataclass(type(value)):  # one of which no field is shown
        return {}
    raise TypeError(f"no plain form for {type(value).__name__}")


def json_text(data: Any, level: int = 0) -> str:
    """Return plain JSON data as text, indented by one space a level; long lists of numbers cost little.

    >>> print(json_text({"steps": [1, 2], "notes": []}))
    {
     "steps": [
      1,
      2
     ],
     "notes": []
    }
    """
    start, end = "\n" + " " * (level + 1), "\n" + " " * level
    if isinstance(data, dict) and data:
        pairs = (f"{_compact(key)}: {json_text(value, level + 1)}" for key, value in data.items())
        return "{" + start + f",{start}".join(pairs) + end + "}"
    if not isinstance(data, list) or not data:
        return _compact(data)
    if {*map(type, data)} <= {int, float, bool}:
        return "[" + start + _compact(data)[1:-1].replace(", ", f",{start}") + end + "]"
    return "[" + start + f",{start}".join(json_text(value, level + 1) for value in data) + end + "]"


def own_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that was read back, without what its sentences were made from.

    >>> own_fields({"reason": "all agree", "reason_from": {"key": "a.b", "facts": {}}})
    {'reason': 'all agree'}
    """
    return {name: value for name, value in data.items() if not name.endswith(ORIGIN)}


def kept_sentence(data: Mapping[str, Any], name: str) -> str:
    """The text of a field, as the sentence that it was made from where the object keeps that."""
    return _kept(str(data[name]), data.get(f"{name}{ORIGIN}"))


def kept_sentences(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The same of a field that holds several texts."""
    texts = data.get(name, ())
    return tuple(map(_kept, texts, data.get(f"{name}{ORIGIN}") or texts))


def _kept(text: str, origin: Any) -> str:
    is_kept = isinstance(origin, dict) and {"key", "facts"} <= origin.keys()
    return Sentence(text, origin["key"], origin["facts"]) if is_kept else text


def in_words(data: Any, language: str) -> Any:
    """The plain data of a document with its sentences in another language, made of what stands beside them."""
    if language == ENGLISH:
        return data
    if isinstance(data, list):
        return [in_words(one, language) for one in data]
    if isinstance(data, str):
        return in_language(data, language)  # the reason of a rule
    if not isinstance(data, dict):
        return data
    return {
        name: value if name.endswith(ORIGIN) else _reworded(value, data.get(f"{name}{ORIGIN}"), language)
        for name, value in data.items()
    }


def _reworded(value: Any, origin: Any, language: str) -> Any:
    if isinstance(value, str) and isinstance(origin, dict):
        return in_language(_kept(value, origin), language)
    if isinstance(value, list) and isinstance(origin, list):
        return [_reworded(one, its, language) for one, its in zip(value, origin, strict=True)]
    if isinstance(value, dict) and isinstance(origin, dict):
        return {name: _reworded(one, origin.get(name), language) for name, one in value.items()}
    return in_words(value, language)


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    if _AS_THEY_ARE.issuperset(map(type, fields.values())):
        return fields
    data: dict[str, Any] = {}
    for name, value in fields.items():
        if type(value) in _AS_THEY_ARE:
            data[name] = value
            continue
        if type(value) in (tuple, list) and _AS_THEY_ARE.issuperset(map(type, value)):
            data[name] = [*value]
            continue
        if isinstance(value, dict):  # its keys may be data, which nothing may stand beside
            data[name] = {str(key): to_json_data(item) for key, item in value.items()}
            if origins := {str(key): _origin(item) for key, item in value.items() if isinstance(item, Sentence)}:
                data[f"{name}{ORIGIN}"] = origins
            continue
        data[name] = to_json_data(value)
        if isinstance(value, Sentence):
            data[f"{name}{ORIGIN}"] = _origin(value)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Sentence) for item in value):
            data[f"{name}{ORIGIN}"] = [_origin(item) for item in value]
    return data


@functools.cache
def _shown_fields(value_type: type) -> tuple[str, ...]:
    """The fields of a dataclass that are shown; none of a transform, which has its own form, and of other types."""
    if not dataclasses.is_dataclass(value_type) or issubclass(value_type, _TRANSFORMS):
        return ()
    return tuple(field.name for field in dataclasses.fields(value_type) if field.repr)


def _origin(value: Any) -> Any:
    """The key and the facts of a text, texts among the facts too; of other values the plain form."""
    if isinstance(value, Text):
        return {"key": value.key, "facts": {name: _origin(one) for name, one in value.facts.items()}}
    if isinstance(value, (list, tuple)):
        return [_origin(one) for one in value]
    return to_json_data(value)


def _column(values: np.ndarray[Any, Any]) -> list[Any]:
    listed: list[Any] = values.tolist()
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        return [to_json_data(value) for value in listed]
    for place in () if values.dtype.kind != "f" else np.flatnonzero(~np.isfinite(values)).tolist():
        listed[place] = _non_finite(listed[place])
    return listed


_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # halves of letters, which no text in UTF-8 holds; bytes of names do
_encoded = json.JSONEncoder(ensure_ascii=False).encode


def _compact(data: Any) -> str:
    text = _encoded(data)
    return text if text.isascii() else _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
