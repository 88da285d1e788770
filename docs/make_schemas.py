"""Writes `align/runs/schemas/KIND.schema.json`, what a result document of each kind holds, from the dataclasses.

`python docs/make_schemas.py` writes them all anew. A test holds the files to what this makes, so that a changed result
shows as a changed schema, and the documents that tests write are validated with them.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import re
import types
from collections import abc
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from align.core.documents import ORIGIN
from align.core.transforms import Transform
from align.runs.run_folder import schema_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "align" / "runs" / "schemas"
RESULT = re.compile(r"^    result_kind = \"", re.MULTILINE)
Schema = dict[str, Any]
PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    int: {"type": "integer"},
    float: {"$ref": "#/$defs/number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    Transform: {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]},
}
COLUMNS: dict[str, Schema] = {"b": PLAIN[bool], "i": PLAIN[int], "f": PLAIN[float]}  # by the kind of a dtype
SHARED: dict[str, Schema] = {
    "number": {
        "description": "A number; those that are not finite, which JSON lacks, in words.",
        "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
    },
    "origin": {
        "description": "What a sentence was made from: its key and facts; of several, each.",
        "type": ["object", "array"],
    },
    "source": {
        "description": "What a result was made from: a file with its hash, or a text such as file.py:function.",
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("path", "text", "sha256")},
        "additionalProperties": False,
    },
}
HEAD: dict[str, Schema] = {
    "created": {"description": "When it was written (UTC).", "type": "string", "format": "date-time"},
    "mindalign": {"description": "The version that wrote it.", "type": "string"},
    "made_from": {"type": "object", "additionalProperties": {"$ref": "#/$defs/source"}},
}


def main() -> int:
    """Write the schema of each kind of result."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.schema.json"):
        path.unlink()
    for kind, result in result_types().items():
        (FOLDER / f"{kind}.schema.json").write_text(schema_text(result), encoding="utf-8")
    return 0


def result_types() -> dict[str, type]:
    """Every result of the package by its kind."""
    files = (path for path in sorted((ROOT / "align").rglob("*.py")) if RESULT.search(path.read_text(encoding="utf-8")))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)
    classes = (one for name in names for one in vars(importlib.import_module(name)).values())
    found = {one.result_kind: one for one in classes if dataclasses.is_dataclass(one) and hasattr(one, "result_kind")}
    return dict(sorted(found.items()))


def schema_text(result: type) -> str:
    """The schema of a kind of result, as its file holds it."""
    return json.dumps(document_schema(result), indent=1) + "\n"


def document_schema(result: Any) -> Schema:
    """The schema of a document: its head, the fields of the result, and what both are made of."""
    name, version = schema_of(result.result_kind).removeprefix("mindalign.").split("/")
    definitions: dict[str, Schema] = {}
    own = _object_schema(result, definitions)
    properties = {"schema": {"const": schema_of(result.result_kind)}, **HEAD, **own["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:mindalign:{name}:{version}",
        "title": schema_of(result.result_kind),
        **own,
        "properties": properties,
        "required": ["schema", *HEAD, *own["required"]],
        "$defs": {**SHARED, **dict(sorted(definitions.items()))},
    }


def field_types(value_type: type) -> dict[str, Any]:
    """The types of a dataclass's fields that documents hold, by name."""
    names = [_names_of(inspect.getmodule(one)) for one in value_type.__mro__[-2::-1]]
    hints = get_type_hints(value_type, {name: one for own in names for name, one in own.items()})
    return {field.name: hints[field.name] for field in dataclasses.fields(value_type) if field.repr}  # type: ignore[arg-type]


@cache
def _names_of(module: Any) -> dict[str, Any]:
    """What annotations of a module may name, with what it imports for type checking only."""
    names = dict(vars(module))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), "annotations", "exec"), names)  # noqa: S102 - our own imports
            for one in node.body:
                if isinstance(one, ast.ImportFrom):
                    names |= _for_type_checking(one, names)
    return names | {"Setting": Any}  # which holds itself


def _for_type_checking(statement: ast.ImportFrom, names: dict[str, Any]) -> dict[str, Any]:
    """What an import gives a type checker alone: its module has Any in the place of such a name."""
    hidden = [one.name for one in statement.names if names[one.asname or one.name] is Any]
    own = _names_of(importlib.import_module(str(statement.module))) if hidden else {}
    return {name: own[name] for name in hidden if name != "Any"}


def _object_schema(value_type: type, definitions: dict[str, Schema]) -> Schema:
    properties: dict[str, Schema] = {}
    fields = field_types(value_type)
    for name, field_type in fields.items():
        properties[name] = _schema(field_type, definitions)
        if _may_hold_sentences(properties[name]):
            properties[f"{name}{ORIGIN}"] = {"$ref": "#/$defs/origin"}
    return {
        "description": " ".join((inspect.getdoc(value_type) or "").split()),
        "type": "object",
        "properties": properties,
        "required": list(fields),
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Schema]) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return _definition(hint, definitions)
    if origin is Literal or isinstance(hint, enum.EnumMeta):
        return {"enum": [*arguments] or [one.value for one in hint]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, definitions) for one in arguments]}
    if origin is np.ndarray:
        return {"type": "array", "items": COLUMNS[np.dtype(get_args(arguments[1])[0]).kind]}
    return _container(origin, arguments, definitions)


def _definition(value_type: Any, definitions: dict[str, Schema]) -> Schema:
    name = value_type.__name__
    if name not in definitions:
        definitions[name] = {}  # one that holds itself finds it there
        definitions[name] = _object_schema(value_type, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _container(origin: Any, arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if origin in (dict, abc.Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if origin in (list, abc.Sequence) or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(one, definitions) for one in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    msg = f"no schema for {origin}{arguments}"
    raise TypeError(msg)


def _may_hold_sentences(schema: Schema) -> bool:
    """Tell whether a field is a text, or a list or an object of texts; words of an enum are none."""
    inside = [schema, schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    inside += [one for part in inside if isinstance(part, dict) for one in part.get("anyOf", ())]
    return PLAIN[str] in inside


if __name__ == "__main__":
    raise SystemExit(main())
