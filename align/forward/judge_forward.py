"""From rows to a verdict: something must have been compared, and nothing compared may be off.

Of a port that raises, the verdict says where it did, and what the layers that ran before show. What the user accepts is
taken out of it, with what only carries that on; a precision that the user requires must be kept.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, rounded_as
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import NothingInCommonError, UnusedPatternsError, UserCodeError
from align.forward.forward_result import AcceptedLayers, ParameterPower, PortFailure, UnseenModule, matches_glob
from align.forward.thresholds import (
    LEAST_POWER_LIMIT,
    MOST_LISTED_PLACES,
    MOST_POWER_RUNS,
    MOST_PROBE_RUNS,
    MOST_UNSEEN_PARAMETERS,
    NO_GRADIENT,
    SUSPECT_PARAMETER_MOVE,
    WEAK_CHANGE,
)
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.traces.compare_weights import CODE as NEVER_GIVEN
from align.traces.open_trace import own_elements, uncalled_modules
from align.words.catalogue import sentence
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.name_map import SideOf
    from align.core.parameters import ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Limit, Trace
    from align.errors import ModelFailedError
    from align.forward.forward_result import (
        AcceptedDeviation,
        Allowances,
        Culprit,
        LayerComparison,
        ParameterState,
        UnseenState,
    )
    from align.models.open_side import Side
    from align.traces.module_calls import CallPair, CallPairs, UnpairedLayer


LAYER_OUTPUTS = "forward_unit.layer_outputs"


def judge_forward(
    layers: Sequence[LayerComparison],
    unpaired: Sequence[UnpairedLayer],
    findings: Sequence[Finding],
    culprits: Sequence[Culprit] = (),
    what: str | None = None,
) -> Verdict:
    """Aligned if all compared layers and the outputs are within their limits, none is at fault and no finding an error.

    Not compared if nothing was, or if the outputs of the two models could not be compared with each other. `what` is
    what was compared of each layer, its output by default.
    """
    what = sentence(LAYER_OUTPUTS) if what is None else what
    compared = [layer for layer in layers if layer.outcome in ("aligned", "not aligned")]
    wrong = [layer for layer in compared if layer.outcome == "not aligned"]
    coverage = Coverage(
        what,
        len(compared),
        len(layers) - len(compared),
        sum(one.side == "reference" for one in unpaired),
        sum(one.side == "candidate" for one in unpaired),
    )
    errors = [finding for finding in findings if finding.severity == "error"]
    never_given = next((finding for finding in errors if finding.code == NEVER_GIVEN), None)
    if never_given and compared:
        return Verdict(Outcome.NOT_ALIGNED, never_given.message, coverage)
    if wrong:
        blamed = {(culprit.candidate, culprit.call) for culprit in culprits}
        first = _named(next((layer for layer in wrong if (layer.candidate, layer.call) in blamed), wrong[0]))
        counts = {"count": len(wrong), "total": len(compared)}
        return Verdict(
            Outcome.NOT_ALIGNED, sentence("forward_verdict.layers_differ", **counts, what=what, first=first), coverage
        )
    if culprits and compared:
        reason = sentence("forward_verdict.parts_differ", count=len(culprits), first=_culprit(culprits[0]))
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if errors and compared:
        return Verdict(Outcome.NOT_ALIGNED, _errors(errors), coverage)
    outputs = [layer for layer in layers if not layer.reference and not _is_empty_on_both(layer)]
    if not compared or not outputs or any(layer.outcome == "not comparable" for layer in outputs):
        note = next((one.note for one in outputs if one.outcome == "not comparable" and one.note), "")
        key = "forward_verdict.outputs_not_compared" if compared else "forward_verdict.no_layer_compared"
        return Verdict(Outcome.NOT_COMPARED, sentence(key, note=note), coverage)
    accepted = sum(layer.outcome == "accepted" for layer in layers)
    reason = sentence("forward_verdict.layers_agree", count=len(compared), what=what, accepted=accepted)
    return Verdict(Outcome.ALIGNED, reason, coverage)


def no_part_at_fault(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], labels: tuple[str, str]
) -> Iterator[Finding]:
    """Say what was looked for where layers differ and none is at fault by itself, and what to run next.

    `layers` are judged alone too, as far as they can be.
    """
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    if culprits or not wrong:
        return
    alone = [layer.isolated for layer in layers if layer.isolated and layer.isolated.factor is not None]
    largest = max((one.factor or 0.0 for one in alone), default=0.0)
    message = sentence(
        "forward_finding.no_part_at_fault",
        count=len(alone),
        largest=largest,
        unjudged=len(layers) - len(alone),
        next_command=_bisection(labels, wrong[0].batches),
    )
    yield Finding("no-part-at-fault", "note", wrong[0].candidate or labels[1], message)


def _bisection(labels: tuple[str, str], batches: int) -> str:
    """What to run next: a command only if both labels are what it takes; models at hand have the names of classes."""
    if not all(":" in label for label in labels):
        return sentence("forward_next.bisect_models", batches=batches > 1)
    command = shlex.join(["align", "bisect", *labels])
    return sentence("forward_next.bisect_one_batch" if batches > 1 else "forward_next.bisect", command=command)


def _errors(errors: Sequence[Finding]) -> str:
    first = errors[0]
    facts = {"subject": first.subject, "message": first.message, "code": first.code}
    if len(errors) == 1:
        return sentence("forward_verdict.one_error", **facts)
    return sentence("forward_verdict.several_errors", count=len(errors), **facts)


def _is_empty_on_both(layer: LayerComparison) -> bool:
    return layer.reference_shape == layer.candidate_shape and 0 in layer.reference_shape


def _culprit(culprit: Culprit) -> str:
    name = culprit.candidate or sentence("model_part.model_itself")
    batch = culprit.facts.get("batch", "")
    return sentence("forward_place.culprit", name=name, class_name=culprit.candidate_class, batch=batch)


def _named(layer: LayerComparison) -> str:
    mine, theirs = (name or sentence("model_part.output") for name in (layer.reference, layer.candidate))
    return sentence(
        "forward_place.pair",
        reference=mine,
        reference_class=layer.reference_class,
        candidate=theirs,
        candidate_class=layer.candidate_class,
        batch=layer.batch,
        batches=layer.batches,
    )


def read_failure(error: ModelFailedError) -> PortFailure:
    """Take an error apart."""
    place = error.failure
    return PortFailure(place.layer, place.class_name, place.after, place.line, error.kind, error.happened, error.hint)


def failure_finding(error: ModelFailedError, label: str) -> Finding:
    """Say where the port raised and what to do, as an error: nothing behind it was compared."""
    message = sentence("forward_finding.candidate_failed", error=error.message, hint=error.hint)
    return Finding("candidate-failed", "error", error.layer or label, message)


def paired_until(failure: ModelFailedError | None, pair: Callable[[], CallPairs], reference: Trace) -> CallPairs:
    """What `pair` gives; of a run that a failure ended, without the calls of the reference behind its last pair.

    Where there is no pair, the failure is all that is known: it is raised.
    """
    if failure is None:
        return pair()
    try:
        calls = pair()
    except NothingInCommonError:
        raise failure from failure.__cause__
    order = {(one.module, one.call): one.order for one in reference.captures}
    last = max(order[pair.reference.module, pair.reference.call] for pair in calls.pairs)
    reached = (one for one in calls.unpaired if one.side == "candidate" or order.get((one.module, one.call), 0) <= last)
    return replace(calls, unpaired=tuple(reached))


def judge_until_failure(
    layers: Sequence[LayerComparison], unpaired: Sequence[UnpairedLayer], error: ModelFailedError
) -> Verdict:
    """Not compared, whatever ran before; the reason says how that compares."""
    coverage = judge_forward(layers, unpaired, ()).coverage
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    before = sentence("forward_verdict.agree_before", count=coverage.compared)
    if wrong:
        first = {"layer": wrong[0].candidate, "class_name": wrong[0].candidate_class}
        before = sentence("forward_verdict.differ_before", total=coverage.compared, count=len(wrong), **first)
    where, error_line = error.failure.where, error.happened.partition("\n")[0]
    reason = sentence("forward_verdict.port_failed", where=where, error=error_line, before=before)
    return Verdict(Outcome.NOT_COMPARED, reason, coverage)


@dataclass(frozen=True, slots=True)
class Deviations:
    """Layers with their outcome after acceptance, the culprits that are left, and what was accepted."""

    layers: tuple[LayerComparison, ...]
    culprits: tuple[Culprit, ...]
    accepted: tuple[AcceptedLayers, ...]


def check_allowances(allowances: Allowances, pairs: Sequence[CallPair]) -> None:
    """Raise UnusedPatternsError naming every glob that fits no layer, with the paths that come closest."""
    paths = sorted({call.module for pair in pairs for call in (pair.reference, pair.candidate)})
    if unused := list(allowances.unused(paths)):
        raise UnusedPatternsError(close_names(unused, paths))


def accept_deviations(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], accepted: Sequence[AcceptedDeviation]
) -> Deviations:
    """Call accepted what the user accepts, and what is right alone after it if nothing else is at fault."""
    listed = [_listed(one, layers) for one in accepted]
    left = tuple(one for one in culprits if not _reason(one, accepted))
    judged = [
        replace(row, outcome="accepted", note=reason) if (reason := _off(row, accepted)) else row for row in layers
    ]
    first = next((place for place, row in enumerate(judged) if row.outcome == "accepted"), len(judged))
    if not left:
        carried = sentence("forward_note.carries_accepted_on")
        judged[first:] = [
            replace(row, outcome="accepted", note=carried) if _is_carried(row) else row for row in judged[first:]
        ]
    return Deviations(tuple(judged), left, tuple(listed))


def _listed(one: AcceptedDeviation, layers: Sequence[LayerComparison]) -> AcceptedLayers:
    off = [row for row in layers if _off(row, [one])]
    factors = [row.factor for row in off if row.factor is not None]
    return AcceptedLayers(
        one.layers, one.reason, tuple(dict.fromkeys(row.candidate for row in off)), max(factors, default=None)
    )


def _off(row: LayerComparison, accepted: Sequence[AcceptedDeviation]) -> str:
    alone = row.isolated is not None and row.isolated.outcome == "not aligned"
    return _reason(row, accepted) if alone or row.outcome == "not aligned" else ""


def _reason(one: LayerComparison | Culprit, accepted: Sequence[AcceptedDeviation]) -> str:
    return next((rule.reason for rule in accepted if matches_glob(rule.layers, one.reference, one.candidate)), "")


def _is_carried(row: LayerComparison) -> bool:
    """Right alone, or a module whose inside is."""
    alone = row.isolated
    right = alone is not None and (
        alone.outcome == "aligned" or (alone.outcome == "not comparable" and not row.certain)
    )
    return row.outcome == "not aligned" and right


def coarser_layers(captures: Sequence[Capture], required: str) -> Iterator[Finding]:
    """An error that names the first of the candidate's layers that returns a coarser dtype; none asked for: nothing.

    `captures` are all that its layers returned, with a counterpart or without.
    """
    if not required:
        return
    coarser = [one for one in captures if EPSILON.get(rounded_as(one.dtype), 0.0) > EPSILON[required]]
    if coarser:
        first = coarser[0]
        message = sentence(
            "forward_finding.precision_too_coarse", count=len(coarser), required=required, dtype=first.dtype
        )
        place = first.module or sentence("model_part.output")
        yield Finding("precision-too-coarse", "error", place, message)


# Modules with parameters of which no call was seen: run past their hooks, or never called.
#
# Where they hold most of a model, agreeing outputs are all that was compared: that is no agreement layer by layer.
# Whether they have an effect shows when their parameters are changed, and the model is run.

_KEYS: dict[UnseenState, str] = {
    "bypassed": "forward_finding.modules_bypassed",
    "never called": "forward_finding.modules_never_called",
    "not seen": "forward_finding.modules_not_seen",
}


def unseen_modules(side: SideOf, parameters: ParameterSet, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules of a side that its run does not show, in their order."""
    return tuple(
        UnseenModule(side, module.path, module.class_name, own_elements(module, parameters))
        for module in uncalled_modules(parameters, trace)
    )


def unseen_findings(unseen: Iterable[UnseenModule], label: str) -> Iterator[Finding]:
    """One finding for each state, which names the first modules and counts all."""
    for state, key in _KEYS.items():
        own = [one for one in unseen if one.state == state]
        if own:
            listed = [f"{one.module} ({one.class_name})" for one in own[:MOST_LISTED_PLACES]]
            message = sentence(key, count=len(own), modules=listed, more=len(own) - len(listed))
            facts: dict[str, float | int | str] = {"elements": sum(one.elements for one in own)}
            yield Finding(f"modules-{state.replace(' ', '-')}", "warning", label, message, facts)


def with_unseen(verdict: Verdict, unseen: Sequence[UnseenModule], sides: Iterable[ParameterSet]) -> Verdict:
    """The verdict, with "aligned" taken back where most parameters of a side are in modules that were not seen."""
    for side, parameters in zip(("reference", "candidate"), sides, strict=True):
        own = [one for one in unseen if one.side == side]
        hidden = sum(one.elements for one in own)
        share = hidden / max(sum(own_elements(module, parameters) for module in parameters.modules), 1)
        if verdict.outcome is Outcome.ALIGNED and share > MOST_UNSEEN_PARAMETERS:
            names = [one.module for one in own]
            reason = sentence("forward_verdict.modules_unseen", share=share, side=side, modules=names)
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=reason)
    return verdict


def probe_unseen(role: SideOf, side: Side, inputs: Inputs, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules that a run did not show, with what a change of their parameters shows; () for a compiled side."""
    if side.compiled:
        return ()
    parameters = side.reader.read_parameters(side.model, side.label)  # a run may rename them
    unseen = unseen_modules(role, parameters, trace)
    if not unseen:
        return ()
    probe = _Probe(side, inputs, trace, parameters)
    together = probe.state(unseen)
    if together != "bypassed" or len(unseen) == 1:
        return tuple(replace(one, state=together) for one in unseen)
    states: list[UnseenState] = [probe.state([one]) for one in unseen[: MOST_PROBE_RUNS - 1]]
    states += ["not seen"] * (len(unseen) - len(states))
    return tuple(replace(one, state=state) for one, state in zip(unseen, states, strict=True))


class _Probe:
    """Runs a side with parameters changed by their own size; it has its values back afterwards."""

    def __init__(self, side: Side, inputs: Inputs, trace: Trace, parameters: ParameterSet) -> None:
        self._side, self._inputs, self._trace, self._parameters = side, inputs, trace, parameters
        self._modules = {module.path: module for module in parameters.modules}
        self._values = side.reader.read_values(side.model)

    def state(self, modules: Sequence[UnseenModule]) -> UnseenState:
        """What a run says of these modules, all changed together."""
        reader, known = self._side.reader, self._parameters.by_name
        names = {name for one in modules for name in self._modules[one.module].parameters}
        masks = {name: self._values[name] == self._values[name] for name in names & self._values.keys()}
        new = perturb_elements(self._values, masks)
        first = {name: known[name].tied_to or name for name in self._values}
        sink = _ChangedOutputs(self._trace)
        reader.load_values(self._side.model, {name: new[first[name]] for name in self._values})
        try:
            self._side.runner.run(self._side.model, self._inputs, sink)
        except UserCodeError:
            return "not seen"
        finally:
            reader.load_values(self._side.model, self._values)
        return "bypassed" if sink.changed else "never called"


class _ChangedOutputs:
    """A CaptureSink that finds whether any tensor is not what it was, by more than rounding of its dtype."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._earlier = {capture.key: capture for capture in trace.captures}
        self.changed = False

    def add(self, capture: Capture, value: Array) -> None:
        """Compare one capture."""
        same = self._earlier.get(capture.key)
        if self.changed or same is None:
            return
        self.changed = same.shape != capture.shape or self._moved(same, value) > 1.0

    def _moved(self, same: Capture, value: Array) -> float:
        measurement = measure(self._trace.value(same), value)
        return smallest_factor(measurement, limit_for(measurement, (same.dtype, same.dtype), None))


# Which parameters compared tensors show, and from which change on: suspects by gradient, condemned by a run.
#
# One backward pass from a random mix of all compared tensors, each in units of its limit, gives the root of the sum
# of squares of what a change moves. The largest is at least that divided by the root of the number of tensors: from
# there on a change shows. Where no gradient arrives it need not show, but may: a router chooses without one. So
# suspects are changed, and run.

_SEED = 1  # no limit: of its own generator


def tensor_scales(trace: Trace, limits: Mapping[str, Limit]) -> dict[str, float]:
    """Scale of each compared tensor by its key: in that unit its difference has length 1 at the limit."""
    compared = [capture for capture in trace.captures if capture.key in limits and rounded_as(capture.dtype)]
    return {c.key: (limits[c.key].rmse or LEAST_POWER_LIMIT) * sqrt(prod(c.shape)) for c in compared if prod(c.shape)}


def parameter_rms(value: Array) -> float:
    """Root mean square of a parameter; 1 for one that is all zero or empty, of which no change is relative."""
    return float(np.sqrt(np.mean(np.square(np.abs(value).astype(np.float64))))) or 1.0 if value.size else 1.0


def suspect_elements(values: Mapping[str, Array], gradients: Mapping[str, Array]) -> dict[str, NDArray[np.bool_]]:
    """Mask, by parameter, of the elements that seem to move nothing, for parameters that have such."""
    masks = {name: _seems_blind(np.abs(gradient), parameter_rms(values[name])) for name, gradient in gradients.items()}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _seems_blind(gradient: Array, size: float) -> NDArray[np.bool_]:
    largest = float(gradient.max(initial=0.0))
    threshold = largest if largest * size < SUSPECT_PARAMETER_MOVE else largest * NO_GRADIENT * (gradient.ndim == 1)
    blind: NDArray[np.bool_] = gradient <= threshold
    return blind


def perturb_elements(values: Mapping[str, Array], masks: Mapping[str, NDArray[np.bool_]]) -> dict[str, Array]:
    """The values with the masked elements changed at random by the size of their parameter."""
    generator = np.random.default_rng(_SEED)
    steps = {name: parameter_rms(values[name]) * generator.standard_normal(mask.shape) for name, mask in masks.items()}
    return {
        name: np.where(masks[name], value + steps[name], value).astype(value.dtype) if name in masks else value
        for name, value in values.items()
    }


def names_without_effect(names: Sequence[str], has_effect: Callable[[Sequence[str]], bool]) -> set[str]:
    """All names, if they have no effect together, else those of each half; MOST_POWER_RUNS trials at most."""
    found: set[str] = set()
    groups = [names]
    for _ in range(MOST_POWER_RUNS):
        if not groups:
            break
        group = groups.pop(0)
        if group and has_effect(group):
            half = len(group) // 2
            groups += [group[:half], group[half:]] if half else []
        else:
            found |= set(group)
    return found


def parameter_powers(
    values: Mapping[str, Array],
    gradients: Mapping[str, Array],
    blind: Mapping[str, NDArray[np.bool_]],
    tensors: int,
) -> Iterator[ParameterPower]:
    """Yield one row for each parameter with elements; `tensors` is the number of compared ones."""
    for name, gradient in gradients.items():
        if gradient.size:
            moved = parameter_rms(values[name]) * float(np.linalg.norm(gradient))
            shows_at = sqrt(tensors) / moved if moved > SUSPECT_PARAMETER_MOVE else None
            count = int(np.count_nonzero(blind[name])) if name in blind else 0
            yield ParameterPower(name, gradient.size, count, shows_at, _state(count, gradient.size, shows_at))


def _state(blind: int, elements: int, shows_at: float | None) -> ParameterState:
    if blind == elements:
        return "blind"
    if shows_at is None:
        return "unknown"
    if shows_at > WEAK_CHANGE:
        return "weakly seen"
    return "partly blind" if blind else "seen"
