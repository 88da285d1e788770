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
from align.hyperparameters.reader_parts.python_values import PythonValues, field_default, lazy_target
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_source import SettingsSource

READ_BASE = "read_base"
TESTING_CONFIGS = re.compile(r"(?i)eval|test|infer|val_|export")  # configurations of what comes after a training
CONFIG_NAMES = frozenset(("config", "cfg", "_C", "__C", "conf", "C"))  # what a whole configuration is called
SIMPLE_CALLS = ("dict", "int", "float", "str", "bool", "list", "tuple", "range", "os.path.join", "Path")  # of settings
SETTING_CLASSES = re.compile(
    r"(?i)(config|cfg|conf|args|arguments|params|parameters|settings|options|opts?|exp|setup)$"
)
SETTING_FUNCTIONS = re.compile(r"(?i)(get|default|add).*(config|cfg|hparams)")


class PythonConfig(PythonValues):
    """One file, and those that it is made from."""

    def __init__(self, source: SettingsSource, files: BaseFiles | None = None) -> None:
        super().__init__(source)
        self._files = files or BaseFiles(source)
        self._replaces = False
        self._roots: set[str] = set()

    def tree(self) -> Tree:
        """What the file says, over what its bases say; raises UnreadableSettingsError if it is no Python."""
        module = self._parsed()
        base = self._bases(module)
        self.names = dict(base)
        self._replaces = any(map(_reads_base, module.body))
        for statement in module.body:
            self.imported |= {
                one.asname or one.name: one.name for one in getattr(statement, "names", ()) if _is_import(statement)
            }
            self._take(statement)
        own = {one: value for one, value in self.names.items() if not one.startswith("__") or one in self._roots}
        if self._roots & CONFIG_NAMES:  # what else stands there are parts of it
            own = {one: value for one, value in own.items() if one in CONFIG_NAMES or "." in one}
        for name in sorted(self._roots & own.keys()):  # `cfg.lr = 1` sets `lr`
            inside = own.pop(name)
            own |= inside if isinstance(inside, dict) else {}
        calls = PythonCalls(module, self.value, self.source)
        return dict(calls.constants()) | own | dict(calls.options()) | dict(calls.arguments())

    def _parsed(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd escapes in a text
                return ast.parse(self.source.whole_text())
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            place = self.source.place(line)
            raise UnreadableSettingsError(place, say("settings_fault.no_python", error=error)) from error

    def _bases(self, module: ast.Module) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        for name in self._base_names(module):
            inside = self._files.within(name, self.source, lambda one: PythonConfig(one, self._files).tree())
            found = merged(found, inside)
        return found

    def _base_names(self, module: ast.Module) -> Iterator[str]:
        for one in module.body:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id in BASES:
                given = self.value(one.value)
                yield from map(self._base_name, given if isinstance(given, list) else [given])
            elif _reads_base(one):
                for line in one.body:  # type: ignore[attr-defined]
                    if isinstance(line, ast.ImportFrom) and line.module:
                        yield self._module_file(line.module, line.level)

    def _base_name(self, given: Tree) -> str:
        """The name of a base; raises UnreadableSettingsError for what is none."""
        if not isinstance(given, Leaf) or not isinstance(given.value, str):
            raise UnreadableSettingsError(self.source.shown, say("settings_fault.no_base_name"))
        return given.value

    def _module_file(self, module: str, level: int) -> str:
        """The file of a module that `read_base()` imports: beside this one, or in an installed package."""
        if level:
            return "../" * (level - 1) + module.replace(".", "/") + ".py"
        package, _, inside = module.partition(".")
        return f"{package_folder(package, module, self.source).joinpath(*inside.split('.'))}.py"

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
                    self.names[argument.arg] = self.value(default)
            for one in function.body:
                self._take_own(one, arguments[0].arg)
        elif SETTING_FUNCTIONS.match(function.name):
            for argument in arguments[:1]:
                self._roots.add(argument.arg)
                self.names.setdefault(argument.arg, {})
            for one in function.body:
                if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name | ast.Attribute):
                    self._take(one)

    def _take_own(self, statement: ast.stmt, owner: str) -> None:
        """`self.lr = 0.1`, where the code itself gives the value."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == owner and _is_plain(statement.value):  # type: ignore[attr-defined]
            self.names[target.attr] = self.value(statement.value)  # type: ignore[attr-defined]

    def _update(self, call: ast.Call) -> None:
        """`name.update(key=value)` and `name.update(dict(...))`, which merge nested dicts, as mmengine's do."""
        name = getattr(getattr(call.func, "value", None), "id", "")
        if getattr(call.func, "attr", "") == "update" and isinstance(self.names.get(name), dict):
            made = [self.value(one) for one in call.args]
            made.append({one.arg: self.value(one.value) for one in call.keywords if one.arg})
            for one in made:
                if isinstance(one, dict):
                    self.names[name] = merged(self.names[name], one)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and target.id not in BASES and not self._makes_an_object(value):
            made = self.value(value)
            if self.is_config(value) and not TESTING_CONFIGS.search(target.id):
                self._roots.add(target.id)
            there = self.names.get(target.id)
            merges = isinstance(there, dict) and not self._replaces
            self.names[target.id] = merged(there, made) if merges else _without_flag(made)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            holder = self.value(target.value)
            if isinstance(holder, dict) and isinstance(target.value, ast.Name):
                new = {str(target.slice.value): self.value(value)}
                self.names[target.value.id] = merged(holder, new)

    def _makes_an_object(self, node: ast.expr) -> bool:
        """Tell a call whose result is no setting: a model, an optimizer, or TrainingArguments, which are read apart."""
        if (
            not isinstance(node, ast.Call)
            or self.is_config(node)
            or lazy_target(node)
            or field_default(node) is not None
        ):
            return False
        return holds_settings(node) or ast.unparse(node.func) not in SIMPLE_CALLS

    def _assign_attribute(self, target: ast.Attribute, value: ast.expr) -> None:
        """`cfg.train.lr = 1`, where cfg began as an empty configuration; of a module's attribute the whole name."""
        parts = ast.unparse(target).split(".")
        if not all(part.isidentifier() for part in parts):
            return
        tree: Tree = self.value(value)
        if parts[0] in BASES:  # `_base_.model.depth = 50` replaces what the bases say
            self.names = placed(self.names, parts[1:], tree)
            return
        if parts[0] not in self._roots:
            self.names.setdefault(".".join(parts), tree)
            return
        for part in reversed(parts[1:]):
            tree = {part: tree}
        self.names[parts[0]] = merged(self.names.get(parts[0], {}), tree)


def _holds_fields(node: ast.ClassDef) -> bool:
    """Tell a class whose fields are settings: one with a decorator, or called so itself, or by its base."""
    names = [node.name, *(ast.unparse(one) for one in node.bases)]
    return bool(node.decorator_list) or any(SETTING_CLASSES.search(one) for one in names)


def _is_plain(node: ast.expr) -> bool:
    """Tell a value that the code itself gives: numbers and texts, sums and lists of them."""
    return not any(isinstance(one, ast.Name | ast.Call | ast.Attribute) for one in ast.walk(node))


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom)


def _reads_base(statement: ast.stmt) -> bool:
    """Tell `with read_base():`, whose names are Python's own: what is assigned to one replaces it."""
    return isinstance(statement, ast.With) and READ_BASE in ast.unparse(statement.items[0])


def _without_flag(tree: Tree) -> Tree:
    return {name: one for name, one in tree.items() if name != DELETE} if isinstance(tree, dict) else tree
