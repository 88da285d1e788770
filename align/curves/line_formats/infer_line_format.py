"""A LineFormat for a log that no format knows: its records found, an expression written, one held against the other.

What the expression finds must be what was understood of the lines, or nothing is inferred. How steps are counted is
shown by all records, not by the sample.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.line_formats.choose_records import Records, choose_records, counted_by_headers, sample_lines
from align.curves.line_formats.header_tables import find_table, table_pattern
from align.curves.line_formats.line_format import LineFormat
from align.curves.line_formats.log_words import MEAN_RANK, PART_RANK, counter_kind, is_loss_name, is_validation
from align.curves.line_formats.numbers_of_line import numbers_of_line
from align.curves.line_formats.write_pattern import counter_pattern, loss_pattern, record_pattern
from align.curves.log_parts.counting import distance_from_zero
from align.curves.metric_names import find_metric
from align.errors import NoNumberError, NoStepError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.curves.line_formats.line_roles import LineRoles
    from align.curves.line_formats.numbers_of_line import NumberInLine
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


def _infer(source: LogSource, asked: str) -> Inference | None:
    roles = sample_lines(source, asked)
    refuse_grouped_digits(source.label, roles)
    records = choose_records(roles)
    usable = records is not None and _varies(records) and not _may_lack_digits(source, records)
    if records is not None and usable and not _crosses_objects(source, records):
        for pattern in _patterns(records, roles):
            line_format = LineFormat(NAME, SUMMARY, pattern, keeps_all=True)
            if _finds(line_format, records, roles):
                return replace(_of_records(line_format, records), metric=asked)
    return _of_table(source, asked)


def _of_records(line_format: LineFormat, records: Records) -> Inference:
    sample = records.sample
    names = tuple(dict.fromkeys([*(one.label for _, one in sample.losses), *records.rivals]))
    parts = names if sample.losses[0][0] >= PART_RANK and len(names) > 1 else ()
    through, notes = sample.place == "through", tuple(loss_notes(records))
    return Inference(line_format, sample.number, sample.line, parts, through, notes=notes)


def _of_table(source: LogSource, asked: str) -> Inference | None:
    """Infer from a table whose names stand above its rows."""
    table = find_table(source, asked)
    if table is None:
        return None
    pattern = table_pattern(table)
    line_format = LineFormat(NAME, SUMMARY, pattern, keeps_all=True, columns=table.names, delimiter=table.delimiter)
    notes = [sentence("lines_note.columns", line=table.header, loss=table.names[table.loss])]
    if not table.numbered:
        notes.append(sentence("lines_note.rows_are_epochs" if table.counts_epochs else "lines_note.rows_are_steps"))
    return Inference(line_format, *table.row, parts=table.parts, notes=tuple(notes), metric=asked)


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
    counters = {_counters(header or one) for one, header in _with_headers(records)}
    return len(counters) > 1 or len(records.lines) == 1


def _with_headers(records: Records) -> Iterator[tuple[LineRoles, LineRoles | None]]:
    headers = records.headers or (None,) * len(records.lines)
    yield from zip(records.lines, headers, strict=True)


def _counters(one: LineRoles) -> tuple[str, str]:
    return one.step.text if one.step else "", one.epoch.text if one.epoch else ""


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
    found, wanted = 0, {one.number: one for one in records.lines}
    for one in roles:
        match = line_format.compiled.search(one.line)
        if match is None or not match["loss"]:
            if one.number in wanted:
                return False
            continue
        if one.loss is None or one.validation or match.start("loss") != one.loss.start:
            return False
        groups = match.groupdict()
        if any(groups.get(name) and (role is None or role.text != groups[name]) for name, role in _roles_by_name(one)):
            return False
        found += one.number in wanted
    return found >= len(wanted)


def _roles_by_name(one: LineRoles) -> tuple[tuple[str, NumberInLine | None], ...]:
    return (("step", one.step), ("epoch", one.epoch))


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
    if epochs is not None and table.totals is None and (length := _only_ends(steps, epochs)):
        length += line_format.base == 0
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
    known, index = np.unique(epochs, return_inverse=True)
    if len(known) == 1:
        return totals is not None or int(known[0]) > 1
    first, last = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), -1)
    np.minimum.at(first, index, steps)
    np.maximum.at(last, index, steps)
    return bool(np.any(first[1:] <= last[:-1]))


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


def _only_ends(steps: Integers, epochs: Integers) -> int:
    """Return the step that each of several epochs shows alone; 0 if they do not."""
    alone = len(np.unique(steps)) == 1 and len(np.unique(epochs)) > 1
    return int(steps[0]) if alone else 0


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
    for one in roles:
        grouped = {found.start(): found[0] for found in _GROUPED.finditer(one.line)}
        numbers = numbers_of_line(one.line) if grouped else []
        if not any(is_loss_name(number.label) for number in numbers):
            continue
        for number in numbers:
            if number.start in grouped and counter_kind(number.label):
                raise NoStepError(label, one.number, grouped[number.start])
            if number.start in grouped and is_loss_name(number.label):
                raise NoNumberError(label, one.number, grouped[number.start])
