"""What a training itself leaves: its log with times and messages, and the record of `align.watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.advice.evidence import Evidence, ProfilePlugin, ProfileSource, SpeedEvidence, StepSeries, step_evidence
from align.advice.thresholds import LONGEST_MESSAGES_BYTES
from align.curves.compare_losses import step_times
from align.curves.read_logs import read_log
from align.errors import AlignError
from align.lint.examine_environment import leaks, memory_trend
from align.loops.watched_folder import HEAD, WatchedTraining
from align.rules.advice_rules import advice_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array
    from align.curves.loss_log import LossLog
    from align.rules.advice_rules import AdviceRule, Values

MINDSPORE_LOGS = ("mindspore", "mindformers", "mindcv", "mindyolo")
BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}  # format: units of messages
# What messages of full memory say of each other: the ratio of two sizes in them, less what is always there.
RATIOS = (("reserved", "allocated", "kept", 1.0), ("unused", "used", "kept", 0.0), ("others", "own", "crowd", 0.0))
MINUTE, MEGABYTE = 60.0, 1e6  # format: growth of memory is told in MB a minute


class TrainingLogs(ProfilePlugin):
    """Logs of all formats that `align loss` knows, and messages of trainings that ended or warned."""

    name, last = "training log", True
    summary = "a training log: times of steps, waits for data, messages"

    def recognizes(self, source: ProfileSource) -> bool:
        """Any text may be a log; one that says nothing is none."""
        return source.path.is_file() and b"\0" not in source.head

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read the times that a format knows, and the messages in any text."""
        log, said = _log(source), (*_messages(source),)
        times = None if log is None else step_times(log)
        framework = _framework(source, log)
        if log is None or times is None:
            # A log without times is one; a text without messages, of which no format knows a loss, is none.
            kind = "text" if log is None else log.format
            return SpeedEvidence(source.shown, kind, framework, "", evidence=said) if said or log else None
        lines, series = times.lines, times
        known = StepSeries(
            series.seconds, series.waits, series.spans, lambda row: source.place(int(lines[row])), series.epochs,
            series.whole,
        )  # fmt: skip
        return _of_steps(source, log.format, framework, known, said)


def _of_steps(
    source: ProfileSource, form: str, framework: str, series: StepSeries, said: tuple[Evidence, ...]
) -> SpeedEvidence:
    """The evidence of a file that tells the times of steps."""
    return SpeedEvidence(
        source.shown, form, framework, "", int(np.sum(series.spans)), series.step, series.total, series.parts(),
        (*said, *step_evidence(series)),
    )  # fmt: skip


def _log(source: ProfileSource) -> LossLog | None:
    """The log as a format understands it; None where none does: its messages may say something all the same."""
    try:
        return read_log(source.path)
    except AlignError:
        return None


def _framework(source: ProfileSource, log: LossLog | None) -> str:
    if log is not None and log.format.startswith(MINDSPORE_LOGS):
        return "mindspore"
    said = source.head.lower()
    found = {name for name in ("mindspore", "torch") if name.encode() in said}
    return found.pop() if len(found) == 1 else ""


def _messages(source: ProfileSource) -> Iterator[Evidence]:
    """The lines that rules of messages ask for: the first of each rule, with how many there are."""
    seen: dict[str, tuple[int, str, int]] = {}
    sizes: dict[str, Values] = {}
    with source.opened() as stream:
        text = source.read(stream, LONGEST_MESSAGES_BYTES).decode("utf-8", "replace")
    # Most logs hold none of these, and one search of all of a text is far quicker than one of each line.
    rules = [rule for rule in advice_rules() if rule.pattern is not None and rule.pattern.search(text)]
    if not rules:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for rule, values in _asking(rules, line):
            at, first, count = seen.get(rule.id, (number, line, 0))
            seen[rule.id] = at, first, count + 1
            sizes.setdefault(rule.id, values)
    for name, (at, line, count) in seen.items():
        told = sentence("advice_seen.message", line=line.strip(), count=count)
        yield Evidence("message", None, None, source.place(at), told, values={**sizes[name], "rule": name})


def _asking(rules: list[AdviceRule], line: str) -> Iterator[tuple[AdviceRule, Values]]:
    """The rules that ask for a line; of those of memory the first alone, which knows most of it."""
    said = [(rule, values) for rule in rules if (values := values_of_line(rule, line)) is not None]
    yield from [(rule, values) for rule, values in said if rule.topic == "memory"][:1]
    yield from ((rule, values) for rule, values in said if rule.topic != "memory")


def values_of_line(rule: AdviceRule, line: str) -> Values | None:
    """The sizes in a line, in bytes, and their ratios; None where the line is not what the rule asks for."""
    match = rule.pattern.search(line) if rule.pattern is not None else None
    if match is None:
        return None
    groups = match.groupdict()
    sizes = {name: _size(text, groups.get(f"{name}_unit")) for name, text in groups.items()}
    values: Values = {name: size for name, size in sizes.items() if size is not None}
    for part, whole, ratio, base in RATIOS:
        over, under = sizes.get(part), sizes.get(whole)
        if over is not None and under:
            values[ratio] = over / under - base
    # What is reserved and not in use is a gap only if what was asked for would nearly fit into it.
    unused = sizes.get("unused") or (sizes.get("reserved") or 0.0) - (sizes.get("allocated") or 0.0)
    if tried := sizes.get("tried") or sizes.get("asked"):
        values["fits"] = unused / tried
    return values if rule.holds(values) else None


def _size(text: str | None, unit: str | None) -> float | None:
    return float(text) * BYTES.get(unit or "", 1) if text and text.replace(".", "", 1).isdigit() else None


class WatchedRecords(ProfilePlugin):
    """The record of a whole training that `align.watch` wrote: its times, waits and memory."""

    name = "watched training"
    summary = "a record of align.watch: times of steps, waits for data, memory"

    def recognizes(self, source: ProfileSource) -> bool:
        """A folder with the head of a record."""
        return (source.path / HEAD).is_file()

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read the table of steps."""
        record = WatchedTraining(source.path)
        figures = record.step_figures(("seconds", "data_seconds", "memory"))
        known = np.isfinite(figures["seconds"]) & (figures["seconds"] > 0)
        if not known.any():
            return None
        steps, seconds = record.steps[known], figures["seconds"][known]
        waits = np.where(np.isfinite(figures["data_seconds"]), figures["data_seconds"], np.nan)[known]
        spans = np.full(len(seconds), 1, np.int64)

        def place(row: int) -> str:
            return sentence("advice_seen.step_of", file=source.shown, step=int(steps[row]))

        series = StepSeries(seconds, waits, spans, place, None, bool(steps[0] == record.head.starts[0]))
        memory = (*_growing_memory(figures["memory"][known], seconds, place),)
        return _of_steps(source, self.name, record.head.framework, series, memory)


def _growing_memory(memory: Array, seconds: Array, place: Callable[[int], str]) -> Iterator[Evidence]:
    """Memory that grows all the time, by more than noise, as a process that `align doctor --follow` watches."""
    if not np.isfinite(memory).all():
        return
    trend = memory_trend(np.cumsum(seconds), memory)
    if trend is None or not leaks(trend):
        return
    each = trend.growth / MINUTE * float(np.mean(seconds))
    told = sentence("advice_seen.growing_memory", growth=trend.growth / MEGABYTE, each=each / MEGABYTE)
    values = {"growth": trend.growth, "each": each}
    yield Evidence("growing memory", None, None, place(len(memory) - 1), told, values=values)


PLUGINS = (TrainingLogs(), WatchedRecords())
