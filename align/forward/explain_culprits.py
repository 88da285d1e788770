"""The causes that are confirmed by trying the change in the port: weights, settings, layers without counterpart.

One run tries a change of every open fault, since each is seen alone: what answers in the place of a layer is the layer
rebuilt with the changed setting, and weights that differ are the reference's for the time of the trials. Of the layers
that have no counterpart nobody knows whether they are at fault: so theirs are tried only where something behind them
is, and reported only if they mend it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import held_value, meant_value
from align.core.parameters import EPSILON, dtype_name, is_float
from align.core.piece_transforms import Slice
from align.core.protocols import LayerRebuilder, OriginFollower, SettingsReader
from align.core.traces import Limit
from align.core.transforms import IDENTITY
from align.forward.locate_faults import ProducerLayer, unpaired_before
from align.forward.relations.output_relations import likeliest_relation
from align.forward.relations.relation import Relation, at_places, sample_places
from align.forward.settings_to_try import (
    changes_for,
    count_changed_settings,
    findings_around,
    findings_of,
    findings_of_unpaired,
    keeping_size,
    nothing_for,
    other_kind,
    planned_kind,
    rebuilt_layer,
    same_windows,
)
from align.forward.suspects import (
    WEIGHTS,
    at_layer,
    is_worse,
    suspects_of,
    with_findings,
    with_layer,
    with_samples,
    with_weights,
)
from align.forward.thresholds import (
    CHANCE_CORRELATION_OF_WEIGHTS,
    CLOSE_KURTOSIS,
    DRAWN_DEVIATIONS,
    LEAST_CORRELATED_ELEMENTS,
    LEAST_DRAWN_ELEMENTS,
    MOST_LEFT_OUT,
    MOST_UNPAIRED_TRIALS,
    ROUNDED_WEIGHT_UNITS,
)
from align.measure.thresholds import SAMPLED_ELEMENTS
from align.models.inputs import MadeArrays, SpilledArrays
from align.models.open_side import live_values, put_values
from align.models.rebuild_from_settings import with_attributes
from align.models.source_lines import layer_at
from align.models.thresholds import FOLDED_ROUNDING_UNITS
from align.models.user_code import restored_attributes
from align.rules.pitfalls import pitfalls
from align.traces.open_trace import compare_weights, expected_weights, paired_values, weights_never_given

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array
    from align.core.protocols import LayerSettings, Model, Setting
    from align.core.transforms import Transform
    from align.core.verdicts import Finding
    from align.forward.forward_result import Culprit
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolated_calls import IsolatedCall
    from align.forward.relations.relation import Fact
    from align.forward.settings_to_try import BothSettings, LayerPlan
    from align.forward.suspects import Suspect
    from align.lint.compare_settings import SettingFinding
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey

    Pair = tuple[Pairing, Array, Array]
    Names = tuple[str, str]


# The values of both live models compared, and what the candidate holds instead where it differs.
#
# It may hold another parameter's values, turned, permuted or rounded ones, or those that it was never filled over.
# Values are looked up by their hash among those of the same shape, so that the cost grows with their bytes and not
# with their pairs; only what is related to the right value is asked for a relation.


@dataclass(frozen=True, slots=True)
class Owner:
    """The reference's layer that owns the parameters of one of the candidate's, and which piece of them these are."""

    path: str
    piece: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class Weights:
    """What the candidate holds where it should hold something else, and what that is, by the names before any run.

    `names` are those of all its values, which a run may change. `modules` are the paths of those that own what differs;
    `causes` say, by the same, what that is. `owners` are the reference's modules by the candidate's that own the same
    parameters. `never_given`: all of them differ.
    """

    names: tuple[str, ...]
    held: Mapping[str, Array] = field(default_factory=dict)
    meant: Mapping[str, Array] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    causes: Mapping[str, Relation] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    never_given: bool = False

    def without(self, names: Collection[str]) -> Weights:
        """The same but for values that now are other ones."""
        left = [name for name in self.meant if name not in names]
        of_left = [MadeArrays({name: partial(of.__getitem__, name) for name in left}) for of in (self.held, self.meant)]
        return replace(self, held=of_left[0], meant=of_left[1])


@dataclass(frozen=True, slots=True)
class ComparedWeights:
    """One finding for each parameter that differs, and the values of the candidate as they are and should be.

    `names` are those of both sides' values, in their order.
    """

    findings: tuple[Finding, ...]
    weights: Weights
    names: tuple[tuple[str, ...], tuple[str, ...]]


def compare_live_weights(
    sides: tuple[Side, Side], owners: tuple[Mapping[str, str], Mapping[str, str]], name_map: NameMap
) -> ComparedWeights:
    """Compare before any run: a MindSpore cell may rename its parameters in it.

    `owners` are the paths of both sides' modules by the names of their parameters.
    """
    values = live_values(sides[0]), live_values(sides[1])
    names = tuple(values[0]), tuple(values[1])
    findings = compare_weights(values[0], values[1], name_map)
    if findings and all(isinstance(side.reader, OriginFollower) for side in sides):
        rounded = _rounded(values[0], values[1], name_map)
        findings = tuple(finding for finding in findings if finding.subject not in rounded)
    if not findings:
        return ComparedWeights((), Weights(names[1], owners=_counterparts(owners, name_map)), names)
    meant = expected_weights(*values, name_map)
    present = SpilledArrays({name: values[1][name] for name in meant})
    read = sides[1].reader.read_parameters(sides[1].model, sides[1].label).parameters
    computed = frozenset(one.name for one in read if one.buffer)  # by the candidate itself
    filled = sides[0].filled, sides[1].filled
    if lacking := weights_never_given(findings, values, name_map, buffers=computed, filled=filled):
        own = _counterparts(owners, name_map)
        return ComparedWeights((lacking,), Weights(names[1], present, meant, owners=own, never_given=True), names)
    causes = weight_causes(values[0], values[1], name_map)
    explained = (
        replace(finding, facts={**finding.facts, **_facts(causes.get(finding.subject.rpartition(" -> ")[2]))})
        for finding in findings
    )
    by_module = {owners[1][name]: cause for name, cause in causes.items() if name in owners[1]}
    modules = frozenset(owners[1][name] for name in meant if name in owners[1])
    weights = Weights(names[1], present, meant, modules, by_module, _counterparts(owners, name_map))
    return ComparedWeights(tuple(explained), weights, names)


def _rounded(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> set[str]:
    """What differs between two exports by no more than the rounding of a product that each exporter computed."""
    rounded = set()
    for pairing in name_map.pairings:
        meant, value, _ = paired_values(pairing, source, target)
        if meant.shape == value.shape and is_float(value.dtype.name) and value.size:
            unit = max(EPSILON.get(one.dtype.name, EPSILON["float32"]) for one in (meant, value))
            off = np.abs(meant.astype(np.float64) - value)
            if off.max() <= FOLDED_ROUNDING_UNITS * unit * np.abs(value.astype(np.float64)).max():
                rounded.add(f"{pairing.source} -> {pairing.target}")
    return rounded


def _counterparts(owners: tuple[Mapping[str, str], Mapping[str, str]], name_map: NameMap) -> dict[str, Owner]:
    """The reference's module that owns the first of a candidate's module's parameters, by the latter's path."""
    counterparts: dict[str, Owner] = {}
    for pairing in name_map.pairings:
        if pairing.source in owners[0] and pairing.target in owners[1]:
            piece = pairing.transform
            rows = Slice(0, piece.start, piece.stop) if isinstance(piece, Slice) and piece.axis == 0 else IDENTITY
            counterparts.setdefault(owners[1][pairing.target], Owner(owners[0][pairing.source], rows))
    return counterparts


def _facts(cause: Relation | None) -> dict[str, Fact]:
    return {"cause": cause.id, **cause.facts} if cause else {}


NORMAL_KURTOSIS, UNIFORM_KURTOSIS = 3.0, 1.8  # no limit: of these distributions
CUT_NORMAL = 0.8796  # no limit: standard deviation of a normal distribution cut at two


def weight_causes(
    reference: Mapping[str, Array], candidate: Mapping[str, Array], name_map: NameMap
) -> dict[str, Relation]:
    """For each target parameter whose values differ from what the map says: the relation that was found, if any.

    Beside those of an output: `swapped-weights` and `weights-of-another` (`holds` names the reference's parameter
    whose value it is), `initial-value` (all one number), `shuffled` (the right values in an order that is not
    known), `not-loaded` (drawn as fresh layers are) and `unrelated`.
    """
    pairs = [_pair(pairing, reference, candidate) for pairing in name_map.pairings]
    apart = [pair for pair in pairs if not _equal(*pair[1:])]
    elsewhere = _elsewhere(pairs, apart)
    causes: dict[str, Relation] = {}
    for pairing, meant, held in apart:
        if pairing.target not in causes and (found := elsewhere.get(_names(pairing)) or _cause(meant, held)):
            causes[pairing.target] = found
    return causes


def _pair(pairing: Pairing, reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> Pair:
    """A pairing with what the target should hold, or a piece of it, and what is there."""
    return pairing, meant_value(pairing, reference), held_value(pairing, candidate)


def _equal(meant: Array, held: Array) -> bool:
    return meant.shape == held.shape and np.array_equal(_as_held(meant, held), held)


def _as_held(meant: Array, held: Array) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return meant.astype(held.dtype, copy=False)


def _elsewhere(pairs: Sequence[Pair], apart: Sequence[Pair]) -> dict[Names, Relation]:
    """Values that another parameter, or another piece of a fused one, should have."""
    shapes = {value.shape for _, _, value in apart}
    owners: dict[bytes, list[Names]] = defaultdict(list)
    for pairing, meant, value in pairs:
        if meant.shape in shapes and _varies(meant):
            owners[_digest(_as_held(meant, value))].append(_names(pairing))
    holds = {_names(pairing): owners.get(_digest(value), []) for pairing, _, value in apart}
    return {
        names: Relation(
            "swapped-weights" if names in holds.get(others[0], []) else "weights-of-another",
            0.0,
            facts={"holds": others[0][0]},
        )
        for names, others in holds.items()
        if others and names not in others  # NaN is unlike itself
    }


def _names(pairing: Pairing) -> Names:
    return pairing.source, pairing.target


def _digest(values: Array) -> bytes:
    head = f"{dtype_name(values.dtype)}{values.shape}".encode()
    return hashlib.blake2b(head + values.tobytes(), digest_size=16).digest()


def _varies(values: Array) -> bool:
    return bool(values.size > 1 and np.any(values != values.reshape(-1)[0]))


def _cause(meant: Array, value: Array) -> Relation | None:
    """The likeliest relation of one parameter's value to what it should be."""
    if value.size > 1 and _varies(meant) and not _varies(value):
        return Relation("initial-value", inf, 0.0, facts={"value": float(np.real(value.reshape(-1)[0]))})
    apart = meant.shape == value.shape and _uncorrelated(meant, value)
    common = not apart or _have_common_values(meant, value)
    if common and (found := likeliest_relation(meant, value, _rounding(meant, value))):
        return found
    if common and _varies(meant) and _same_values(meant, value):
        return Relation("shuffled", inf, 0.0)
    return _fresh(value) if apart else None


def _uncorrelated(meant: Array, held: Array) -> bool:
    places = sample_places(meant.size, SAMPLED_ELEMENTS)
    ours, theirs = (at_places(np.real(one), places) for one in (meant, held))
    spread = float(ours.std() * theirs.std())
    if meant.size < LEAST_CORRELATED_ELEMENTS or not np.isfinite(spread) or spread == 0.0:
        return False
    correlation = float(np.mean((ours - ours.mean()) * (theirs - theirs.mean()))) / spread
    return abs(correlation) * sqrt(places.size) < CHANCE_CORRELATION_OF_WEIGHTS


def _have_common_values(meant: Array, held: Array) -> bool:
    """Whether more than a few sizes of the one are also sizes of the other; so by chance in dtypes of few values."""
    sample = held.reshape(-1)[sample_places(held.size, SAMPLED_ELEMENTS)]
    return bool(np.isin(np.abs(sample), np.abs(_as_held(meant, held))).mean() > 1.0 / LEAST_CORRELATED_ELEMENTS)


def _same_values(meant: Array, held: Array) -> bool:
    return meant.size == held.size and np.array_equal(np.sort(_as_held(meant, held), None), np.sort(held, None))


def _fresh(held: Array) -> Relation:
    name = initial_distribution(np.real(held))
    facts: dict[str, Fact] = {"distribution": name} if name else {}
    return Relation("not-loaded" if name else "unrelated", inf, 0.0, facts=facts)


def _rounding(meant: Array, held: Array) -> Limit:
    """Some units in the last place of the coarser dtype; exact for whole numbers."""
    names = [dtype_name(one.dtype) for one in (meant, held)]
    if not all(map(is_float, names)) or not meant.size:
        return Limit(0.0, 0.0, "exact")
    unit = ROUNDED_WEIGHT_UNITS * max(EPSILON[name] for name in names)
    sizes = np.abs(meant.astype(np.float64))
    return Limit(unit * float(sizes.max()), unit * sqrt(float(np.mean(sizes**2))), "rounding")


def initial_distribution(values: Array) -> str:
    """Name of the distribution that the values seem drawn from, with its width; "" if none is known or they are few."""
    if values.size < LEAST_DRAWN_ELEMENTS:
        return ""
    flat = values.reshape(-1).astype(np.float64)
    spread, middle = float(flat.std()), float(flat.mean())
    if spread == 0.0 or abs(middle) * sqrt(flat.size) > DRAWN_DEVIATIONS * spread:
        return ""
    kurtosis = float(np.mean(((flat - middle) / spread) ** 4))
    allowed = CLOSE_KURTOSIS + DRAWN_DEVIATIONS * sqrt(24.0 / flat.size)
    names = []
    if abs(kurtosis - UNIFORM_KURTOSIS) < allowed:
        names += [name for name, bound in _bounds(values.shape).items() if _is_uniform(flat, bound)]
    if kurtosis > UNIFORM_KURTOSIS + CLOSE_KURTOSIS and kurtosis < NORMAL_KURTOSIS + allowed:
        names += [name for name, width in _widths(values.shape).items() if _close(spread, width, flat.size)]
    return " or ".join(names)


def _is_uniform(values: Array, bound: float) -> bool:
    largest = float(np.abs(values).max())
    return bound * (1.0 - 20.0 / values.size) < largest <= bound * (1.0 + 1e-6)


def _close(spread: float, width: float, count: int) -> bool:
    return abs(spread / width - 1.0) < DRAWN_DEVIATIONS / sqrt(2.0 * count)


def _bounds(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "uniform 1/sqrt(fan_in)": 1.0 / sqrt(inside),
        "uniform sqrt(6/fan_in)": sqrt(6.0 / inside),
        "uniform sqrt(6/(fan_in+fan_out))": sqrt(6.0 / (inside + outside)),
    }


def _widths(shape: tuple[int, ...]) -> dict[str, float]:
    inside, outside = _fans(shape)
    return {
        "normal 0.01": 0.01,
        "normal 0.02": 0.02,
        "truncated normal 0.02": 0.02 * CUT_NORMAL,
        "normal 1": 1.0,
        "normal sqrt(1/fan_in)": sqrt(1.0 / inside),
        "normal sqrt(2/fan_in)": sqrt(2.0 / inside),
        "normal sqrt(2/fan_out)": sqrt(2.0 / outside),
        "normal sqrt(2/(fan_in+fan_out))": sqrt(2.0 / (inside + outside)),
    }


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit, of a weight whose outputs come first."""
    window = prod(shape[2:])
    return (prod(shape[1:]) or 1) if len(shape) > 1 else shape[0], shape[0] * window


def explain_culprits(
    reference: Side, bench: Bench, alone: IsolatedLayers, weights: Weights, settings: BothSettings
) -> tuple[Suspect, ...]:
    """Name the causes of faults that a trial confirms; what no trial explains keeps no cause.

    Each step tries only what those before left open. What weights alone explain that were never given is left out.
    """
    trials = Trials(reference, bench, alone, weights, settings)
    suspects = suspects_of(alone.faults)
    with right_weights(bench.side, weights):
        suspects = _explained(suspects, try_weights(trials, suspects))
        suspects = _explained(suspects, try_settings(trials, _open(suspects)))
        suspects = _explained(suspects, try_around(trials, _open(suspects)))
        suspects = _explained(suspects, try_unpaired(trials, _open(suspects)))
    left = (one for one in suspects if not (weights.never_given and one.culprit.cause == WEIGHTS))
    return tuple(with_samples(one, bench.expected.trace) for one in _once(left))


def _once(suspects: Iterable[Suspect]) -> Iterator[Suspect]:
    """Leave out what one change of one layer ends that shows in several places, but for the first."""
    seen: list[tuple[object, ...]] = []
    for suspect in suspects:
        culprit = suspect.culprit
        change = culprit.candidate, culprit.part, culprit.cause, culprit.layer, culprit.arguments
        if culprit.sureness != "confirmed" or not (culprit.layer or culprit.arguments) or change not in seen:
            yield suspect
        seen.append(change)


def _open(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects that no step has explained yet."""
    return [one for one in suspects if not one.is_explained]


def _explained(suspects: Sequence[Suspect], found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    explained = {one.key: one for one in found}
    return tuple(explained.get(one.key, one) for one in suspects)


@contextmanager
def right_weights(side: Side, weights: Weights) -> Iterator[None]:
    """Give the candidate the values that it should hold for a while."""
    if weights.meant:
        put_values(side, weights.meant, weights.names)
    try:
        yield
    finally:
        if weights.meant:
            put_values(side, weights.held, weights.names)


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class Trials:
    """All that a trial reads: both sides, the port's layers alone, its weights, and the settings of layers by path."""

    reference: Side
    bench: Bench
    alone: IsolatedLayers
    weights: Weights
    settings: BothSettings

    def run(self, layers: Mapping[str, Model] | None = None) -> Mapping[CallKey, IsolatedCall]:
        """Run the port once more, its layers alone, with other ones in the place of some of them."""
        return self.bench.run(self.alone.way, layers).calls

    def owner(self, path: str) -> Owner:
        """The layer of the reference that holds the parameters of one of the port's."""
        return self.weights.owners.get(path, NOBODY)


def try_weights(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Run the port with the reference's weights, where its own differ; yields those that this mends."""
    weights = trials.weights
    calls = trials.run() if weights.meant else {}
    for suspect in suspects:
        if suspect.is_mended(calls):
            owner = _latest_filled(suspect, calls, weights)
            yield replace(suspect, culprit=with_weights(suspect.culprit, owner, weights.causes))


def _latest_filled(suspect: Suspect, calls: Mapping[CallKey, IsolatedCall], weights: Weights) -> ProducerLayer | None:
    """The latest layer without counterpart that holds other values and was called before a fault shows."""
    fault = suspect.fault
    if fault.pair.candidate.module in weights.modules:
        return None
    shows = calls[fault.key].begun if fault.part == "inputs" else calls[fault.key].ended
    before = [(key, call) for key, call in calls.items() if call.samples and call.ended <= shows]
    owners = [(call.ended, ProducerLayer(key[0], call.class_name)) for key, call in before if key[0] in weights.modules]
    return max(owners, key=lambda one: one[0])[1] if owners else None


@dataclass(frozen=True, slots=True)
class Change:
    """Findings of one layer that a change ends, and how the layer is built that has it; None where it cannot be.

    It is `guessed` where nothing says that the layer is at fault. `plan` is what stands in its place, if that is known
    before.
    """

    findings: tuple[SettingFinding, ...]
    build: Callable[[], Model | None]
    guessed: bool = False
    plan: LayerPlan | None = None

    @property
    def path(self) -> str:
        """The layer of the port."""
        return self.findings[0].candidate

    @property
    def arguments(self) -> dict[str, Setting]:
        """The arguments of its constructor that change; none for a layer of another class."""
        return changes_for(*self.findings)

    def fits(self, layer: Model) -> bool:
        """Tell whether a live layer keeps its arguments as attributes of their names."""
        return bool(self.arguments) and self.arguments.keys() <= vars(layer).keys()

    @property
    def would_explain(self) -> bool:
        """Tell whether it is a cause though nobody tried it."""
        return not self.guessed and len(self.findings) == 1 and self.findings[0].severity == "error"


Waiting = list[tuple["Suspect", list[Change]]]
Tried = tuple["Suspect", Change, bool]  # what it mends, and whether it was tried


def try_settings(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try what the settings suggest for each layer: each finding alone, then all together, then a rival.

    Yields what a change mends, and what one explains that could not be tried.
    """
    owners = {path: one.path for path, one in trials.weights.owners.items()}
    findings = findings_of([one.fault for one in suspects], trials.settings, pitfalls(), owners)
    waiting: Waiting = []
    for suspect in suspects:
        path = suspect.fault.path
        changes = _changes(trials, path, findings.get(path, ()))
        if suspect.fault.made_by:
            changes.sort(key=partial(_count_moved, trials))
        waiting.append((suspect, [*changes, *_rivals(trials, path)]))
    for suspect, change, confirmed in _in_turns(trials, waiting):
        culprit = with_findings(suspect.culprit, change.findings, confirmed=confirmed)
        culprit = _with_plan(trials, culprit, change) if confirmed else culprit
        also = confirmed and suspect.fault.path in trials.weights.modules  # it was tried with the reference's weights
        yield replace(suspect, culprit=replace(culprit, cause=f"{culprit.cause} + {WEIGHTS}") if also else culprit)


def try_around(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try the settings that differ by name in the modules around what is wrong between layers, on the live modules."""
    for suspect in suspects:
        findings = () if suspect.fault.part == "layer" else findings_around(suspect.fault, trials.settings)
        for finding in findings:
            module = layer_at(trials.bench.side.model, finding.candidate)
            with restored_attributes([module]):
                with_attributes(module, finding.arguments)
                calls = trials.run()
            if suspect.is_mended(calls) and not is_worse(calls, trials.alone.calls):
                yield replace(suspect, culprit=with_findings(suspect.culprit, [finding], confirmed=True))
                break


def try_unpaired(trials: Trials, suspects: Sequence[Suspect]) -> Iterator[Suspect]:
    """Try layers without counterpart that were called before a fault shows; yields what one of them mends."""
    waiting: Waiting = []
    for suspect in suspects:
        changes: list[Change] = []
        left_out: list[Change] = []
        for path in unpaired_before(suspect.fault, trials.alone.calls):
            found = findings_of_unpaired((trials.owner(path).path, path), trials.settings, pitfalls())
            changes += [*_changes(trials, path, found)[: len(found)], *_rivals(trials, path)]
            left_out += _left_out(trials, path)
        tried = [*changes[:MOST_UNPAIRED_TRIALS], *left_out[:MOST_LEFT_OUT]]
        waiting.append((suspect, [replace(one, guessed=True) for one in tried]))
    for suspect, change, _ in _in_turns(trials, waiting):
        calls = _run_with(trials, [change])[2]  # by itself, not with others as in that run
        if suspect.is_mended(calls) and not is_worse(calls, trials.alone.calls):
            layer = ProducerLayer(change.path, change.findings[0].candidate_class)
            culprit = with_findings(at_layer(suspect.culprit, layer), change.findings, confirmed=True)
            culprit = _with_plan(trials, culprit, change)
            yield replace(suspect, culprit=culprit)


def _with_plan(trials: Trials, culprit: Culprit, change: Change) -> Culprit:
    """Name the layer of another class that was tried, with its arguments."""
    if change.arguments:
        return culprit
    plan = change.plan or planned_kind(trials.reference, change.findings[0].reference, trials.bench.side)
    return culprit if plan is None else with_layer(culprit, plan)


def _in_turns(trials: Trials, waiting: Waiting) -> Iterator[Tried]:
    """Try one change of every suspect a run, and of a layer that several wait for, one a run."""
    while any(changes for _, changes in waiting):
        by_path: dict[str, tuple[Suspect, Change]] = {}
        for suspect, changes in waiting:
            if changes and (path := changes[0].path) not in by_path:
                by_path[path] = suspect, changes.pop(0)
        built, live, calls = _run_with(trials, [change for _, change in by_path.values()])
        for suspect, change in by_path.values():
            mended = change.path in built | live and suspect.is_mended(calls)
            if mended or (change.path not in built and change.would_explain):
                yield suspect, change, mended
                waiting = [(other, own) for other, own in waiting if other is not suspect]


def _run_with(trials: Trials, changes: Sequence[Change]) -> tuple[Set[str], Set[str], Mapping[CallKey, IsolatedCall]]:
    """Run the port with changes: the layers that were built for it, those that were set, and what was seen."""
    layers = {one.path: one.build() for one in changes}
    built = {path: layer for path, layer in layers.items() if layer is not None}
    with _set_on_live_layers(trials.bench.side, [one for one in changes if one.path not in built]) as live:
        return built.keys(), live, trials.run(built) if built or live else {}


@contextmanager
def _set_on_live_layers(side: Side, changes: Sequence[Change]) -> Iterator[set[str]]:
    """Set what changes ask for as attributes where a layer has such, and yield the paths; a run shows if it counts."""
    rebuilds = isinstance(side.reader, LayerRebuilder)
    layers = {change.path: layer_at(side.model, change.path) for change in changes if rebuilds}
    with restored_attributes([*layers.values()]):
        fitting = [change for change in changes if change.path in layers and change.fits(layers[change.path])]
        for change in fitting:
            with_attributes(layers[change.path], change.arguments)
        yield {change.path for change in fitting}


def _changes(trials: Trials, path: str, findings: Sequence[SettingFinding]) -> list[Change]:
    """What ends each finding of a layer alone, and what ends all."""
    sides, piece = (trials.reference, trials.bench.side), trials.owner(path).piece
    layer = trials.settings[1].get(path)
    sized = keeping_size(findings, layer) if layer is not None else None
    together = [(one,) for one in (*findings, *filter(None, [sized]))] + (
        [tuple(findings)] if len(findings) > 1 else []
    )
    return [Change(one, partial(rebuilt_layer, *sides, *one, piece=piece)) for one in together]


def _rivals(trials: Trials, path: str) -> list[Change]:
    """Layers that work on the same windows, but to another end."""
    layer = trials.settings[1].get(path)
    return [] if layer is None else list(_others(trials, layer, same_windows(layer)))


def _left_out(trials: Trials, path: str) -> list[Change]:
    """The layer left out: one in its place that returns what it is given."""
    layer = trials.settings[1].get(path)
    plan = nothing_for(layer) if layer is not None else None
    return [] if layer is None or plan is None else list(_others(trials, layer, [plan]))


def _others(trials: Trials, layer: LayerSettings, plans: Iterable[LayerPlan]) -> Iterator[Change]:
    """Layers of other classes in the place of one."""
    reader = trials.bench.side.reader
    if isinstance(reader, LayerRebuilder):
        for plan in plans:
            build = partial(reader.built, plan.class_name, plan.arguments)
            yield Change((other_kind(layer, plan.class_name),), build, plan=plan)


def _count_moved(trials: Trials, change: Change) -> int:
    """How many settings of a layer a change moves: the one that moves fewest says most."""
    layer, reader = change.build(), trials.bench.side.reader
    if layer is None or not isinstance(reader, SettingsReader):
        return len(trials.settings[1])
    return count_changed_settings(trials.settings[1][change.path], reader.read_settings(layer)[0], pitfalls())
