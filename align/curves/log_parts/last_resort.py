"""The reader of last resort: reads any log in which lines repeat that hold a step or an epoch, and a loss.

It says what it took, and gives the pattern that does the same. It stands beside the formats, not among them: it is
asked where none of them knows a log.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.infer_line_format import NAME, SUMMARY, Inference, decide_counting, infer_line_format
from align.curves.log_parts.line_format import find_names
from align.curves.log_parts.line_reader import read_lines
from align.curves.log_parts.line_roles import (
    counter_kind,
    is_validation,
    log_words,
    named_numbers,
    numbers_of_line,
    roles_of_line,
    words_of,
)
from align.curves.log_parts.table_builder import deduplicate_steps, known
from align.curves.log_sources import LogPlugin
from align.curves.thresholds import (
    LARGEST_STEP,
    LINES_UNDER_SECTION,
    MANY_RUNS,
    SAMPLE_LINES,
    SECTION_WORDS,
    SERIES_NAMED,
    SHOWN_LINE,
)
from align.errors import AlignError, MixedProcessesError, SeveralLossesError, SeveralRunsError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_parts.table_builder import KeptPoints
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers, LossLog


_DIGIT = re.compile(r"[0-9]")


class LinesFormat(LogPlugin):
    """Lines of one shape, whatever it is."""

    name = NAME
    summary = SUMMARY
    sample = b"run 7 | it 1/3 | objective loss 2.3026\nrun 7 | it 2/3 | objective loss 2.2981\n"

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether there are such lines; raises SeveralLossesError if several numbers of theirs may be the loss."""
        if source.is_binary or source.document is not None:
            return False
        inference = infer_line_format(source)
        if inference is not None:
            _refuse_several(source, inference)
        return inference is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all lines of the shape; raises EmptyLogError if there is none, SeveralLossesError."""
        inference = known(infer_line_format(source), source, self.summary)
        _refuse_several(source, inference)
        log = read_lines(inference.line_format, source)
        decided = decide_counting(inference, log)
        if decided.line_format != inference.line_format:
            log = read_lines(decided.line_format, source)
        _refuse_short_end(log, source)
        options = " ".join([f"--pattern {shlex.quote(decided.line_format.pattern)}", *decided.options])
        read_as = sentence("lines_note.read_as", line=decided.number, read=_marked(decided))
        by_hand = sentence("lines_note.by_hand", options=options)
        return _named(log, decided.metric).with_notes((read_as, by_hand, *decided.notes))


def _refuse_several(source: LogSource, inference: Inference) -> None:
    """Raise SeveralLossesError where a line has several parts of a loss and no whole."""
    if inference.parts:
        raise SeveralLossesError(source.label, inference.number, inference.parts, numeric_series(source))


def _named(log: LossLog, metric: str) -> LossLog:
    """Call what was read in place of the loss by its name."""
    if not metric:
        return log
    metrics = {metric if name == "loss" else name: series for name, series in log.table.metrics.items()}
    return replace(log, table=replace(log.table, metrics=metrics), loss_name=metric)


def _refuse_short_end(log: LossLog, source: LogSource) -> None:
    """Raise SeveralRunsError where the log goes back, and most steps have other losses in what is replaced.

    Raises MixedProcessesError where a line says that what follows is no training.
    """
    table = log.table
    series = table.metrics["loss"]
    steps = table.steps[series.rows]
    if log.counting == "step in epoch" and table.epochs is not None:
        steps = table.epochs[series.rows] * LARGEST_STEP + steps
    kept = deduplicate_steps(steps, series.values, headed=log.headed)
    if kept.each > 1:
        return
    if len(kept.index) == len(steps):
        back = int(np.argmax(np.diff(steps, append=steps[-1]) < 0)) + 1
        if np.count_nonzero(np.diff(steps) < 0) == 1 and _starts_over(log):
            raise SeveralRunsError(log.label, len(steps) - back, back, int(table.lines[series.rows][back]))
        return
    if kept.resumed is not None:
        refuse_other_passes(source, table.lines[series.rows], steps, kept)
    distinct = len(np.unique(np.stack([steps, series.values]), axis=1)[0])
    left_out = len(np.unique(steps)) - len(kept.index)
    if left_out > len(kept.index) or distinct > MANY_RUNS * len(kept.index) or _starts_over(log):
        first = int(table.lines[series.rows][kept.index].min())
        raise SeveralRunsError(log.label, len(kept.index), distinct - len(kept.index), first)


def _starts_over(log: LossLog) -> bool:
    """Tell whether steps without an epoch start over, with other losses, once they have come to their total."""
    table, series = log.table, log.table.metrics["loss"]
    if log.counting != "global step" or table.totals is None:
        return False
    steps, totals = table.steps[series.rows], table.totals[series.rows]
    back = np.flatnonzero(np.diff(steps) < 0)
    distance = int(np.median(np.abs(np.diff(steps))))
    whole = back[steps[back] + distance + (steps.min() == 0) > totals[back]]
    if not len(whole):
        return False
    points = list(zip(steps.tolist(), series.values.tolist(), strict=True))
    return not set(points[int(whole.max()) + 1 :]) <= set(points[: int(whole.max()) + 1])


def _marked(inference: Inference) -> str:
    line = inference.line
    match = inference.line_format.compiled.search(line)
    if match is None:
        return repr(line[:SHOWN_LINE])
    spans = sorted((match.span(name), name) for name in match.re.groupindex if match[name])
    pieces, end = [], max(0, spans[0][0][0] - 30) if spans else 0
    for (first, last), name in spans:
        pieces += [line[end:first], f"<{name} {line[first:last]}>"]
        end = last
    return "".join(pieces).strip()


def refuse_other_passes(source: LogSource, lines: Integers, steps: Integers, kept: KeptPoints) -> None:
    """Look at the records, shape (records,), in front of which the steps go back.

    A number beside the record that changes there (`Fold 2`, `Trial 1`), or a line in front of it, says that another run
    begins; a line such as `=== Evaluation ===` that what follows is no training. Raises
    SeveralRunsError or MixedProcessesError if lines show what begins there.
    """
    back = np.flatnonzero(np.diff(steps) < 0)
    wanted = {number for at in back.tolist() for number in range(lines[at], lines[at + 1] + 1)}
    texts = {number: line for number, line in source.lines() if number in wanted and line.strip()}
    for at in back.tolist():
        first, last = int(lines[at]), int(lines[at + 1])
        between = [texts[number] for number in range(first + 1, last) if number in texts]
        if _begins_a_run(texts.get(first, ""), between, texts.get(last, "")):
            replaced = len(steps) - len(kept.index)
            raise SeveralRunsError(source.label, len(kept.index), replaced, int(lines[kept.index].min()))
        if _begins_validation(between[-LINES_UNDER_SECTION:]):
            raise MixedProcessesError(source.label, "loss", 2)


def _begins_a_run(before: str, between: Sequence[str], after: str) -> bool:
    earlier, begun = _run_numbers(before), _run_numbers(after)
    changed = any(earlier[name] != begun[name] for name in earlier.keys() & begun.keys())
    return changed or any(map(_run_numbers, between))


def _run_numbers(line: str) -> dict[str, str]:
    """Return the numbers of a line that distinguish one run from another, by the word in front."""
    words = {one.text: words_of(one.label)[-1:] for one in numbers_of_line(line) if one.whole}
    return {word: text for text, last in words.items() for word in last if word in log_words().names["runs.words"]}


def _begins_validation(lines: Sequence[str]) -> bool:
    """Tell whether the last line with the name of a phase and no number names another than training."""
    sections = [words_of(line) for line in lines if not _DIGIT.search(line) and len(line.split()) <= SECTION_WORDS]
    for words in reversed(sections):
        if {"train", "training"} & {*words}:
            return False
        if is_validation(" ".join(words)):
            return True
    return False


# Which numbers the lines of a log name, where none is known to be its loss: any may be asked for as a metric.


def numeric_series(source: LogSource) -> tuple[str, ...]:
    """Return the names of numbers in lines that tell a step or an epoch, in their order: the first `SERIES_NAMED`."""
    if source.is_binary:
        return ()
    lines = [line for _, line in islice(source.lines(), SAMPLE_LINES)]
    try:
        names = dict.fromkeys(name for line in lines for name in _named_in(line))
    except AlignError:
        return ()
    return tuple(islice(names or dict.fromkeys(find_names(source)), SERIES_NAMED))


def _named_in(line: str) -> Iterator[str]:
    """Yield the names of the numbers of a line that counts: keys of an object, or what stands before a number."""
    text = line.strip()
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        numbers = {
            name for name, value in document.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        yield from sorted(numbers - {name for name in numbers if counter_kind(name)}) if document else ()
        return
    if roles_of_line(0, line).counted:
        yield from (number.label for number in named_numbers(line))
