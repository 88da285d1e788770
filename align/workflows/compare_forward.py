"""Both models on the same fixed inputs: every paired layer's difference, and where the port first goes wrong."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.allowances import NOTHING
from align.core.comparisons import ForwardComparison
from align.core.progress import silent
from align.core.verdicts import Outcome
from align.errors import DestinationError
from align.runs.traces import TraceFolder, TraceWriter
from align.steps.allow import accept_deviations, check_allowances
from align.steps.amplify import with_amplification
from align.steps.compare_traces import compare_traces, excuse_uncertain, first_divergence
from align.steps.compare_weights import compare_weights, meant_values
from align.steps.hypotheses_weights import weight_causes
from align.steps.judge_forward import judge_forward
from align.steps.judge_power import with_power
from align.workflows.describe_host import describe_host
from align.workflows.explain_culprits import Weights, explain_culprits
from align.workflows.inputs import describe_inputs, read_inputs
from align.workflows.isolate_layers import Bench, isolate_layers
from align.workflows.measure_noise import measure_noise
from align.workflows.measure_power import power_of
from align.workflows.pair_traces import choose_map, map_in_order, open_names, pair_traces
from align.workflows.refuse_random import refuse_random
from align.workflows.sides import Side, environments, open_side, unseen_layers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.allowances import Allowances
    from align.core.comparisons import LayerComparison
    from align.core.dtypes import Array
    from align.core.findings import Finding
    from align.core.hypotheses import Fact, Hypothesis
    from align.core.measurements import Limit
    from align.core.names import NameMap
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.steps.pair_calls import CallPairs
    from align.workflows.measure_noise import Noise

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
    parameters = _parameters(sides[0]), _parameters(sides[1])
    paired = choose_map(name_map, parameters)
    owners = {one.name: one.module for one in parameters[1].parameters}
    weights = _compare_weights(
        sides, owners, paired
    )  # before the run: a MindSpore cell may rename its parameters in it
    with ExitStack() as stack:
        folder = _fresh(traces) or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="align-")))
        run = _run_both(sides, arrays, folder, progress)
        progress("forward", 4, STAGES)
        if name_map is None and not paired.complete:
            paired = map_in_order((run.reference, run.candidate), parameters, paired)
            weights = _compare_weights(sides, owners, paired)
        calls = pair_traces((run.reference, run.candidate), parameters, paired)
        check_allowances(allowances, calls.pairs)
        layers = _compare(run, calls, allowances)
        if any(layer.outcome == "not aligned" for layer in layers):
            for side, trace in zip(sides, (run.reference, run.candidate), strict=True):
                refuse_random(side, arrays, trace)
        progress("forward", 5, STAGES)
        bench = Bench(sides[1], arrays, run.reference, calls.pairs, run.noise.isolated, allowances)
        alone = isolate_layers(bench)
        layers = tuple(replace(layer, isolated=alone.outputs.get(layer.key)) for layer in layers)
        progress("forward", 6, STAGES)
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
        progress("forward", 7, STAGES)
        agree = verdict.outcome is Outcome.ALIGNED
        shown = power_of(sides[0], arrays, run.reference, _limits(known.layers)) if power and agree else None
        if traces is not None:
            _keep_traces(folder, traces)
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


@dataclass(frozen=True, slots=True)
class _Run:
    reference: TraceFolder
    candidate: TraceFolder
    noise: Noise


def _run_both(sides: tuple[Side, Side], inputs: Mapping[str, Array], folder: Path, progress: Progress) -> _Run:
    read = []
    for number, (side, name) in enumerate(zip(sides, ("reference", "candidate"), strict=True)):
        progress("forward", number + 1, STAGES)
        with TraceWriter(folder / name, side.reader.environment(), inputs=True) as writer:
            side.runner.run(side.model, inputs, writer)
        read.append(TraceFolder(folder / name))
    progress("forward", 3, STAGES)
    return _Run(read[0], read[1], measure_noise(sides[0], inputs, read[0]))


def _compare(run: _Run, calls: CallPairs, allowances: Allowances) -> tuple[LayerComparison, ...]:
    rows = [*compare_traces(run.reference, run.candidate, calls.pairs, run.noise.accumulated, allowances)]
    return with_amplification(excuse_uncertain(rows), run.reference, run.candidate)


def _limits(layers: Sequence[LayerComparison]) -> dict[str, Limit]:
    """Limits by key of what agrees; for those that the user gave, the user answers."""
    return {
        one.key: one.limit for one in layers if one.limit and one.limit.source != "user" and one.outcome == "aligned"
    }


def _fresh(traces: Path | None) -> Path | None:
    """Empty the folder beside `traces` in which a run leaves its traces until it came to its end."""
    if traces is None:
        return None
    if traces.exists() and not traces.is_dir():
        raise DestinationError(
            f"cannot write the trace {traces}: it is not a folder", "remove it, or name another run folder"
        )
    part = traces.with_name(f"{traces.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    return part


def _keep_traces(part: Path, traces: Path) -> None:
    shutil.rmtree(traces, ignore_errors=True)
    part.rename(traces)


@dataclass(frozen=True, slots=True)
class _ComparedWeights:
    findings: tuple[Finding, ...]
    weights: Weights


def _compare_weights(sides: tuple[Side, Side], owners: Mapping[str, str], name_map: NameMap) -> _ComparedWeights:
    """`owners` are the paths of the candidate's modules by the names of their parameters."""
    values = [side.reader.read_values(side.model) for side in sides]
    findings = compare_weights(values[0], values[1], name_map)
    if not findings:
        return _ComparedWeights((), Weights(values[1]))
    causes = weight_causes(values[0], values[1], name_map)
    told = (
        replace(one, facts={**one.facts, **_told(causes.get(one.subject.rpartition(" -> ")[2]))}) for one in findings
    )
    by_module = {owners[name]: cause for name, cause in causes.items() if name in owners}
    meant = meant_values(values[0], values[1], name_map)
    modules = frozenset(owners[name] for name in meant if name in owners)
    return _ComparedWeights(tuple(told), Weights(values[1], meant, modules, by_module))


def _told(cause: Hypothesis | None) -> dict[str, Fact]:
    return {"cause": cause.id, **cause.facts} if cause else {}
