"""The one door for documents that are read, those of align's own and those that users write: JSON and TOML.

What a text would cost is looked at before it is parsed: its size, how many values it holds, how deep its names go.
What cannot be parsed, and what has not the form that it should have, is a DocumentFault, which names the field. It is a
ValueError: whoever reads a kind of document makes the kind's own error of it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.piece_transforms import Crop, Pad, Part, Reorder, Share, Slice, Sum
from align.core.thresholds import (
    LONGEST_JSON_BYTES,
    LONGEST_TOML_BYTES,
    MOST_JSON_VALUES,
    MOST_TOML_VALUES,
    MOST_WORK_FOR_DOTS,
    PATTERN_SECONDS,
)
from align.core.transforms import Add, Cast, Chain, Identity, Permute, Reshape, Scale
from align.words.catalogue import ENGLISH, Sentence, Text, in_language, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


LARGEST_WHOLE = (1 << 63) - 1  # format: arrays and sizes are counted in 64 bits
LARGEST_NUMBER = sys.float_info.max
_LONG_NUMBER = re.compile(r"=\s*[+-]?0[xob][0-9a-fA-F_]{1000}")  # Python refuses those of decimal digits by itself
_NAMES = re.compile(r"[^=\n,\[\]{}]+")  # where the names of TOML stand, and its values


class DocumentFault(ValueError):  # noqa: N818 - the reason of an error, as those of the parsers are
    """Why a document cannot be used: it is too large, no JSON or TOML, or a field has another form."""


def read_json(path: Path) -> Any:
    """Read a file of JSON; raises DocumentFault, and OSError if it cannot be read."""
    _require_size(path.stat().st_size, LONGEST_JSON_BYTES)
    return parse_json(path.read_bytes())


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text in UTF-8; NaN and the infinities, which JSON lacks, are no values. Raises DocumentFault."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        _require_count(sum(map(text.count, ",[{")), MOST_JSON_VALUES)
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise DocumentFault(say("document_fault.too_deep")) from error
    except DocumentFault:
        raise
    except ValueError as error:  # also numbers of more digits than Python reads, and bytes that are no UTF-8
        raise DocumentFault(say("document_fault.no_json", error=error)) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of TOML; raises DocumentFault, and OSError if it cannot be read."""
    return parse_toml(read_toml_text(path))


def read_toml_text(path: Path) -> str:
    """The text of a file of TOML, for those who also want its lines; raises as `read_toml`."""
    _require_size(path.stat().st_size, LONGEST_TOML_BYTES)
    try:
        text = path.read_bytes().decode("utf-8-sig")  # editors of some systems add a mark
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise DocumentFault(say("document_fault.no_toml", error=error)) from error


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raises DocumentFault."""
    _require_count(text.count("=") + text.count(",") + text.count("["), MOST_TOML_VALUES)
    if _LONG_NUMBER.search(text):
        raise DocumentFault(say("document_fault.long_number"))
    # tomllib walks along each name once for each of its parts.
    if sum(name.count(".") ** 2 for name in _NAMES.findall(text)) > MOST_WORK_FOR_DOTS:
        raise DocumentFault(say("document_fault.long_names"))
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise DocumentFault(say("document_fault.too_deep")) from error
    except ValueError as error:  # TOMLDecodeError is one
        raise DocumentFault(say("document_fault.no_toml", error=error)) from error


class Form:
    """The form of a kind of document, as JSON Schema says it. Numbers that no machine number holds are refused too."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._check: Callable[[Any], object] | None = None

    def require(self, document: Any) -> Any:
        """Return the document; raises DocumentFault, naming the first field that has not the form."""
        from fastjsonschema import JsonSchemaValueException
        from fastjsonschema import compile as compile_schema

        if self._check is None:
            self._check = compile_schema(_bounded(self._schema))
        try:
            self._check(document)
        except JsonSchemaValueException as error:
            raise DocumentFault(_words(error.name or "", error.message, error.value)) from error
        except RecursionError as error:
            raise DocumentFault(say("document_fault.too_deep")) from error
        return document


def _words(name: str, message: str, value: object) -> str:
    field = name.removeprefix("data").removeprefix(".")
    fault = message.removeprefix(name).strip()
    shown = repr(value)[:60] if not isinstance(value, (dict, list)) else type(value).__name__
    return say("document_fault.form", field=field, fault=fault, value=shown)


def _bounded(schema: Any) -> Any:
    """The schema with bounds for numbers, and in the words of the draft that the checker knows."""
    if isinstance(schema, list):
        return [_bounded(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    bounded = {name: _bounded(one) for name, one in schema.items() if name not in ("$schema", "$id", "format")}
    if "prefixItems" in bounded:
        bounded["items"], bounded["additionalItems"] = bounded.pop("prefixItems"), bounded.get("items", True)
    if isinstance(kind := bounded.get("type"), str) and kind in ("integer", "number"):
        most = LARGEST_WHOLE if kind == "integer" else LARGEST_NUMBER
        bounded = {"minimum": -most, "maximum": most, **bounded}
    return bounded


def _require_size(size: int, most: int) -> None:
    if size > most:
        raise DocumentFault(say("document_fault.too_long", size=size, most=most))


def _require_count(count: int, most: int) -> None:
    if count > most:
        raise DocumentFault(say("document_fault.too_many", most=most))


def _refuse_constant(name: str) -> None:
    msg = f"{name} is no number of JSON"
    raise ValueError(msg)


# What forms are made of, in the words of JSON Schema; fields that a form does not name are let be.
TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
FLAG: dict[str, Any] = {"type": "boolean"}
FIGURE: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
SHAPE: dict[str, Any] = {"type": "array", "items": COUNT}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
TEXT_BY_NAME: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}


def maybe(form: dict[str, Any]) -> dict[str, Any]:
    """A form, or null in its place."""
    return {"anyOf": [form, {"type": "null"}]}


def table(required: dict[str, Any], further: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object with all of the first fields, and perhaps some of the others."""
    return {"type": "object", "properties": {**required, **(further or {})}, "required": [*required]}


def listed(form: dict[str, Any]) -> dict[str, Any]:
    """A list of one form."""
    return {"type": "array", "items": form}


# Settings of a layer, as `align.traces.stored_model.layer_from` reads them.
SETTINGS = table({"path": TEXT, "classes": TEXTS, "values": {"type": "object"}})


# Regular expressions that a user writes, searched for a limited time: some would never come to an end.
#
# `re` can be stopped by a signal alone, which only the main thread receives, and not on every system. The package
# `regex` takes a limit, on any thread. What has a meaning in `regex` alone (`{e<=1}` for errors that are allowed,
# `[:alpha:]`) is escaped, so that a pattern means what it means to `re`, which has compiled it first.

# An escape, a set of characters, a brace that begins no count of repeats.
_TOKENS = re.compile(r"(?P<kept>\\N\{[^}]*\}|\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\{(?!\d+\}|\d*,\d*\})", re.DOTALL)
_IN_SETS = re.compile(r"(\\.)|\[", re.DOTALL)


class LimitedPattern:
    """A pattern to be searched for `PATTERN_SECONDS` of this thread; after them a search raises TimeoutError."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self._end = limited(pattern), time.thread_time() + PATTERN_SECONDS

    def search(self, text: str) -> Any:
        """Return the first match in a text, None if there is none."""
        return self._pattern.search(text, timeout=seconds_left(self._end))

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield all matches in a text."""
        for match in self._pattern.finditer(text, timeout=seconds_left(self._end)):
            yield match
            if time.thread_time() > self._end:
                raise TimeoutError


def seconds_left(end: float) -> float:
    """The time until `end`, of `time.thread_time`; never 0, which would be no limit."""
    return max(end - time.thread_time(), 1e-3)


@cache
def limited(pattern: re.Pattern[str]) -> Any:
    """The pattern of `regex` that finds what a pattern of `re` finds; its methods take a `timeout`."""
    import regex

    flags = regex.VERSION0
    for name in ("ASCII", "IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE"):
        if pattern.flags & re.RegexFlag[name]:
            flags |= regex.RegexFlag[name]
    return regex.compile(_TOKENS.sub(_escaped, pattern.pattern), flags)


def _escaped(token: re.Match[str]) -> str:
    if token["set"]:
        return "[" + _IN_SETS.sub(lambda one: one[1] or r"\[", token["set"][1:])
    return token["kept"] or r"\{"


# Values turned into plain JSON data, the form in which run folders keep them and `--json` prints them.

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_TRANSFORMS = (Identity, Reshape, Permute, Cast, Slice, Part, Sum, Share, Crop, Pad, Reorder, Add, Scale, Chain)
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
