"""Both models on the same fixed inputs: every paired layer's difference, and where the port first goes wrong."""

from __future__ import annotations

import platform
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import align
from align.core.allowances import NOTHING
from align.core.comparisons import ForwardComparison
from align.core.findings import Finding
from align.core.names import NameMap
from align.core.progress import silent
from align.core.rename import NameRules
from align.core.untouched import SEED
from align.core.words import counted, some
from align.errors import CannotRunError, DestinationError, NothingInCommonError
from align.runs.mapfile import read_map
from align.runs.traces import TraceFolder, TraceWriter
from align.steps.allow import accept_deviations, check_allowances
from align.steps.amplify import with_amplification
from align.steps.apply_rules import check_shapes
from align.steps.calls import CalledModules
from align.steps.compare_traces import compare_traces, excuse_uncertain, first_divergence
from align.steps.compare_weights import compare_weights, meant_values
from align.steps.execution import CallOrder, in_execution_order
from align.steps.judge_forward import judge_forward
from align.steps.match_by_order import match_by_order
from align.steps.pair_calls import pair_calls
from align.steps.pair_ends import pair_true_ends
from align.workflows.explain_culprits import Weights, explain_culprits
from align.workflows.inputs import describe_inputs, read_inputs
from align.workflows.isolate_layers import Bench, isolate_layers
from align.workflows.map_parameters import match_sides
from align.workflows.measure_noise import measure_noise
from align.workflows.sides import Side, open_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.allowances import Allowances
    from align.core.comparisons import LayerComparison
    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.steps.pair_calls import CallPairs
    from align.workflows.measure_noise import Noise

STAGES = 7


def compare_forward(  # noqa: PLR0913 - one parameter an option
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    inputs: Path | str | Mapping[str, Array],
    name_map: NameMap | Path | str | None = None,
    traces: Path | None = None,
    allowances: Allowances = NOTHING,
    progress: Progress = silent,
) -> ForwardComparison:
    """Run two models on the same inputs in evaluation mode and compare every paired layer's output.

    A side is a live model, `module:function`, or what `align.open_side` returns for a model with its checkpoint.
    `inputs` are arrays by name, a file of them, or a function that returns them. Without `name_map` the two models
    are matched first. `traces` is a folder that keeps both traces; those of a run that fails stay beside it, as
    `traces.part`. `allowances` are limits of single layers, and deviations accepted for a reason. Raises
    NothingInCommonError if no layer pairs, UnusedPatternsError for an allowance that fits none.

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
    parameters = tuple(side.reader.read_parameters(side.model, side.label) for side in sides)
    paired = _name_map(name_map, *parameters)
    weights = _compare_weights(sides, paired)  # before the run: a MindSpore cell may rename its parameters in it
    with ExitStack() as stack:
        folder = _fresh(traces) or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="align-")))
        run = _run_both(sides, arrays, folder, progress)
        progress("forward", 4, STAGES)
        if name_map is None and not paired.complete:
            paired = _map_in_order(run, parameters, paired)
            weights = _compare_weights(sides, paired)
        calls = _pair(run, parameters, paired)
        check_allowances(allowances, calls.pairs)
        layers = _compare(run, calls, allowances)
        progress("forward", 5, STAGES)
        bench = Bench(sides[1], arrays, run.reference, calls.pairs, run.noise.isolated, allowances)
        alone = isolate_layers(bench)
        layers = tuple(replace(layer, isolated=alone.outputs.get(layer.key)) for layer in layers)
        progress("forward", 6, STAGES)
        culprits = explain_culprits(sides[0], bench, alone, weights.weights) if alone.faults else ()
        findings = (*run.noise.findings, *alone.findings, *_open_names(paired), *weights.findings)
        if traces is not None:
            _keep_traces(folder, traces)
        progress("forward", STAGES, STAGES)
    known = accept_deviations(layers, culprits, allowances.accepted)
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
        environment={side.reader.name: side.reader.environment() for side in sides} | {"host": _host()},
        verdict=judge_forward(known.layers, calls.unpaired, findings, known.culprits),
        culprits=known.culprits,
        accepted=known.accepted,
    )


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


def _name_map(given: NameMap | Path | str | None, source: ParameterSet, target: ParameterSet) -> NameMap:
    if isinstance(given, NameMap):
        return given
    if given is None:
        return match_sides(source, target, NameRules())
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map


def _host() -> dict[str, str]:
    versions = {"mindalign": align.__version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "seed": str(SEED)}


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


def _map_in_order(run: _Run, parameters: Sequence[ParameterSet], name_map: NameMap) -> NameMap:
    """Match what is open, with the order of the runs as evidence."""
    orders = [
        CallOrder({capture.module: capture.order for capture in reversed(trace.captures)})
        for trace in (run.reference, run.candidate)
    ]
    source, target = (in_execution_order(side, order) for side, order in zip(parameters, orders, strict=True))
    return match_by_order(name_map, source, target, NameRules())


def _open_names(name_map: NameMap) -> Iterator[Finding]:
    """Warn of parameters whose values were not compared, because nothing says which they are on the other side."""
    sides = {
        side: [one.name for one in name_map.unmatched if one.side == side]
        + [name for group in name_map.ambiguous for name in getattr(group, f"{side}s")]
        for side in ("source", "target")
    }
    for side, label in (("source", name_map.source), ("target", name_map.target)):
        if names := sides[side]:
            message = f"{counted(len(names), 'parameter')} not paired: {some(names)}"
            yield Finding("names-open", "warning", label, message)


def _pair(run: _Run, parameters: Sequence[ParameterSet], name_map: NameMap) -> CallPairs:
    left = CalledModules(run.reference.captures, parameters[0], name_map, "source")
    right = CalledModules(run.candidate.captures, parameters[1], name_map, "target")
    calls = pair_calls(left, right)
    if not calls.pairs:
        raise NothingInCommonError(parameters[0].label, parameters[1].label, "called layer")
    return pair_true_ends(calls, run.reference, run.candidate)


@dataclass(frozen=True, slots=True)
class _ComparedWeights:
    findings: tuple[Finding, ...]
    weights: Weights


def _compare_weights(sides: tuple[Side, Side], name_map: NameMap) -> _ComparedWeights:
    values = [side.reader.read_values(side.model) for side in sides]
    missing = [p.source for p in name_map.pairings if p.source not in values[0] or p.target not in values[1]]
    if missing:
        listed = ", ".join(missing[:5])
        raise CannotRunError(f"the models lack parameters of the name map: {listed}", "make the map again: align map")
    findings = compare_weights(values[0], values[1], name_map)
    meant = meant_values(values[0], values[1], name_map) if findings else {}
    return _ComparedWeights(findings, Weights(values[1], meant))
