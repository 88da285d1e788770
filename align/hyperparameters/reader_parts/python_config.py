"""A Python file of settings as a tree of values, found by its syntax alone."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.base_files import BASES, BaseFiles, package_folder
from align.hyperparameters.reader_parts.nested_settings import DELETE, Leaf, Tree, merged, placed
from align.hyperparameters.reader_parts.python_calls import PythonCalls, holds_settings
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
# What a configuration by attributes begins as: empty, or with a dict.
CONFIG_CALLS = ("CN", "CfgNode", "ConfigDict", "EasyDict", "edict", "config_dict", "DictConfig")
CONFIG_NAMES = frozenset(("config", "cfg", "_C", "__C", "conf", "C"))  # what a whole configuration is called
FIELDS = ("field", "Field")
LAZY_CALLS = ("L", "LazyCall")
SIMPLE_CALLS = ("dict", "int", "float", "str", "bool", "list", "tuple", "range", "os.path.join", "Path")  # of settings
SETTING_CLASSES = re.compile(r"(?i)(config|cfg|conf|args|arguments|params|parameters|settings|options|opts?|exp|setup)$")
SETTING_FUNCTIONS = re.compile(r"(?i)(get|default|add).*(config|cfg|hparams)")


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
        own = {one: value for one, value in self._names.items() if not one.startswith("__") or one in self._roots}
        if self._roots & CONFIG_NAMES:  # what else stands there are parts of it
            own = {one: value for one, value in own.items() if one in CONFIG_NAMES or "." in one}
        for name in sorted(self._roots & own.keys()):  # `cfg.lr = 1` sets `lr`
            inside = own.pop(name)
            own |= inside if isinstance(inside, dict) else {}
        calls = PythonCalls(module, lambda node: self._value(node, 0), self._source)
        return dict(calls.constants()) | own | dict(calls.options()) | dict(calls.arguments())

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
        elif isinstance(statement, ast.ClassDef) and _holds_fields(statement):
            for one in statement.body:
                self._take(one)
        elif isinstance(statement, ast.FunctionDef):
            self._take_function(statement)

    def _take_function(self, function: ast.FunctionDef) -> None:
        """What `__init__` of a class of settings gives itself, and what `get_config()` sets."""
        arguments = function.args.args
        if function.name == "__init__" and arguments:
            for argument, default in zip(reversed(arguments), reversed(function.args.defaults), strict=False):
                if _is_plain(default):
                    self._names[argument.arg] = self._value(default, 0)
            for one in function.body:
                self._take_own(one, arguments[0].arg)
        elif SETTING_FUNCTIONS.match(function.name):
            for argument in arguments[:1]:
                self._roots.add(argument.arg)
                self._names.setdefault(argument.arg, {})
            for one in function.body:
                if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name | ast.Attribute):
                    self._take(one)

    def _take_own(self, statement: ast.stmt, owner: str) -> None:
        """`self.lr = 0.1`, where the code itself gives the value."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == owner and _is_plain(statement.value):  # type: ignore[attr-defined]
            self._names[target.attr] = self._value(statement.value, 0)  # type: ignore[attr-defined]

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
        if isinstance(target, ast.Name) and target.id not in BASES and not _makes_an_object(value):
            made = self._value(value, 0)
            if _is_config(value):
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
        if parts[0] in BASES:  # `_base_.model.depth = 50` replaces what the bases say
            self._names = placed(self._names, parts[1:], tree)
            return
        if parts[0] not in self._roots:
            self._names.setdefault(".".join(parts), tree)
            return
        for part in reversed(parts[1:]):
            tree = {part: tree}
        self._names[parts[0]] = merged(self._names.get(parts[0], {}), tree)

    def _value(self, node: ast.expr, depth: int) -> Tree:
        if depth > DEEPEST_SETTINGS:
            raise UnreadableSettingsError(self._source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(getattr(key, "value", "")): self._value(one, depth + 1) for key, one in pairs}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            return {one.arg: self._value(one.value, depth + 1) for one in node.keywords if one.arg}
        if target := _lazy_target(node):
            made = {one.arg: self._value(one.value, depth + 1) for one in node.keywords if one.arg}  # type: ignore[attr-defined]
            return {"_target_": Leaf(target, self._source.place(node.lineno)), **made}
        if _is_config(node):
            return self._value(node.args[0], depth + 1) if node.args else {}
        if (default := _field_default(node)) is not None:
            return self._value(default, depth + 1)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(one, depth + 1) for one in node.elts]
        return self._single(node, depth)

    def _single(self, node: ast.expr, depth: int) -> Tree:
        place = self._source.place(node.lineno)
        if isinstance(node, ast.Constant):
            known = isinstance(node.value, (str, int, float)) or node.value is None
            return Leaf(node.value if known else str(node.value), place)  # type: ignore[arg-type]
        if (known := self._known(node)) is not None:
            return known
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inside = self._value(node.operand, depth + 1)
            if isinstance(inside, Leaf) and isinstance(inside.value, (int, float)):
                return Leaf(-inside.value, place)
        if isinstance(node, ast.BinOp):
            found = self._computed(node, depth)
            return Leaf(found, place, computed=isinstance(found, str))
        text = ast.unparse(node)
        if isinstance(node, ast.Attribute | ast.Name):
            return Leaf(text.rpartition(".")[2], place)
        return Leaf(text, place, computed=True)

    def _known(self, node: ast.expr) -> Tree | None:
        """What a name stands for, or an attribute of what it stands for; `_base_` is all that the bases say."""
        if isinstance(node, ast.Name):
            return self._names if node.id in BASES else self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            holder = self._known(node.value)
            return holder.get(node.attr) if isinstance(holder, dict) else None
        if isinstance(node, ast.Subscript):
            holder, key = self._known(node.value), self._value(node.slice, 1)
            return holder.get(str(key.value)) if isinstance(holder, dict) and isinstance(key, Leaf) else None
        return None

    def _computed(self, node: ast.BinOp, depth: int) -> str | int | float:
        """A sum or product of numbers; else its text."""
        left, right = (self._value(one, depth + 1) for one in (node.left, node.right))
        numbers = [one.value for one in (left, right) if isinstance(one, Leaf) and isinstance(one.value, (int, float))]
        if len(numbers) == 2 and type(node.op) in OPERATORS and (numbers[1] or isinstance(node.op, ast.Mult | ast.Add)):
            result: int | float = OPERATORS[type(node.op)](*numbers)
            return result
        return ast.unparse(node)


def _is_config(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell `CN()` and the like, of which attributes are then set; one may begin with a dict."""
    if not isinstance(node, ast.Call) or node.keywords or len(node.args) > 1:
        return False
    return ast.unparse(node.func).rpartition(".")[2] in CONFIG_CALLS and all(isinstance(one, ast.Dict) for one in node.args)


def _makes_an_object(node: ast.expr) -> bool:
    """Tell a call whose result is no setting: a model, an optimizer, or TrainingArguments, which are read apart."""
    if not isinstance(node, ast.Call) or _is_config(node) or _lazy_target(node) or _field_default(node) is not None:
        return False
    return holds_settings(node) or ast.unparse(node.func) not in SIMPLE_CALLS


def _lazy_target(node: ast.expr) -> str:
    """What `L(torch.optim.AdamW)(lr=1e-4)` of detectron2 is to make, "" for other calls."""
    made = node.func if isinstance(node, ast.Call) else None
    lazy = isinstance(made, ast.Call) and ast.unparse(made.func) in LAZY_CALLS and len(made.args) == 1
    return ast.unparse(made.args[0]) if lazy else ""  # type: ignore[union-attr]


def _field_default(node: ast.AST) -> ast.expr | None:
    """The default of `field(default=...)` of a dataclass, and of pydantic's `Field(...)`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in FIELDS:
        return None
    given = {one.arg: one.value for one in node.keywords}
    factory = given.get("default_factory")
    made = factory.body if isinstance(factory, ast.Lambda) else None
    return given.get("default") or made or (node.args[0] if node.args else ast.Constant(None, lineno=node.lineno))


def _holds_fields(node: ast.ClassDef) -> bool:
    """Tell a class whose fields are settings: one with a decorator, or called so itself, or by its base."""
    names = [node.name, *(ast.unparse(one) for one in node.bases)]
    return bool(node.decorator_list) or any(SETTING_CLASSES.search(one) for one in names)


def _is_plain(node: ast.expr) -> bool:
    """Tell a value that the code itself gives: numbers and texts, sums and lists of them."""
    return not any(isinstance(one, ast.Name | ast.Call | ast.Attribute) for one in ast.walk(node))


def _reads_base(statement: ast.stmt) -> bool:
    """Tell `with read_base():`, whose names are Python's own: what is assigned to one replaces it."""
    return isinstance(statement, ast.With) and READ_BASE in ast.unparse(statement.items[0])


def _without_flag(tree: Tree) -> Tree:
    return {name: one for name, one in tree.items() if name != DELETE} if isinstance(tree, dict) else tree
