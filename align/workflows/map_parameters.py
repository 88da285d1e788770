"""The name map of two models: which parameter of the one is which of the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.comparisons import MapResult
from align.core.names import FRAMEWORKS
from align.core.parameters import summarize_parameters
from align.core.rename import NameRules
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import NothingInCommonError
from align.runs.mapfile import read_rules, write_map
from align.steps.execution import CallOrder, in_execution_order
from align.steps.match import match_names
from align.workflows.inputs import read_inputs
from align.workflows.sides import Side, open_side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.names import FrameworkName, NameMap
    from align.core.parameters import ParameterSet
    from align.core.protocols import Model


def map_parameters(
    reference: str | Model,
    candidate: str | Model,
    *,
    rules: Path | str | None = None,
    inputs: Path | str | Mapping[str, Array] | None = None,
    out: Path | str | None = None,
) -> MapResult:
    """Map the parameters of two models, each live or given as `module:function`.

    `rules` is a map file whose lines are never overruled. With `inputs` both models run once, and the order of
    execution becomes evidence. `out` receives the editable map file. Raises NothingInCommonError if nothing pairs.

    >>> import numpy as np
    >>> from align.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.ones((2, 3))}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda x, weight: x @ weight.T, weights),))
    >>> result = map_parameters(model("fc", "torch.nn.Linear"), model("head.dense", "mindspore.nn.Dense"))
    >>> [(pair.source, pair.target) for pair in result.name_map.pairings]
    [('fc.weight', 'head.dense.weight')]
    """
    told = read_rules(Path(rules)) if rules else NameRules()
    given = read_inputs(inputs) if inputs is not None else None
    sides = open_side(reference), open_side(candidate)
    source, target = read_parameters(sides, given)
    name_map = match_sides(source, target, told)
    if out is not None:
        write_map(Path(out), name_map)
    counts = summarize_parameters(source), summarize_parameters(target)
    return MapResult(name_map, *counts, _verdict(name_map), source.parameters, target.parameters)


def read_parameters(sides: tuple[Side, Side], inputs: Mapping[str, Array] | None) -> tuple[ParameterSet, ParameterSet]:
    """Read both sides' parameters; with inputs to run them on, in execution order where it is known on both."""
    source, target = (side.reader.read_parameters(side.model, side.label) for side in sides)
    if inputs is None:
        return source, target
    executed = _executed(sides[0], source, inputs), _executed(sides[1], target, inputs)
    return executed if executed[0].order == executed[1].order else (source, target)


def _executed(side: Side, parameters: ParameterSet, inputs: Mapping[str, Array]) -> ParameterSet:
    order = CallOrder()
    side.runner.run(side.model, inputs, order)
    return in_execution_order(parameters, order)


def match_sides(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Match two sides; raises NothingInCommonError if not a single parameter pairs or might pair."""
    name_map = replace(match_names(source, target, rules), frameworks=(_known(source), _known(target)))
    if not name_map.pairings and not name_map.ambiguous:
        raise NothingInCommonError(source.label, target.label, "parameter")
    return name_map


def _known(side: ParameterSet) -> FrameworkName | None:
    return FRAMEWORKS.get(side.framework or "")


def _verdict(name_map: NameMap) -> Verdict:
    unmatched = [sum(one.side == side for one in name_map.unmatched) for side in ("source", "target")]
    unsettled = [sum(len(names) for names in groups) for groups in _ambiguous_names(name_map)]
    left, right = unmatched[0] + unsettled[0], unmatched[1] + unsettled[1]
    coverage = Coverage("parameters", len(name_map.pairings), len(name_map.dropped), left, right)
    if name_map.complete:
        reason = f"all parameters are paired, {len(name_map.dropped)} are dropped with a reason"
        return Verdict(Outcome.ALIGNED, reason, coverage)
    reason = f"{left} parameters of {name_map.source} and {right} of {name_map.target} are not paired"
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)


def _ambiguous_names(name_map: NameMap) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    return [group.sources for group in name_map.ambiguous], [group.targets for group in name_map.ambiguous]
