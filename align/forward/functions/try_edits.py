"""Wrong code with one expression written otherwise: what ends the fault, and makes nothing worse, is what to write.

The live function runs with the change, on right values around it, as every other trial does. Nothing is written.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, combinations, islice, pairwise, permutations, zip_longest
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from align.forward.suspects import is_worse
from align.forward.thresholds import DIGITS_OF_FACTOR, MOST_REORDERED, MOST_TRIED_EDITS
from align.models.function_source import (
    CodeChange,
    called_name,
    changed_line,
    edited,
    function_source,
    helpers_of,
    is_own,
    own_classes,
    shown_line,
    source_text,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.protocols import Model
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolated_calls import IsolatedCall
    from align.forward.suspects import Budget, Suspect
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey

    Calls = Mapping[CallKey, IsolatedCall]


CODE_DIFFERS = "code-differs"


def try_edits(
    reference: Model, bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect], budget: Budget
) -> tuple[Suspect, ...]:
    """Name the change of a single expression that mends a suspect, as far as runs are left.

    Code that the reference runs too is left as it is: a change there would change both sides.
    """
    if all(one.culprit.sureness == "confirmed" for one in suspects):
        return tuple(suspects)
    trials = _Trials(bench, alone, budget, frozenset(map(id, _code_below(reference))))
    return tuple(_tried(trials, one) if one.culprit.sureness != "confirmed" else one for one in suspects)


@dataclass(frozen=True, slots=True)
class _Trials:
    """All that a trial needs; `kept` are the ids of functions that are not changed."""

    bench: Bench
    alone: IsolatedLayers
    budget: Budget
    kept: frozenset[int]


def _tried(trials: _Trials, suspect: Suspect) -> Suspect:
    bench, alone, budget = trials.bench, trials.alone, trials.budget
    code = _wrong_code(bench.side, suspect, trials.kept)
    for function, change in islice(edits_to_try(code), MOST_TRIED_EDITS):
        if budget.is_spent:
            break
        budget.spend()
        with edited(function, change) as is_edited:
            run = bench.run(alone.way) if is_edited else None
        if run is None or run.failed or not suspect.is_mended(run.calls) or is_worse(run.calls, alone.calls):
            continue
        culprit = suspect.culprit
        before, after = changed_line(source_text(function), change)
        instruction = sentence("forward_finding.write", before=before, after=after, moves=0)
        is_there = culprit.line.endswith(f":{change.line}")
        line = culprit.line if is_there else shown_line(change.file, function.__module__, change.line)
        cause = culprit.cause or CODE_DIFFERS
        named = replace(culprit, cause=cause, sureness="confirmed", change=instruction, line=line, code=change)
        return replace(suspect, culprit=named)
    return suspect


def _wrong_code(side: Side, suspect: Suspect, kept: frozenset[int]) -> WrongCode:
    """The code around what is wrong: of the module itself, and for inputs of the one that makes them."""
    culprit = suspect.culprit
    path = culprit.candidate.rpartition(".")[0] if culprit.part == "inputs" else culprit.candidate
    lines = (culprit.inside.lines if culprit.inside else (culprit.line,)) if culprit.line or culprit.inside else ()
    numbers = frozenset(int(one.rpartition(":")[2]) for one in lines if one)
    functions = tuple(one for one in _functions(side.model, path) if id(one[0]) not in kept)
    return WrongCode(functions, culprit.cause, culprit.facts, numbers, side.reader.name)


def _functions(model: Any, path: str) -> Iterator[tuple[FunctionType, ast.AST]]:
    """The methods of the module at a path, or of the first around it that has code of a user's own, and what they call.

    Functions are those of the project.
    """
    layer = reduce(lambda holder, name: getattr(holder, name, None), path.split(".") if path else [], model)
    classes = own_classes(layer)
    if not classes and path:
        yield from _functions(model, path.rpartition(".")[0])
    methods = [one for cls in classes for one in _methods(cls)]
    for function in [*methods, *helpers_of(methods)]:
        source = function_source(function)
        if source is not None and source.node.name != "__init__":
            yield function, source.node


def _code_below(model: Any) -> Iterator[FunctionType]:
    """The methods of all classes of a user's own that a live model is made of, and the functions that they call."""
    walk: Any = getattr(model, "cells_and_names", None) or getattr(model, "named_modules", tuple)
    layers = [model, *(layer for _, layer in walk())]
    classes = dict.fromkeys(cls for layer in layers for cls in own_classes(layer))
    methods = [one for cls in classes for one in _methods(cls)]
    yield from methods
    yield from helpers_of(methods)


def _methods(cls: type) -> Iterator[FunctionType]:
    for value in vars(cls).values():
        function = getattr(value, "__wrapped__", value)
        if isinstance(function, FunctionType):
            yield function


# What might be written otherwise in wrong code: single expressions, those first that the cause speaks of.
#
# Nothing says that one of them is the fault. Each is a guess that a run must confirm.

Edit = tuple[ast.expr, str]

FUNCTIONS = {  # what relations call a function: its name in torch.nn.functional and mindspore.ops, and its arguments
    "gelu": ("gelu", 'approximate="none"'),
    "gelu-tanh": ("gelu", 'approximate="tanh"'),
    "hard-sigmoid": ("hardsigmoid", ""),
    "hard-swish": ("hardswish", ""),
    "log-sigmoid": ("logsigmoid", ""),
} | {
    name: (name, "")
    for name in ("relu", "relu6", "sigmoid", "tanh", "silu", "softplus", "elu", "selu", "mish", "exp", "log", "square")
}
NOTHING = "nothing"
LARGEST_FLOAT16 = 65504.0  # no limit: of the format
BEHIND_TOLD = (True, False)  # no limit: the rank of other guesses on the likeliest lines
FRAMEWORKS = ("torch", "mindspore")
APPLIED = ("activation-differs", "activation-missing", "activation-extra")
AXES = ("axis", "dim", "axes", "dims")
NEAR_AXES = (-1, 1, -2, 2, 0, 3)  # no limit: the order in which axes are tried
TURNS = ("transpose", "permute")
EXCHANGES = ("swapaxes", "swapdims", "transpose")
JOINS = ("concat", "cat", "concatenate", "stack")
PLACED_AXIS = {  # functions whose axis is often given by its place: the number of the argument, of a method one less
    **dict.fromkeys(("softmax", "log_softmax", "mean", "sum", "max", "min", "amax", "amin", "prod", "std", "var"), 1),
    **dict.fromkeys(("argmax", "argmin", "cumsum", "squeeze", "unsqueeze", "expand_dims", "flip", *JOINS), 1),
    **dict.fromkeys(("split", "chunk", "roll", "repeat_interleave"), 2),
}
WORDS = (
    ("bilinear", "nearest", "bicubic"),
    ("none", "tanh"),
    ("half_pixel", "align_corners", "asymmetric"),
    ("ij", "xy"),
)
LEFT_OUT = {  # words whose defaults differ between frameworks and versions
    "meshgrid": ('indexing="ij"', 'indexing="xy"'),
    "std": ("ddof=1", "unbiased=False"),
    "var": ("ddof=1", "unbiased=False"),
    "grid_sample": ("align_corners=True", "align_corners=False"),
    "interpolate": ("align_corners=True",),
    "gelu": ('approximate="tanh"', 'approximate="none"'),
}
OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript)
REORDERED = ("reordered", "transposed", "permuted", "reshaped", "")
RESHAPES = ("reshape", "view", "flatten")
USUAL_ORDERS = ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 2, 1))  # no limit: orders of axes


@dataclass(frozen=True, slots=True)
class WrongCode:
    """Functions of the port whose code may be at fault, with what is known of the fault.

    `cause` is the id of a relation, with its `facts`; `lines` are the numbers of the lines of the functions' file that
    it is likeliest at. `framework` is the port's, "" if it is not known: a file may import the other one too.
    """

    functions: tuple[tuple[FunctionType, ast.AST], ...]
    cause: str
    facts: Mapping[str, Any]
    lines: frozenset[int]
    framework: str = ""


def edits_to_try(code: WrongCode) -> Iterator[tuple[FunctionType, CodeChange]]:
    """Yield guesses, those on the likeliest lines first."""
    by_rank: dict[tuple[bool, bool], dict[int, list[tuple[FunctionType, CodeChange]]]] = {}
    for function, tree in code.functions:
        guesses = _Guesses(function, tree, code)
        for is_other, edits in enumerate((guesses.told(), guesses.others())):
            for node, text in edits:
                rank = bool(is_other), node.lineno not in code.lines
                if (change := guesses.change(node, text)) is not None:
                    by_rank.setdefault(rank, {}).setdefault(id(node), []).append((function, change))
    together = [
        (function, added) for function, tree in code.functions for added in _Guesses(function, tree, code).together()
    ]
    for rank in sorted({*by_rank, BEHIND_TOLD}):
        yield from together if rank == BEHIND_TOLD else ()
        if rank not in by_rank:
            continue
        turns = zip_longest(*by_rank[rank].values())  # one of each expression before the next of any
        yield from dict.fromkeys(guess for turn in turns for guess in turn if guess is not None)


class _Guesses:
    """The guesses of one function."""

    def __init__(self, function: FunctionType, tree: ast.AST, code: WrongCode) -> None:
        self._function, self._code = function, code
        self._lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
        operations = [node for node in ast.walk(tree) if isinstance(node, OPERATIONS)]
        self._operands = {id(part) for operation in operations for part in ast.iter_child_nodes(operation)}
        self._nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
        self._calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        self._returns = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
        self._layers = [call for call in self._calls if is_own(call.func, "self", called_name(call))]

    def change(self, node: ast.expr, after: str) -> CodeChange | None:
        """Write another text in the place of an expression; None where that is what stands there."""
        before = self._source(node)
        try:
            written = ast.parse(after, mode="eval").body
        except SyntaxError:  # what is no expression by itself, as an argument with a star
            return None
        if isinstance(written, OPERATIONS[:2]) and id(node) in self._operands:
            after = f"({after})"
        file = self._function.__code__.co_filename
        return CodeChange(file, node.lineno, node.col_offset, before, after) if before not in ("", after) else None

    def told(self) -> Iterator[Edit]:
        """The edits that the cause speaks of."""
        if self._code.cause in APPLIED:
            yield from self._applied()
        elif self._code.cause == "scaled":
            yield from self._scaled()
        elif self._code.cause == "soft-cap-missing" and (prefix := self._prefix("tanh")):
            cap = repr(self._code.facts["cap"])
            for place in self._bare_places():
                whole = self._source(place)
                yield place, f"{cap} * {prefix}.tanh(({whole}) / {cap})"

    def others(self) -> Iterator[Edit]:
        """The edits of all other kinds."""
        return chain(self._too_large(), self._arguments(), self._joined(), self._turned_before(), self._added_back())

    def _too_large(self) -> Iterator[Edit]:
        """Numbers that float16 does not hold, as -1e9 of a mask: times 0 they make NaN of it."""
        for node in self._nodes:
            if (_number(node) or 0.0) > LARGEST_FLOAT16:
                yield node, repr(LARGEST_FLOAT16)

    def _applied(self) -> Iterator[Edit]:
        facts = self._code.facts
        has = _names(facts.get("candidate", facts.get("function", "") if self._is("activation-extra") else NOTHING))
        wants = _names(facts.get("reference", facts.get("function", "") if self._is("activation-missing") else NOTHING))
        known = {FUNCTIONS[one][0] for one in has if one in FUNCTIONS}
        for name in wants:
            for call in self._calls:
                if called_name(call).lower() in known and len(call.args) <= 1:
                    yield from self._with_function(call, self._given(call), name)
            for place in self._bare_places() if NOTHING in has else ():
                yield from self._with_function(place, self._source(place), name)

    def _is(self, cause: str) -> bool:
        return self._code.cause == cause

    def _bare_places(self) -> list[ast.expr]:
        """Where a function may be missing: behind the layer that it is applied to, behind any, on what is returned."""
        name = str(self._code.facts.get("input", "")).partition("#")[0].rpartition(".")[2]
        layers = sorted(self._layers, key=lambda one: called_name(one) != name)
        return [*layers, *self._returns]

    def _given(self, call: ast.Call) -> str:
        """What a function is applied to: its argument, or the tensor whose method it is."""
        given = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else call
        return self._source(given)

    def _with_function(self, node: ast.expr, given: str, name: str) -> Iterator[Edit]:
        if name == NOTHING:
            yield node, given
        elif name in FUNCTIONS:
            function, arguments = FUNCTIONS[name]
            prefix = self._prefix(function)
            if prefix:
                yield node, f"{prefix}.{function}({', '.join(filter(None, (given, arguments)))})"

    def _prefix(self, name: str) -> str:
        """What the file calls the framework's module of functions; "" where it imports none that has this one."""
        modules = [
            (key, module)
            for key, module in self._function.__globals__.items()
            if isinstance(module, ModuleType) and module.__name__.partition(".")[0] in self._frameworks
            if callable(getattr(module, name, None)) and not isinstance(getattr(module, name), ModuleType)
        ]
        return next((key for key, _ in modules), "")

    def _scaled(self) -> Iterator[Edit]:
        """Numbers of products and quotients, times what is missing."""
        scale = float(self._code.facts.get("scale", 0.0))
        products = [one for one in self._nodes if isinstance(one, ast.BinOp)]
        for node in products if scale else ():
            for operand in (node.left, node.right):
                value = _number(operand)
                if value is not None and isinstance(node.op, (ast.Mult, ast.Div)):
                    is_divided = isinstance(node.op, ast.Div) and operand is node.right
                    wanted = value * scale if is_divided else value / scale
                    yield operand, repr(float(f"{wanted:.{DIGITS_OF_FACTOR}g}"))

    def _arguments(self) -> Iterator[Edit]:
        for call in self._calls:
            name = called_name(call)
            yield from self._turned(call, name)
            place = PLACED_AXIS.get(name, len(call.args)) - isinstance(call.func, ast.Attribute) * self._is_method(call)
            axes = [keyword.value for keyword in call.keywords if keyword.arg in AXES] + call.args[place : place + 1]
            for axis in axes:
                yield from _other_axes(axis)
            for keyword in call.keywords:
                yield from _other_words(keyword.value)
            yield from self._with_keyword(call, name)

    def _with_keyword(self, call: ast.Call, name: str) -> Iterator[Edit]:
        """A word that the call leaves to its framework, where the frameworks leave unlike ones."""
        whole, known = self._source(call), {one.arg for one in call.keywords}
        for word in LEFT_OUT.get(name, ()):
            if whole.endswith(")") and word.partition("=")[0] not in known:
                yield call, f"{whole[:-1]}, {word})"

    def together(self) -> Iterator[CodeChange]:
        """The same word added to all calls of a function that lack it: the same slip is made in several places."""
        for name, words in LEFT_OUT.items():
            calls = sorted((call for call in self._calls if called_name(call) == name), key=_begin)
            for word in words:
                lacking = [
                    call for call in calls if word.partition("=")[0] not in {given.arg for given in call.keywords}
                ]
                apart = all(_end(before) <= _begin(after) for before, after in pairwise(lacking))
                if len(lacking) > 1 and apart and all(self._source(call).endswith(")") for call in lacking):
                    yield self._with_word(lacking, word)

    def _with_word(self, calls: Sequence[ast.Call], word: str) -> CodeChange:
        """One change of all the text from the first of some calls to the end of the last."""
        (row, column), (last_row, end) = _begin(calls[0]), _end(calls[-1])
        rows = [one.encode() for one in self._lines[row - 1 : last_row]]
        before = b"".join([*rows[:-1], rows[-1][:end]])[column:].decode()
        for one in reversed(calls):
            place, stop = one.end_lineno - row if one.end_lineno else 0, (one.end_col_offset or 1) - 1
            own = rows[place]
            rows[place] = own[:stop] + f", {word}".encode() + own[stop:]
            end += (place == last_row - row) * len(f", {word}".encode())
        after = b"".join([*rows[:-1], rows[-1][:end]])[column:].decode()
        return CodeChange(self._function.__code__.co_filename, row, column, before, after)

    def _is_method(self, call: ast.Call) -> bool:
        """Tell whether a call is of a tensor's method, not of a module's function."""
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        known = self._function.__globals__.get(base.id) if isinstance(base, ast.Name) else None
        return not isinstance(known, ModuleType) and not (
            isinstance(base, ast.Attribute) and base.attr in ("ops", "mint")
        )

    def _turned(self, call: ast.Call, name: str) -> Iterator[Edit]:
        """Orders of axes, as a tuple or as arguments, and pairs of axes that change places."""
        if name not in (*TURNS, *EXCHANGES):
            return
        given = [*(call.args if self._is_method(call) else call.args[1:])]
        given += [keyword.value for keyword in call.keywords if keyword.arg in ("perm", "input_perm", *AXES)]
        listed = given[0].elts if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) else given
        orders = _other_orders([_whole(axis) for axis in listed])
        whole = self._source(call)
        if not orders or not whole.isascii() or any(axis.lineno != call.lineno for axis in listed):
            return
        start = listed[0].col_offset - call.col_offset
        end = (listed[-1].end_col_offset or 0) - call.col_offset
        for order in orders:
            yield call, whole[:start] + ", ".join(map(str, order)) + whole[end:]

    def _turned_before(self) -> Iterator[Edit]:
        """A tensor whose axes are brought into another order before it is read with another shape."""
        told = [int(one) for one in str(self._code.facts.get("axes", "")).split(",") if one.isdigit()]
        orders = [told, [told.index(one) for one in range(len(told))]] if sorted(told) == [*range(len(told))] else []
        for call in self._calls if self._code.cause in REORDERED else ():
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            if called_name(call) in RESHAPES and base is not None and self._is_method(call):
                whole = f"({self._source(base)})" if isinstance(base, OPERATIONS[:2]) else self._source(base)
                for order in (*filter(None, orders), *USUAL_ORDERS):
                    yield base, f"{whole}.{self._turning}({', '.join(map(str, order))})"

    @property
    def _turning(self) -> str:
        """The method of the framework's tensors that brings axes into an order."""
        names = {
            module.__name__.partition(".")[0]
            for module in self._function.__globals__.values()
            if isinstance(module, ModuleType)
        }
        return "transpose" if "mindspore" in names.intersection(self._frameworks) else "permute"

    @property
    def _frameworks(self) -> tuple[str, ...]:
        own = self._code.framework
        return (own,) if own in FRAMEWORKS else FRAMEWORKS

    def _joined(self) -> Iterator[Edit]:
        """Parts that are joined in another order."""
        for call in self._calls:
            parts = call.args[0] if call.args else None
            if called_name(call) in JOINS and isinstance(parts, (ast.List, ast.Tuple)):
                elements = [self._source(one) for one in parts.elts]
                brackets = "[]" if isinstance(parts, ast.List) else "()"
                for order in permutations(elements) if 1 < len(elements) <= MOST_REORDERED else ():
                    yield parts, f"{brackets[0]}{', '.join(order)}{brackets[1]}"

    def _added_back(self) -> Iterator[Edit]:
        """What a layer is given, added to what it returns."""
        for call in self._layers:
            if len(call.args) == 1 and isinstance(call.args[0], ast.Name):
                yield call, f"{call.args[0].id} + {self._source(call)}"

    def _source(self, node: ast.AST) -> str:
        """The text of an expression, "" where it is on several lines."""
        if getattr(node, "end_lineno", None) != (row := getattr(node, "lineno", 0)) or row > len(self._lines):
            return ""
        return self._lines[row - 1].encode()[node.col_offset : node.end_col_offset].decode()  # type: ignore[attr-defined]


def _begin(call: ast.Call) -> tuple[int, int]:
    return call.lineno, call.col_offset


def _end(call: ast.Call) -> tuple[int, int]:
    return call.end_lineno or call.lineno, call.end_col_offset or call.col_offset


def _names(fact: object) -> list[str]:
    return str(fact).split(" or ")


def _whole(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _other_orders(numbers: list[int | None]) -> list[tuple[int, ...]]:
    """All orders of a few axes, or other pairs that change places; none of what is no whole number."""
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return []
    if sorted(known) == [*range(len(known))] and 2 < len(known) <= MOST_REORDERED:
        return list(permutations(known))
    return [*combinations((-2, -1), 2), *combinations((1, 2, 3), 2), (0, 1)] if len(known) == 2 else []


def _number(node: ast.expr) -> float | None:
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return float(node.value) if is_number else None  # type: ignore[attr-defined]


def _other_axes(node: ast.expr) -> Iterator[Edit]:
    value = _whole(node)
    if value is not None:
        yield from ((node, str(one)) for one in NEAR_AXES if one != value)
    elif isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == 2:
        yield from ((node, str(one)) for one in ((2, 3), (1, 2), (-2, -1), (0, 1), (1, 3)))


def _other_words(node: ast.expr) -> Iterator[Edit]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    for group in WORDS if isinstance(node.value, str) else ():
        yield from ((node, f'"{one}"') for one in group if node.value in group and one != node.value)
