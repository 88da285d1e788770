"""Wrong code in a line: the source of a cell's construct rewritten by one token, as it is mistyped or misread.

Code without source, or that needs names from around it, is left alone. A change after which the code does not run, or
returns the same, is none.
"""

from __future__ import annotations

import ast
import copy
import inspect
import types
from functools import partial
from typing import TYPE_CHECKING, Any

from _addends import _tree
from _planting import Mutation, NotPlantableError, Port, Undo, all_of, set_attributes
from _watching import call_again, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rewrite = tuple[str, ast.AST, ast.AST]  # the kind, what stands there, and instead of it

# Functions that are taken for each other.
OTHERS = {
    "sum": "mean",
    "mean": "sum",
    "relu": "silu",
    "silu": "relu",
    "gelu": "relu",
    "sigmoid": "tanh",
    "tanh": "sigmoid",
    "cos": "sin",
    "sin": "cos",
    "exp": "expm1",
    "abs": "relu",
    "tril": "triu",
    "triu": "tril",
}
LEFT_OUT = {"relu", "silu", "gelu", "sigmoid", "tanh", "softmax", "exp", "sqrt", "neg", "swapaxes", "transpose"}
JOINED = {"concat", "cat", "stack"}
ALONG = {"softmax", "sum", "mean", "concat", "cat", "stack", "chunk", "split"}
MOST_LINES = 40  # rewrites of one cell


def plant_lines(port: Port) -> Iterator[Mutation]:
    """All rewrites of the called cells of the user's own classes."""
    for path, cell in port.cells.items():
        tree = _tree(cell)
        for number, (kind, old, new) in enumerate(_rewrites(tree) if tree else ()):
            if number < MOST_LINES:
                change = f"{ast.unparse(new)} for {ast.unparse(old)}"
                plant = partial(_plant, port, path, number)
                yield Mutation(kind, "code", (path,), change, plant, also=frozenset(first_inside(port, path)))


def first_inside(port: Port, path: str) -> Iterator[str]:
    """What the code of a cell gives its own cells shows at the first cells inside of these too."""
    begun = {seen.begun: other for other, seen in port.seen.items()}
    for other, seen in port.seen.items():
        if not other or _called_around(port, other) != path:
            continue
        yield other
        place = seen.begun
        while (place := place + 1) in begun:
            yield begun[place]


def _called_around(port: Port, path: str) -> str:
    """The nearest cell around that is called: lists are not."""
    path = path.rpartition(".")[0]
    while path and path not in port.seen:
        path = path.rpartition(".")[0]
    return path


def _rewrites(tree: ast.AST) -> Iterator[Rewrite]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            yield from _of_operator(node)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from _of_index(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 2:
            new = copy.deepcopy(node)
            new.targets[0].elts.reverse()  # type: ignore[attr-defined]
            yield "names exchanged", node, new


def _of_operator(node: ast.BinOp) -> Iterator[Rewrite]:
    if isinstance(node.op, ast.Add):
        yield "minus for plus", node, ast.BinOp(node.left, ast.Sub(), node.right)
    if isinstance(node.op, (ast.Sub, ast.Div, ast.MatMult)):
        yield "operands exchanged", node, ast.BinOp(node.right, node.op, node.left)
    if isinstance(node.op, (ast.Mult, ast.Div)):
        for side, other in (("left", node.right), ("right", node.left)):
            number = getattr(node, side)
            if isinstance(number, ast.Constant) and isinstance(number.value, (int, float)) and other is not number:
                yield "other constant", number, ast.Constant(number.value * 1.5)
    if isinstance(node.op, (ast.Mult, ast.Sub)) and not isinstance(node.left, ast.Constant):
        yield "factor or term left out", node, node.left


def _of_call(node: ast.Call) -> Iterator[Rewrite]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else ""
    if name in OTHERS:
        new = copy.deepcopy(node)
        new.func.attr = OTHERS[name]  # type: ignore[attr-defined]
        yield "other function", node, new
    if name in LEFT_OUT and isinstance(function, ast.Attribute):
        is_method = not isinstance(function.value, ast.Name) or function.value.id not in ("ops", "mint", "F", "P")
        kept = function.value if is_method else node.args[0] if node.args else None
        if kept is not None:
            yield "call left out", node, kept
    if name in JOINED and node.args and isinstance(node.args[0], (ast.Tuple, ast.List)) and len(node.args[0].elts) > 1:
        new = copy.deepcopy(node)
        new.args[0].elts.reverse()  # type: ignore[attr-defined]
        yield "other order of parts", node, new
    if name in ALONG and node.args:
        axis = node.args[-1]
        value = ast.literal_eval(axis) if _is_number(axis) else None
        if isinstance(value, int):
            yield "other axis", axis, ast.Constant(value - 1 if value > 0 else value + 1 if value == 0 else value - 1)
    if name in ("swapaxes", "transpose", "permute") and len(node.args) > 1 and all(map(_is_number, node.args)):
        new = copy.deepcopy(node)
        new.args[-2:] = new.args[-2:][::-1] if name != "swapaxes" else [node.args[0], ast.Constant(0)]
        yield "axes in another order", node, new


def _is_number(node: ast.AST) -> bool:
    try:
        return isinstance(ast.literal_eval(node), int)  # type: ignore[arg-type]
    except ValueError:
        return False


def _of_index(node: ast.Subscript) -> Iterator[Rewrite]:
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if _is_number(part):
            value = ast.literal_eval(part)
            yield "other index", part, ast.Constant(1 if value == 0 else 0)
        if isinstance(part, ast.Slice) and part.lower is None and part.upper is not None and part.step is None:
            yield "other end of a slice", part, ast.Slice(part.upper, None, None)


def _plant(port: Port, path: str, number: int) -> Undo:
    cell, seen = port.cells[path], port.seen[path]
    tree = _tree(cell)
    _, old, new = list(_rewrites(tree))[number]
    written = type(cell).construct
    changed = ast.fix_missing_locations(_Exchange(old, new).visit(tree))
    space: dict[str, Any] = {}
    exec(compile(changed, inspect.getfile(written), "exec"), written.__globals__, space)
    construct = types.MethodType(space[written.__name__], cell)

    def check() -> Undo:
        if distance(seen.outputs, _run(lambda: call_again(cell, seen))) in (0.0, float("inf")):
            raise NotPlantableError
        return lambda: None

    return all_of(partial(set_attributes, cell, construct=construct), check)


def _run(code: Callable[[], Any]) -> Any:
    """What a changed cell returns; raises NotPlantableError where it does not run."""
    try:
        return code()
    except Exception as error:
        raise NotPlantableError from error


class _Exchange(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else super().visit(node)
