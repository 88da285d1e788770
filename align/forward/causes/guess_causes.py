"""What the data of a fault suggest as its cause, where neither settings nor weights do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.forward.causes.suspects import at_layer, with_relation
from align.forward.isolation.locate_faults import applied_inside
from align.forward.relations.layer_relations import explain_layer
from align.forward.thresholds import MOST_OTHER_TENSORS, MOST_TENSORS_BEFORE
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.rules.layer_rules import role_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.traces import Trace
    from align.forward.causes.suspects import Suspect
    from align.forward.isolation.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolation.isolated_calls import IsolatedCall, IsolatedTensor
    from align.forward.isolation.locate_faults import Fault, ProducerLayer
    from align.forward.relations.relation import Relation
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey


def guess_causes(bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Name what the data suggest for each suspect without a cause, and the unpaired layer that they point to."""
    return tuple(one if one.is_explained else _guessed(bench, alone, one) for one in suspects)


def _guessed(bench: Bench, alone: IsolatedLayers, suspect: Suspect) -> Suspect:
    fault, culprit = suspect.fault, suspect.culprit
    unpaired_maker = fault.made_by is not None and fault.made_by.counterpart is None
    found = None if unpaired_maker else _likeliest(bench, fault)
    if found is None:
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
    more = (one for one in whole if one.id != "input-returned")  # which says where a value comes from, not what lacks
    return next(more, next(iter((*whole, *found)), None))


def _applied_by(
    bench: Bench, fault: Fault, found: Relation, calls: Mapping[CallKey, IsolatedCall]
) -> ProducerLayer | None:
    """The layer without counterpart that is the other function which the code around seems to apply, None if none is.

    It was given what the reference applies its function to, and what it made of that is what is wrong.
    """
    if found.id != "activation-differs" or fault.part != "code":
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
    alike = [one for one in latest if one.shape == wrong.shape][:MOST_TENSORS_BEFORE]
    others = [one for one in latest if one.shape != wrong.shape][:MOST_OTHER_TENSORS]
    return {one.key: reference.value(one) for one in (*alike, *others)}


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
