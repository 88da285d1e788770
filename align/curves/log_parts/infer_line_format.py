"""A LineFormat for a log that no format knows: its records found, an expression written, one held against the other.

What the expression finds must be what was understood of the lines, or nothing is inferred. How steps are counted is
shown by all records, not by the sample.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.line_format import (
    LineFormat,
    counter_pattern,
    find_table,
    loss_pattern,
    record_pattern,
    table_pattern,
)
from align.curves.log_parts.line_roles import (
    MEAN_RANK,
    PART_RANK,
    LineRoles,
    counter_kind,
    is_loss_name,
    is_validation,
    log_words,
    numbers_of_line,
    roles_of_line,
    words_of,
)
from align.curves.log_parts.record_lines import distance_from_zero, starts_again
from align.curves.loss_log import find_metric
from align.curves.thresholds import LINES_BELOW_COUNTER, RECORD_FIELDS, RIVAL_LINES, SAMPLE_LINES, SECTION_WORDS
from align.errors import NoNumberError, NoStepError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers, LossLog


_WORD = re.compile(r"[A-Za-z]+")
_SECOND = re.compile(r"\s*\([0-9][0-9.]*(?:[eE][-+]?[0-9]+)?\)")
_MEMBER = re.compile(r'"[^"]+"\s*:')
NAME = "lines"
SUMMARY = "any lines that repeat, with a step or an epoch and a loss"
# In a bracket a comma parts two numbers: `[1,200]` is step 200 of epoch 1.
_GROUPED = re.compile(
    r"(?<![\[(\w.,])[-+]?[0-9]+(?:[,_][0-9]+)+(?:\.[0-9]+)?(?![\w,])|(?<![\w.])[0-9]+(?:\.[0-9]+)?[kKM](?![\w/])"
)


@dataclass(frozen=True, slots=True)
class Inference:
    """What was inferred: the format, line `number` that shows it, and the options that say what a pattern cannot.

    `parts` names the parts of a loss where a line has several and no whole. `through`: steps are named as those of the
    whole run. `metric` is what was asked for, and stands in place of the loss.
    """

    line_format: LineFormat
    number: int
    line: str
    parts: tuple[str, ...] = ()
    through: bool = False
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    metric: str = ""


def infer_line_format(source: LogSource) -> Inference | None:
    """Infer the format of the lines of a log; None if no expression finds what its lines seem to tell.

    A metric that is asked for stands in place of the loss where the lines name none, or several, or do not hold it
    beside. Raises NoStepError or NoNumberError where the digits of a step or a loss are parted.
    """
    usual = _infer(source, "")
    if source.metric == "loss" or (usual is not None and not usual.parts and _holds(usual, source.metric)):
        return usual
    return _infer(source, source.metric) or usual


def _holds(inference: Inference, metric: str) -> bool:
    """Tell whether records hold a metric beside the loss."""
    match = inference.line_format.compiled.search(inference.line)
    names = {} if match is None else {**match.groupdict(), **inference.line_format.others(inference.line, match)}
    return find_metric(names, metric) is not None


def _infer(source: LogSource, metric: str) -> Inference | None:
    roles = sample_lines(source, metric)
    refuse_grouped_digits(source.label, roles)
    records = choose_records(roles)
    usable = records is not None and _varies(records) and not _may_lack_digits(source, records)
    if records is not None and usable and not _crosses_objects(source, records):
        for pattern in _patterns(records, roles):
            line_format = LineFormat(NAME, SUMMARY, pattern, keeps_all=True)
            if _finds(line_format, records, roles):
                return replace(_of_records(line_format, records), metric=metric)
    return _of_table(source, metric)


def _of_records(line_format: LineFormat, records: Records) -> Inference:
    sample = records.sample
    names = tuple(dict.fromkeys([*(one.label for _, one in sample.losses), *records.rivals]))
    parts = names if sample.losses[0][0] >= PART_RANK and len(names) > 1 else ()
    through, notes = sample.place == "through", tuple(loss_notes(records))
    return Inference(line_format, sample.number, sample.line, parts, through, notes=notes)


def _of_table(source: LogSource, metric: str) -> Inference | None:
    """Infer from a table whose names stand above its rows."""
    table = find_table(source, metric)
    if table is None:
        return None
    pattern = table_pattern(table)
    line_format = LineFormat(NAME, SUMMARY, pattern, keeps_all=True, columns=table.names, delimiter=table.delimiter)
    notes = [sentence("lines_note.columns", line=table.header, loss=table.names[table.loss])]
    if not table.numbered:
        notes.append(sentence("lines_note.rows_are_epochs" if table.counts_epochs else "lines_note.rows_are_steps"))
    return Inference(line_format, *table.row, parts=table.parts, notes=tuple(notes), metric=metric)


def _may_lack_digits(source: LogSource, records: Records) -> bool:
    """Tell whether all that is there is one record, whose loss ends where the text stops without a line's end."""
    sample = records.sample
    if len(records.lines) > 1 or not source.was_cut:
        return False
    number, line = list(source.lines())[-1]
    return number == sample.number and sample.losses[0][1].end == len(line.rstrip())


def _crosses_objects(source: LogSource, records: Records) -> bool:
    """Tell whether losses that stand below counters are members of other JSON objects, as where a file was cut."""
    loss = records.sample.line.strip()
    if not records.headers or not _MEMBER.match(loss):
        return False
    header = dict(zip((one.number for one in records.lines), records.headers, strict=True))[records.sample.number]
    at = source.text.find(loss)
    begun = max(source.text.rfind("{", 0, at), source.text.rfind("}", 0, at))
    return source.text.find(header.line.strip(), begun, at) < 0


def _varies(records: Records) -> bool:
    """Tell whether the losses are of several steps, or those of a lone record."""
    counted = records.headers or records.lines
    counters = {(one.step.text if one.step else "", one.epoch.text if one.epoch else "") for one in counted}
    return len(counters) > 1 or len(records.lines) == 1


def _patterns(records: Records, roles: list[LineRoles]) -> Iterator[str]:
    """Yield expressions, the fullest first; words of another phase in front of the loss are forbidden if need be."""
    sample, other = records.sample, "|".join(_other_phase(roles))
    if records.headers:
        header = counter_pattern(records.headers[len(records.headers) // 2])
        phase = [rf"(?<![A-Za-z])(?P<validation>{other})\b.*?{_unnamed(header)}"] * bool(other)
        yield "|".join([*phase, header, loss_pattern(sample)])
        if said := "|".join(_other_phase(roles, counted=False)):
            yield "|".join([*phase, header, _guarded(said, sample, loss_pattern(sample))])
        return
    between = counted_by_headers(records, roles)
    head = f"{counter_pattern(between[len(between) // 2])}|" if between else ""
    for rate, overflow in ((True, True), (True, False), (False, False)):
        plain = record_pattern(sample, rate=rate, overflow=overflow)
        yield head + plain
        if other:
            yield head + _guarded(other, sample, plain)


def _unnamed(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


def _guarded(other: str, sample: LineRoles, pattern: str) -> str:
    """Forbid words of another phase in front of the loss."""
    return rf"^(?!.*?(?<![A-Za-z])(?:{other})(?![a-z]).*?{_unnamed(loss_pattern(sample))}).*?{pattern}"


def _other_phase(roles: list[LineRoles], *, counted: bool = True) -> list[str]:
    """Return the words by which lines of another phase, with a counter or a loss, differ from the records."""
    others = (one for one in roles if one.validation and (one.counted if counted else one.fields))
    words = {word for one in others for word in _WORD.findall(one.line)}
    return sorted(filter(is_validation, words))


def _finds(line_format: LineFormat, records: Records, roles: list[LineRoles]) -> bool:
    """Tell whether the expression finds in each line what its roles say, and all the records."""
    matched, wanted = 0, {line.number: line for line in records.lines}
    for line in roles:
        match = line_format.compiled.search(line.line)
        if match is None or not match["loss"]:
            if line.number in wanted:
                return False
            continue
        if line.loss is None or line.validation or match.start("loss") != line.loss.start:
            return False
        groups, counters = match.groupdict(), (("step", line.step), ("epoch", line.epoch))
        if any(groups.get(name) and (role is None or role.text != groups[name]) for name, role in counters):
            return False
        matched += line.number in wanted
    return matched >= len(wanted)


def decide_counting(inference: Inference, log: LossLog) -> Inference:
    """Say how the records count, by all of them: through or inside epochs, from 0 or 1, how long an epoch is."""
    line_format, table, options, notes = inference.line_format, log.table, [], []
    steps, epochs = table.steps, table.epochs
    bar = "%|" in inference.line
    if bar and int(steps.min()) == 0 and int(steps.max()) > 0:
        done = re.sub(r"\(\?P<(step|epoch)>\\d\+\)", _positive, line_format.pattern)
        line_format = replace(line_format, pattern=done)
        notes.append(sentence("lines_note.bar_at_zero"))
    if "?P<step>" not in line_format.pattern:
        return replace(inference, line_format=line_format, notes=(*notes, *inference.notes))
    if epochs is not None and not _restarts(steps, epochs, table.totals, inference):
        line_format, epochs = replace(line_format, pattern=line_format.pattern.replace("?P<epoch>", "?:")), None
    base = "" if bar else _base_by_distance(steps, epochs, table.totals)
    if bar:
        line_format = replace(line_format, base=1)
        options.append("--base 1")
    if base:
        line_format = replace(line_format, base=0)
        options.append("--base 0")
        notes.append(sentence("lines_note.counted_from_zero", reason=base))
    shown_alone = len(np.unique(steps)) == 1
    if epochs is not None and table.totals is None and shown_alone and len(np.unique(epochs)) > 1 and steps[0]:
        length = int(steps[0]) + (line_format.base == 0)
        line_format = replace(line_format, steps_per_epoch=length)
        options.append(f"--steps-per-epoch {length}")
        notes.append(sentence("lines_note.shown_alone", length=length))
    return replace(inference, line_format=line_format, options=tuple(options), notes=(*notes, *inference.notes))


def _positive(group: re.Match[str]) -> str:
    """Write the group of a counter that is not 0; beside a step an epoch may be."""
    with_step = "?P<step>" in group.string
    return group[0] if with_step and group[1] == "epoch" else rf"(?P<{group[1]}>0*[1-9]\d*)"


def _restarts(steps: Integers, epochs: Integers, totals: Integers | None, inference: Inference) -> bool:
    """Tell whether steps start again with each epoch: those of two epochs overlap, or one epoch says its length."""
    if inference.through:
        return False
    if (epochs == epochs[0]).all():
        return totals is not None or int(epochs[0]) > 1
    return starts_again(steps, epochs)


def _base_by_distance(steps: Integers, epochs: Integers | None, totals: Integers | None) -> str:
    """Return why the first step is called 0, though the log has none so called; "" if nothing tells that."""
    known = np.unique(steps)
    if known[0] == 0:
        return ""
    from_zero = epochs is not None and int(epochs.min()) == 0 and (int(epochs.max()) > 0 or int(known[0]) > 1)
    if from_zero and totals is not None and int(steps.max()) < int(totals.max()):
        return sentence("lines_note.epochs_are")
    distance = distance_from_zero(known)
    return sentence("lines_note.one_less", distance=distance) if distance else ""


def loss_notes(records: Records) -> Iterator[str]:
    """Say what else might be the loss, and what the number that was taken may be the mean of."""
    rank, loss = records.sample.losses[0]
    others = list(dict.fromkeys(one.label for other, one in records.sample.losses[1:] if other < PART_RANK))
    if others:
        yield sentence("lines_note.also_in_line", loss=loss.label, others=others)
    elif rank >= PART_RANK:
        yield sentence("lines_note.only_one", loss=loss.label)
    if rank % PART_RANK >= MEAN_RANK:
        yield sentence("lines_note.mean_untold", loss=loss.label)
    if _SECOND.match(records.sample.line, loss.end):
        yield sentence("lines_note.second_number")
    if records.others:
        first = records.others[0]
        yield sentence("lines_note.another_form", count=len(records.others), line=first.number)


def refuse_grouped_digits(label: str, roles: Iterable[LineRoles]) -> None:
    """Raise NoStepError or NoNumberError where such a number stands for a step or a loss in a line with a loss."""
    for line in roles:
        grouped = {found.start(): found[0] for found in _GROUPED.finditer(line.line)}
        numbers = numbers_of_line(line.line) if grouped else []
        if not any(is_loss_name(number.label) for number in numbers):
            continue
        for number in numbers:
            if number.start in grouped and counter_kind(number.label):
                raise NoStepError(label, line.number, grouped[number.start])
            if number.start in grouped and is_loss_name(number.label):
                raise NoNumberError(label, line.number, grouped[number.start])


# Which lines of a log are its records: lines of one shape with a counter and a loss, or a loss below its counter.
#
# Shapes go by what the step, the epoch and the loss are called and how they stand to each other; all else may vary.

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


def sample_lines(source: LogSource, metric: str = "") -> list[LineRoles]:
    """Tell the roles of the numbers in the first lines that might hold a counter, a loss or the `metric`."""
    telling = (
        (number, line)
        for number, line in source.lines()
        if (_TELLING.search(line) or (metric and metric in line)) and _may_tell(line)
    )
    lines = list(islice(telling, SAMPLE_LINES))
    if metric:
        return _without_fixed([roles_of_line(number, line, metric=metric) for number, line in lines], metric)
    roles = [roles_of_line(number, line) for number, line in lines]
    if any(one.losses for one in roles):
        return _without_fixed(roles)
    # A line of the validation, `0 val 10.9`, shows that `0 train 10.9` beside it tells a loss.
    words, counted = log_words().names["validation.words"], (one.line.split() for one in roles if one.step is not None)
    twins = any(word.strip(":=,") in words for parts in counted for word in parts)
    return [roles_of_line(number, line, bare=True) for number, line in lines] if twins else roles


def _may_tell(line: str) -> bool:
    """Tell whether a line has numbers, or is the title of a section of another phase: `=== Evaluation ===`."""
    return _DIGIT.search(line) is not None or (len(line.split()) <= SECTION_WORDS and is_validation(line))


def _without_fixed(roles: list[LineRoles], metric: str = "") -> list[LineRoles]:
    """Take another counter where the one that was taken is the same in all lines with a loss: `total_steps: 500`."""
    texts: dict[str, set[str]] = {}
    for line in roles:
        if line.loss is not None and line.step is not None:
            texts.setdefault(line.step.label, set()).add(line.step.text)
    fixed = frozenset(label for label, unlike in texts.items() if label and len(unlike) == 1)
    if not fixed:
        return roles
    again = [roles_of_line(line.number, line.line, fixed=fixed, metric=metric) for line in roles]
    counted = [line for line in again if line.loss is not None and line.step is not None]
    # A number that no name calls a step, in front of an epoch, is a time: `377 epoch: 1 step: 229, loss: 0.5`.
    if any(line.place == "first" and line.epoch is not None for line in counted):
        return roles
    return again if len({line.step.text for line in counted if line.step is not None}) > 1 else roles


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
    for line in counted:
        shapes.setdefault(_shape(line), []).append(line)
    usable = {key: lines for key, lines in shapes.items() if len(lines) > 1 or _stands_alone(lines[0])}
    with_epoch = {_without_epoch(lines[0]) for lines in usable.values() if lines[0].epoch is not None}
    of_evaluation = {key for key, (line, *_) in usable.items() if not line.epoch and _without_epoch(line) in with_epoch}
    usable = {key: lines for key, lines in usable.items() if key not in of_evaluation}
    if not usable:
        return None
    key = max(usable, key=lambda key: _worth(usable[key]))
    chosen = {line.number for line in usable[key]}

    def names_training(one: LineRoles) -> bool:
        return one.loss is not None and not {"train", "training"}.isdisjoint(words_of(one.loss.label))

    others = tuple(line for line in losses if line.number not in chosen and (line.counted or names_training(line)))
    return Records(tuple(usable[key]), (), others, _rivals(usable[key], usable.values()))


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


def _shape(line: LineRoles) -> Key:
    roles = (("step", line.step), ("epoch", line.epoch), ("loss", line.loss))
    order = sorted((place.start, name) for name, place in roles if place is not None)
    return (
        line.place, line.step and (_last(line.step.label), bool(line.step.total)),
        line.epoch and _last(line.epoch.label), line.loss and line.loss.label.lower(), tuple(name for _, name in order),
    )  # fmt: skip


def _last(label: str) -> str:
    return label.lower().split()[-1] if label.split() else ""


def _below_counters(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    """Pair losses without a counter with the line above that has one; each such line has one loss of a name at most."""
    names: dict[str, list[LineRoles]] = {}
    for line in losses:
        if line.loss is not None and not line.counted:
            names.setdefault(line.loss.label.lower(), []).append(line)
    pairings = (_paired_with_epochs(roles, own) or _paired(roles, own) for own in names.values())
    paired = [pairs for pairs in pairings if pairs is not None]
    whole = [records for records in paired if _is_whole(records)]
    best = max(whole or paired, key=lambda records: len(records.lines), default=None)
    return best and replace(best, rivals=_rivals(best.lines, [records.lines for records in paired]))


def _paired_with_epochs(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    """Pair losses with lines of an epoch alone, if each has one: lines of steps without a loss may stand between."""
    epochs = [line for line in roles if is_header(line) and line.epoch is not None and line.step is None]
    wanted = {line.number for line in losses}
    if len(epochs) < 2 or not any(is_header(line) and line.epoch is None for line in roles):
        return None
    records = _paired(
        sorted([*epochs, *(line for line in roles if line.number in wanted)], key=lambda one: one.number), losses
    )
    alike = {_shape(line) for line in epochs}
    return records if records is not None and len(alike) == 1 and len(records.lines) == len(epochs) else None


def _paired(roles: Sequence[LineRoles], losses: Sequence[LineRoles]) -> Records | None:
    wanted, header = {line.number for line in losses}, None
    kept: list[LineRoles] = []
    headers: list[LineRoles] = []
    for line in roles:
        if is_header(line):
            header = line
        elif line.validation and not line.fields:
            header = None
        elif header is not None and line.number in wanted:
            near = line.number - header.number <= LINES_BELOW_COUNTER
            if near and not header.validation:
                kept.append(line)
                headers.append(header)
    once = len({line.number for line in headers})
    # Losses may stand above their counters: one comes before the first of these, all others between.
    above = bool(kept) and losses[0].number < headers[0].number and len(kept) == len(losses) - 1
    if above or _are_closed(roles, headers, losses):
        return None
    # Where lines were shuffled, some counters have several losses and others none.
    return Records(tuple(kept), tuple(headers)) if len(kept) > 1 and once == len(kept) else None


def _are_closed(roles: Sequence[LineRoles], headers: Sequence[LineRoles], losses: Sequence[LineRoles]) -> bool:
    """Tell whether lines of the usual counter stand below their losses: one is last of all, and none is first."""
    if not headers:
        return False
    usual = _shape(headers[len(headers) // 2])
    alike = [one.number for one in roles if is_header(one) and not one.validation and _shape(one) == usual]
    return alike[0] > losses[0].number and alike[-1] > losses[-1].number


def is_header(line: LineRoles) -> bool:
    """Tell whether a line tells where what follows belongs: it has a counter and no whole loss."""
    if not line.counted or (line.losses and line.losses[0][0] < PART_RANK):
        return False
    return line.epoch is not None or line.place in ("through", "named")


def counted_by_headers(records: Records, roles: Iterable[LineRoles]) -> tuple[LineRoles, ...]:
    """Return the lines with an epoch alone that stand between records without one, where their steps start again."""
    if records.headers or any(line.epoch is not None for line in records.lines):
        return ()
    steps = [int(line.step.text) for line in records.lines if line.step is not None]
    back = [index for index in range(1, len(steps)) if steps[index] < steps[index - 1]]
    headers = [
        line
        for line in roles
        if line.epoch is not None and line.step is None and not line.losses and not line.validation
    ]
    if not back or not headers:
        return ()
    bounds = [(records.lines[index - 1].number, records.lines[index].number) for index in back]
    between = all(any(first < line.number < last for line in headers) for first, last in bounds)
    # A log may begin inside an epoch, whose own line it lacks then.
    whole = headers[0].number < records.lines[0].number or headers[0].number > bounds[0][0]
    return tuple(headers) if between and whole else ()
