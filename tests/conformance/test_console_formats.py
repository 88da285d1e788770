"""Formats of console lines that are data: each finds the points that stand beside its sample, and nothing else.

That it is recognised alone, in a terminal's recording and between other lines is asked with all log formats.
"""

from __future__ import annotations

import contextlib
from itertools import product
from typing import TYPE_CHECKING

import pytest

from align.curves.log_sources import LogSource, log_formats
from align.curves.losslogs.console import console_formats
from align.curves.place_on_axis import place_on_axis
from align.errors import CannotRunError, EmptyLogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

CONSOLES = {lines.name: lines for lines in console_formats()}
FORMATS = log_formats()
_PARTS = ("a ", "1", " ", ": ", "loss: ", "1.5, ", "] [")
_LONG, _SECONDS = 80_000, 1
every_console = pytest.mark.parametrize("name", CONSOLES)


def _points(source: LogSource, name: str) -> list[tuple[int, float]]:
    curve = place_on_axis(FORMATS[name].read(source))
    return [(step, round(value, 9)) for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True)]


@every_console
def test_its_sample_has_the_points_that_it_tells(name: str) -> None:
    assert _points(LogSource.of_text(CONSOLES[name].sample), name) == [*map(tuple, CONSOLES[name].points)]


@every_console
def test_its_sample_is_printed_as_often_as_the_log_has_lines_and_read_alike(name: str) -> None:
    sample = CONSOLES[name].sample
    doubled = LogSource.of_text(sample + sample)
    assert _points(doubled, name) == [*map(tuple, CONSOLES[name].points)]


@every_console
def test_a_last_line_that_was_cut_in_its_loss_is_left_out(name: str) -> None:
    lines = CONSOLES[name]
    last = list(lines.record.finditer(lines.sample))[-1]
    named = [group for group in lines.record.groupindex if group.startswith("loss__") and last[group]]
    end = last.end(named[0]) if named else last.end()
    log = FORMATS[name].read(LogSource.of_text(lines.sample[: end - 2]))
    assert place_on_axis(log).steps.tolist() == [step for step, _ in lines.points[:-1]]


@every_console
def test_lines_of_words_in_place_of_its_losses_are_refused(name: str) -> None:
    lines = CONSOLES[name]
    without = "\n".join(line for line in lines.sample.splitlines() if not lines.record.search(line))
    source = LogSource.of_text(without + "\nEpoch [1] evaluation: accuracy 0.91 at step 100 of 200\n")
    assert not FORMATS[name].recognizes(source)
    with pytest.raises(EmptyLogError):
        FORMATS[name].read(source)


@every_console
def test_no_long_line_takes_longer_than_its_length_explains(
    name: str, guard: Callable[[float], AbstractContextManager[None]]
) -> None:
    lines = CONSOLES[name]
    last = [match[0] for match in lines.record.finditer(lines.sample)][-1]
    for head, part in product((last, last[: len(last) // 2]), _PARTS):
        hostile = LogSource.of_text(f"{lines.sample}{head}{part * (_LONG // len(part))}\n{lines.sample}")
        with guard(_SECONDS), contextlib.suppress(CannotRunError):
            FORMATS[name].recognizes(hostile)
            FORMATS[name].read(hostile)
