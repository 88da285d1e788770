"""What expressions of Python stand for, found by their syntax: numbers, texts, lists, dicts, and names that were set.

What only a run could tell stays its text, and is marked as `computed`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.base_files import BASES
from align.hyperparameters.reader_parts.nested_settings import Leaf, Tree
from align.hyperparameters.thresholds import DEEPEST_SETTINGS, LARGEST_BASE_OF_A_POWER, LARGEST_EXPONENT
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from align.hyperparameters.settings_source import SettingsSource

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
