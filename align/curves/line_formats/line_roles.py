"""What the numbers of one line stand for: its step, its epoch, its losses, its learning rate."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from align.curves.line_formats.log_words import (
    counter_kind,
    is_loss_name,
    is_rate,
    is_validation,
    log_words,
    loss_rank,
    words_of,
)
from align.curves.line_formats.numbers_of_line import NumberInLine, masked, numbers_of_line
from align.curves.thresholds import REMEMBERED_LINES

Place = Literal["through", "named", "ratio", "first"]
# Where a line tells several counters of steps, the surest is taken.
_SUREST: tuple[Place, ...] = ("through", "named", "ratio", "first")
_OPEN_RATIO = re.compile(r"[\[(|]\s*$")
_FRONT = re.compile(r"[\s\x00]*\[\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?[\]|]")
_EPOCHS = re.compile(r"(?i)\bepochs?[:\s]\s*[0-9]{1,3}%\|[^|]*\|\s*")
_BESIDE = re.compile(r"\]\s?\[\s*|\)\s?\(\s*")
_LIST, _NEXT = re.compile(r"[\[(]\s*$"), re.compile(r"\s*,\s*[-+]?\.?[0-9]")
_WORD = re.compile(r"[A-Za-z\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class LineRoles:
    """The numbers of a line by their role; `losses` of training, the surest first, with their ranks.

    `place` says how the step is known: by a name that counts through, by another, by a ratio without a name
    (`[20/5004]`), or by standing first in the line. `validation`: what it tells is of another phase.
    """

    number: int
    line: str
    step: NumberInLine | None
    place: Place | None
    epoch: NumberInLine | None
    losses: tuple[tuple[int, NumberInLine], ...]
    rate: NumberInLine | None
    validation: bool
    fields: int

    @property
    def counted(self) -> bool:
        """True if it tells a step or an epoch."""
        return self.step is not None or self.epoch is not None

    @property
    def loss(self) -> NumberInLine | None:
        """The surest loss of training; None if there is none."""
        return self.losses[0][1] if self.losses and not self.validation else None


@functools.lru_cache(maxsize=REMEMBERED_LINES)
def roles_of_line(
    number: int, line: str, *, bare: bool = False, fixed: frozenset[str] = frozenset(), asked: str = ""
) -> LineRoles:
    """Tell the roles of the numbers of a line; with `bare` a number after `train` alone is a loss.

    `fixed` names what is no counter, as it is the same in all lines, `asked` what alone is taken in place of a loss.
    """
    found = numbers_of_line(line)
    counts = [one for one in found if one.unit != "%"]
    step, place = _step(line, [one for one in counts if one.label not in fixed] if fixed else counts)
    epoch = next((one for one in counts if one.whole and counter_kind(_counter_label(one)) == "epoch"), None)
    epoch = _bare_epoch(counts) if epoch is None else epoch
    if step is not None and place == "ratio" and epoch is None:
        epoch, step = (step, None) if _is_bar_of_epochs(line, step) else _two_ratios(line, found, step)
    if step is None and epoch is None and (pair := _in_front(line, found)):
        step, place, epoch = pair[-1], "ratio", pair[0] if len(pair) > 1 else None
    usable = [one for one in found if not _begins_list(line, one)]
    losses = tuple((0, one) for one in usable if one.label == asked) if asked else _losses(usable, bare)
    rate = next((one for one in found if is_rate(one.label)), None)
    return LineRoles(number, line, step, place, epoch, losses, rate, _of_validation(line, found, losses), len(found))


def _bare_epoch(found: list[NumberInLine]) -> NumberInLine | None:
    """Return the number after the name of the phase alone, if steps with their total follow."""
    names = log_words().names["epoch.bare"]
    for one, after in pairwise(found):
        if one.whole and after.total and not after.label and " ".join(words_of(one.label)) in names:
            return one
    return None


def _is_bar_of_epochs(line: str, one: NumberInLine) -> bool:
    """Tell whether a ratio is that of a bar which counts epochs: `Epochs:  11%|#   | 11/100 [...]`."""
    bar = _EPOCHS.search(line)
    return bar is not None and bar.end() == one.start


def _two_ratios(line: str, found: list[NumberInLine], first: NumberInLine) -> tuple[NumberInLine | None, NumberInLine]:
    """Return an epoch and a step where two ratios stand in brackets side by side, `[0/25][10/391]`; else the first."""
    after = next((one for one in found if one.after >= first.end and one.start > first.end), None)
    beside = (
        after is not None and after.total and not after.label and _BESIDE.fullmatch(line[after.after : after.start])
    )
    return (first, after) if beside and after is not None else (None, first)


def _in_front(line: str, found: list[NumberInLine]) -> list[NumberInLine]:
    """Return a step, or an epoch and a step, in a bracket at the beginning of a line: `[2000]`, `[1,  2000]`."""
    front = _FRONT.match(masked(line))
    if front is None:
        return []
    inside = [one for one in found if one.end <= front.end() and one.whole]
    return inside if len(inside) == (2 if front[2] else 1) else []


def _counter_label(one: NumberInLine) -> str:
    """Return the label, or the name of a counter that stands behind: `1epoch`, `1-375batch`, `the 1 epoch's`."""
    return one.unit if counter_kind(one.unit) and not counter_kind(one.label) else one.label


def _step(line: str, found: list[NumberInLine]) -> tuple[NumberInLine | None, Place | None]:
    """Return the surest counter of steps."""
    places = {_place(line, found, index): one for index, one in reversed(list(enumerate(found))) if one.whole}
    place = next((one for one in _SUREST if one in places), None)
    return (None, None) if place is None else (places[place], place)


def _place(line: str, found: list[NumberInLine], index: int) -> Place | None:
    one = found[index]
    kind = counter_kind(_counter_label(one))
    if kind in ("through", "step"):
        return "through" if kind == "through" else "named"
    if _WORD.search(one.label) or one.unit:
        return None
    if one.total:
        behind_epoch = index > 0 and counter_kind(found[index - 1].label) == "epoch"
        return "ratio" if behind_epoch or _OPEN_RATIO.search(line[: one.start]) else None
    return "first" if index == 0 and not line[: one.start].strip() and line[one.end : one.end + 1] == " " else None


def _begins_list(line: str, one: NumberInLine) -> bool:
    """Tell whether a number is the first of several in a bracket, of which any may be meant."""
    return _LIST.search(line[: one.start]) is not None and _NEXT.match(line, one.end) is not None


def _losses(found: list[NumberInLine], bare: bool) -> tuple[tuple[int, NumberInLine], ...]:
    names = log_words().names["loss.bare"] if bare else frozenset[str]()
    ranked = [(0 if one.label in names else loss_rank(one.label), one) for one in found if one.unit != "%"]
    return tuple(sorted([(rank, one) for rank, one in ranked if rank is not None], key=lambda pair: pair[0]))


def _of_validation(line: str, found: list[NumberInLine], losses: tuple[tuple[int, NumberInLine], ...]) -> bool:
    """Tell by the words in front of the loss, but for names of other numbers; without a loss by counters' names."""
    if not found:
        return is_validation(masked(line))
    if not losses:
        counters = [one.label for one in found if counter_kind(one.label)]
        return any(map(is_validation, counters)) or any(is_loss_name(one.label) for one in found) or _starts_so(line)
    return is_validation(text_before(line, losses[0][1], found))


def _starts_so(line: str) -> bool:
    words = words_of(masked(line)[:80])
    return bool(words) and is_validation(words[0])


def text_before(line: str, loss: NumberInLine, found: list[NumberInLine]) -> str:
    """Return what stands in front of a loss, without the names of numbers that count nothing: `Test: [3/9]` counts."""
    text = masked(line)[: loss.label_start]
    for one in found:
        if one.label_end <= len(text) and not counter_kind(one.label) and not one.total:
            text = text[: one.label_start] + " " * (one.label_end - one.label_start) + text[one.label_end :]
    return text
