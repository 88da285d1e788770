"""Which lines of a log are its records: lines of one shape with a counter and a loss, or a loss below its counter.

Shapes go by what the step, the epoch and the loss are called and how they stand to each other; all else may vary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from align.curves.line_formats.line_roles import LineRoles, roles_of_line
from align.curves.line_formats.log_words import PART_RANK, is_validation, log_words, words_of
from align.curves.thresholds import LINES_BELOW_COUNTER, RECORD_FIELDS, RIVAL_LINES, SAMPLE_LINES, SECTION_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.curves.line_formats.numbers_of_line import NumberInLine
    from align.curves.log_sources import LogSource

_TELLING = re.compile(
    r"(?i)loss|cost|epoch|step|iter|batch|train|update|\bep\b|\bit\b|\bval|eval|test|lr\b|rate|损失|轮|迭代|步"
)
_DIGIT = re.compile(r"[0-9]|nan|NaN|inf")

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """Lines of one shape; `headers` are the lines with counters that the losses stand below, if they tell none.

    `others` are lines with a loss of training in another shape. `rivals` names other parts of a loss that as many
    lines tell.
    """

    lines: tuple[LineRoles, ...]
    headers: tuple[LineRoles, ...] = ()
    others: tuple[LineRoles, ...] = ()
    rivals: tuple[str, ...] = ()

    @property
    def sample(self) -> LineRoles:
        """Return a line that shows the shape; bars show a step 0 before the first."""
        middle = len(self.lines) // 2
        lines = (*self.lines[middle:], *self.lines[:middle])
        return next((one for one in lines if one.step is None or one.step.text.strip("0")), lines[0])


def sample_lines(source: LogSource, asked: str = "") -> list[LineRoles]:
    """Tell the roles of the numbers in the first lines that might hold a counter or a loss, or what is `asked`."""
    telling = (
        (number, line)
        for number, line in source.lines()
        if (_TELLING.search(line) or (asked and asked in line)) and _may_tell(line)
    )
    lines = list(islice(telling, SAMPLE_LINES))
    if asked:
        return _without_fixed([roles_of_line(number, line, asked=asked) for number, line in lines], asked)
    roles = [roles_of_line(number, line) for number, line in lines]
    if any(one.losses for one in roles):
        return _without_fixed(roles)
    bare = [roles_of_line(number, line, bare=True) for number, line in lines]
    twins = any(_is_twin(one) for one in roles)
    return bare if twins else roles


def _may_tell(line: str) -> bool:
    """Tell whether a line has numbers, or is the title of a section of another phase: `=== Evaluation ===`."""
    return _DIGIT.search(line) is not None or (len(line.split()) <= SECTION_WORDS and is_validation(line))


def _without_fixed(roles: list[LineRoles], asked: str = "") -> list[LineRoles]:
    """Take another counter where the one that was taken is the same in all lines with a loss: `total_steps: 500`."""
    texts: dict[str, set[str]] = {}
    for one in roles:
        if one.loss is not None and one.step is not None:
            texts.setdefault(one.step.label, set()).add(one.step.text)
    fixed = frozenset(label for label, unlike in texts.items() if label and len(unlike) == 1)
    if not fixed:
        return roles
    again = [roles_of_line(one.number, one.line, fixed=fixed, asked=asked) for one in roles]
    counted = [one for one in again if one.loss is not None and one.step is not None]
    # A number that no name calls a step, in front of an epoch, is a time: `377 epoch: 1 step: 229, loss: 0.5`.
    if any(one.place == "first" and one.epoch is not None for one in counted):
        return roles
    return again if len({one.step.text for one in counted if one.step is not None}) > 1 else roles


def _is_twin(roles: LineRoles) -> bool:
    """Tell whether a line is that of the validation, `0 val 10.9`, beside `0 train 10.9`."""
    words = roles.line.split()
    return roles.step is not None and any(word.strip(":=,") in log_words().names["validation.words"] for word in words)


def choose_records(roles: Sequence[LineRoles]) -> Records | None:
    """Return the records of a log, those with a step before those with an epoch alone; None if it has none."""
    losses = [one for one in roles if one.loss is not None]
    best = _most([one for one in losses if one.counted], losses)
    if best is not None and _is_whole(best):
        return best
    below = _below_counters(roles, losses)
    return below if below is not None and (best is None or _is_whole(below)) else best


def _is_whole(records: Records) -> bool:
    """Tell whether the losses are no parts of one."""
    return records.lines[0].losses[0][0] < PART_RANK


def _most(counted: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    """Return the lines of the shape that looks most like training, of those that count; `losses` are all lines."""
    shapes: dict[Key, list[LineRoles]] = {}
    for one in counted:
        shapes.setdefault(_shape(one), []).append(one)
    usable = {key: lines for key, lines in shapes.items() if len(lines) > 1 or _stands_alone(lines[0])}
    with_epoch = {_without_epoch(lines[0]) for lines in usable.values() if lines[0].epoch is not None}
    usable = {
        key: lines
        for key, lines in usable.items()
        if lines[0].epoch is not None or _without_epoch(lines[0]) not in with_epoch
    }
    if not usable:
        return None
    key = max(usable, key=lambda key: _worth(usable[key]))
    chosen = {one.number for one in usable[key]}
    others = tuple(one for one in losses if one.number not in chosen and (one.counted or _names_training(one)))
    return Records(tuple(usable[key]), (), others, _rivals(usable[key], usable.values()))


def _names_training(one: LineRoles) -> bool:
    return one.loss is not None and not {"train", "training"}.isdisjoint(words_of(one.loss.label))


def _without_epoch(one: LineRoles) -> Key:
    """Tell what a line has beside an epoch: lines like training's that lack it are of an evaluation."""
    return one.place, one.step and _last(one.step.label), one.loss and one.loss.label.lower()


def _rivals(chosen: Sequence[LineRoles], all_lines: Iterable[Sequence[LineRoles]]) -> tuple[str, ...]:
    """Name other parts of a loss that lines of their own tell, where what was chosen is a part too."""
    if chosen[0].losses[0][0] < PART_RANK:
        return ()
    names = [lines[0].losses[0][1].label for lines in all_lines if len(lines) * RIVAL_LINES >= len(chosen)]
    own = words_of(chosen[0].losses[0][1].label)
    return tuple(dict.fromkeys(name for name in names if words_of(name) != own))


def _stands_alone(one: LineRoles) -> bool:
    """Tell whether a line looks like a record without others: by many numbers, and a loss of no other words."""
    return one.fields >= RECORD_FIELDS and one.losses[0][0] < PART_RANK


def _worth(lines: Sequence[LineRoles]) -> tuple[bool, bool, bool, int]:
    """Whole losses before parts of one, numbered steps before epochs, then what most lines have."""
    first = lines[0]
    named = first.step is not None and first.place != "first"
    return _is_whole(Records(tuple(lines))), named or first.step is not None, len(lines) > 1, len(lines)


def _shape(one: LineRoles) -> Key:
    order = sorted((place.start, name) for name, place in _placed(one))
    return (
        one.place, one.step and (_last(one.step.label), bool(one.step.total)), one.epoch and _last(one.epoch.label),
        one.loss and one.loss.label.lower(), tuple(name for _, name in order),
    )  # fmt: skip


def _last(label: str) -> str:
    return label.lower().split()[-1] if label.split() else ""


def _placed(one: LineRoles) -> Iterator[tuple[str, NumberInLine]]:
    for name, place in (("step", one.step), ("epoch", one.epoch), ("loss", one.loss)):
        if place is not None:
            yield name, place


def _below_counters(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    """Pair losses without a counter with the line above that has one; each such line has one loss of a name at most."""
    names: dict[str, list[LineRoles]] = {}
    for one in losses:
        if one.loss is not None and not one.counted:
            names.setdefault(one.loss.label.lower(), []).append(one)
    pairings = (_paired_with_epochs(roles, own) or _paired(roles, own) for own in names.values())
    paired = [pairs for pairs in pairings if pairs is not None]
    whole = [one for one in paired if _is_whole(one)]
    best = max(whole or paired, key=lambda one: len(one.lines), default=None)
    return best and replace(best, rivals=_rivals(best.lines, [one.lines for one in paired]))


def _paired_with_epochs(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    """Pair losses with lines of an epoch alone, if each has one: lines of steps without a loss may stand between."""
    epochs = [one for one in roles if is_header(one) and one.epoch is not None and one.step is None]
    wanted = {one.number for one in losses}
    if len(epochs) < 2 or not any(is_header(one) and one.epoch is None for one in roles):
        return None
    records = _paired([*sorted([*epochs, *(one for one in roles if one.number in wanted)], key=_number)], losses)
    alike = {_shape(one) for one in epochs}
    return records if records is not None and len(alike) == 1 and len(records.lines) == len(epochs) else None


def _number(one: LineRoles) -> int:
    return one.number


def _paired(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    wanted, header = {one.number for one in losses}, None
    kept: list[LineRoles] = []
    headers: list[LineRoles] = []
    for one in roles:
        if is_header(one):
            header = one
        elif one.validation and not one.fields:
            header = None
        elif header is not None and one.number in wanted and _belongs(one, header):
            kept.append(one)
            headers.append(header)
    once = len({one.number for one in headers})
    if _stand_above(kept, headers, losses) or _are_closed(roles, headers, losses):
        return None
    # Where lines were shuffled, some counters have several losses and others none.
    return Records(tuple(kept), tuple(headers)) if len(kept) > 1 and once == len(kept) else None


def _stand_above(kept: Sequence[LineRoles], headers: Sequence[LineRoles], losses: Sequence[LineRoles]) -> bool:
    """Tell whether losses stand above their counters: one comes before the first of these, all others between."""
    return bool(kept) and losses[0].number < headers[0].number and len(kept) == len(losses) - 1


def _are_closed(roles: Sequence[LineRoles], headers: Sequence[LineRoles], losses: Sequence[LineRoles]) -> bool:
    """Tell whether lines of the usual counter stand below their losses: one is last of all, and none is first."""
    if not headers:
        return False
    usual = _shape(headers[len(headers) // 2])
    alike = [one.number for one in roles if is_header(one) and not one.validation and _shape(one) == usual]
    return alike[0] > losses[0].number and alike[-1] > losses[-1].number


def _belongs(loss: LineRoles, header: LineRoles) -> bool:
    return not header.validation and loss.number - header.number <= LINES_BELOW_COUNTER


def is_header(one: LineRoles) -> bool:
    """Tell whether a line tells where what follows belongs: it has a counter and no whole loss."""
    if not one.counted or (one.losses and one.losses[0][0] < PART_RANK):
        return False
    return one.epoch is not None or one.place in ("through", "named")


def counted_by_headers(records: Records, roles: Iterable[LineRoles]) -> tuple[LineRoles, ...]:
    """Return the lines with an epoch alone that stand between records without one, where their steps start again."""
    if records.headers or any(one.epoch is not None for one in records.lines):
        return ()
    steps = [int(one.step.text) for one in records.lines if one.step is not None]
    back = [index for index in range(1, len(steps)) if steps[index] < steps[index - 1]]
    headers = [
        one for one in roles if one.epoch is not None and one.step is None and not one.losses and not one.validation
    ]
    if not back or not headers:
        return ()
    bounds = [(records.lines[index - 1].number, records.lines[index].number) for index in back]
    between = all(any(first < one.number < last for one in headers) for first, last in bounds)
    # A log may begin inside an epoch, whose own line it lacks then.
    whole = headers[0].number < records.lines[0].number or headers[0].number > bounds[0][0]
    return tuple(headers) if between and whole else ()
