"""A Python file of settings as a tree of values, found by its syntax alone."""

from __future__ import annotations

import ast
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.base_files import BASES, BaseFiles, package_folder
from align.hyperparameters.reader_parts.nested_settings import DELETE, Leaf, Tree, merged
from align.hyperparameters.thresholds import DEEPEST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeGuard

    from align.hyperparameters.settings_source import SettingsSource

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
}
READ_BASE = "read_base"
ADD_ARGUMENT = "add_argument"
SWITCHES = {"store_true": False, "store_false": True}
EMPTY_CONFIGS = ("CN", "CfgNode", "ConfigDict", "EasyDict", "edict")  # what a configuration by attributes begins as
OPTIMIZER_MODULE = "optim"
OF_OPTIMIZER = ("lr", "betas", "eps", "weight_decay", "momentum", "nesterov", "alpha")
WHOLE_SETTINGS = ("Arguments", "Args", "SFTConfig", "DPOConfig")  # classes whose keywords are a training's settings


class PythonConfig:
    """One file, and those that it is made from."""

    def __init__(self, source: SettingsSource, files: BaseFiles | None = None) -> None:
        self._source, self._files = source, files or BaseFiles(source)
        self._names: dict[str, Tree] = {}
        self._replaces = False
        self._roots: set[str] = set()

    def tree(self) -> Tree:
        """What the file says, over what its bases say; raises UnreadableSettingsError if it is no Python."""
        module = self._parsed()
        base = self._bases(module)
        self._names = dict(base)
        self._replaces = any(map(_reads_base, module.body))
        for statement in module.body:
            self._take(statement)
        own = {name: value for name, value in self._names.items() if not name.startswith("__")}
        for name in self._roots & own.keys():  # `cfg.lr = 1` sets `lr`
            own |= own.pop(name)
        return dict(self._optimizers(module)) | own | dict(self._options(module)) | dict(self._arguments(module))

    def _parsed(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd escapes in a text
                return ast.parse(self._source.whole_text())
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            place = self._source.place(line)
            raise UnreadableSettingsError(place, say("settings_fault.no_python", error=error)) from error

    def _bases(self, module: ast.Module) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        for name in self._base_names(module):
            inside = self._files.within(name, self._source, lambda one: PythonConfig(one, self._files).tree())
            found = merged(found, inside)
        return found

    def _base_names(self, module: ast.Module) -> Iterator[str]:
        for one in module.body:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id in BASES:
                given = self._value(one.value, 0)
                yield from map(self._base_name, given if isinstance(given, list) else [given])
            elif _reads_base(one):
                for line in one.body:  # type: ignore[attr-defined]
                    if isinstance(line, ast.ImportFrom) and line.module:
                        yield self._module_file(line.module, line.level)

    def _base_name(self, given: Tree) -> str:
        """The name of a base; raises UnreadableSettingsError for what is none."""
        if not isinstance(given, Leaf) or not isinstance(given.value, str):
            raise UnreadableSettingsError(self._source.shown, say("settings_fault.no_base_name"))
        return given.value

    def _module_file(self, module: str, level: int) -> str:
        """The file of a module that `read_base()` imports: beside this one, or in an installed package."""
        if level:
            return "../" * (level - 1) + module.replace(".", "/") + ".py"
        package, _, inside = module.partition(".")
        return f"{package_folder(package, module, self._source).joinpath(*inside.split('.'))}.py"

    def _take(self, statement: ast.stmt) -> None:
        """Take an assignment, also to a key of what there is, and the fields of a class of settings."""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._update(statement.value)
        elif isinstance(statement, ast.ClassDef) and statement.decorator_list:
            for one in statement.body:
                self._take(one)

    def _update(self, call: ast.Call) -> None:
        """`name.update(key=value)` and `name.update(dict(...))`, which merge nested dicts, as mmengine's do."""
        name = getattr(getattr(call.func, "value", None), "id", "")
        if getattr(call.func, "attr", "") == "update" and isinstance(self._names.get(name), dict):
            made = [self._value(one, 0) for one in call.args]
            made.append({one.arg: self._value(one.value, 0) for one in call.keywords if one.arg})
            for one in made:
                if isinstance(one, dict):
                    self._names[name] = merged(self._names[name], one)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and target.id not in BASES and not _holds_settings(value):
            made = self._value(value, 0)
            if _is_empty_config(value):
                self._roots.add(target.id)
            there = self._names.get(target.id)
            merges = isinstance(there, dict) and not self._replaces
            self._names[target.id] = merged(there, made) if merges else _without_flag(made)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            holder = self._value(target.value, 0)
            if isinstance(holder, dict) and isinstance(target.value, ast.Name):
                new = {str(target.slice.value): self._value(value, 0)}
                self._names[target.value.id] = merged(holder, new)

    def _assign_attribute(self, target: ast.Attribute, value: ast.expr) -> None:
        """`cfg.train.lr = 1`, where cfg began as an empty configuration; of a module's attribute the whole name."""
        parts = ast.unparse(target).split(".")
        if not all(part.isidentifier() for part in parts):
            return
        tree: Tree = self._value(value, 0)
        if parts[0] not in self._roots:
            self._names.setdefault(".".join(parts), tree)
            return
        for part in reversed(parts[1:]):
            tree = {part: tree}
        self._names[parts[0]] = merged(self._names[parts[0]], tree)

    def _value(self, node: ast.expr, depth: int) -> Tree:
        if depth > DEEPEST_SETTINGS:
            raise UnreadableSettingsError(self._source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(getattr(key, "value", "")): self._value(one, depth + 1) for key, one in pairs}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            return {one.arg: self._value(one.value, depth + 1) for one in node.keywords if one.arg}
        if _is_empty_config(node):
            return {}
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(one, depth + 1) for one in node.elts]
        return self._single(node, depth)

    def _single(self, node: ast.expr, depth: int) -> Tree:
        place = self._source.place(node.lineno)
        if isinstance(node, ast.Constant):
            known = isinstance(node.value, (str, int, float)) or node.value is None
            return Leaf(node.value if known else str(node.value), place)  # type: ignore[arg-type]
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inside = self._value(node.operand, depth + 1)
            if isinstance(inside, Leaf) and isinstance(inside.value, (int, float)):
                return Leaf(-inside.value, place)
        if isinstance(node, ast.BinOp):
            return Leaf(self._computed(node, depth), place)
        text = node.value if isinstance(node, ast.Constant) else ast.unparse(node)
        return Leaf(str(text).rpartition(".")[2] if isinstance(node, ast.Attribute) else str(text), place)

    def _computed(self, node: ast.BinOp, depth: int) -> str | int | float:
        """A sum or product of numbers; else its text."""
        left, right = (self._value(one, depth + 1) for one in (node.left, node.right))
        numbers = [one.value for one in (left, right) if isinstance(one, Leaf) and isinstance(one.value, (int, float))]
        if len(numbers) == 2 and type(node.op) in OPERATORS and (numbers[1] or isinstance(node.op, ast.Mult | ast.Add)):
            result: int | float = OPERATORS[type(node.op)](*numbers)
            return result
        return ast.unparse(node)

    def _options(self, module: ast.Module) -> Iterator[tuple[str, Tree]]:
        """The defaults of `parser.add_argument("--name", default=...)`, wherever it stands."""
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == ADD_ARGUMENT:
                names = [one.value for one in node.args if isinstance(one, ast.Constant)]
                long = next((str(one) for one in names if str(one).startswith("--")), "")
                given = {one.arg: one.value for one in node.keywords}
                if long and "default" in given:
                    value = self._value(given["default"], 0)
                    option = replace(value, option=True) if isinstance(value, Leaf) else value
                    yield long.lstrip("-").replace("-", "_"), option
                elif long and getattr(given.get("action"), "value", "") in SWITCHES:
                    switch = SWITCHES[given["action"].value]  # type: ignore[attr-defined]
                    yield long.lstrip("-").replace("-", "_"), Leaf(switch, self._source.place(node.lineno), option=True)

    def _optimizers(self, module: ast.Module) -> Iterator[tuple[str, Tree]]:
        """The class and the constants of `torch.optim.AdamW(..., lr=1e-4)`, the only one, wherever it stands."""
        calls = [node for node in ast.walk(module) if _makes_optimizer(node)]
        for node in calls if len(calls) == 1 else ():
            yield "optimizer", self._value(node.func, 0)
            for one in node.keywords:
                if one.arg in OF_OPTIMIZER and _is_constant(one.value):
                    yield one.arg, self._value(one.value, 0)

    def _arguments(self, module: ast.Module) -> Iterator[tuple[str, Tree]]:
        """The keywords of `TrainingArguments(learning_rate=...)`, wherever it stands."""
        for node in ast.walk(module):
            if _holds_settings(node):
                yield from ((one.arg, self._value(one.value, 0)) for one in node.keywords if one.arg)


def _holds_settings(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell a call of a class such as TrainingArguments, whose keywords are settings."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    return name[:1].isupper() and name.endswith(WHOLE_SETTINGS)


def _is_empty_config(node: ast.AST) -> bool:
    """Tell `CN()` and the like, of which attributes are then set."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in EMPTY_CONFIGS


def _makes_optimizer(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell `optim.AdamW(...)` and `torch.optim.AdamW(...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr[:1].isupper() and ast.unparse(node.func.value).rpartition(".")[2] == OPTIMIZER_MODULE


def _is_constant(node: ast.expr) -> bool:
    """Tell a value that the code itself gives: numbers, and tuples of them."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _reads_base(statement: ast.stmt) -> bool:
    """Tell `with read_base():`, whose names are Python's own: what is assigned to one replaces it."""
    return isinstance(statement, ast.With) and READ_BASE in ast.unparse(statement.items[0])


def _without_flag(tree: Tree) -> Tree:
    return {name: one for name, one in tree.items() if name != DELETE} if isinstance(tree, dict) else tree
