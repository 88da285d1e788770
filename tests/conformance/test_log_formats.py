"""Every log format that is discovered keeps the promises of the protocol."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.curves.jobs import choose_rank
from align.curves.log_sources import LogFormat, LogSource, log_formats
from align.curves.losslogs.console import console_formats
from align.curves.place_on_axis import place_on_axis
from align.errors import CannotRunError, EmptyLogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from align.curves.loss_log import LossLog

FORMATS = log_formats()
# What no pattern may be slow on: with a step for each pair of characters a line of this length takes 2 seconds or
# more, with one for each character a twentieth of one. The limit lies far from both.
_PARTS = ("a", "a ", "a@", "a-", "a_loss", "1", " ", ",", ": ", "(", "{'", '{"', "}", "%|", "| ", "loss: ", "1.5, ")
_LONG, _SECONDS = 80_000, 1
_NUMBER = re.compile(r"(?<![\w.])[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?(?![\w.])")


def _sample(name: str) -> LogSource:
    return LogSource("sample", FORMATS[name].sample)


def _is_document(sample: bytes) -> bool:
    try:
        json.loads(sample)
    except ValueError:
        return False
    return True


# Formats that are data share one reader: what costs time is asked of some of them, in test_console_formats.py.
CONSOLES = {lines.name for lines in console_formats()}
every_format = pytest.mark.parametrize("name", FORMATS)
every_reader = pytest.mark.parametrize("name", [name for name in FORMATS if name not in CONSOLES])
every_reader_of_text = pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in CONSOLES and not _sample(name).is_binary]
)
every_text_format = pytest.mark.parametrize("name", [name for name in FORMATS if not _sample(name).is_binary])
every_format_of_lines = pytest.mark.parametrize(
    "name", [name for name in FORMATS if not _sample(name).is_binary and not _is_document(FORMATS[name].sample)]
)


def _assert_same_metrics(found: LossLog, expected: LossLog) -> None:
    assert found.table.metrics.keys() == expected.table.metrics.keys()
    np.testing.assert_array_equal(found.table.steps, expected.table.steps)
    for name, series in expected.table.metrics.items():
        np.testing.assert_array_equal(found.table.metrics[name].rows, series.rows)
        np.testing.assert_array_equal(found.table.metrics[name].values, series.values)


def _points(log: LossLog, metric: str) -> list[tuple[int, str]]:
    series = log.table.metrics[metric]
    return list(zip(log.table.steps[series.rows].tolist(), map(str, series.values), strict=True))


@every_format
def test_a_log_format_is_one_by_protocol(name: str) -> None:
    assert isinstance(FORMATS[name], LogFormat)
    assert FORMATS[name].name == name
    assert FORMATS[name].summary


@every_format
def test_its_sample_is_recognised_by_it_alone(name: str) -> None:
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(_sample(name))] == [name]


@every_text_format
def test_its_sample_is_still_recognised_in_a_terminal_recording(name: str) -> None:
    recorded = LogSource("recorded", b"\x1b[32m" + FORMATS[name].sample.replace(b"\n", b"\x1b[0m\r\n"))
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(recorded)] == [name]
    _assert_same_metrics(FORMATS[name].read(recorded), FORMATS[name].read(_sample(name)))


@every_format_of_lines
def test_every_filled_line_of_its_sample_is_a_record_or_counted_as_another(name: str) -> None:
    log = FORMATS[name].read(_sample(name))
    assert len(log.table.lines) + log.ignored_lines == sum(block.count_filled() for block in _sample(name).blocks())


@every_format_of_lines
def test_warnings_between_the_lines_are_counted_and_change_nothing(name: str) -> None:
    noise = b"[WARNING] ME(1234): unable to open 'x.so', the result is unaffected\n"
    noisy = LogSource("noisy", FORMATS[name].sample.replace(b"\n", b"\n" + noise))
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(noisy)] == [name]
    log, plain = FORMATS[name].read(noisy), FORMATS[name].read(_sample(name))
    _assert_same_metrics(log, plain)
    assert log.table.lines.tolist() == (2 * plain.table.lines - 1).tolist()
    assert log.ignored_lines == plain.ignored_lines + noisy.data.count(noise)


@every_format_of_lines
def test_the_lines_of_one_rank_among_others_are_read_like_a_log_of_their_own(name: str) -> None:
    lines = FORMATS[name].sample.splitlines(keepends=True)
    ranked = b"".join(b"[rank%d]: %b" % (rank, line) for line in lines for rank in (1, 0))
    source = choose_rank(LogSource("all ranks", ranked)).source
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(source)] == [name]
    _assert_same_metrics(FORMATS[name].read(source), FORMATS[name].read(_sample(name)))


@every_format_of_lines
def test_two_records_that_ran_together_on_one_line_are_taken_apart_or_left_out_with_a_note(name: str) -> None:
    ends, plain = [end.start() for end in re.finditer(b"\n", FORMATS[name].sample)], FORMATS[name].read(_sample(name))
    told = plain.table.lines
    for number in [number for number, after in pairwise(told.tolist()) if after == number + 1]:
        end, apart = ends[number - 1], ~np.isin(told, [number, number + 1])
        joined = LogSource("joined", FORMATS[name].sample[:end] + FORMATS[name].sample[end + 1 :])
        try:
            log = FORMATS[name].read(joined)
        except EmptyLogError:
            assert not apart.any()
            continue
        if len(log.table.lines) < len(told):
            assert any(f"(first: line {number})" in note for note in log.notes)
            assert log.ignored_lines == plain.ignored_lines + 1
            np.testing.assert_array_equal(log.table.steps, plain.table.steps[apart])
        else:
            assert log.ignored_lines == plain.ignored_lines
            assert log.table.metrics.keys() == plain.table.metrics.keys()
            for metric in plain.table.metrics:
                assert _points(log, metric) == _points(plain, metric)
            assert log.table.lines.tolist() == (told - (told > number)).tolist()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FORMATS
        if name not in CONSOLES and not _sample(name).is_binary and not _is_document(FORMATS[name].sample)
    ],
)
def test_no_long_line_takes_longer_than_its_length_explains(
    name: str, guard: Callable[[float], AbstractContextManager[None]]
) -> None:
    sample = FORMATS[name].sample.decode()
    last = sample.splitlines()[-1]
    # A field of each kind is cut at its beginning, and where its number would stand.
    heads = ["", last, *(last[: found.end()] for found in re.finditer(r"[:,|]\s*|\s+(?=[\W\d])", last))]
    for head, part in product(heads, _PARTS):
        hostile = LogSource.of_text(f"{sample}{head}{part * (_LONG // len(part))}\n{sample}")
        with guard(_SECONDS):
            FORMATS[name].recognizes(hostile)
            with contextlib.suppress(CannotRunError):
                FORMATS[name].read(hostile)


@settings(deadline=None, max_examples=20)
@given(st.data())
@every_reader_of_text
def test_a_number_that_is_changed_in_its_sample_is_the_number_that_is_read(name: str, data: st.DataObject) -> None:
    sample, metrics = FORMATS[name].sample.decode(), FORMATS[name].read(_sample(name)).table.metrics
    printed = Counter(_NUMBER.findall(sample))
    once = {float(text): text for text, count in printed.items() if count == 1 and "." in text}
    places = [
        (metric, place)
        for metric, series in metrics.items()
        for place, value in enumerate(series.values.tolist())
        if value in once
    ]
    metric, place = data.draw(st.sampled_from(places))
    text = once[float(metrics[metric].values[place])]
    new = "".join(data.draw(st.sampled_from("123456789")) if sign.isdecimal() else sign for sign in text)
    changed = FORMATS[name].read(LogSource.of_text(re.sub(rf"(?<![\w.]){re.escape(text)}(?![\w.])", new, sample)))
    assert changed.table.metrics[metric].values[place] == float(new)


@every_format
def test_its_sample_gives_losses_on_increasing_steps_from_1(name: str) -> None:
    log = FORMATS[name].read(_sample(name))
    curve = place_on_axis(log)
    assert log.format == name
    assert len(curve.steps) >= 2
    assert curve.steps[0] >= 1
    assert list(curve.steps) == sorted(set(curve.steps))
    assert np.isfinite(curve.values).any()


@every_format
@pytest.mark.parametrize(
    "text", ["", "\n", "training started\nno loss here\n", '{"a": 1}\n', "step\n1\n2\n", "\x00\xff"]
)
def test_a_text_without_losses_is_not_its_log(name: str, text: str) -> None:
    source = LogSource.of_text(text, "nothing.log")
    assert not FORMATS[name].recognizes(source)
    with pytest.raises(EmptyLogError, match="looked for"):
        FORMATS[name].read(source)


@every_format
def test_records_are_in_the_order_of_the_lines_that_their_numbers_point_to(name: str) -> None:
    sample = FORMATS[name].sample
    table = FORMATS[name].read(_sample(name)).table
    assert table.lines.min() >= 1
    assert table.lines.max() <= sample.count(b"\n")
    assert table.lines.tolist() == sorted(table.lines.tolist())
    assert all(series.rows.tolist() == sorted(set(series.rows.tolist())) for series in table.metrics.values())


@settings(deadline=None, max_examples=30)
@given(st.data())
@pytest.mark.parametrize("names", [*([name] for name in FORMATS if name not in CONSOLES), sorted(CONSOLES)])
def test_its_sample_with_a_part_taken_out_or_replaced_is_read_or_refused(names: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))
    sample = FORMATS[name].sample
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(sample))] * 2)))
    damaged = LogSource("damaged", sample[:first] + data.draw(st.binary(max_size=20)) + sample[last:])
    FORMATS[name].recognizes(damaged)
    with contextlib.suppress(CannotRunError):
        log = FORMATS[name].read(damaged)
        assert len(log.table.lines) == len(log.table.steps) > 0
