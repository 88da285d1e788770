"""Configurations that a folder has for models that need arguments, and what a constructor reads of its arguments.

A configuration is a dict, a class whose fields have defaults, options of argparse, a YAML or JSON file or a section of
one. It fits an argument if it has all that is read of it, also where the argument is handed on.
"""

from __future__ import annotations

import ast
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from align.runs.thresholds import IMPORT_STEPS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.runs.read_sources import Definition, Source, Sources

CONFIG_ENDS = ("config", "cfg", "args", "arguments", "options", "settings", "hparams", "conf", "hyper", "params")
MAPPINGS = {"dict", "get", "keys", "items", "values", "pop", "update", "copy", "setdefault"}
SWITCHES = {"store_true": False, "store_false": True}
NUMBERS = {"int": int, "float": float}


@dataclass(frozen=True)
class Config:
    """A configuration: where it is, the expression that makes it, what it has; `is_mapping` if its keys are items."""

    source: Source | None
    origin: str
    expression: str
    keys: frozenset[str]
    is_mapping: bool | None  # None: both ways
    needs: str = ""  # the name in its file
    plain: tuple[tuple[str, str], ...] = ()


def annotation(function: ast.FunctionDef | None, name: str) -> str:
    """The last part of an argument's annotation, "" where it has none."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs] if function else []
    return next(
        (ast.unparse(one.annotation).rpartition(".")[2] for one in arguments if one.arg == name and one.annotation), ""
    )


def matching_config(configs: Sequence[Config], uses: tuple[set[str], set[str]], kind: str) -> Config | None:
    """The first configuration that has all that is read, one of this kind before others."""
    wanted = uses[0] | uses[1]
    fits = [one for one in configs if one.keys >= wanted]
    named = [one for one in fits if kind and one.needs == kind]
    return next(iter(named or fits), None)


def uses_of(
    sources: Sources, source: Source, node: ast.FunctionDef | ast.ClassDef, name: str, steps: int = 0
) -> tuple[set[str], set[str]]:
    """What is read of an argument: attributes, and keys; also where it is handed on."""
    function = constructor(source, sources, node)
    attributes: set[str] = set()
    keys: set[str] = set()
    for one in ast.walk(function) if function is not None else ():
        owner = getattr(one, "value", None)
        if isinstance(one, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == name:
            attributes |= {one.attr} - MAPPINGS
        elif isinstance(one, ast.Subscript) and isinstance(owner, ast.Name) and owner.id == name:
            key = getattr(one.slice, "value", None)
            keys |= {key} if isinstance(key, str) else set()
        elif isinstance(one, ast.Call) and steps < IMPORT_STEPS:
            for inner_source, inner, taken in handed_on(sources, source, function, one, name):
                if inner is not node:
                    found = uses_of(sources, inner_source, inner, taken, steps + 1)
                    attributes, keys = attributes | found[0], keys | found[1]
    return attributes, keys


def handed_on(
    sources: Sources, source: Source, scope: ast.AST | None, call: ast.Call, name: str
) -> Iterator[tuple[Source, ast.FunctionDef | ast.ClassDef, str]]:
    """The argument of a function or class of the folder that a call gives a name to."""
    places = [number for number, one in enumerate(call.args) if isinstance(one, ast.Name) and one.id == name]
    keywords = [one.arg for one in call.keywords if isinstance(one.value, ast.Name) and one.value.id == name]
    found = sources.resolve(source, call.func, scope) if places or any(keywords) else ""
    takes = constructor(found[0], sources, found[1]) if isinstance(found, tuple) else None
    if takes is None or isinstance(found, str):
        return
    arguments = [one.arg for one in (*takes.args.posonlyargs, *takes.args.args)][int(takes is not found[1]) :]
    taken = [arguments[number] for number in places if number < len(arguments)] + [one for one in keywords if one]
    yield from ((*found, one) for one in taken)


def configs_of(sources: Sources, source: Source) -> Iterator[Config]:
    """The configurations in Python: of the same file first, then of those that it imports, then of those beside it."""
    side = sources.side(source)
    others = [one for one in sources.files.values() if one.path.parent == source.path.parent]
    others += [one for one in sources.files.values() if one.path.stem.lower().endswith(CONFIG_ENDS)]
    near = [one for one in others if sources.side(one) in (None, side)]
    for one in dict.fromkeys([source, *(found for _, found in sources.imported(source)), *near]):
        if one not in sources.answers:
            sources.answers[one] = [*_own_configs(sources, one)]
        yield from sources.answers[one]


def _own_configs(sources: Sources, one: Source) -> Iterator[Config]:
    for name, value in one.constants.items():
        if (keys := _keys(value)) and not name.startswith("_"):
            is_mapping = True if isinstance(value, ast.Dict) or base(value) == "dict" else None
            is_mapping = False if "Namespace" in base(value) else is_mapping
            yield Config(one, f"{name} of {one.path}", name, keys, is_mapping, name)
    for name, node in one.definitions.items():
        if isinstance(node, ast.ClassDef) and (fields := _fields(sources, one, node)) is not None:
            yield Config(one, f"{name} of {one.path}", f"{name}()", fields, is_mapping=False, needs=name)
    if options := options_of(one):
        made = f"Namespace({', '.join(f'{name}={value!r}' for name, value in options.items())})"
        plain = (("argparse", "Namespace"),)
        yield Config(
            one, say("project_sides.options", file=one.path), made, frozenset(options), is_mapping=False, plain=plain
        )


def base(value: ast.expr) -> str:
    """The last part of the name of what is called, "" where nothing is."""
    return ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""


def _keys(value: ast.expr) -> frozenset[str]:
    """The keys of a dict, or of a call with keywords alone whose name says that it is one."""
    if isinstance(value, ast.Dict):
        return frozenset(str(one.value) for one in value.keys if isinstance(one, ast.Constant))
    is_called_so = base(value).lower().endswith(("dict", "namespace", *CONFIG_ENDS))
    if isinstance(value, ast.Call) and not value.args and is_called_so:
        return frozenset(one.arg for one in value.keywords if one.arg)
    return frozenset()


def _fields(sources: Sources, source: Source, node: ast.ClassDef) -> frozenset[str] | None:
    """The fields of a class of settings that can be made without arguments, those of its bases of the folder too."""
    is_dataclass = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    if not is_dataclass and not node.name.lower().endswith(CONFIG_ENDS):
        return None
    takes = constructor(source, sources, node)
    if takes is not None:
        needed, optional = defaults_of(takes.args, own=1)
        stored = {
            one.attr for one in ast.walk(takes) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
        }
        return None if needed else frozenset({*optional, *stored})
    found: set[str] = set()
    for base_class in node.bases:
        of_base = sources.resolve(source, base_class)
        if isinstance(of_base, tuple) and isinstance(of_base[1], ast.ClassDef) and of_base[1] is not node:
            found |= _fields(sources, of_base[0], of_base[1]) or set()
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if one.value is None and is_dataclass:
                return None
            found.add(one.target.id)
        elif isinstance(one, ast.Assign):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    return frozenset(found)


def options_of(source: Source) -> dict[str, Any]:
    """The options of argparse in a file with their defaults; not those that must be given, or are computed."""
    found: dict[str, Any] = {}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        given = {one.arg: one.value for one in node.keywords}
        names = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
        long = next((one for one in names if one.startswith("--")), next(iter(names), ""))
        name = literal(given.get("dest"), long.lstrip("-").replace("-", "_"))
        action = literal(given.get("action"), "")
        required = literal(given.get("required"), False) or not long.startswith("-")
        default = given.get("default", ast.Constant(SWITCHES.get(action)))
        default = source.constants.get(default.id, default) if isinstance(default, ast.Name) else default
        if (required and "default" not in given) or literal(default, ...) is ...:
            continue
        value = literal(default, None)
        kind = NUMBERS.get(ast.unparse(given["type"]) if "type" in given else "")
        with contextlib.suppress(ValueError):
            found[name] = kind(value) if kind and isinstance(value, str) else value
    return found


def literal(node: ast.expr | None, otherwise: Any) -> Any:
    """The value of a literal, or what to take in its place."""
    try:
        return otherwise if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return otherwise


def file_configs(files: Sequence[tuple[str, str]]) -> Iterator[Config]:
    """The mappings in YAML and JSON files, and those of their sections."""
    for name, text in files:
        try:
            document = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
        except (ValueError, RecursionError, yaml.YAMLError):
            continue
        reader = ("json", "loads") if name.endswith(".json") else ("yaml", "safe_load")
        expression = f'{reader[1]}((HERE / {json.dumps(name)}).read_text(encoding="utf-8"))'
        for path, section in _sections(document):
            keys = frozenset(map(str, section))
            yield Config(None, name + path, expression + path, keys, is_mapping=True, plain=(reader,))


def _sections(document: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(document, dict) and document:
        yield "", document
        yield from ((f"[{key!r}]", value) for key, value in document.items() if isinstance(value, dict) and value)


def defaults_of(arguments: ast.arguments, own: int = 0) -> tuple[list[str], list[str]]:
    """The names of the arguments that must be given, and of those that have a default; `own` first ones are `self`."""
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    first = len(positional) - len(arguments.defaults)
    keywords = [(one.arg, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    needed = [*positional[own:first], *(name for name, default in keywords if default is None)]
    return needed, [*positional[max(first, own) :], *(name for name, default in keywords if default is not None)]


def constructor(
    source: Source, sources: Sources, node: ast.FunctionDef | ast.ClassDef, steps: int = 0
) -> ast.FunctionDef | None:
    """The function that takes the arguments: `__init__` of a class, or of a base of the folder."""
    if isinstance(node, ast.FunctionDef):
        return node
    own = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if own or steps > IMPORT_STEPS:
        return own[0] if own else None
    bases: Sequence[Definition | str] = [sources.resolve(source, base) for base in node.bases]
    found = (constructor(one[0], sources, one[1], steps + 1) for one in bases if isinstance(one, tuple))
    return next(filter(None, found), None)
