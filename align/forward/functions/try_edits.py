"""Wrong code with one expression written otherwise: what ends the fault, and makes nothing worse, is what to write.

The live function runs with the change, on right values around it, as every other trial does. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.forward.causes.suspects import is_worse
from align.forward.functions.edits_to_try import WrongCode, edits_to_try
from align.forward.thresholds import MOST_TRIED_EDITS
from align.models.edited_code import changed_line, edited, source_text
from align.models.function_source import function_source, helpers_of, own_classes, shown_line
from align.words.catalogue import sentence

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.protocols import Model
    from align.forward.causes.suspects import Suspect
    from align.forward.functions.look_inside import Budget
    from align.forward.isolation.bench import Bench
    from align.forward.isolation.isolate_layers import IsolatedLayers
    from align.forward.isolation.isolated_calls import IsolatedCall
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
        told = sentence("forward_finding.write", before=before, after=after, moves=0)
        is_there = culprit.line.endswith(f":{change.line}")
        line = culprit.line if is_there else shown_line(change.file, function.__module__, change.line)
        cause = culprit.cause or CODE_DIFFERS
        named = replace(culprit, cause=cause, sureness="confirmed", change=told, line=line, code=change)
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
