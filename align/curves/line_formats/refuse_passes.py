"""Lines that show that a log of unknown lines goes over its steps again for another reason than a resumed training.

A number beside the record that changes where the steps start again (`Fold 2`, `Trial 1`), or a line in front of it,
says that another run begins; a line such as `=== Evaluation ===` that what follows is no training.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.curves.line_formats.log_words import is_validation, log_words, words_of
from align.curves.line_formats.numbers_of_line import numbers_of_line
from align.curves.thresholds import LINES_UNDER_SECTION, SECTION_WORDS
from align.errors import MixedProcessesError, SeveralRunsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_parts.deduplicate_steps import KeptPoints
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers

_DIGIT = re.compile(r"[0-9]")


def refuse_other_passes(source: LogSource, lines: Integers, steps: Integers, kept: KeptPoints) -> None:
    """Look at the records, shape (records,), in front of which the steps go back.

    Raises SeveralRunsError or MixedProcessesError if lines show what begins there.
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
    told, begun = _run_numbers(before), _run_numbers(after)
    return any(map(_run_numbers, between)) or any(told[name] != begun[name] for name in told.keys() & begun.keys())


def _run_numbers(line: str) -> dict[str, str]:
    """Return the numbers of a line that tell one run from another, by the word in front."""
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
