"""The one door for documents that are read, those of align's own and those that users write: JSON and TOML.

What a text would cost is looked at before it is parsed: its size, how many values it holds, how deep its names go.
What cannot be parsed, and what has not the form that it should have, is a DocumentFault, which names the field. It is a
ValueError: whoever reads a kind of document makes the kind's own error of it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from align.core.thresholds import (
    LONGEST_JSON_BYTES,
    LONGEST_TOML_BYTES,
    MOST_JSON_VALUES,
    MOST_TOML_VALUES,
    MOST_WORK_FOR_DOTS,
    PATTERN_SECONDS,
)
from align.words.catalogue import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
    """A pattern to be searched for `PATTERN_SECONDS` from now on; after them a search raises TimeoutError."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self._end = limited(pattern), time.monotonic() + PATTERN_SECONDS

    def search(self, text: str) -> Any:
        """Return the first match in a text, None if there is none."""
        return self._pattern.search(text, timeout=seconds_left(self._end))

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield all matches in a text."""
        for match in self._pattern.finditer(text, timeout=seconds_left(self._end)):
            yield match
            if time.monotonic() > self._end:
                raise TimeoutError


def seconds_left(end: float) -> float:
    """The time until `end`, of `time.monotonic`; never 0, which would be no limit."""
    return max(end - time.monotonic(), 1e-3)


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
