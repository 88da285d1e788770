"""What the calls of a script set: options of argparse, keywords of TrainingArguments, constants that tables name."""

from __future__ import annotations

import ast
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.nested_settings import Leaf, Tree
from align.rules.script_calls import script_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeGuard

    from align.hyperparameters.settings_source import SettingsSource
    from align.rules.script_calls import ScriptCall

OPTIONS, SET_DEFAULTS, FLAGS = ("add_argument", "option"), "set_defaults", "DEFINE_"  # argparse and click; absl's flags
MAKING_OPTIONS = ("fire.Fire", "Fire", "typer.run", "tyro.cli")  # of the arguments of a function
SWITCHES: dict[str, bool] = {"store_true": False, "store_false": True}
WHOLE_SETTINGS = ("Arguments", "Args", "SFTConfig", "DPOConfig")  # classes whose keywords are a training's settings


class PythonCalls:
    """All calls of a module; `value` makes a tree of an expression."""

    def __init__(self, module: ast.Module, value: Callable[[ast.expr], Tree], source: SettingsSource) -> None:
        self._calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
        self._functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
        self._value, self._source = value, source

    def constants(self) -> Iterator[tuple[str, Tree]]:
        """What the calls of the tables are given as constants, where all calls of one kind give the same."""
        for rule in script_calls():
            calls = [one for one in self._calls if _fits(ast.unparse(one.func), rule.calls)]
            found = [dict(self._given(one, rule)) for one in calls]
            if found and all(_values(one) == _values(found[0]) for one in found):
                yield from found[0].items()

    def _given(self, call: ast.Call, rule: ScriptCall) -> Iterator[tuple[str, Tree]]:
        """The settings of one call: the name of what is called, constants by keyword and by position."""
        if rule.named:
            yield rule.named, self._value(call.func)
        places = [(rule.positions.get(str(place)), one) for place, one in enumerate(call.args)]
        for name, node in [*places, *((rule.keywords.get(one.arg or ""), one.value) for one in call.keywords)]:
            if name and _is_constant(node):
                yield name, self._value(node)

    def options(self) -> Iterator[tuple[str, Tree]]:
        """The defaults of `parser.add_argument("--name", default=...)`, and what `set_defaults` makes of them."""
        for node in self._calls:
            method = getattr(node.func, "attr", "")
            if method in OPTIONS:
                yield from self._option(node)
            elif method.startswith(FLAGS) and len(node.args) > 1:
                yield str(getattr(node.args[0], "value", "")), _option_of(self._value(node.args[1]))
            elif node.args and ast.unparse(node.func) in MAKING_OPTIONS:
                yield from self._function_options(ast.unparse(node.args[0]))
            elif method == SET_DEFAULTS:
                yield from ((one.arg, _option_of(self._value(one.value))) for one in node.keywords if one.arg)

    def _function_options(self, name: str) -> Iterator[tuple[str, Tree]]:
        """The defaults of a function's arguments, which fire and others make options of."""
        if (function := self._functions.get(name)) is not None:
            given = function.args
            with_default = zip(reversed([*given.posonlyargs, *given.args]), reversed(given.defaults), strict=False)
            pairs = [*reversed([*with_default]), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
            yield from ((one.arg, _option_of(self._value(default))) for one, default in pairs if default is not None)

    def _option(self, node: ast.Call) -> Iterator[tuple[str, Tree]]:
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        long = next((str(one) for one in names if str(one).startswith("--")), "")
        given = {one.arg: one.value for one in node.keywords}
        name = str(getattr(given.get("dest"), "value", long)).lstrip("-").replace("-", "_")
        if not long:
            return
        switch = SWITCHES.get(getattr(given.get("action"), "value", ""))
        default = self._value(given["default"]) if "default" in given else Leaf(switch, self._source.place(node.lineno))
        also = tuple(str(one).lstrip("-").replace("-", "_") for one in names if str(one) != long)
        yield name, replace(_option_of(default), also=also) if isinstance(default, Leaf) else default

    def arguments(self) -> Iterator[tuple[str, Tree]]:
        """The keywords of `TrainingArguments(learning_rate=...)`, wherever it stands."""
        for node in self._calls:
            if holds_settings(node):
                yield from ((one.arg, self._value(one.value)) for one in node.keywords if one.arg)


def holds_settings(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell a call of a class such as TrainingArguments, whose keywords are settings."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    return name[:1].isupper() and name.endswith(WHOLE_SETTINGS)


def _option_of(tree: Tree) -> Tree:
    return replace(tree, option=True) if isinstance(tree, Leaf) else tree


def _fits(called: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether what is called, a name or one with its module, ends as one of the patterns does."""
    return "(" not in called and any(fnmatchcase(called, one) or fnmatchcase(called, f"*.{one}") for one in patterns)


def _values(found: dict[str, Tree]) -> dict[str, object]:
    """What is found without its places."""
    return {name: _bare(one) for name, one in found.items()}


def _bare(tree: Tree) -> object:
    if isinstance(tree, dict):
        return _values(tree)
    return tree.value if isinstance(tree, Leaf) else [_bare(one) for one in tree]


def _is_constant(node: ast.expr) -> bool:
    """Tell a value that the code itself gives: numbers, and tuples of them."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
