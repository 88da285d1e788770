"""Wrong code with one expression written otherwise: what ends the fault, and makes nothing worse, is what to write.

The live function runs with the change, on right values around it, as every other trial does. Nothing is written.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import islice
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.forward.functions.edits_to_try import WrongCode, edits_to_try
from align.forward.thresholds import MOST_TRIED_EDITS
from align.models.edited_code import changed_line, edited
from align.models.source_lines import function_source, own_classes, shown_line
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
    from align.traces.module_calls import CallKey

    Calls = Mapping[CallKey, IsolatedCall]

CODE_DIFFERS = "code-differs"


def try_edits(bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect], budget: Budget) -> tuple[Suspect, ...]:
    """Name the change of a single expression that mends a suspect, as far as the time goes."""
    return tuple(_tried(bench, alone, one, budget) if one.culprit.sureness != "confirmed" else one for one in suspects)


def _tried(bench: Bench, alone: IsolatedLayers, suspect: Suspect, budget: Budget) -> Suspect:
    for function, change in islice(edits_to_try(_wrong_code(bench.side.model, suspect)), MOST_TRIED_EDITS):
        if budget.is_spent:
            break
        with edited(function, change) as is_edited:
            run = bench.run(alone.way) if is_edited else None
        if run is None or run.failed or not suspect.is_mended(run.calls) or _is_worse(run.calls, alone.calls):
            continue
        culprit = suspect.culprit
        before, after = changed_line(function, change)
        told = sentence("forward_finding.write", before=before, after=after)
        line = shown_line(change.file, function.__module__, change.line)
        cause = culprit.cause or CODE_DIFFERS
        named = replace(culprit, cause=cause, sureness="confirmed", change=told, line=line, code=change)
        return replace(suspect, culprit=named)
    return suspect


def _is_worse(after: Calls, before: Calls) -> bool:
    """Tell whether a tensor is off that was right without the change, or one that was compared is compared no more."""
    for key, call in before.items():
        other = after.get(key)
        if other is None:
            return True
        for was, now in ((call.inputs, other.inputs), (call.outputs, other.outputs)):
            right = [name for name, one in was.items() if one.factor <= 1.0]
            if any(name not in now or now[name].factor > 1.0 for name in right):
                return True
    return False


def _wrong_code(model: Model, suspect: Suspect) -> WrongCode:
    """The code around what is wrong: of the module itself, and for inputs of the one that makes them."""
    culprit = suspect.culprit
    path = culprit.candidate.rpartition(".")[0] if culprit.part == "inputs" else culprit.candidate
    lines = (culprit.inside.lines if culprit.inside else (culprit.line,)) if culprit.line or culprit.inside else ()
    numbers = frozenset(int(one.rpartition(":")[2]) for one in lines if one)
    return WrongCode(tuple(_functions(model, path)), culprit.cause, culprit.facts, numbers)


def _functions(model: Any, path: str) -> Iterator[tuple[FunctionType, ast.AST]]:
    """The methods of the module at a path, or of the first around it that has code of a user's own."""
    layer = reduce(lambda holder, name: getattr(holder, name, None), path.split(".") if path else [], model)
    classes = own_classes(layer)
    if not classes and path:
        yield from _functions(model, path.rpartition(".")[0])
    for cls in classes:
        for value in vars(cls).values():
            function = getattr(value, "__wrapped__", value)
            source = function_source(function) if isinstance(function, FunctionType) else None
            if source is not None and source.node.name != "__init__":
                yield function, source.node
