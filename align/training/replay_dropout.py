"""Dropout of both sides while training steps are compared: the reference's masks on both, or none on either.

Which calls there are is seen in one step of each side. Where the calls of the port do not stand for the reference's,
masks would make steps differ that are the same, so there are none. What is wrong with the port's dropout by itself is
told: another share, other things that are dropped, a layer too few.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import SIDES
from align.core.training import DropoutCall, DropoutReader
from align.core.verdicts import Finding
from align.models.loop_watcher import layers_recomputed
from align.models.source_lines import made_at
from align.models.user_code import other_seed
from align.training.open_training import StepUnseen, hold_dropout, watch_step
from align.training.step_result import StepCulprit
from align.training.thresholds import DROP_SHARE_DIGITS, OWN_SEED, SAME_NAMES_SHARE, STEP_ROUNDING_SHARE
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array, Shape
    from align.core.protocols import Batch
    from align.core.training import DropoutLayer
    from align.training.open_training import TrainingSide
    from align.training.step_result import ComparedLayer, StepComparison

    Sides = tuple["DroppingSide", "DroppingSide"]
    Pair = tuple[DropoutCall, DropoutCall]


# Masks of dropout that are the same in every run: drawn from the place of a call in the run, its shape and share.

# Of these alone a tensor may lack the samples; Dropout2d takes three axes as N, C, L.
UNBATCHED = (1, 3)  # format: axes behind the channels, of Dropout1d and Dropout3d
Run = tuple[DropoutCall, ...]


def draw_mask(place: int, shape: Shape, share: float, spatial: int = 0) -> Array:
    """A mask of 0 and 1/(1-share) by which a tensor of this shape can be multiplied, in float64.

    `place` counts the calls of a run from 0. With `spatial` axes behind the channels it has length 1 in these.
    """
    lead = len(shape) if not spatial else 1 if spatial in UNBATCHED and len(shape) == spatial + 1 else 2
    drawn = (*shape[:lead], *(1 for _ in shape[lead:]))
    kept = np.random.default_rng((OWN_SEED, place, *shape)).random(drawn, dtype=np.float32) >= share
    return kept / (1.0 - share) if share < 1.0 else np.zeros(drawn)


@dataclass
class ListedCalls:
    """A DropoutSink whose masks are 1, and that lists the calls of each run of the model.

    `outside` are the paths of layers that were called while the model itself was not: by a step that calls parts of
    it, or on the way back, where what was not kept is computed anew.
    """

    runs: list[Run] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    _calls: list[DropoutCall] | None = None

    @property
    def kinds(self) -> list[Run]:
        """The runs that differ, in their order: the parts of a batch run alike."""
        return [*dict.fromkeys(self.runs)] or [()]

    @property
    def called(self) -> set[str]:
        """The paths of all layers that were called."""
        return {one.path for run in self.runs for one in run} | set(self.outside)

    def begin(self) -> None:
        """Start a run."""
        self._calls = []

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array:
        """List the call; what is multiplied is computed anew on the way back where a true mask would be."""
        if self._calls is None:
            self.outside.append(layer.path)
        else:
            kind, share = type(layer.module).__name__, layer.share if active else 0.0
            self._calls.append(DropoutCall(len(self._calls), layer.path, kind, shape, share, layer.spatial))
        return np.ones([1] * len(shape))

    def end(self) -> None:
        """Keep the run."""
        self.runs.append(tuple(self._calls or ()))
        self._calls = None


@dataclass
class PlannedMasks:
    """A DropoutSink that gives each call the mask of the reference's call that stands for it, else one of its own.

    The calls of the reference are known by the place and the path of the side's.
    """

    planned: Mapping[tuple[int, str], DropoutCall] = field(default_factory=dict)
    _place: int = 0

    def begin(self) -> None:
        """Count anew."""
        self._place = 0

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array | None:
        """Draw it."""
        place, meant = self._place, self.planned.get((self._place, layer.path))
        self._place += 1
        if meant is not None:
            return draw_mask(meant.place, shape, meant.share, meant.spatial) if meant.share else None
        return draw_mask(place, shape, layer.share, layer.spatial) if active and layer.share else None

    def end(self) -> None:
        """Nothing: what is called later counts on."""


_KINDS = "values", "channels"


class DropoutReplay:
    """A context in which both sides drop the same, or nothing; `culprits` is what is wrong with the port's dropout."""

    def __init__(self, opened: tuple[TrainingSide, TrainingSide], batch: Batch) -> None:
        self._sides = DroppingSide.of(opened[0]), DroppingSide.of(opened[1])
        self._batch = batch
        self._stack, self._masks = ExitStack(), ExitStack()
        self._held: list[tuple[str, ...]] = []
        self._replayed: tuple[Pair, ...] = ()
        self._reason = ""
        self.culprits: list[StepCulprit] = []

    def __enter__(self) -> DropoutReplay:
        paired = self._paired() if any(layer.share for side in self._sides for layer in side.layers) else None
        for side in self._sides:
            self._held.append(self._stack.enter_context(hold_dropout(side.opened.training.model)).dropout)
        self._stack.enter_context(self._masks)
        if paired is not None and not self._reason:
            self._replay(paired)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _paired(self) -> PairedDropout:
        for side in self._sides:
            _list_calls(side, self._batch)
        paired = pair_dropout(self._sides[0].listed, self._sides[1].listed)
        reasons = [
            sentence("dropout_finding.outside", side=role, paths=[*dict.fromkeys(side.listed.outside)])
            for role, side in zip(SIDES, self._sides, strict=True)
            if side.listed.outside
        ]
        self._reason = joined("; ", reasons) if reasons else ""
        if not self._reason:
            self.culprits = dropout_culprits(paired, self._sides, self._batch)
            missing = any(one.cause == "dropout-missing" for one in self.culprits)
            self._reason = "" if paired.fit or (paired.clear and not missing) else _unfit(paired, self._sides)
        return paired

    def _replay(self, paired: PairedDropout) -> None:
        """Let masks take the place of what both sides draw; what the other side drops in code is off on both."""
        self._replayed = tuple(pair for pair in paired.pairs if pair[0].share)
        plans = [{(one.place, one.path): replace(one, share=0.0) for one in calls} for calls in paired.alone]
        plans[1] |= {(theirs.place, theirs.path): mine for mine, theirs in paired.pairs}
        for side, plan in zip(self._sides, plans, strict=True):
            reader, model = side.opened.side.reader, side.opened.training.model
            if isinstance(reader, DropoutReader):
                self._masks.enter_context(reader.masked(side.layers, model, PlannedMasks(plan)))

    def compare_steps(self, compare: Callable[[str], StepComparison]) -> StepComparison:
        """Compare steps, and once more with other masks, or none, where those do not fit; each time has a name.

        A layer for dropout only multiplies what it is given: if that is wrong, its mask is that of another call, or
        lies otherwise in memory.
        """
        result, culprits = compare("masks"), self.culprits
        if (result.culprits or culprits) and self._paired_as(result.layers):
            other = compare("other-masks")
            if len(other.culprits) + len(self.culprits) < len(result.culprits) + len(culprits):
                result = other
            else:
                self.culprits = culprits
        return compare("no-masks") if self._given_up(result.culprits) else result

    def _paired_as(self, layers: Sequence[ComparedLayer]) -> bool:
        """Let masks follow the calls as parameters and places pair them, the rest by their order, if that differs."""
        mine, theirs = ({pair[side].path: pair[side] for pair in self._replayed} for side in (0, 1))
        partners = {one.candidate: one.reference for one in layers if one.candidate in theirs and one.reference in mine}
        if not len(mine) == len(theirs) == len(self._replayed) or len({*partners.values()}) < len(partners):
            return False  # a layer that is called several times
        left = (
            [path for path in theirs if path not in partners],
            [path for path in mine if path not in partners.values()],
        )
        partners |= dict(zip(*left, strict=True))
        pairs = tuple((mine[partners[path]], call) for path, call in theirs.items())
        if {*pairs} == {*self._replayed} or any(a.shape != b.shape for a, b in pairs):
            return False
        self._masks.close()
        self._replay(PairedDropout(pairs))
        self.culprits = dropout_culprits(PairedDropout(pairs), self._sides, self._batch)
        return True

    def _given_up(self, culprits: Sequence[StepCulprit]) -> bool:
        """Take the masks off if layers for dropout are culprits."""
        replayed = {theirs.path for _, theirs in self._replayed}
        wrong = [one.candidate for one in culprits if one.kind == "forward" and one.part == "layer"]
        unfit = [path for path in wrong if path in replayed]
        if unfit:
            self._masks.close()
            self._replayed = ()
            self._reason = sentence("dropout_finding.unfit", paths=unfit)
        return bool(unfit)

    @property
    def findings(self) -> Iterator[Finding]:
        """What was done with dropout, and why."""
        replayed = [{pair[number].path for pair in self._replayed} for number in (0, 1)]
        idle = [{one.path for one in side.layers if not one.share} for side in self._sides]
        off = [len(set(held) - own - none) for held, own, none in zip(self._held, replayed, idle, strict=True)]
        if self._replayed:
            counts = dict(zip(SIDES, map(len, replayed), strict=True))
            yield Finding("dropout-replayed", "note", "dropout", sentence("dropout_finding.replayed", **counts))
        if any(off):
            counts = dict(zip(SIDES, off, strict=True))
            yield Finding("dropout-off", "note", "dropout", sentence("dropout_finding.off_both", **counts))
        if self._reason:
            message = sentence("dropout_finding.not_replayed", reason=self._reason)
            yield Finding("dropout-not-replayed", "warning", "dropout", message)


def _list_calls(side: DroppingSide, batch: Batch) -> None:
    reader, model = side.opened.side.reader, side.opened.training.model
    if isinstance(reader, DropoutReader):
        with hold_dropout(model), reader.masked(side.layers, model, side.listed), layers_recomputed():
            side.opened.trainer.take_steps(side.opened.training, (batch,), StepUnseen())


def _unfit(paired: PairedDropout, sides: tuple[DroppingSide, DroppingSide]) -> str:
    sided = [(role, call) for role, calls in zip(SIDES, paired.alone, strict=True) for call in calls]
    if sided:
        alone = [sentence("dropout_finding.call_of", call=_shown(call), side=role) for role, call in sided]
        return sentence("dropout_finding.alone", calls=alone)
    unlike = [(_shown(a), _shown(b)) for a, b in paired.pairs if a.shape != b.shape]
    if unlike:
        pairs = [sentence("dropout_finding.pair", one=first, other=second) for first, second in unlike]
        return sentence("dropout_finding.unlike_shapes", pairs=pairs)
    counts = [sum(bool(call.share) for run in side.listed.kinds for call in run) for side in sides]
    return sentence("dropout_finding.unlike_counts", **dict(zip(SIDES, counts, strict=True)))


def _shown(call: DropoutCall) -> str:
    return f"{call.path or call.class_name} {[*call.shape]}"


@dataclass
class DroppingSide:
    """A side with its layers for dropout, their calls, and the shares that other modules keep, by path."""

    opened: TrainingSide
    layers: list[DropoutLayer] = field(default_factory=list)
    kept: dict[str, set[float]] = field(default_factory=dict)
    listed: ListedCalls = field(default_factory=ListedCalls)

    @classmethod
    def of(cls, opened: TrainingSide) -> DroppingSide:
        """Read the shares of a side, before they are held at 0."""
        reader, model = opened.side.reader, opened.training.model
        if not isinstance(reader, DropoutReader):
            return cls(opened)
        layers = reader.dropout_layers(model)
        own = {one.path for one in layers}
        others = [(path, module, names) for path, module, names in reader.dropouts(model) if path not in own]
        return cls(opened, layers, {path: _shares(vars(module), names) for path, module, names in others})

    def suspects(self, share: float, other: DroppingSide) -> set[str]:
        """Paths of what may drop this share in code: layers that are not called, and modules that the other lacks."""
        called = self.listed.called
        idle = {
            one.path for one in self.layers if one.path not in called and round(one.share, DROP_SHARE_DIGITS) == share
        }
        mine, theirs = ({path for path, kept in side.kept.items() if share in kept} for side in (self, other))
        return idle | mine if len(mine) > len(theirs) else idle


def _shares(values: Mapping[str, object], names: Iterable[str]) -> set[float]:
    """The shares that a module keeps, each as one that is dropped and as one that is kept."""
    numbers = [value for name in names if isinstance(value := values.get(name), (int, float)) and 0 < value < 1]
    return {round(share, DROP_SHARE_DIGITS) for value in numbers for share in (value, 1.0 - value)}


def dropout_culprits(paired: PairedDropout, sides: Sides, batch: Batch) -> list[StepCulprit]:
    """Name each layer of the port that drops otherwise, and each that one side lacks and does not drop for in code.

    Both sides must drop what they drop of themselves.
    """
    alike = [pair for pair in paired.pairs if are_alike(pair)]
    found = [_unlike(pair, sides[1]) for pair in alike if unlike_shares(pair) or unlike_kinds(pair)]
    found += [_missing(one, sides, 1) for one in _alone(paired.alone[0], *sides, batch)]
    found += [_missing(one, sides, 0) for one in _alone(paired.alone[1], *sides[::-1], batch)]
    return [*{(one.reference, one.candidate, one.cause): one for one in found}.values()]


def _unlike(pair: Pair, port: DroppingSide) -> StepCulprit:
    mine, theirs = pair
    shares = unlike_shares(pair)
    drops = (mine.share, theirs.share) if shares else (_KINDS[bool(mine.spatial)], _KINDS[bool(theirs.spatial)])
    facts: dict[str, float | int | str] = {"p" if shares else "drops": f"{_word(drops[0])} vs {_word(drops[1])}"}
    return StepCulprit(
        "forward", "layer", mine.path, theirs.path, mine.class_name, theirs.class_name, 0.0,
        "dropout-share" if shares else "dropout-kind", facts, line=made_at(port.opened.training.model, theirs.path),
        change=f"p={mine.share:.6g}" if shares else "", sureness="confirmed",
    )  # fmt: skip


def _word(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _alone(calls: Iterable[DropoutCall], has: DroppingSide, lacks: DroppingSide, batch: Batch) -> Iterator[DropoutCall]:
    """Yield the calls of one side whose share the other surely does not drop in code."""
    known: dict[float, bool] = {}
    for call in calls:
        share = round(call.share, DROP_SHARE_DIGITS)
        if share not in known:
            suspects = lacks.suspects(share, has)
            known[share] = bool(suspects) and _draws(lacks.opened, suspects, batch)
        if not known[share]:
            yield call


def _missing(call: DropoutCall, sides: Sides, lacking: int) -> StepCulprit:
    """A layer that one side, 0 or 1, lacks, or has at the same path and does not call."""
    idle = next((one for one in sides[lacking].layers if one.path == call.path), None)
    has, lacks = (call.path, call.class_name), (idle.path, type(idle.module).__name__) if idle else ("", "")
    mine, theirs = (has, lacks) if lacking else (lacks, has)
    share = f"{_word(call.share)} vs none" if lacking else f"none vs {_word(call.share)}"
    line = made_at(sides[1].opened.training.model, theirs[0]) if idle or not lacking else ""
    return StepCulprit(
        "forward", "layer", mine[0], theirs[0], mine[1], theirs[1], 0.0,
        "dropout-missing", {"p": share}, line=line, sureness="confirmed",
    )  # fmt: skip


def _draws(opened: TrainingSide, suspects: set[str], batch: Batch) -> bool:
    """Tell whether a step draws random numbers while all dropout is held but that of the suspects."""
    with hold_dropout(opened.training.model, but=suspects):
        first = watch_step(opened, batch)
        with other_seed():
            second = watch_step(opened, batch)
    figures = [
        [step.loss or 0.0, *(one.gradient or 0.0 for one in step.parameters.values())] for step in (first, second)
    ]
    return any(abs(a - b) > STEP_ROUNDING_SHARE * max(abs(a), abs(b)) for a, b in zip(*figures, strict=True))


# Which calls of dropout of the port stand for which of the reference's, and those that stand on one side only.


@dataclass(frozen=True, slots=True)
class PairedDropout:
    """Pairs of calls, and the calls that stand `alone` on one side; calls that drop nothing may be left out.

    They are `clear` if all pairs are of one shape and no other pairs could be meant.
    """

    pairs: tuple[Pair, ...]
    alone: tuple[tuple[DropoutCall, ...], tuple[DropoutCall, ...]] = ((), ())
    clear: bool = True

    @property
    def fit(self) -> bool:
        """Tell whether each call has its partner."""
        return self.clear and not any(self.alone)


def pair_dropout(reference: ListedCalls, candidate: ListedCalls) -> PairedDropout:
    """Pair the calls of both sides, run by run."""
    runs = reference.kinds, candidate.kinds
    paired_runs = [pair_runs(mine, theirs) for mine, theirs in zip(*runs, strict=False)]
    return PairedDropout(
        tuple(pair for run in paired_runs for pair in run.pairs),
        (
            tuple(call for run in paired_runs for call in run.alone[0]),
            tuple(call for run in paired_runs for call in run.alone[1]),
        ),
        len(runs[0]) == len(runs[1]) and all(run.clear for run in paired_runs),
    )


def pair_runs(reference: Run, candidate: Run) -> PairedDropout:
    """Pair the calls of one run by their order: in each module, if those that call are of the same names, else in all.

    So branches may run in another order. Layers that drop nothing count only if all calls fit with them.
    """
    dropping = tuple(one for one in reference if one.share), tuple(one for one in candidate if one.share)
    for mine, theirs in ((reference, candidate), dropping):
        if len(mine) == len(theirs):
            for pairs in (_by_parents(mine, theirs), (*zip(mine, theirs, strict=True),)):
                if pairs is not None and all(a.shape == b.shape for a, b in pairs):
                    return PairedDropout(pairs)
    return _nearest(*dropping)


def _by_parents(reference: Run, candidate: Run) -> tuple[Pair, ...] | None:
    """None unless modules of the same paths hold equally many of the calls."""
    mine, theirs = (
        dict(zip(_numbered(one.path.rpartition(".")[0] for one in calls), calls, strict=True))
        for calls in (reference, candidate)
    )
    return tuple((mine[name], theirs[name]) for name in mine) if mine.keys() == theirs.keys() else None


def _numbered(paths: Iterable[str]) -> list[Hashable]:
    """Each path with how often it came before."""
    seen: Counter[str] = Counter()
    numbered: list[Hashable] = []
    for path in paths:
        numbered.append((path, seen[path]))
        seen[path] += 1
    return numbered


def _sizes(calls: Iterable[DropoutCall]) -> list[Hashable]:
    """The size of each call's tensor, whatever its layout, and its share."""
    return [(prod(one.shape), round(one.share, DROP_SHARE_DIGITS)) for one in calls]


def _nearest(reference: Run, candidate: Run) -> PairedDropout:
    """Pair what is alike in order; where one side has nothing in between, the other's calls stand alone."""
    keys = _keys(reference, candidate)
    pairs: list[Pair] = []
    gaps = []
    for _, start, stop, first, last in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        mine, theirs = reference[start:stop], candidate[first:last]
        if len(mine) == len(theirs):
            pairs += zip(mine, theirs, strict=True)
        else:
            gaps.append((mine, theirs))
    sure = [(mine, theirs) for mine, theirs in gaps if not mine or not theirs]
    alone = tuple(one for mine, _ in sure for one in mine), tuple(one for _, theirs in sure for one in theirs)
    clear = len(sure) == len(gaps) and all(a.shape == b.shape for a, b in pairs)
    return PairedDropout(tuple(pairs), alone, clear and _are_distinct(alone, pairs))


def _are_distinct(alone: tuple[Run, Run], pairs: Sequence[Pair]) -> bool:
    """Tell whether calls stand alone by name or size, and not by chance among others of one size."""
    named = all(a.path == b.path for a, b in pairs)
    sizes = [{prod(pair[side].shape) for pair in pairs} for side in (0, 1)]
    return named or not any(prod(one.shape) in sizes[side] for side in (0, 1) for one in alone[side])


def _keys(reference: Run, candidate: Run) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    names = _numbered(one.path for one in reference), _numbered(one.path for one in candidate)
    common = set(names[0]) & set(names[1])
    if len(common) >= SAME_NAMES_SHARE * max(1, min(len(reference), len(candidate))):
        return names
    return _sizes(reference), _sizes(candidate)


def are_alike(pair: Pair) -> bool:
    """Tell whether two calls surely stand for each other, though the tensor may lie otherwise: by name or size."""
    return pair[0].path == pair[1].path or prod(pair[0].shape) == prod(pair[1].shape)


def unlike_shares(pair: Pair) -> bool:
    """Tell whether two calls drop another share."""
    return round(pair[0].share, DROP_SHARE_DIGITS) != round(pair[1].share, DROP_SHARE_DIGITS)


def unlike_kinds(pair: Pair) -> bool:
    """Tell whether one drops single values where the other drops whole channels; one that drops nothing is like any."""
    mine, theirs = pair
    return bool(mine.share and theirs.share and bool(mine.spatial) != bool(theirs.spatial))
