"""What names and shapes leave open is settled by values: both models run on random ones, and the data flow tells.

Every layer that is paired already returns what its counterpart returned, so each open layer is seen where it stands,
as if all around it were right. Layers that are given the same tensors are the same layer; where several are (query, key
and value), each choice is loaded, and what comes behind them tells. Of parameters that no output depends on a trial
shows nothing, and the map says so.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.about import __version__
from align.core.load_code import user_files
from align.core.name_map import Ambiguity, Pairing
from align.core.parameters import is_float
from align.core.piece_transforms import Slice
from align.core.protocols import Differentiator, silent
from align.core.transforms import IDENTITY, Reshape, chained
from align.errors import ModelFailedError, UsageError
from align.measure.tensor_statistics import inputs_drawn_from
from align.names.choose_partners import BLIND, SettledGroups, settle_groups
from align.names.dataflow.settle_by_dataflow import map_by_dataflow, unnumbered
from align.names.equal_values import CallSampler, TrialSide, distinct_values
from align.names.map_text import OURS
from align.names.matching.explain_unpaired import explain_unpaired_anew
from align.names.read_layers import LayeredSides
from align.names.thresholds import (
    CONFIDENCE_BY_ORDER,
    DIGITS_OF_A_RULE,
    DIGITS_OF_A_TRIAL,
    MORE_SAMPLES,
    MOST_DRAWS_OF_INPUTS,
    PERTURBING_SEED,
)
from align.names.trial_runs import TrialRuns, fused_piece_orders, open_groups, settle_by_equality
from align.words.catalogue import joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence, Set

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter, ParameterSet, Shape
    from align.core.protocols import Progress
    from align.core.traces import Influences
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.equal_values import SeenTensor
    from align.names.map_export import KeptTrial
    from align.names.read_layers import Layer
    from align.names.user_rules import NameRules
    from align.words.catalogue import Note


_TOLD = ("user", "dataflow", "trial")  # by the user, or by an earlier run
UNSEEN = sentence("trial_reason.not_seen")
UNTOLD = sentence("trial_reason.does_not_tell")


def map_by_trial(
    sides: tuple[Side, Side] | None,
    parameters: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
    inputs: Mapping[str, Array] | None,
    progress: Progress,
    *,
    done: bool = False,
) -> tuple[NameMap, str, tuple[Note, ...]]:
    """The map after a trial, why it is not proven if the models cannot run though names settle all, and notes.

    What is `done` is not tried again.

    Raises UsageError where the models or their inputs are missing.
    """
    if inputs is None or sides is None:
        raise UsageError.of("names_error.trial_without_inputs")
    try:
        settled, notes = (name_map, ()) if done else _settled(sides, name_map, inputs, progress)
    except ModelFailedError as error:
        if name_map.complete and all(pairing.sure for pairing in name_map.pairings):
            return name_map, sentence("map_verdict.trial_failed", error=error.message), ()
        raise
    return explain_unpaired_anew(LayeredSides(parameters), pair_unused(settled, parameters)), "", notes


def _settled(
    sides: tuple[Side, Side], name_map: NameMap, inputs: Mapping[str, Array], progress: Progress
) -> tuple[NameMap, tuple[Note, ...]]:
    """What the flow of the data shows; what it leaves open, or has not seen, goes on to a trial layer by layer.

    A run that the user interrupts leaves what is settled.
    """
    followed, notes = map_by_dataflow(*sides, name_map, inputs, progress)
    if _crosses_blocks(followed):
        followed, notes = _flow_of_other_inputs(sides, name_map, inputs, progress)
    seen = {(one.source, one.target) for one in followed.flow}
    unseen = [p for p in followed.pairings if (p.source, p.target) not in seen and p.evidence not in _TOLD]
    whole = followed.pairings and not followed.ambiguous and not unseen and all(p.sure for p in followed.pairings)
    if whole or any(key == "map_warning.interrupted" for key, _ in notes):
        return followed, notes
    settled = settle_by_trial(*sides, followed, inputs, progress)
    return _with_more_inputs(sides, followed, settled, inputs, progress), notes


def _crosses_blocks(followed: NameMap) -> bool:
    """Tell whether the flow pairs a layer with one of a block that is another one's by all else: it saw too little.

    Of experts that are given few rows, one alone may have what several of the other side compute.
    """
    blocks, known = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for pair in (p for p in followed.pairings if p.evidence != "dataflow" and p.sure):
        blocks[_block(pair.source)].add(_block(pair.target))
        known[_block(pair.target)].add(_block(pair.source))
    of_flow = ((_block(p.source), _block(p.target)) for p in _within_blocks(followed))
    return any(_is_another(target, blocks[source]) and _is_another(source, known[target]) for source, target in of_flow)


def _is_another(block: str, known: Set[str]) -> bool:
    """Tell whether a block is one of those with which others are known to be paired, but for its numbers."""
    return block not in known and any(unnumbered(block) == unnumbered(one) for one in known)


def _within_blocks(followed: NameMap) -> Iterator[Pairing]:
    """Pairs of the flow, but for tensors in which those of several blocks are joined: these stand in no one block."""
    blocks: dict[tuple[int, str], set[str]] = defaultdict(set)
    for pair in followed.pairings:
        blocks[0, pair.source].add(_block(pair.target))
        blocks[1, pair.target].add(_block(pair.source))
    for pair in followed.pairings:
        if pair.evidence == "dataflow" and len(blocks[0, pair.source]) == len(blocks[1, pair.target]) == 1:
            yield pair


def _flow_of_other_inputs(
    sides: tuple[Side, Side], name_map: NameMap, inputs: Mapping[str, Array], progress: Progress
) -> tuple[NameMap, tuple[Note, ...]]:
    """What the flow shows of inputs that are drawn from the given ones; the map as it is where none keeps to blocks."""
    for number in range(MOST_DRAWS_OF_INPUTS):
        drawn = inputs_drawn_from(inputs, number, times=1 if number % 2 else MORE_SAMPLES)
        try:
            followed, notes = map_by_dataflow(*sides, name_map, drawn, progress)
        except ModelFailedError:
            continue
        if not _crosses_blocks(followed):
            return followed, notes
    return name_map, ()


def _block(name: str) -> str:
    """The module that holds the layer of a parameter."""
    return name.rsplit(".", 2)[0]


def _with_more_inputs(
    sides: tuple[Side, Side], before: NameMap, settled: NameMap, inputs: Mapping[str, Array], progress: Progress
) -> NameMap:
    """The map that is `settled`, from the one `before`, with what other inputs tell where the given show nothing.

    They are drawn from the given ones, and other values for the models: they may reach an expert that these do not.
    """
    order = TrialSide(sides[0]).parameters.names
    for number in range(MOST_DRAWS_OF_INPUTS):
        unsure = {p.source for p in settled.pairings if not p.sure and UNSEEN in p.note}  # the names alone speak for it
        open_names = {name for group in settled.ambiguous for name in group.sources} | unsure
        if not unsure and not any(BLIND in group.reason for group in settled.ambiguous):
            break
        drawn = inputs_drawn_from(inputs, number, times=1 if number % 2 else MORE_SAMPLES)
        try:
            tried = settle_by_trial(*sides, before, drawn, progress, number + 1)
        except ModelFailedError:  # a model may take so many samples only
            continue
        seen = {pairing.source for pairing in tried.pairings if UNSEEN not in pairing.note}
        new = [p for p in tried.pairings if p.source in open_names - unsure or p.source in unsure & seen]
        reasons = {name: one.reason for one in settled.ambiguous for name in (*one.sources, *one.targets)}
        settled = _with_trial(settled, SettledGroups(new, reasons), order)
        settled = replace(settled, pairings=tuple(_noted(p, seen) for p in settled.pairings))
    return settled


def _noted(pairing: Pairing, seen: Set[str]) -> Pairing:
    """A pair without the note that nothing depends on it, if that was `seen`."""
    if pairing.source not in seen or UNSEEN not in pairing.note:
        return pairing
    left = [one for one in pairing.note.split("; ") if one != UNSEEN]
    return replace(pairing, note=joined("; ", left) if left else "")


def settle_by_trial(
    source: Side,
    target: Side,
    name_map: NameMap,
    inputs: Mapping[str, Array],
    progress: Progress = silent,
    draw: int = 0,
) -> NameMap:
    """Return the map with those ambiguous groups settled that a run with distinct values decides.

    Both models get random values for the time of the trial and have their own back afterwards, also after a failure.
    Pairs that the user gave stay; others are settled anew where the run contradicts them. What shows in no output is
    said to be blind. Another `draw` gives the models other values: a router sends rows to other experts with them.
    """
    sides = TrialSide(source), TrialSide(target)
    order = sides[0].parameters.names
    with sides[0].restored(), sides[1].restored():
        seconds = [side.seconds(inputs) for side in sides]
        backwards = seconds[1] > seconds[0]
        if backwards:  # the slower one runs once, the faster one for every choice
            sides = sides[::-1]
        first, second = sides
        wanted_map = _inverted_map(name_map, first.parameters, second.parameters) if backwards else name_map
        trial = TrialRuns(sides, progress, draw)
        trial.prepare(wanted_map)
        groups = open_groups(wanted_map.ambiguous, *trial.layer_of)
        equal = settle_by_equality(groups, (first.own, second.own))
        settled = settle_groups(
            groups, (*wanted_map.pairings, *equal), trial, fused_piece_orders(wanted_map.ambiguous, *trial.layer_of)
        )
        settled = replace(settled, pairings=[*equal, *settled.pairings])
        trial.observe((), _with_trial(wanted_map, settled, first.parameters.names).pairings)
        item, other = (blind_parameters(own.side, own.layers, own.inputs) for own in sides)
    if backwards:
        reopened = [replace(item, sources=item.targets, targets=item.sources) for item in settled.reopened]
        settled = replace(
            settled, pairings=_inverted_pairings(settled.pairings, sides[0].parameters), reopened=reopened
        )
    blind = (other, item) if backwards else (item, other)
    return _with_blind(_with_trial(name_map, settled, order), blind, name_map)


def _inverted_map(name_map: NameMap, target: ParameterSet, source: ParameterSet) -> NameMap:
    """The map from the target to the source, as far as its transforms can be undone."""
    return replace(
        name_map,
        source=target.label,
        target=source.label,
        pairings=tuple(_inverted_pairings(name_map.pairings, source)),
        ambiguous=tuple(replace(one, sources=one.targets, targets=one.sources) for one in name_map.ambiguous),
    )


def _inverted_pairings(pairings: Sequence[Pairing], source: ParameterSet) -> list[Pairing]:
    """Pairings back to their sources; those whose transform cannot be undone are left out."""
    inverted = []
    for pairing in pairings:
        own = source.by_name[pairing.source]
        with suppress(ValueError):
            back = pairing.transform.inverse(own.shape, own.dtype)
            inverted.append(replace(pairing, source=pairing.target, target=pairing.source, transform=back))
    return inverted


def with_settled(name_map: NameMap, pairings: Sequence[Pairing], order: Sequence[str]) -> NameMap:
    """Return the map with what an earlier trial settled, in the source's order."""
    return _with_trial(name_map, SettledGroups(list(pairings), {}), order)


def _with_trial(name_map: NameMap, settled: SettledGroups, order: Sequence[str]) -> NameMap:
    """Return the map with the settled pairings in place of older ones and of their groups, in the source's order."""
    gone = {p.source for p in settled.pairings}, {p.target for p in settled.pairings}
    reopened = {name for group in settled.reopened for name in group.sources}
    named = {p.source: p.target for p in name_map.pairings if p.sure}
    place = {name: index for index, name in enumerate(order)}
    kept = [p for p in name_map.pairings if p.source not in gone[0] | reopened and p.target not in gone[1]]
    new = [
        replace(p, note=sentence("pair_note.names_stand_elsewhere", name=own))
        if (own := named.get(p.source, p.target)) != p.target
        else p
        for p in settled.pairings
    ]
    opened = gone[0] | reopened, gone[1] | {name for group in settled.reopened for name in group.targets}
    ambiguous = [left for group in name_map.ambiguous for left in _left(group, opened, settled.reasons)]
    ambiguous += [left for group in settled.reopened for left in _left(group, gone, settled.reasons)]
    return replace(
        name_map,
        pairings=tuple(sorted((*kept, *new), key=lambda pairing: place[pairing.source])),
        ambiguous=tuple(ambiguous),
    )


def _with_blind(name_map: NameMap, blind: tuple[Set[str], Set[str]], before: NameMap) -> NameMap:
    """Return the map with a note at each pair of which a name is `blind` on its side.

    The other parameters of its layer tell where it belongs; where all are blind, a pair is what it was `before`.
    """
    known = {(p.source, p.target, p.transform): p for p in before.pairings}
    unseen = {id(p) for p in name_map.pairings if p.source in blind[0] or p.target in blind[1]}
    seen = {_owners(p) for p in name_map.pairings if id(p) not in unseen}
    pairings: list[Pairing] = []
    ambiguous = list(name_map.ambiguous)
    for pairing in name_map.pairings:
        known_pairing: Pairing | None = pairing
        if id(pairing) in unseen:
            if _owners(pairing) not in seen:
                known_pairing = known.get((pairing.source, pairing.target, pairing.transform))
            known_pairing = known_pairing and replace(
                known_pairing, note=joined("; ", [one for one in (known_pairing.note, UNSEEN) if one])
            )
        if known_pairing:
            pairings.append(known_pairing)
        else:
            ambiguous.append(Ambiguity((pairing.source,), (pairing.target,), UNSEEN))
    return replace(name_map, pairings=tuple(pairings), ambiguous=tuple(ambiguous))


def _owners(pairing: Pairing) -> tuple[str, str]:
    return pairing.source.rpartition(".")[0], pairing.target.rpartition(".")[0]


def _left(group: Ambiguity, gone: tuple[set[str], set[str]], reasons: Mapping[str, str]) -> Iterator[Ambiguity]:
    sources = tuple(name for name in group.sources if name not in gone[0])
    targets = tuple(name for name in group.targets if name not in gone[1])
    if sources or targets:
        said = dict.fromkeys(reasons[name] for name in (*sources, *targets) if name in reasons)
        yield replace(group, sources=sources, targets=targets, reason="; ".join(said) or UNTOLD)


def blind_parameters(side: Side, layers: Sequence[Layer], inputs: Mapping[str, Array]) -> set[str]:
    """Names of the parameters of a model that no output depends on, at the values that it has and on these inputs.

    Only of models that can be differentiated; of others nothing is known, and the set is empty.
    """
    if not isinstance(side.runner, Differentiator):
        return set()
    influences = side.runner.influences(side.model, inputs)
    if influences is None:
        return set()
    silent = {name for name, share in influences.shares.items() if share < influences.noise}
    suspects = [group for layer in layers if (group := _suspects(layer, silent, influences.shares))]
    return _Perturbed(side, influences, layers, inputs).without_effect(suspects) if suspects else set()


def _suspects(layer: Layer, silent: set[str], shares: Mapping[str, float]) -> list[str]:
    """The silent parameters of a layer, with its statistics if all of it that has a gradient is silent."""
    names = {p.name for p in layer.roles.values()}
    with_gradient = names & shares.keys()
    return sorted(names if with_gradient and with_gradient <= silent else names & silent)


class _Perturbed:
    """Runs of a copy of the model in which some parameters have other values."""

    def __init__(self, side: Side, found: Influences, layers: Sequence[Layer], inputs: Mapping[str, Array]) -> None:
        self._side, self._layers, self._inputs = side, layers, inputs
        self._model, self._noise = found.model, found.noise
        self._own = side.reader.read_values(self._model)
        self._tied = {p.name: p.tied_to for layer in layers for p in layer.roles.values() if p.tied_to}
        self._before = self._outputs({})

    def without_effect(self, suspects: Sequence[list[str]]) -> set[str]:
        """All suspects, if they change nothing together, else those of each half."""
        together = {name for names in suspects for name in names}
        if not together or not self._changed(together):
            return together
        if len(suspects) == 1:
            return set()
        half = len(suspects) // 2
        return self.without_effect(suspects[:half]) | self.without_effect(suspects[half:])

    def _changed(self, names: set[str]) -> bool:
        drawn = distinct_values(self._layers, names, np.random.default_rng(PERTURBING_SEED))
        after = self._outputs(drawn)
        return len(after) != len(self._before) or any(
            a.distance(b) > self._noise for a, b in zip(self._before, after, strict=True)
        )

    def _outputs(self, values: Mapping[str, Array]) -> tuple[SeenTensor, ...]:
        new = {name: values.get(self._tied.get(name, name), own) for name, own in self._own.items()}
        self._side.reader.load_values(self._model, new)
        seen = CallSampler()
        self._side.runner.run(self._model, self._inputs, seen)
        return seen.outputs.get(("", 0), ())


# What an earlier trial found is kept: with new rules only what they touch is tried again.
#
# Where models, inputs or values have changed, or a rule is gone, nothing is kept: what was found beside it may be
# wrong. What was left open is tried again, since a new rule may be all that it lacked.


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial is made of, and what earlier ones keep."""

    parameters: tuple[ParameterSet, ParameterSet]
    rules: NameRules
    tried: Sequence[KeptTrial] = ()


@dataclass(frozen=True, slots=True)
class TriedMap:
    """The map after a trial, why that proves it not, the line that its file keeps, and a note on what was kept."""

    name_map: NameMap
    unproven: str
    line: str
    notes: tuple[Note, ...]


def map_by_kept_trial(
    sides: tuple[Side, Side] | None,
    trial: Trial,
    name_map: NameMap,
    inputs: Mapping[str, Array] | None,
    progress: Progress,
) -> TriedMap:
    """Try what no earlier trial has found; `name_map` is what rules and names say. Raises as `map_by_trial`."""
    if inputs is None or sides is None:
        raise UsageError.of("names_error.trial_without_inputs")
    made_of = trial_digest(sides, trial.parameters, inputs)
    kept = _kept_pairs(trial, made_of, name_map)
    if kept.pairings:
        name_map = with_settled(name_map, kept.pairings, trial.parameters[0].names)
    found, unproven, told = map_by_trial(sides, trial.parameters, name_map, inputs, progress, done=kept.done)
    facts = {"count": len(kept.pairings), "file": kept.file, "done": kept.done}
    notes: tuple[Note, ...] = (("map_warning.trial_kept", facts),) if kept.pairings or kept.done else ()
    return TriedMap(found, unproven, "" if unproven else _line(made_of, trial.rules, found), (*notes, *told))


def trial_digest(sides: tuple[Side, Side], parameters: Sequence[ParameterSet], inputs: Mapping[str, Array]) -> str:
    """A sum of all that a trial depends on but rules: sources, names and shapes, inputs, values of checkpoints.

    "" where code was typed into an interpreter, so that no file holds it.
    """
    if not getattr(sys.modules["__main__"], "__file__", None):
        return ""
    digest = hashlib.sha256(__version__.encode())
    for file in user_files():
        digest.update(file.read_bytes())
    for side, own in zip(sides, parameters, strict=True):
        digest.update(repr((own.parameters, own.modules, sorted(side.reader.environment().items()))).encode())
        for name, value in sorted(side.reader.read_values(side.model).items() if side.filled else ()):
            digest.update(name.encode() + value.tobytes())
    for name, value in sorted(inputs.items()):
        digest.update(repr((name, value.shape, str(value.dtype))).encode() + value.tobytes())
    return digest.hexdigest()[:DIGITS_OF_A_TRIAL]


@dataclass(frozen=True, slots=True)
class _KeptPairs:
    """Pairings of an earlier trial, and the file that kept them; `done` says that there is nothing left to try."""

    pairings: tuple[Pairing, ...] = ()
    file: str = ""
    done: bool = False


def _kept_pairs(trial: Trial, made_of: str, name_map: NameMap) -> _KeptPairs:
    """What of earlier trials still holds beside these rules."""
    sums = _sums(trial.rules)
    like = (one for one in trial.tried if made_of and made_of == one.made_of and set(one.rules) <= set(sums))
    kept = next(like, None)
    if kept is None:
        return _KeptPairs()
    said = [pair for pair in name_map.pairings if pair.evidence == "user"]
    touched = {_owner(pair.source) for pair in said}, {_owner(pair.target) for pair in said}
    for drop in name_map.dropped:
        touched[drop.side == "target"].add(drop.name)
    left = tuple(_untouched(kept, touched))
    done = kept.whole and set(kept.rules) == set(sums) and len(left) == len(kept.names)
    return _KeptPairs(left, kept.file, done)


def _untouched(kept: KeptTrial, touched: tuple[set[str], set[str]]) -> Iterator[Pairing]:
    for source, target, change in kept.names:
        if touched[0].isdisjoint((source, _owner(source))) and touched[1].isdisjoint((target, _owner(target))):
            yield Pairing(source, target, "dataflow" if (source, target) in kept.flow else "trial", 1.0, change)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _line(made_of: str, rules: NameRules, name_map: NameMap) -> str:
    """The comment that says what a trial was made of; "" where that is not known."""
    whole = name_map.complete and all(pair.sure and UNSEEN not in pair.note for pair in name_map.pairings)
    found = sum(pair.evidence in ("trial", "dataflow") for pair in name_map.pairings)
    record = " ".join([made_of, f"{'whole' if whole else 'part'} {found}", *_sums(rules)])
    return say("map_file.tried", mark=OURS, record=record) if made_of else ""


def _sums(rules: NameRules) -> list[str]:
    """A short sum of each rule, with what it says."""
    said: list[object] = [*rules.all_names, *((one.pattern.pattern, one.to, one.transform) for one in rules.renames)]
    said += [(side, glob) for side in ("source", "target") for glob in getattr(rules, f"dropped_{side}")]
    return sorted({hashlib.sha256(repr(one).encode()).hexdigest()[:DIGITS_OF_A_RULE] for one in said})


# What no output depends on, if one side keeps in one tensor what the other keeps in several: it is paired in order.


def pair_unused(name_map: NameMap, sides: tuple[ParameterSet, ParameterSet]) -> NameMap:
    """Return the map with the last tensor of one side in pieces, if the last ones of the other hold as many numbers.

    They must stand in one module, and all else must be sure. The pairs are not: only the order speaks for them.
    """
    known = (
        {pair.source for pair in name_map.pairings} | {item.name for item in name_map.dropped if item.side == "source"},
        {pair.target for pair in name_map.pairings} | {item.name for item in name_map.dropped if item.side == "target"},
    )
    left, right = (_names_left(side, names) for side, names in zip(sides, known, strict=True))
    if name_map.ambiguous or not name_map.pairings or not all(pair.sure for pair in name_map.pairings):
        return name_map
    if len(left) == 1 < len(right):
        pairs = [(left[0], item, change) for item, change in _pieces(left[0], right)]
    elif len(right) == 1 < len(left):
        pairs = [
            (item, right[0], change.inverse(right[0].shape, right[0].dtype)) for item, change in _pieces(right[0], left)
        ]
    else:
        return name_map
    note = sentence("pair_note.unused_in_order")
    new = [Pairing(item.name, two.name, "structure", CONFIDENCE_BY_ORDER, change, note) for item, two, change in pairs]
    order = {name: at for at, name in enumerate(sides[0].names)}
    return replace(name_map, pairings=tuple(sorted((*name_map.pairings, *new), key=lambda pair: order[pair.source])))


def _names_left(side: ParameterSet, known: Container[str]) -> list[Parameter]:
    return [one for one in side.parameters if one.name not in known and not one.tied_to and not one.buffer]


def _pieces(whole: Parameter, parts: Sequence[Parameter]) -> list[tuple[Parameter, Transform]]:
    """Each part with what makes it of the whole, in the order of registration; none where they do not make it up."""
    alike = {(part.module, is_float(part.dtype)) for part in parts}
    if len(alike) > 1 or len(whole.shape) != 1 or sum(part.count for part in parts) != whole.count:
        return []
    pieces, start = [], 0
    for part in parts:
        if max(part.shape, default=1) != prod(part.shape):
            return []
        cut = Slice(0, start, start + part.count, whole.shape)
        pieces.append((part, chained(cut, _shaped((part.count,), part.shape))))
        start += part.count
    return pieces


def _shaped(before: Shape, after: Shape) -> Transform:
    return IDENTITY if before == after else Reshape(after, before)
