"""Python: configurations of mmengine with their bases, files of assignments, defaults of a script's argparse.

The code is parsed and never run. What it computes stays the text of what computes it.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.setting_values import (
    BASES,
    DELETE,
    BaseFiles,
    Leaf,
    Tree,
    flat_settings,
    merged,
    package_folder,
    placed,
)
from align.hyperparameters.settings_format import SettingsPlugin
from align.hyperparameters.thresholds import DEEPEST_SETTINGS, LARGEST_BASE_OF_A_POWER, LARGEST_EXPONENT
from align.rules.ascend_rules import script_calls
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeGuard

    from align.hyperparameters.settings_format import Setting, SettingsSource
    from align.rules.ascend_rules import ScriptCall


class PythonSettings(SettingsPlugin):
    """Python files."""

    name = "python"
    summary = "Python: mmengine configurations, assignments, defaults of argparse; parsed, never run"
    suffixes = (".py",)

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read what stands at the top of the file, and the defaults of its options."""
        return flat_settings(PythonConfig(source).tree(), source.shown)


PLUGIN = PythonSettings()


# What expressions of Python stand for, found by their syntax: numbers, texts, lists, dicts, and names that were set.
#
# What only a run could tell stays its text, and is marked as `computed`.

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
}
# What a configuration by attributes begins as: empty, or with a dict.
CONFIG_CALLS = frozenset(("CN", "CfgNode", "ConfigDict", "EasyDict", "edict", "config_dict", "DictConfig"))
DICT, FIELDS = "dict", ("field", "Field")
LAZY_CALLS, TARGET = ("L", "LazyCall"), "_target_"


class PythonValues:
    """Expressions of one file, with the names that were set so far."""

    def __init__(self, source: SettingsSource) -> None:
        self.source = source
        self.names: dict[str, Tree] = {}
        self.imported: dict[str, str] = {}  # names that imports give to what they import

    def value(self, node: ast.expr, depth: int = 0) -> Tree:
        """The tree that an expression makes; raises UnreadableSettingsError if it is nested deeper than any."""
        if depth > DEEPEST_SETTINGS:
            raise UnreadableSettingsError(self.source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(getattr(key, "value", "")): self.value(one, depth + 1) for key, one in pairs}
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one, depth + 1) for one in node.elts]
        return self._single(node, depth)

    def _call(self, node: ast.Call, depth: int) -> Tree:
        """`dict(...)`, an empty configuration or one of a dict, a field with a default, or what is made later."""
        target = "" if ast.unparse(node.func) == DICT else lazy_target(node)
        if target or ast.unparse(node.func) == DICT:
            given = {one.arg: self.value(one.value, depth + 1) for one in node.keywords if one.arg}
            return {TARGET: Leaf(target, self.source.place(node.lineno)), **given} if target else given
        if self.is_config(node):
            return self.value(node.args[0], depth + 1) if node.args else {}
        default = field_default(node)
        return self._single(node, depth) if default is None else self.value(default, depth + 1)

    def is_config(self, node: ast.AST) -> TypeGuard[ast.Call]:
        """Tell `CN()` and the like, of which attributes are then set; one may begin with a dict."""
        if not isinstance(node, ast.Call) or node.keywords or len(node.args) > 1:
            return False
        called = ast.unparse(node.func).rpartition(".")[2]
        named = {called, self.imported.get(called, "")}
        return bool(named & CONFIG_CALLS) and all(isinstance(one, ast.Dict) for one in node.args)

    def _single(self, node: ast.expr, depth: int) -> Tree:
        place = self.source.place(node.lineno)
        if isinstance(node, ast.Constant):
            simple = isinstance(node.value, (str, int, float)) or node.value is None
            return Leaf(node.value if simple else str(node.value), place)  # type: ignore[arg-type]
        if (known := self._known(node)) is not None:
            return known
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inside = self.value(node.operand, depth + 1)
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
            return self.names if node.id in BASES else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            holder = self._known(node.value)
            return holder.get(node.attr) if isinstance(holder, dict) else None
        if isinstance(node, ast.Subscript):
            holder, key = self._known(node.value), self.value(node.slice, 1)
            return holder.get(str(key.value)) if isinstance(holder, dict) and isinstance(key, Leaf) else None
        return None

    def _computed(self, node: ast.BinOp, depth: int) -> str | int | float:
        """A sum or product of numbers; else its text."""
        left, right = (self.value(one, depth + 1) for one in (node.left, node.right))
        numbers = [one.value for one in (left, right) if isinstance(one, Leaf) and isinstance(one.value, (int, float))]
        if len(numbers) == 2 and type(node.op) in OPERATORS and _is_defined(node.op, *numbers):
            result: int | float = OPERATORS[type(node.op)](*numbers)
            return result
        return ast.unparse(node)


def _is_defined(operator: ast.operator, left: float, right: float) -> bool:
    """Tell what has a result, and one that no memory is needed for."""
    if isinstance(operator, ast.Pow):
        return 0 < left <= LARGEST_BASE_OF_A_POWER and abs(right) <= LARGEST_EXPONENT
    return bool(right) or isinstance(operator, ast.Mult | ast.Add | ast.Sub)


def lazy_target(node: ast.expr) -> str:
    """What `L(torch.optim.AdamW)(lr=1e-4)` of detectron2 is to make, "" for other calls."""
    made = node.func if isinstance(node, ast.Call) else None
    lazy = isinstance(made, ast.Call) and ast.unparse(made.func) in LAZY_CALLS and len(made.args) == 1
    return ast.unparse(made.args[0]) if lazy else ""  # type: ignore[union-attr]


def field_default(node: ast.AST) -> ast.expr | None:
    """The default of `field(default=...)` of a dataclass, and of pydantic's `Field(...)`."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in FIELDS:
        return None
    given = {one.arg: one.value for one in node.keywords}
    factory = given.get("default_factory")
    made = factory.body if isinstance(factory, ast.Lambda) else None
    return given.get("default") or made or (node.args[0] if node.args else ast.Constant(None, lineno=node.lineno))


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
            if isinstance(statement, ast.ImportFrom):
                self.imported |= {alias.asname or alias.name: alias.name for alias in statement.names}
            self._take(statement)
        settings = {key: value for key, value in self.names.items() if not key.startswith("__") or key in self._roots}
        if self._roots & CONFIG_NAMES:  # what else stands there are parts of it
            settings = {key: value for key, value in settings.items() if key in CONFIG_NAMES or "." in key}
        for name in sorted(self._roots & settings.keys()):  # `cfg.lr = 1` sets `lr`
            inside = settings.pop(name)
            settings |= inside if isinstance(inside, dict) else {}
        calls = PythonCalls(module, self.value, self.source)
        return dict(calls.constants()) | settings | dict(calls.options()) | dict(calls.arguments())

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
        base: dict[str, Tree] = {}
        for name in self._base_names(module):
            inside = self._files.within(name, self.source, lambda one: PythonConfig(one, self._files).tree())
            base = merged(base, inside)
        return base

    def _base_names(self, module: ast.Module) -> Iterator[str]:
        for statement in module.body:
            if (
                isinstance(statement, ast.Assign)
                and isinstance(statement.targets[0], ast.Name)
                and statement.targets[0].id in BASES
            ):
                given = self.value(statement.value)
                yield from map(self._base_name, given if isinstance(given, list) else [given])
            elif _reads_base(statement):
                for line in statement.body:  # type: ignore[attr-defined]
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
            for statement in function.body:
                self._take_own(statement, arguments[0].arg)
        elif SETTING_FUNCTIONS.match(function.name):
            for argument in arguments[:1]:
                self._roots.add(argument.arg)
                self.names.setdefault(argument.arg, {})
            for statement in function.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name | ast.Attribute):
                    self._take(statement)

    def _take_own(self, statement: ast.stmt, owner: str) -> None:
        """`self.lr = 0.1`, where the code itself gives the value."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == owner and _is_plain(statement.value):  # type: ignore[attr-defined]
            self.names[target.attr] = self.value(statement.value)  # type: ignore[attr-defined]

    def _update(self, call: ast.Call) -> None:
        """`name.update(key=value)` and `name.update(dict(...))`, which merge nested dicts, as mmengine's do."""
        name = getattr(getattr(call.func, "value", None), "id", "")
        if getattr(call.func, "attr", "") == "update" and isinstance(self.names.get(name), dict):
            updates = [self.value(argument) for argument in call.args]
            updates.append({keyword.arg: self.value(keyword.value) for keyword in call.keywords if keyword.arg})
            for update in updates:
                if isinstance(update, dict):
                    self.names[name] = merged(self.names[name], update)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and target.id not in BASES and not self._makes_an_object(value):
            given = self.value(value)
            if self.is_config(value) and not TESTING_CONFIGS.search(target.id):
                self._roots.add(target.id)
            there = self.names.get(target.id)
            merges = isinstance(there, dict) and not self._replaces
            plain = {key: one for key, one in given.items() if key != DELETE} if isinstance(given, dict) else given
            self.names[target.id] = merged(there, given) if merges else plain
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            holder = self.value(target.value)
            if isinstance(holder, dict) and isinstance(target.value, ast.Name):
                new = {str(target.slice.value): self.value(value)}
                self.names[target.value.id] = merged(holder, new)

    def _makes_an_object(self, node: ast.expr) -> bool:
        """Tell a call whose result is no setting: a model, an optimizer, or TrainingArguments, which are read apart."""
        if not isinstance(node, ast.Call) or self.is_config(node) or lazy_target(node):
            return False
        return field_default(node) is None and (holds_settings(node) or ast.unparse(node.func) not in SIMPLE_CALLS)

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


def _reads_base(statement: ast.stmt) -> bool:
    """Tell `with read_base():`, whose names are Python's own: what is assigned to one replaces it."""
    return isinstance(statement, ast.With) and READ_BASE in ast.unparse(statement.items[0])


# What the calls of a script set: options of argparse, keywords of TrainingArguments, constants that tables name.

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
        names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        long = next((str(option) for option in names if str(option).startswith("--")), "")
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        name = str(getattr(given.get("dest"), "value", long)).lstrip("-").replace("-", "_")
        if not long:
            return
        switch = SWITCHES.get(getattr(given.get("action"), "value", ""))
        default = self._value(given["default"]) if "default" in given else Leaf(switch, self._source.place(node.lineno))
        also = tuple(str(option).lstrip("-").replace("-", "_") for option in names if str(option) != long)
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
