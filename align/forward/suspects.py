"""What is at fault, one suspect for each module and part, and what is known of its cause: never more than was seen.

Where neither settings nor weights tell a cause, the data of the fault may suggest one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from align.forward.forward_result import Culprit
from align.forward.locate_faults import applied_inside
from align.forward.relations.layer_relations import explain_layer
from align.forward.settings_to_try import changes_for
from align.forward.thresholds import MOST_OTHER_TENSORS, MOST_TENSORS_BEFORE
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import only_layout
from align.models.calls_in_code import called_at, probed_at
from align.models.function_source import defined_at
from align.models.probe import is_probe, probe_name
from align.models.source_lines import made_at
from align.rules.layer_rules import role_of
from align.traces.module_calls import call_key
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import Limit, Trace
    from align.forward.forward_result import FunctionFault
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolated_calls import IsolatedCall, IsolatedTensor
    from align.forward.locate_faults import Fault, ProducerLayer
    from align.forward.relations.relation import Relation
    from align.forward.settings_to_try import LayerPlan
    from align.lint.compare_settings import SettingFinding
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey, CallPair


WEIGHTS, OTHER_FUNCTION = "weights-differ", "activation-differs"


@dataclass(frozen=True, slots=True)
class Suspect:
    """Faults of one module and part, those of its repeated calls, and what is known of their cause."""

    faults: tuple[Fault, ...]
    culprit: Culprit

    @property
    def fault(self) -> Fault:
        """The one that shows first."""
        return self.faults[0]

    @property
    def key(self) -> tuple[str, str]:
        """Path and part of the module of the port."""
        return self.fault.pair.candidate.module, self.fault.part

    @property
    def is_explained(self) -> bool:
        """Tell whether a cause is known."""
        return bool(self.culprit.cause)

    def is_mended(self, calls: Mapping[CallKey, IsolatedCall]) -> bool:
        """Tell whether all calls of the module that were off are right in another run."""
        return all(fault.key in calls and _is_right(fault, calls) for fault in self.faults)


def is_worse(after: Mapping[CallKey, IsolatedCall], before: Mapping[CallKey, IsolatedCall]) -> bool:
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


def suspects_of(faults: Sequence[Fault]) -> tuple[Suspect, ...]:
    """Put faults of one module and part together, in the order in which the first one shows."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.pair.candidate.module, fault.part), []).append(fault)
    return tuple(Suspect(tuple(group), culprit_of(group)) for group in groups.values())


def _is_right(fault: Fault, calls: Mapping[CallKey, IsolatedCall]) -> bool:
    """Tell whether the tensor that was off was compared again, and nothing beside it is off.

    Of a module that may end elsewhere than its counterpart, the call that shows it must be right instead: if the module
    returns the same as its counterpart, one side may go on with it otherwise.
    """
    shown = calls.get(call_key(fault.shown_by)) if fault.shown_by else None
    told = {} if shown is None else shown.inputs if fault.shown_in == "inputs" else shown.outputs
    tensors = calls[fault.key].inputs if fault.part == "inputs" else calls[fault.key].outputs
    is_right = fault.tensor.reference.key in tensors and _all_right(tensors)
    return _all_right(told) if told and not (is_right and fault.part == "inputs") else is_right


def _all_right(tensors: Mapping[str, IsolatedTensor]) -> bool:
    return all(one.factor <= 1.0 for one in tensors.values())


def culprit_of(faults: Sequence[Fault]) -> Culprit:
    """State the faults of one module and part, those of its repeated calls, of which no cause is known yet."""
    mine, theirs = faults[0].pair.reference, faults[0].pair.candidate
    culprit = Culprit(
        reference=mine.module,
        candidate=theirs.module,
        reference_class=mine.class_name,
        candidate_class=theirs.class_name,
        call=mine.call,
        part=faults[0].part,
        factor=max(fault.tensor.factor for fault in faults),
        facts={"calls": len(faults)} if len(faults) > 1 else {},
    )
    if begins := faults[0].begins:
        return replace(
            culprit,
            reference=begins.reference.module,
            candidate=begins.candidate.module,
            reference_class=begins.reference.class_name,
            candidate_class=begins.candidate.class_name,
            call=begins.reference.call,
            facts={**culprit.facts, "shows_at": theirs.module},
        )
    maker = faults[0].made_by
    if maker and maker.counterpart:
        culprit = replace(culprit, reference=maker.counterpart.module, reference_class=maker.counterpart.class_name)
    return at_layer(culprit, maker) if maker else culprit


def at_layer(culprit: Culprit, maker: ProducerLayer) -> Culprit:
    """Name a layer that has no counterpart in the place of what shows that it is at fault."""
    facts = culprit.facts if maker.module == culprit.candidate else {**culprit.facts, "shows_at": culprit.candidate}
    return replace(culprit, candidate=maker.module, candidate_class=maker.class_name, part="layer", facts=facts)


def as_one(
    suspects: Sequence[Suspect], fault: FunctionFault, modules: tuple[str, str], pairs: Sequence[CallPair]
) -> Suspect:
    """One suspect for several that one call explains: the code of the module that makes it, and where it shows.

    `modules` are those whose code makes the reference's call and the port's.
    """
    classes = (
        {one.reference.module: one.reference.class_name for one in pairs},
        {one.candidate.module: one.candidate.class_name for one in pairs},
    )
    shown = dict.fromkeys(one.culprit.candidate for one in suspects)
    named = replace(
        suspects[0].culprit,
        reference=modules[0],
        candidate=modules[1],
        reference_class=classes[0].get(modules[0], ""),
        candidate_class=classes[1].get(modules[1], ""),
        part="code",
        line=fault.lines[0],
        inside=fault,
        facts={**suspects[0].culprit.facts, "shows_at": joined(", ", list(shown))},
    )
    return replace(suspects[0], culprit=named)


def with_weights(culprit: Culprit, owner: ProducerLayer | None, causes: Mapping[str, Relation]) -> Culprit:
    """Name the values of the parameters as the cause: with the reference's the module is right.

    The `owner` of the parameters, where it is not the module itself, has no counterpart, but is at fault.
    """
    culprit = at_layer(culprit, owner) if owner else culprit
    found = causes.get(culprit.candidate)
    relation = {"relation": found.id, **found.facts} if found else {}
    return replace(culprit, cause=WEIGHTS, sureness="confirmed", facts={**culprit.facts, **relation})


def with_relation(culprit: Culprit, found: Relation) -> Culprit:
    """Name a relation between the data as the cause, which nobody has tried; one that only says where is a hint."""
    if not found.explains:
        return replace(culprit, facts={**culprit.facts, "hint": found.id, **found.facts})
    return replace(culprit, cause=found.id, sureness="suspected", facts={**culprit.facts, **found.facts})


def with_findings(culprit: Culprit, findings: Sequence[SettingFinding], *, confirmed: bool) -> Culprit:
    """Name settings as the cause."""
    return replace(
        culprit,
        cause=" + ".join(finding.rule for finding in findings),
        sureness="confirmed" if confirmed else "suspected",
        change=joined("; ", [finding.change for finding in findings]),
        arguments=changes_for(*findings),
        facts={
            **culprit.facts,
            "reference": joined(", ", [finding.reference_setting for finding in findings]),
            "candidate": joined(", ", [finding.candidate_setting for finding in findings]),
        },
    )


def with_layer(culprit: Culprit, plan: LayerPlan) -> Culprit:
    """Name the layer of another class that is to be in the place of the one at fault."""
    given = joined(", ", [f"{name}={value!r}" for name, value in plan.arguments.items()])
    change = sentence("forward_finding.layer", layer=plan.class_name, arguments=given)
    return replace(culprit, layer=plan.class_name, arguments=plan.arguments, change=change)


def with_lines(culprits: Sequence[Culprit], model: Model) -> list[Culprit]:
    """Say where to look: the line of the user's code that makes a layer, or the one that hands it what is wrong."""
    return [one if one.line else replace(one, line=_line(one, model)) for one in culprits]


def _line(culprit: Culprit, model: Model) -> str:
    if is_probe(culprit.candidate):
        return probed_at(model, probe_name(culprit.candidate))
    calls = culprit.part == "inputs" and called_at(model, culprit.candidate)
    return calls or made_at(model, culprit.candidate) or _code_of(culprit, model)


def _code_of(culprit: Culprit, model: Any) -> str:
    """The first line of the model's own code, which nothing of its own makes."""
    if culprit.candidate:
        return ""
    kind = type(model)
    return defined_at(getattr(kind, "construct", None) or getattr(kind, "forward", None))


def guess_causes(bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Name what the data suggest for each suspect without a cause, and the unpaired layer that they point to."""
    return tuple(one if one.is_explained else _guessed(bench, alone, one) for one in suspects)


def _guessed(bench: Bench, alone: IsolatedLayers, suspect: Suspect) -> Suspect:
    fault, culprit = suspect.fault, suspect.culprit
    found = _likeliest(bench, fault)
    unpaired_maker = fault.made_by is not None and fault.made_by.counterpart is None
    if found is None or (unpaired_maker and found.id != OTHER_FUNCTION):  # a layer that is one more applies a function
        return suspect
    maker = _applied_by(bench, fault, found, alone.calls)
    return replace(suspect, culprit=with_relation(at_layer(culprit, maker) if maker else culprit, found))


def _likeliest(bench: Bench, fault: Fault) -> Relation | None:
    """Return the likeliest relation between what the port has and what the reference has; None if none is found."""
    tensor = fault.tensor
    if tensor.value is None:
        return None
    meant = bench.expected.trace.value(tensor.reference)
    limit = tensor.limit or _limit(tensor, meant)
    if fault.part == "layer":
        values = _values_by_role(bench.side, fault.pair.candidate.module)
        found = explain_layer(fault.pair.candidate.kind, _inputs(bench, fault), values, meant, tensor.value, limit)
    else:
        found = explain_layer("", _before(bench.expected.trace, fault), {}, meant, tensor.value, limit)
    whole = [one for one in found if one.explains]
    more = [one for one in whole if one.id != "input-returned"]  # which says where a value comes from, not what lacks
    nothing = sentence("function_form.nothing")
    more.sort(key=lambda one: one.facts.get("reference") == nothing)  # so is what the right value itself is among
    return next(iter((*more, *whole, *found)), None)


def _applied_by(
    bench: Bench, fault: Fault, found: Relation, calls: Mapping[CallKey, IsolatedCall]
) -> ProducerLayer | None:
    """The layer without counterpart that is the other function which the code around seems to apply, None if none is.

    It was given what the reference applies its function to, and what it made of that is what is wrong.
    """
    if found.id != OTHER_FUNCTION or fault.part != "code":
        return None
    return applied_inside(fault, _before(bench.expected.trace, fault)[str(found.facts["input"])], calls)


def _inputs(bench: Bench, fault: Fault) -> dict[str, Array]:
    """What the reference's call was given, by leaf name."""
    call = fault.pair.reference
    own = (one for one in bench.expected.trace.inputs if (one.module, one.call) == (call.module, call.call))
    return {one.output: bench.expected.trace.value(one) for one in own}


def _before(reference: Trace, fault: Fault) -> dict[str, Array]:
    """The latest tensors that the reference had before, by key: code adds, mixes and picks among these."""
    wrong = fault.tensor.reference
    known = [one for one in (*reference.inputs, *reference.captures) if one.order < wrong.order]
    known.sort(key=lambda one: one.order)
    once = {reference.value(one).__array_interface__["data"][0]: one for one in known}  # an output is an input next
    latest = sorted(once.values(), key=lambda one: -one.order)
    turned = {one.key: view for one in latest if (view := only_layout(one.shape, wrong.shape)) is not None}
    alike = [one for one in latest if one.shape == wrong.shape or one.key in turned][:MOST_TENSORS_BEFORE]
    others = [one for one in latest if one not in alike][:MOST_OTHER_TENSORS]
    values = {one.key: reference.value(one) for one in (*alike, *others)}
    return {key: turned[key].to_candidate(value) if key in turned else value for key, value in values.items()}


def _values_by_role(side: Side, path: str) -> dict[str, Array]:
    """The parameters and buffers that a layer of the port owns, by their roles where the layer rules know them."""
    parameters = side.reader.read_parameters(side.model, side.label)
    classes = {module.path: module.classes for module in parameters.modules}
    values = side.reader.read_values(side.model)
    own = (one for one in parameters.parameters if one.module == path and one.name in values)
    return {role_of(classes[path], one.attribute) or one.attribute: values[one.name] for one in own}


def _limit(tensor: IsolatedTensor, meant: Array) -> Limit:
    """That of the dtype, for a tensor of another size, which has none of its own."""
    return limit_for(measure(meant, meant), (tensor.reference.dtype, tensor.reference.dtype), None)
