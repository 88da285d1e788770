"""Every log format that is discovered keeps the promises of the protocol."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.log_sources import LogSource
from align.core.protocols import LogFormat
from align.core.registry import log_formats
from align.errors import EmptyLogError
from align.steps.curves import place_on_axis

FORMATS = log_formats()


def _sample(name: str) -> LogSource:
    return LogSource("sample", FORMATS[name].sample)


every_format = pytest.mark.parametrize("name", FORMATS)


@every_format
def test_a_log_format_is_one_by_protocol(name: str) -> None:
    assert isinstance(FORMATS[name], LogFormat)
    assert FORMATS[name].name == name
    assert FORMATS[name].summary


@every_format
def test_its_sample_is_recognised_by_it_alone(name: str) -> None:
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(_sample(name))] == [name]


@pytest.mark.parametrize("name", [name for name in FORMATS if not _sample(name).is_binary])
def test_its_sample_is_still_recognised_in_a_terminal_recording(name: str) -> None:
    recorded = LogSource("recorded", b"\x1b[32m" + FORMATS[name].sample.replace(b"\n", b"\x1b[0m\r\n"))
    assert [other for other, plugin in FORMATS.items() if plugin.recognizes(recorded)] == [name]
    log, plain = FORMATS[name].read(recorded), FORMATS[name].read(_sample(name))
    np.testing.assert_array_equal(place_on_axis(log).steps, place_on_axis(plain).steps)
    np.testing.assert_array_equal(place_on_axis(log).values, place_on_axis(plain).values)


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
def test_line_numbers_point_to_lines_of_the_text(name: str) -> None:
    sample = FORMATS[name].sample
    lines = FORMATS[name].read(_sample(name)).table.lines
    assert lines.min() >= 1
    assert lines.max() <= sample.count(b"\n")
