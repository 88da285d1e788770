"""How a model is made that no function without arguments returns: the lines of a function that does it.

The arguments come from the call in a training's `main`, with the lines before it that make them, or from a
configuration of the folder that has what the constructor reads: a dict, a class whose fields have defaults, options of
argparse, a YAML or JSON file. What cannot be found is left to the user to fill in.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from align.runs.read_sources import IMPORT_STEPS, imported_names
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.runs.read_sources import Definition, Import, Source, Sources


CONFIG_NAMES = {
    "cfg",
    "conf",
    "config",
    "configs",
    "args",
    "opt",
    "opts",
    "options",
    "hparams",
    "hp",
    "params",
    "settings",
}
HEADS = (ast.If, ast.With, ast.Try, ast.For, ast.While)
CONFIG = "config"  # what it is called in the function that is written


@dataclass(frozen=True)
class Recipe:
    """The lines of a function without arguments that makes a model, what they were made from, what is to be filled in.

    `roots` are folders that must be on the import path.
    """

    lines: tuple[str, ...]
    call: str
    origin: str
    roots: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass
class _Draft:
    """A recipe in the making: names by the module that they are imported from, other lines, what is not known."""

    sources: Sources
    files: Sequence[Config] = ()
    imports: dict[str, set[str]] = field(default_factory=dict)
    roots: set[str] = field(default_factory=set)
    whole: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def need(self, source: Source, name: str) -> None:
        """Import what a file defines."""
        place = self.sources.place(source)
        self.roots |= {*place.roots}
        self.imports.setdefault(place.module, set()).add(name)

    def plain(self, module: str, name: str) -> None:
        """Import from what is installed."""
        self.imports.setdefault(module, set()).add(name)

    def recipe(self, call: str, origin: str) -> Recipe:
        """What was found, imports first."""
        imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self.imports.items())]
        return Recipe(
            (*sorted(self.whole), *imports, *self.lines),
            call,
            origin,
            tuple(sorted(self.roots)),
            tuple(dict.fromkeys(self.missing)),
        )


def recipe_of_call(
    sources: Sources, source: Source, node: ast.FunctionDef | ast.ClassDef, files: Sequence[Config]
) -> Recipe:
    """A call of a function or class with what configurations of the folder give its arguments.

    `files` are the configurations of YAML and JSON files.
    """
    draft = _Draft(sources)
    draft.need(source, node.name)
    takes = constructor(source, sources, node)
    needed, optional = defaults_of(takes.args, int(takes is not node)) if takes else ([], [])
    configs = [*configs_of(sources, source), *files] if needed else []
    given: dict[str, str] = {}
    origins: list[str] = []
    scalars = []
    for name in needed:
        uses = uses_of(sources, source, node, name)
        if not uses[0] and not uses[1] and name not in CONFIG_NAMES:
            scalars.append(name)
        elif found := matching_config(configs, uses, annotation(takes, name)):
            given[name] = _written(draft, found, as_mapping=bool(uses[1]) if any(uses) else None)
            origins.append(found.origin)
        else:
            draft.missing.append(name)
    if scalars and (holder := next((holder for holder in configs if holder.keys >= {*scalars}), None)):
        config = _written(draft, holder, as_mapping=holder.is_mapping is not False)
        form = f'{config}["{{}}"]' if holder.is_mapping is not False else f"{config}.{{}}"
        given |= {name: form.format(name) for name in (*scalars, *optional) if name in holder.keys}
        origins.append(holder.origin)
    else:
        draft.missing += scalars
    if len(given) == 1 and needed == [*given] and not scalars:
        inside = given[needed[0]]
    else:
        inside = ", ".join(
            f"{name}={value}" for name, value in {**given, **dict.fromkeys(draft.missing, "...")}.items()
        )
    return draft.recipe(
        f"{node.name}({inside})", " with ".join(dict.fromkeys([f"{source.path}:{node.lineno}", *origins]))
    )


def _written(draft: _Draft, config: Config, *, as_mapping: bool | None) -> str:
    """The lines that make a configuration in the form in which it is read; its name."""
    if config.source is not None and config.needs:
        draft.need(config.source, config.needs)
    for module, name in config.plain:
        draft.plain(module, name)
    expression = config.expression
    if config.is_mapping and as_mapping is False:
        draft.plain("types", "SimpleNamespace")
        draft.plain("json", "dumps")
        draft.plain("json", "loads")
        expression = f"loads(dumps({expression}), object_hook=lambda one: SimpleNamespace(**one))"
    elif config.is_mapping is False and as_mapping:
        expression = f"vars({expression})"
    name = CONFIG if not any(line.startswith(f"{CONFIG} =") for line in draft.lines) else f"{CONFIG}_{len(draft.lines)}"
    draft.lines.append(f"{name} = {expression}")
    return name


def recipe_of_training(
    sources: Sources, source: Source, files: Sequence[Config]
) -> tuple[Recipe | str, Source, str] | None:
    """The first call in a training that makes a model, with the lines that make its arguments.

    Returns the recipe, the file and name of what is called; the name alone where a call has no arguments. A training is
    a function called main or train..., or what stands under `if __name__ == "__main__"` or outside of functions.
    """
    guards = [node for node in source.tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    top = [node for node in source.tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.If))]
    guarded = [line for guard in guards for line in guard.body]
    for function in source.definitions.values():
        if isinstance(function, ast.FunctionDef) and function.name.startswith(("main", "train", "run", "fit")):
            lines = [*_before_call(guarded or top, function), *function.body]
            if found := _in_lines(_Draft(sources, files), source, lines, function):
                return found
    drafts = _Draft(sources, files), _Draft(sources, files)
    return _in_lines(drafts[0], source, guarded, None) or _in_lines(drafts[1], source, top, None)


def _before_call(lines: Sequence[ast.stmt], function: ast.FunctionDef) -> list[ast.stmt]:
    """The lines up to a call of a function, and what the call gives its arguments."""
    for number, line in enumerate(lines):
        for call in ast.walk(line):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function.name:
                names = [one.arg for one in function.args.args]
                given = [*zip(names, call.args, strict=False), *((one.arg or "", one.value) for one in call.keywords)]
                bound = [
                    (name, value) for name, value in given if not (isinstance(value, ast.Name) and value.id == name)
                ]
                return [
                    *lines[:number],
                    *(ast.Assign([ast.Name(name, ast.Store())], value, lineno=call.lineno) for name, value in bound),
                ]
    return []


def _in_lines(
    draft: _Draft, source: Source, lines: Sequence[ast.stmt], scope: ast.FunctionDef | None
) -> tuple[Recipe | str, Source, str] | None:
    flat, sources = [*_flat(lines)], draft.sources
    for number, line in enumerate(flat):
        if not isinstance(line, (ast.Assign, ast.AnnAssign)) or line.value is None:
            continue
        for call in ast.walk(line.value):
            if not isinstance(call, ast.Call) or sources.makes_model(source, call, scope) != "sure":
                continue
            called = sources.resolve(source, call.func, scope)
            if isinstance(call.func, (ast.Name, ast.Attribute)) and ast.unparse(call.func).count("(") == 0:
                name = called[1].name if isinstance(called, tuple) else called
                if not call.args and not call.keywords and isinstance(called, tuple):
                    return name, called[0], name
                return _sliced(draft, source, flat[:number], call, scope), source, name
    return None


def _flat(lines: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Lines, those inside of `if`, `with`, `try` and loops after their heads; functions are left out."""
    for line in lines:
        if isinstance(line, (ast.FunctionDef, ast.ClassDef)):
            continue
        yield line
        if isinstance(line, HEADS):
            yield from _flat(line.body)


def _sliced(
    draft: _Draft, source: Source, before: Sequence[ast.stmt], call: ast.Call, scope: ast.FunctionDef | None
) -> Recipe:
    """The lines that a call's arguments rest on, options of argparse as they are without a command line."""
    wanted = _loaded(call)
    kept: list[ast.stmt] = []
    heads = [line for line in before if isinstance(line, HEADS) and not _holds(line, call)]
    for line in reversed(before):
        if _holds(line, call) or any(line is not head and _holds(head, line) for head in heads):
            continue  # of a block around the call its lines are kept, of another the whole
        if _bound(line) & wanted:
            parses = isinstance(line, ast.Assign) and _parses(draft.sources, source, line.value, scope)
            kept.append(_as_options(draft, source, line, [call, *kept], scope) if parses else line)
            wanted |= _loaded(kept[-1])
    kept.reverse()
    bound = {name for line in (*kept, call) for name in _bound(line)}
    _import_names(draft, source, sorted(wanted - bound), scope)
    beside = _Beside(draft.sources.folder, source)
    *texts, expression = (
        ast.unparse(beside.visit(copy.deepcopy(ast.fix_missing_locations(one))))
        for one in (*kept, call)
        if not isinstance(one, (ast.Import, ast.ImportFrom))
    )
    draft.lines += [part for text in texts for part in text.splitlines()]
    return draft.recipe(expression, f"{source.path}:{call.lineno}")


class _Beside(ast.NodeTransformer):
    """Files that lie beside the source in a folder of their own are found from elsewhere too."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.parent = folder, source.path.parent

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """The text that names such a file, as a path from the file that is written."""
        if self.parent.parts and isinstance(node.value, str) and "." in node.value:
            with contextlib.suppress(OSError, ValueError):
                if (self.folder / self.parent / node.value).is_file():
                    return ast.Name(f"str(HERE / {json.dumps(str(self.parent / node.value))})", ast.Load())
        return node


def _holds(line: ast.AST, inner: ast.AST) -> bool:
    return any(one is inner for one in ast.walk(line))


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _bound(line: ast.AST) -> set[str]:
    """The names that a line gives a value, or changes by a call of a method."""
    names = {part.arg for part in ast.walk(line) if isinstance(part, ast.arg)}
    names |= {part.id for part in ast.walk(line) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and isinstance(line.value.func, ast.Attribute):
        owner = line.value.func.value
        while isinstance(owner, (ast.Attribute, ast.Subscript)):
            owner = owner.value
        names |= {owner.id} if isinstance(owner, ast.Name) else set()
    if isinstance(line, (ast.Assign, ast.AugAssign)):
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        names |= {
            part.value.id
            for part in targets
            if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.value, ast.Name)
        }
    return names


def _parses(sources: Sources, source: Source, value: ast.expr, scope: ast.AST | None) -> bool:
    """Tell a call that reads the command line, itself or in a function of the folder."""
    if not isinstance(value, ast.Call):
        return False
    found = sources.resolve(source, value.func, scope)
    inside = (
        isinstance(found, tuple) and isinstance(found[1], ast.FunctionDef) and ".parse_args(" in ast.unparse(found[1])
    )
    return inside or getattr(value.func, "attr", "") in ("parse_args", "parse_known_args")


def _as_options(
    draft: _Draft, source: Source, line: ast.stmt, users: Sequence[ast.AST], scope: ast.AST | None
) -> ast.stmt:
    """Options in the place of a command line: those that are read, or all where they are handed on as a whole."""
    name = ast.unparse(line).partition(" = ")[0].strip("()").partition(",")[0]
    nodes = [item for user in users for item in ast.walk(user)]
    read = [item.attr for item in nodes if isinstance(item, ast.Attribute) and ast.unparse(item.value) == name]
    is_whole = sum(isinstance(item, ast.Name) and item.id == name for item in nodes) > len(read)
    for call in (item for item in nodes if isinstance(item, ast.Call)):
        for inner, taker, taken in handed_on(draft.sources, source, scope, call, name):
            read += sorted(uses_of(draft.sources, inner, taker, taken)[0])
    files = [source, *(item for _, item in draft.sources.imported(source))]
    options = {key: value for item in reversed(files) for key, value in options_of(item).items()}
    wanted = dict.fromkeys([*options, *read] if is_whole else read)
    draft.missing += [f"{name}.{item}" for item in wanted if item not in options]
    draft.plain("argparse", "Namespace")
    given = ", ".join(f"{item}={options[item]!r}" if item in options else f"{item}=..." for item in wanted)
    return ast.parse(f"{name} = Namespace({given})").body[0]


def _import_names(draft: _Draft, source: Source, names: Sequence[str], scope: ast.FunctionDef | None) -> None:
    """Import what the lines use: what the file defines from it, what it imports from where it does."""
    inside = {} if scope is None else dict(imported_names(ast.walk(scope)))
    arguments = [] if scope is None else [*scope.args.posonlyargs, *scope.args.args][::-1]
    values = [] if scope is None else scope.args.defaults[::-1]
    parameters = {argument.arg: ast.unparse(value) for argument, value in zip(arguments, values, strict=False)}
    for name in names:
        if name in parameters:
            draft.lines.append(f"{name} = {parameters[name]}")
        elif scope is not None and name in [argument.arg for argument in (*arguments, *scope.args.kwonlyargs)]:
            _take_config(draft, source, scope, name)
        elif name in source.definitions or name in source.constants:
            draft.need(source, name)
        elif found := inside.get(name) or source.imports.get(name):
            _import_again(draft, source, name, found)
        elif isinstance(star := draft.sources.resolve(source, ast.Name(name), scope), tuple):
            draft.need(star[0], name)
        elif not hasattr(builtins, name) and name != "Namespace":
            draft.missing.append(name)


def _take_config(draft: _Draft, source: Source, scope: ast.FunctionDef, name: str) -> None:
    """A configuration for what a training is given from outside, as by a decorator."""
    uses = uses_of(draft.sources, source, scope, name)
    configs = [*configs_of(draft.sources, source), *draft.files]
    found = matching_config(configs, uses, annotation(scope, name)) if any(uses) else None
    if found:
        draft.lines.append(f"{name} = {_written(draft, found, as_mapping=bool(uses[1]))}")
    else:
        draft.missing.append(name)


def _import_again(draft: _Draft, source: Source, name: str, found: Import) -> None:
    module, level, attribute = found
    local = draft.sources.module(source, module, level)
    renamed = attribute if attribute == name else f"{attribute} as {name}"
    draft.roots |= {*draft.sources.place(source).roots}
    if not attribute:
        draft.whole.append(f"import {module}" if module == name else f"import {module} as {name}")
    elif local:
        draft.need(local[1], renamed)
    else:
        draft.plain(module, renamed)


# Configurations that a folder has for models that need arguments, and what a constructor reads of its arguments.
#
# A configuration is a dict, a class whose fields have defaults, options of argparse, a YAML or JSON file or a section
# of one. It fits an argument if it has all that is read of it, also where the argument is handed on.

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
    for use in ast.walk(function) if function is not None else ():
        owner = getattr(use, "value", None)
        if isinstance(use, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == name:
            attributes |= {use.attr} - MAPPINGS
        elif isinstance(use, ast.Subscript) and isinstance(owner, ast.Name) and owner.id == name:
            key = getattr(use.slice, "value", None)
            keys |= {key} if isinstance(key, str) else set()
        elif isinstance(use, ast.Call) and steps < IMPORT_STEPS:
            for inner_source, inner, taken in handed_on(sources, source, function, use, name):
                if inner is not node:
                    found = uses_of(sources, inner_source, inner, taken, steps + 1)
                    attributes, keys = attributes | found[0], keys | found[1]
    return attributes, keys


def handed_on(
    sources: Sources, source: Source, scope: ast.AST | None, call: ast.Call, name: str
) -> Iterator[tuple[Source, ast.FunctionDef | ast.ClassDef, str]]:
    """The argument of a function or class of the folder that a call gives a name to."""
    places = [number for number, arg in enumerate(call.args) if isinstance(arg, ast.Name) and arg.id == name]
    keywords = [arg.arg for arg in call.keywords if isinstance(arg.value, ast.Name) and arg.value.id == name]
    called = sources.resolve(source, call.func, scope) if places or any(keywords) else ""
    takes = constructor(called[0], sources, called[1]) if isinstance(called, tuple) else None
    if takes is None or isinstance(called, str):
        return
    arguments = [arg.arg for arg in (*takes.args.posonlyargs, *takes.args.args)][int(takes is not called[1]) :]
    taken = [arguments[number] for number in places if number < len(arguments)] + [arg for arg in keywords if arg]
    yield from ((*called, arg) for arg in taken)


def configs_of(sources: Sources, source: Source) -> Iterator[Config]:
    """The configurations in Python: of the same file first, then of those that it imports, then of those beside it."""
    side = sources.side(source)
    others = [file for file in sources.files.values() if file.path.parent == source.path.parent]
    others += [file for file in sources.files.values() if file.path.stem.lower().endswith(CONFIG_ENDS)]
    near = [file for file in others if sources.side(file) in (None, side)]
    for file in dict.fromkeys([source, *(found for _, found in sources.imported(source)), *near]):
        if file not in sources.answers:
            sources.answers[file] = [*_own_configs(sources, file)]
        yield from sources.answers[file]


def _own_configs(sources: Sources, file: Source) -> Iterator[Config]:
    for name, value in file.constants.items():
        if (keys := _keys(value)) and not name.startswith("_"):
            is_mapping = True if isinstance(value, ast.Dict) or base(value) == "dict" else None
            is_mapping = False if "Namespace" in base(value) else is_mapping
            yield Config(file, f"{name} of {file.path}", name, keys, is_mapping, name)
    for name, node in file.definitions.items():
        if isinstance(node, ast.ClassDef) and (fields := _fields(sources, file, node)) is not None:
            yield Config(file, f"{name} of {file.path}", f"{name}()", fields, is_mapping=False, needs=name)
    if options := options_of(file):
        made = f"Namespace({', '.join(f'{name}={value!r}' for name, value in options.items())})"
        plain = (("argparse", "Namespace"),)
        yield Config(
            file, say("project_sides.options", file=file.path), made, frozenset(options), is_mapping=False, plain=plain
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
    is_dataclass = any("dataclass" in ast.unparse(statement) for statement in node.decorator_list)
    if not is_dataclass and not node.name.lower().endswith(CONFIG_ENDS):
        return None
    takes = constructor(source, sources, node)
    if takes is not None:
        needed, optional = defaults_of(takes.args, bound=1)
        stored = {
            statement.attr
            for statement in ast.walk(takes)
            if isinstance(statement, ast.Attribute) and isinstance(statement.ctx, ast.Store)
        }
        return None if needed else frozenset({*optional, *stored})
    fields: set[str] = set()
    for base_class in node.bases:
        of_base = sources.resolve(source, base_class)
        if isinstance(of_base, tuple) and isinstance(of_base[1], ast.ClassDef) and of_base[1] is not node:
            fields |= _fields(sources, of_base[0], of_base[1]) or set()
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is None and is_dataclass:
                return None
            fields.add(statement.target.id)
        elif isinstance(statement, ast.Assign):
            fields |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return frozenset(fields)


def options_of(source: Source) -> dict[str, Any]:
    """The options of argparse in a file with their defaults; not those that must be given, or are computed."""
    options: dict[str, Any] = {}
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
            options[name] = kind(value) if kind and isinstance(value, str) else value
    return options


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


def defaults_of(arguments: ast.arguments, bound: int = 0) -> tuple[list[str], list[str]]:
    """The names of the arguments that must be given, and of those that have a default; the first `bound` count not."""
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    first = len(positional) - len(arguments.defaults)
    keywords = [(one.arg, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    needed = [*positional[bound:first], *(name for name, default in keywords if default is None)]
    return needed, [*positional[max(first, bound) :], *(name for name, default in keywords if default is not None)]


def constructor(
    source: Source, sources: Sources, node: ast.FunctionDef | ast.ClassDef, steps: int = 0
) -> ast.FunctionDef | None:
    """The function that takes the arguments: `__init__` of a class, or of a base of the folder."""
    if isinstance(node, ast.FunctionDef):
        return node
    initializers = [method for method in node.body if isinstance(method, ast.FunctionDef) and method.name == "__init__"]
    if initializers or steps > IMPORT_STEPS:
        return initializers[0] if initializers else None
    bases: Sequence[Definition | str] = [sources.resolve(source, base) for base in node.bases]
    constructors = (constructor(base[0], sources, base[1], steps + 1) for base in bases if isinstance(base, tuple))
    return next(filter(None, constructors), None)
