"""Both models on the same fixed inputs: every paired layer's difference, and where the port first goes wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from align.core.allowances import NOTHING
from align.core.comparisons import ForwardComparison
from align.core.progress import silent
from align.core.verdicts import Outcome
from align.steps.allow import accept_deviations, check_allowances
from align.steps.amplify import with_amplification
from align.steps.compare_traces import compare_traces, excuse_uncertain, first_divergence
from align.steps.judge_forward import judge_forward
from align.steps.judge_power import with_power
from align.workflows.compare_live_weights import compare_live_weights
from align.workflows.describe_host import describe_host
from align.workflows.explain_culprits import explain_culprits
from align.workflows.inputs import describe_inputs, read_inputs
from align.workflows.isolate_layers import Bench, isolate_layers
from align.workflows.measure_power import power_of
from align.workflows.pair_traces import choose_map, map_in_order, open_names, pair_traces
from align.workflows.refuse_random import refuse_random
from align.workflows.run_both import kept_traces, run_both
from align.workflows.sides import environments, open_side, unseen_layers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.allowances import Allowances
    from align.core.comparisons import LayerComparison
    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.names import NameMap
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.steps.pair_calls import CallPairs
    from align.workflows.run_both import BothRuns
    from align.workflows.sides import Side

STAGES = 8


def compare_forward(  # noqa: PLR0913 - one parameter an option
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    inputs: Path | str | Mapping[str, Array],
    name_map: NameMap | Path | str | None = None,
    traces: Path | None = None,
    allowances: Allowances = NOTHING,
    power: bool = True,
    progress: Progress = silent,
) -> ForwardComparison:
    """Run two models on the same inputs in evaluation mode and compare every paired layer's output.

    A side is a live model, `module:function`, or what `align.open_side` returns for a model with its checkpoint.
    `inputs` are arrays by name, a file of them, or a function that returns them. Without `name_map` the two models
    are matched first. `traces` is a folder that keeps both traces; those of a run that fails stay beside it, as
    `traces.part`. `allowances` are limits of single layers, and deviations accepted for a reason. `power` measures
    whether models that agree could have differed. Raises NothingInCommonError if no layer pairs, UnusedPatternsError
    for an allowance that fits none, CannotRunError for a model that differs and draws random numbers.

    >>> import numpy as np
    >>> from align.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.ones((2, 3), np.float32)}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda x, weight: x @ weight.T, weights),))
    >>> twins = model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense")
    >>> compare_forward(*twins, inputs={"x": np.ones((4, 3), np.float32)}).verdict.outcome.value
    'aligned'
    """
    sides = open_side(reference), open_side(candidate)
    arrays = read_inputs(inputs)
    stages = count(1)

    def begun() -> None:
        progress("forward", next(stages), STAGES)

    parameters = _parameters(sides[0]), _parameters(sides[1])
    paired = choose_map(name_map, parameters)
    owners = {one.name: one.module for one in parameters[1].parameters}
    weights = compare_live_weights(sides, owners, paired)
    with kept_traces(traces) as folder:
        run = run_both(sides, arrays, folder, begun)
        begun()
        if name_map is None and not paired.complete:
            paired = map_in_order(run.traces, parameters, paired)
            weights = compare_live_weights(sides, owners, paired)
        calls = pair_traces(run.traces, parameters, paired)
        check_allowances(allowances, calls.pairs)
        layers = _compare(run, calls, allowances)
        if any(layer.outcome == "not aligned" for layer in layers):
            for side, trace in zip(sides, run.traces, strict=True):
                refuse_random(side, arrays, trace)
        begun()
        bench = Bench(sides[1], arrays, run.reference, calls.pairs, run.noise.isolated, allowances)
        alone = isolate_layers(bench)
        layers = tuple(replace(layer, isolated=alone.outputs.get(layer.key)) for layer in layers)
        begun()
        culprits = explain_culprits(sides[0], bench, alone, weights.weights) if alone.faults else ()
        findings = (
            *run.noise.findings,
            *unseen_layers(*sides),
            *alone.findings,
            *open_names(paired),
            *weights.findings,
        )
        known = accept_deviations(layers, culprits, allowances.accepted)
        verdict = judge_forward(known.layers, calls.unpaired, findings, known.culprits)
        begun()
        agree = verdict.outcome is Outcome.ALIGNED
        shown = power_of(sides[0], arrays, run.reference, _limits(known.layers)) if power and agree else None
    progress("forward", STAGES, STAGES)
    first, last = first_divergence(known.layers)
    return ForwardComparison(
        reference=sides[0].label,
        candidate=sides[1].label,
        layers=known.layers,
        first_divergent=first,
        last_aligned=last,
        unpaired=calls.unpaired,
        findings=findings,
        inputs=describe_inputs(arrays),
        environment=environments(*sides) | {"host": describe_host()},
        verdict=with_power(verdict, shown) if shown else verdict,
        culprits=known.culprits,
        accepted=known.accepted,
        power=shown,
    )


def _parameters(side: Side) -> ParameterSet:
    return side.reader.read_parameters(side.model, side.label)


def _compare(run: BothRuns, calls: CallPairs, allowances: Allowances) -> tuple[LayerComparison, ...]:
    rows = [*compare_traces(*run.traces, calls.pairs, run.noise.accumulated, allowances)]
    return with_amplification(excuse_uncertain(rows), *run.traces)


def _limits(layers: Sequence[LayerComparison]) -> dict[str, Limit]:
    """Limits by key of what agrees; for those that the user gave, the user answers."""
    return {
        one.key: one.limit for one in layers if one.limit and one.limit.source != "user" and one.outcome == "aligned"
    }
