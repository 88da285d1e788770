"""Event files: what real writers wrote is read whole, and no damage makes a point that was never written."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, MetricMissingError

DATA = Path(__file__).parents[1] / "data"
TENSORBOARD, MINDSPORE = log_formats()["tensorboard"], log_formats()["mindspore_summary"]
FILES = {"tensorboard.tfevents": TENSORBOARD, "mindspore.out.events.summary_MS": MINDSPORE}
every_file = pytest.mark.parametrize("file", FILES)


def _bytes(file: str) -> bytes:
    return (DATA / file).read_bytes()


def _points(log: LossLog) -> list[tuple[int, float]]:
    curve = place_on_axis(log)
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@every_file
def test_a_real_event_file_is_recognised_by_its_own_format_alone(file: str) -> None:
    source = LogSource(file, _bytes(file))
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == [FILES[file].name]


@every_file
def test_all_bits_of_a_float32_are_read(file: str) -> None:
    log = FILES[file].read(LogSource(file, _bytes(file)))
    assert _points(log) == [(1, 1.0), (2, 0.5), (3, float(np.float32(1 / 3)))]
    assert place_on_axis(log).resolution.tolist() == [0.0, 0.0, 0.0]
    assert (log.base, log.ignored_lines) == (None, 1)


def test_scalars_of_all_styles_are_read_and_other_summaries_counted() -> None:
    log = TENSORBOARD.read(LogSource("styles", _bytes("tensorboard_styles.tfevents")))
    metrics = log.table.metrics
    steps = list(range(0, 300, 50))
    assert log.loss_name == "Loss/train"
    assert log.table.steps.tolist() == [*steps, 300]
    assert math.isnan(metrics["Loss/train"].values[-1])
    assert metrics["Loss/val"].values.tolist() == [float(np.float32(2 / (step + 3))) for step in steps]
    assert metrics["lr"].values.tolist() == [0.1 / (step + 3) for step in steps]
    assert [metrics[name].phase for name in ("Loss/train", "Loss/val", "lr")] == ["training", "validation", "training"]
    assert log.ignored_lines == 3  # the version, a text, a histogram


def test_values_of_one_step_share_a_row_unless_a_tag_comes_twice() -> None:
    once = _file(_event(1, _scalar("loss", 2.0), _scalar("lr", 0.5)), _event(2, _scalar("loss", 1.0)))
    twice = _file(_event(1, _scalar("loss", 2.0)), _event(1, _scalar("loss", 3.0)))
    assert TENSORBOARD.read(LogSource("once", once)).table.steps.tolist() == [1, 2]
    assert TENSORBOARD.read(LogSource("twice", twice)).table.steps.tolist() == [1, 1]


def test_the_surest_name_is_the_loss_and_the_others_are_told() -> None:
    data = _file(_event(1, _scalar("train_loss_epoch", 2.0), _scalar("val_loss", 3.0), _scalar("train_loss_step", 1.0)))
    log = TENSORBOARD.read(LogSource("lightning", data))
    assert log.loss_name == "train_loss_step"
    assert any("train_loss_epoch" in note for note in log.notes)
    assert log.table.metrics["train_loss_epoch"].window == EPOCH_MEAN
    assert log.table.metrics["train_loss_step"].window == RAW


def test_steps_of_lightning_count_from_0() -> None:
    events = [_event(step, _scalar("train/loss_step", 1.0), _scalar("epoch", 0.0)) for step in (49, 99)]
    log = TENSORBOARD.read(LogSource("lightning", _file(*events, _event(99, _scalar("train/loss_epoch", 2.0)))))
    assert place_on_axis(log).steps.tolist() == [50, 100]


def test_a_file_without_a_loss_still_has_its_other_metrics() -> None:
    log = TENSORBOARD.read(LogSource("odd", _file(_event(1, _scalar("objective/total", 2.0)))))
    assert place_on_axis(log, "objective/total").values.tolist() == [2.0]
    with pytest.raises(MetricMissingError, match="objective/total"):
        place_on_axis(log)


def test_a_tag_that_holds_no_number_is_not_taken_for_the_loss() -> None:
    log = TENSORBOARD.read(LogSource("odd", _file(_event(1, _bytes_field(1, b"loss"), _scalar("train_loss", 2.0)))))
    assert log.loss_name == "train_loss"


def test_a_file_without_scalars_holds_no_loss() -> None:
    with pytest.raises(EmptyLogError, match="looked for"):
        TENSORBOARD.read(LogSource("empty", _file()))


def test_a_step_that_no_training_reaches_is_left_out_and_counted() -> None:
    log = TENSORBOARD.read(
        LogSource("odd", _file(_event(1, _scalar("loss", 2.0)), _event(2**40, _scalar("loss", 1.0))))
    )
    assert _points(log) == [(1, 2.0)]
    assert log.ignored_lines == 2  # the version too


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.floats(width=32, allow_nan=False)),
        min_size=1,
        max_size=9,
        unique_by=lambda p: p[0],
    )
)
def test_a_curve_written_as_events_is_read_back_the_same(points: list[tuple[int, float]]) -> None:
    log = TENSORBOARD.read(
        LogSource("written", _file(*(_event(step, _scalar("loss", value)) for step, value in points)))
    )
    assert log.table.steps.tolist() == [step for step, _ in points]
    assert log.series("loss").values.tolist() == [value for _, value in points]  # type: ignore[union-attr]


@every_file
def test_a_file_cut_anywhere_gives_the_points_before_the_cut_and_says_so(file: str) -> None:
    data, plugin = _bytes(file), FILES[file]
    whole = _points(plugin.read(LogSource(file, data)))
    ends = _record_ends(data)
    for cut in range(len(data)):
        source = LogSource(file, data[:cut])
        records = sum(end <= cut for end in ends)
        if records < 2:
            with pytest.raises(EmptyLogError):
                plugin.read(source)
            continue
        log = plugin.read(source)
        assert _points(log) == whole[: records - 1]
        assert any("cut" in note for note in log.notes) == (cut not in ends)


@every_file
def test_a_flipped_bit_never_makes_a_point(file: str) -> None:
    data, plugin = _bytes(file), FILES[file]
    whole = _points(plugin.read(LogSource(file, data)))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        source = LogSource(file, bytes(damaged))
        if plugin.recognizes(source):
            try:
                log = plugin.read(source)
            except EmptyLogError:
                continue
            assert set(_points(log)) < set(whole)
            assert any("damaged" in note for note in log.notes)


@pytest.mark.parametrize("plugin", FILES.values(), ids=lambda plugin: plugin.name)
@settings(max_examples=50)
@given(data=st.binary(max_size=200))
def test_sound_records_of_random_bytes_never_crash(plugin: object, data: bytes) -> None:
    assert plugin in FILES.values()
    start = _record(_bytes_field(3, b"brain.Event:2")) if plugin is TENSORBOARD else _record(_MS_VERSION)
    source = LogSource("random", start + _record(data) + _record(_bytes_field(5, data)))
    try:
        log = plugin.read(source)  # type: ignore[attr-defined]
    except EmptyLogError:
        return
    assert len(log.table.steps) <= 2


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("brain.Event:2", "MindSpore.Event:1 loss 1.0")
    return stream.getvalue()


@pytest.mark.parametrize(
    "data",
    [_zip(), save({"brain.Event:2": np.ones(3)}), b"brain.Event:2 loss: 1.0\n", bytes(range(256)) * 20, bytes(100)],
    ids=["zip", "safetensors", "text", "bytes", "zeros"],
)
def test_other_binary_files_are_no_event_files(data: bytes) -> None:
    assert not any(plugin.recognizes(LogSource("other", data)) for plugin in FILES.values())


# An encoder of its own for the tests, one byte after the other, so that the reader is not its own judge.


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


_MS_VERSION = _bytes_field(3, b"MindSpore.Event:1")


def _scalar(tag: str, value: float) -> bytes:
    return _bytes_field(1, tag.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", value)


def _event(step: int, *values: bytes) -> bytes:
    summary = b"".join(_bytes_field(1, value) for value in values)
    return b"\x09" + struct.pack("<d", 1.0) + (b"\x10" + _varint(step) if step else b"") + _bytes_field(5, summary)


def _file(*events: bytes) -> bytes:
    return b"".join(map(_record, [_bytes_field(3, b"brain.Event:2"), *events]))


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


def _masked_crc(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _record_ends(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", data, ends[-1])[0])
    return ends[1:]
