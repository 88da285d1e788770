"""What is at fault, one suspect for each module and part, and what is known of its cause: never more than was seen.

Where neither settings nor weights tell a cause, the data of the fault may suggest one.
"""

from __future__ import annotations

import ast
import linecache
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.protocols import LayerRebuilder, SettingsReader
from align.forward.forward_result import Culprit
from align.forward.locate_faults import applied_inside
from align.forward.relations.layer_relations import explain_layer
from align.forward.settings_to_try import changes_for, same_kind
from align.forward.thresholds import MOST_INSERTED_LAYERS, MOST_LISTED_SAMPLES, MOST_OTHER_TENSORS, MOST_TENSORS_BEFORE
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import only_layout
from align.models.function_source import (
    CONSTRUCTOR,
    CodeChange,
    called_name,
    changed_line,
    defined_at,
    keywords,
    name_in,
    shown,
)
from align.models.live_calls import is_probe, probe_name
from align.models.rebuild_from_settings import called_at, probed_at
from align.models.source_lines import children_of, construction_of, layer_at, made_at
from align.models.user_code import restored_attributes
from align.rules.layer_rules import role_of
from align.traces.module_calls import call_key
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import LayerSettings, Model
    from align.core.traces import Trace
    from align.forward.forward_result import FunctionFault
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolated_calls import IsolatedCall, IsolatedTensor
    from align.forward.locate_faults import Fault, ProducerLayer
    from align.forward.relations.relation import Relation
    from align.forward.settings_to_try import LayerPlan
    from align.lint.compare_settings import SettingFinding
    from align.models.function_source import FunctionSource
    from align.models.open_side import Side
    from align.models.source_lines import Construction, Place
    from align.traces.module_calls import CallKey, CallPair


WEIGHTS, OTHER_FUNCTION = "weights-differ", "activation-differs"


@dataclass(slots=True)
class Budget:
    """How many runs of a model are left for looking; None: as many as it takes. What is found hangs on no clock."""

    left: int | None = None

    def spend(self) -> None:
        """Note one run."""
        if self.left is not None:
            self.left -= 1

    @property
    def is_spent(self) -> bool:
        """Tell whether none is left."""
        return self.left is not None and self.left <= 0


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


def with_samples(suspect: Suspect, trace: Trace) -> Suspect:
    """Name the entries of the first axis, mostly the samples, that carry the difference, where fewer than all do."""
    tensor = suspect.fault.tensor
    if tensor.value is None or tensor.limit is None or len(tensor.reference.shape) < 2:
        return suspect
    meant = trace.value(tensor.reference)
    if meant.size != tensor.value.size or len(meant) < 2:
        return suspect
    apart = np.abs(meant.astype(np.float64) - tensor.value.reshape(meant.shape)).reshape(len(meant), -1)
    wrong = np.flatnonzero(~(apart <= tensor.limit.max_abs).all(1))
    if not 0 < len(wrong) < len(meant):
        return suspect
    entries = ", ".join(map(str, wrong[:MOST_LISTED_SAMPLES])) + (", ..." if len(wrong) > MOST_LISTED_SAMPLES else "")
    facts = {**suspect.culprit.facts, "entries": entries, "wrong": len(wrong), "axis_length": len(meant)}
    return replace(suspect, culprit=replace(suspect.culprit, facts=facts))


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


def with_relation(culprit: Culprit, relation: Relation) -> Culprit:
    """Name a relation between the data as the cause, which nobody has tried; one that only says where is a hint."""
    if not relation.explains:
        return replace(culprit, facts={**culprit.facts, "hint": relation.id, **relation.facts})
    return replace(culprit, cause=relation.id, sureness="suspected", facts={**culprit.facts, **relation.facts})


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
    relation = _likeliest(bench, fault)
    unpaired_maker = fault.made_by is not None and fault.made_by.counterpart is None
    if relation is None or (
        unpaired_maker and relation.id != OTHER_FUNCTION
    ):  # a layer that is one more applies a function
        return suspect
    maker = _applied_by(bench, fault, relation, alone.calls)
    return replace(suspect, culprit=with_relation(at_layer(culprit, maker) if maker else culprit, relation))


def _likeliest(bench: Bench, fault: Fault) -> Relation | None:
    """Return the likeliest relation between what the port has and what the reference has; None if none is found."""
    tensor = fault.tensor
    if tensor.value is None:
        return None
    meant = bench.expected.trace.value(tensor.reference)
    limit = tensor.limit or limit_for(measure(meant, meant), (tensor.reference.dtype, tensor.reference.dtype), None)
    if fault.part == "layer":
        values = _values_by_role(bench.side, fault.pair.candidate.module)
        relations = explain_layer(fault.pair.candidate.kind, _inputs(bench, fault), values, meant, tensor.value, limit)
    else:
        relations = explain_layer("", _before(bench.expected.trace, fault), {}, meant, tensor.value, limit)
    whole = [one for one in relations if one.explains]
    more = [one for one in whole if one.id != "input-returned"]  # which says where a value comes from, not what lacks
    nothing = sentence("function_form.nothing")
    more.sort(key=lambda one: one.facts.get("reference") == nothing)  # so is what the right value itself is among
    return next(iter((*more, *whole, *relations)), None)


def _applied_by(
    bench: Bench, fault: Fault, relation: Relation, calls: Mapping[CallKey, IsolatedCall]
) -> ProducerLayer | None:
    """The layer without counterpart that is the other function which the code around seems to apply, None if none is.

    It was given what the reference applies its function to, and what it made of that is what is wrong.
    """
    if relation.id != OTHER_FUNCTION or fault.part != "code":
        return None
    return applied_inside(fault, _before(bench.expected.trace, fault)[str(relation.facts["input"])], calls)


def _inputs(bench: Bench, fault: Fault) -> dict[str, Array]:
    """What the reference's call was given, by leaf name."""
    call = fault.pair.reference
    own = (one for one in bench.expected.trace.inputs if (one.module, one.call) == (call.module, call.call))
    return {one.output: bench.expected.trace.value(one) for one in own}


def _before(reference: Trace, fault: Fault) -> dict[str, Array]:
    """The latest tensors that the reference had before, by key: code adds, mixes and picks among these."""
    wrong = fault.tensor.reference
    known = [capture for capture in (*reference.inputs, *reference.captures) if capture.order < wrong.order]
    known.sort(key=lambda capture: capture.order)
    # By address, as an output is an input next.
    once = {reference.value(capture).__array_interface__["data"][0]: capture for capture in known}
    latest = sorted(once.values(), key=lambda capture: -capture.order)
    turned = {capture.key: view for capture in latest if (view := only_layout(capture.shape, wrong.shape)) is not None}
    fitting = [capture for capture in latest if capture.shape == wrong.shape or capture.key in turned]
    same_shape = fitting[:MOST_TENSORS_BEFORE]
    others = [capture for capture in latest if capture not in same_shape][:MOST_OTHER_TENSORS]
    values = {capture.key: reference.value(capture) for capture in (*same_shape, *others)}
    return {key: turned[key].to_candidate(value) if key in turned else value for key, value in values.items()}


def _values_by_role(side: Side, path: str) -> dict[str, Array]:
    """The parameters and buffers that a layer of the port owns, by their roles where the layer rules know them."""
    parameters = side.reader.read_parameters(side.model, side.label)
    classes = {module.path: module.classes for module in parameters.modules}
    values = side.reader.read_values(side.model)
    own = (one for one in parameters.parameters if one.module == path and one.name in values)
    return {role_of(classes[path], one.attribute) or one.attribute: values[one.name] for one in own}


# Layers without parameters that a list of the port lacks: the reference's own kinds, put there on a trial.


LAYER_MISSING = "layer-missing"


def try_missing_layers(
    reference: Side, bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect], budget: Budget
) -> tuple[Suspect, ...]:
    """Name the layers that a list lacks, for suspects that nothing has confirmed, as far as runs are left."""
    lists = _Lists(reference, bench, alone)
    known = isinstance(bench.side.reader, LayerRebuilder) and isinstance(reference.reader, SettingsReader)
    tried = (
        suspect
        for suspect in suspects
        if known and suspect.culprit.sureness != "confirmed" and suspect.fault.part != "layer"
    )
    by_key: dict[tuple[str, str], Suspect] = {}
    for suspect in tried:
        if (named := lists.tried(suspect, budget)) is not None:
            by_key[suspect.key] = named
    return tuple(by_key.get(suspect.key, suspect) for suspect in suspects)


@dataclass(frozen=True, slots=True)
class _Missing:
    """New layers behind the items at some paths, which one change of source puts there."""

    plans: tuple[LayerPlan, ...]
    item: ListItem
    paths: tuple[str, ...]
    change: CodeChange


class _Lists:
    """The lists of the port's layers, and what the reference has between theirs."""

    def __init__(self, reference: Side, bench: Bench, alone: IsolatedLayers) -> None:
        self._reference, self._bench, self._alone = reference, bench, alone

    def tried(self, suspect: Suspect, budget: Budget) -> Suspect | None:
        """The suspect with the layers whose presence ends its fault; None where none do, or no run is left."""
        lacking = [] if budget.is_spent else list(self._lacking(suspect.fault))
        places = list(_ends_before(self._bench.side.model, suspect.fault)) if lacking else []
        for path, plans in product(places, lacking):
            missing = self._missing(path, plans) if not budget.is_spent else None
            if missing is None:
                continue
            budget.spend()
            if self._mends(suspect, missing):
                return self._named(suspect, missing)
        return None

    @cached_property
    def _settings(self) -> dict[str, LayerSettings]:
        reader = self._reference.reader
        read = reader.read_settings(self._reference.model) if isinstance(reader, SettingsReader) else ()
        return {one.path: one for one in read}

    @cached_property
    def _listed(self) -> ListedItems:
        return ListedItems(self._bench.side.model)

    def _lacking(self, fault: Fault) -> Iterator[tuple[LayerPlan, ...]]:
        """Layers of the reference without parameters that ran last before the fault, each alone, then all."""
        expected, framework = self._bench.expected, self._bench.side.reader.name
        paired = {pair.reference.module for pair in expected.pairs if pair.reference.kind}
        before = [capture for capture in expected.trace.captures if capture.order < fault.tensor.reference.order]
        before.sort(key=lambda one: -one.order)
        between = takewhile(lambda one: one.module not in paired, before)
        found = (self._settings[capture.module] for capture in between if capture.module in self._settings)
        plans = list(islice(filter(None, (same_kind(settings, framework) for settings in found)), MOST_INSERTED_LAYERS))
        yield from ((plan,) for plan in plans)
        if len(plans) > 1:
            yield tuple(plans[::-1])

    def _missing(self, path: str, plans: tuple[LayerPlan, ...]) -> _Missing | None:
        """The layers behind an item, and behind all that the same line makes; None where they cannot be written."""
        item = self._listed.get(path)
        names = [name_in(item.made.source.file, one.class_name) for one in plans] if item else []
        if item is None or not all(names):
            return None
        text = ", ".join(f"{name}({keywords(one.arguments)})" for name, one in zip(names, plans, strict=True))
        return _Missing(plans, item, self._listed.made_with(item), item.with_another(text))

    def _mends(self, suspect: Suspect, missing: _Missing) -> bool:
        reader = self._bench.side.reader
        if not isinstance(reader, LayerRebuilder):
            return False
        layers = {
            path: [reader.built(one.class_name, one.arguments) for one in missing.plans] for path in missing.paths
        }
        if any(one is None for added in layers.values() for one in added):
            return False
        with inserted_behind(self._bench.side.model, layers):
            run = self._bench.run(self._alone.way)
        return not run.failed and suspect.is_mended(run.calls) and not is_worse(run.calls, self._alone.calls)

    def _named(self, suspect: Suspect, missing: _Missing) -> Suspect:
        construction, culprit = missing.item.made, suspect.culprit
        change = replace(missing.change, moves=sum(map(self._count_behind, missing.paths)))
        before, after = changed_line("".join(linecache.getlines(change.file)), change)
        named = replace(
            culprit,
            cause=culprit.cause or LAYER_MISSING,
            sureness="confirmed",
            change=sentence("forward_finding.write", before=before, after=after, moves=change.moves),
            line=shown(construction.source, change.line),
            code=change,
        )
        return replace(suspect, culprit=named)

    def _count_behind(self, path: str) -> int:
        """How many parameters stand behind an item in its list: their names move with it."""
        model, (holder, _, name) = self._bench.side.model, path.rpartition(".")
        keys = [*children_of(layer_at(model, holder))]
        prefixes = tuple(f"{holder}.{key}." if holder else f"{key}." for key in keys[keys.index(name) + 1 :])
        return sum(one.startswith(prefixes) for one in self._bench.side.reader.read_values(model)) if prefixes else 0


def _ends_before(model: Model, fault: Fault) -> Iterator[str]:
    """The items of lists behind which something may lack: the last of the list at fault, or those before its item."""
    path = fault.pair.candidate.module
    if fault.part == "code":
        yield from _last_items(model, path)
        return
    while path:
        holder, _, name = path.rpartition(".")
        items = _items(model, holder)
        number = items.index(name) if name in items else 0
        if number:
            before = f"{holder}.{items[number - 1]}".lstrip(".")
            yield from _last_items(model, before)
            yield before
            return
        path = holder


def _last_items(model: Model, path: str) -> list[str]:
    """The last item of a list, and of the list that this is, the innermost first."""
    last_items: list[str] = []
    while items := _items(model, path):
        path = f"{path}.{items[-1]}".lstrip(".")
        last_items.append(path)
    return last_items[::-1]


def _items(model: Model, path: str) -> list[str]:
    """The names of a list's items; none for a layer that is no list of the framework's."""
    names = [*children_of(layer_at(model, path))]
    return names if all(one.isdigit() for one in names) else []


# A list of layers with one more in it: in the live model for as long as a trial runs, and in its source.

ORDER = "cell_list"  # where MindSpore's SequentialCell keeps them in their order


@contextmanager
def inserted_behind(model: object, layers: Mapping[str, Sequence[object]]) -> Iterator[None]:
    """Let new layers stand behind items of lists, by the paths of the items; all that was there keeps its name."""
    holders = {path.rpartition(".")[0] for path in layers}
    with restored_attributes([layer_at(model, one) for one in holders]):
        for path, added in layers.items():
            holder, _, name = path.rpartition(".")
            _insert(layer_at(model, holder), name, added)
        yield


def _insert(holder: object, name: str, added: Sequence[object]) -> None:
    attributes = vars(holder)
    children = children_of(holder)
    before = [*children.items()]
    children.clear()
    for key, layer in before:
        children[key] = layer
        if key == name:
            children.update({f"{key}+{number}": one for number, one in enumerate(added)})
    if ORDER in attributes:
        attributes[ORDER] = [*children.values()]


@dataclass(frozen=True, slots=True)
class ListItem:
    """An item of a list of layers in source: what makes it, and what is written anew to add another one.

    That is the same, or the call that appends it.
    """

    made: Construction
    whole: ast.expr

    @property
    def place(self) -> Place:
        """What tells it from all others."""
        return self.made.place

    def with_another(self, text: str) -> CodeChange:
        """The change that writes another item behind it."""
        after = f"{self._source(self.made.node)}, {text}"
        if self.whole is not self.made.node and isinstance(self.whole, ast.Call):
            holder = self.whole.func.value if isinstance(self.whole.func, ast.Attribute) else self.whole.func
            after = f"{self._source(holder)}.extend([{after}])"
        before, line, column = self._source(self.whole), self.whole.lineno, self.whole.col_offset
        return CodeChange(self.made.source.file, line, column, before, after)

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment("".join(linecache.getlines(self.made.source.file)), node) or ""


@dataclass(frozen=True, slots=True)
class _Unsure:
    """An item whose source is not found: the classes of the list and of the item, and the function that makes the list.

    None for a function that is not known either.
    """

    kinds: tuple[type, type]
    source: FunctionSource | None


class ListedItems:
    """The items of all lists of a model, and which are made at one place."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._found: dict[str, ListItem] = {}
        self._unsure: list[_Unsure] = []
        walk = getattr(model, "cells_and_names", None) or model.named_modules
        for path, layer in walk():
            around = [*_calls(construction_of(model, path))] if path else []
            for name in filter(str.isdigit, children_of(layer)):
                self._read(f"{path}.{name}".lstrip("."), layer, around)

    def _read(self, path: str, holder: object, around: Sequence[Construction]) -> None:
        kind, places = type(holder), {construction.place for construction in around}
        constructions = [*_calls(construction_of(self._model, path))]
        for construction in constructions:
            whole = _element(construction, kind.__name__) if construction.place not in places else None
            if whole is not None:
                self._found[path] = ListItem(construction, whole)
                return
        if not constructions or constructions[0].place in places:  # else it is made elsewhere than an item is
            is_list = bool(constructions) and called_name(constructions[0].node) in (kind.__name__, CONSTRUCTOR)
            self._unsure.append(_Unsure(self._kinds(path), constructions[0].source if is_list else None))

    def _kinds(self, path: str) -> tuple[type, type]:
        return type(layer_at(self._model, path.rpartition(".")[0])), type(layer_at(self._model, path))

    def get(self, path: str) -> ListItem | None:
        """The item at a path; None where it stands in no list by itself, or where its line may make others unseen."""
        item = self._found.get(path)
        if item is None:
            return None
        alike = [one.source for one in self._unsure if one.kinds == self._kinds(path)]
        return None if any(one is None or one == item.made.source for one in alike) else item

    def made_with(self, item: ListItem) -> tuple[str, ...]:
        """The paths of all items that one place of source makes."""
        return tuple(path for path, one in self._found.items() if one.place == item.place)


def _calls(construction: Construction | None) -> Iterator[Construction]:
    """What makes a layer, the call of the function that it stands in, and so on."""
    while construction is not None:
        yield construction
        construction = construction.caller


def _element(construction: Construction, holder: str) -> ast.expr | None:
    """What is written anew: an item of a list or among arguments, or the call that appends it."""
    for node in ast.walk(construction.source.node):
        if isinstance(node, (ast.List, ast.Tuple)) and any(one is construction.node for one in node.elts):
            is_pair = isinstance(node, ast.Tuple) and isinstance(node.elts[0], (ast.Constant, ast.JoinedStr))
            return None if is_pair else construction.node
        if isinstance(node, ast.Call) and any(one is construction.node for one in node.args):
            name = called_name(node)
            if name in (holder, CONSTRUCTOR):
                return construction.node
            return node if name == "append" and len(node.args) == 1 else None
    return None
