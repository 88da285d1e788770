"""What is wrong with the port's dropout by itself: another share, other things that are dropped, a layer too few."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.core.training import DropoutReader
from align.models.restore_state import other_seed
from align.models.source_lines import made_at
from align.training.dropout.dropout_masks import ListedCalls
from align.training.dropout.pair_dropout_calls import are_alike, unlike_kinds, unlike_shares
from align.training.freeze import hold_dropout
from align.training.step_result import StepCulprit
from align.training.thresholds import DROP_SHARE_DIGITS, STEP_ROUNDING_SHARE
from align.training.watch_step import watch_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.core.protocols import Batch
    from align.core.training import DropoutCall, DropoutLayer
    from align.training.dropout.pair_dropout_calls import Pair, PairedDropout
    from align.training.open_training import TrainingSide

    Sides = tuple["DroppingSide", "DroppingSide"]

_KINDS = "values", "channels"


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
    for one in calls:
        share = round(one.share, DROP_SHARE_DIGITS)
        if share not in known:
            suspects = lacks.suspects(share, has)
            known[share] = bool(suspects) and _draws(lacks.opened, suspects, batch)
        if not known[share]:
            yield one


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
