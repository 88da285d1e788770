"""Trace folders: every dtype back bit for bit, cut anywhere and still readable, opened by the real safetensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import safetensors

from align.core.traces import Capture
from align.errors import DestinationError, RunFolderError
from align.traces import trace_folder
from align.traces import trace_folder as trace_writer
from align.traces.manifest import MANIFEST, TENSORS
from align.traces.thresholds import TRACE_HEADER_BYTES
from align.traces.trace_folder import TraceFolder, TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = [
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.bool_, np.int64, np.int32, np.int16, np.int8,
    np.uint64, np.uint32, np.uint16, np.uint8, np.complex64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip
SHAPES = [(), (0, 3), (2, 3), (5,)]


def values() -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return [
        np.asarray(generator.standard_normal(shape) * 3).astype(dtype)  # type: ignore[arg-type]
        for dtype in DTYPES
        for shape in SHAPES
    ]


def capture_of(value: np.ndarray[Any, Any], order: int, module: str = "block") -> Capture:
    return Capture(order, f"{module}.{order}", 0, "", "Linear", value.shape, value.dtype.name, 1)


def write(folder: Path, arrays: list[np.ndarray[Any, Any]]) -> TraceFolder:
    with TraceWriter(folder, {"torch": "2.13"}) as writer:
        for order, value in enumerate(arrays):
            writer.add(capture_of(value, order), value)
    return TraceFolder(folder)


def unseal(folder: Path) -> None:
    """Leave what a killed run would: a manifest without its last line."""
    lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
    (folder / MANIFEST).write_bytes(b"".join(lines[:-1]))


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_inputs_are_kept_if_asked_and_bytes_written_before_are_not_written_again(tmp_path: Path) -> None:
    first, second = np.arange(1000.0), np.ones(3, np.float16)
    with TraceWriter(tmp_path, {}, inputs=True) as writer:
        writer.add(capture_of(first, 0), first)
        writer.enter("next", 0, {"0": first, "mask": second})
        writer.add(capture_of(second, 1), second)
    trace = TraceFolder(tmp_path)
    assert [one.key for one in trace.inputs] == ["next#0<0", "next#0<mask"]
    assert [one.order for one in trace.inputs] == [1, 1]
    assert all(same(trace.value(one), value) for one, value in zip(trace.inputs, (first, second), strict=True))
    assert [one.module for one in trace.captures] == ["block.0", "block.1"]
    assert (tmp_path / TENSORS).stat().st_size == 8 + TRACE_HEADER_BYTES + first.nbytes + second.nbytes
    with safetensors.safe_open(tmp_path / TENSORS, "numpy") as opened:
        assert sorted(opened.keys()) == ["block.0#0", "next#0<mask"]


def test_inputs_are_not_kept_unless_asked(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, {}) as writer:
        writer.enter("next", 0, {"0": np.ones(3)})
    assert TraceFolder(tmp_path).inputs == ()


def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path: Path) -> None:
    arrays = values()
    trace = write(tmp_path / "trace", arrays)
    assert trace.complete
    assert trace.environment == {"torch": "2.13"}
    assert trace.captures == tuple(capture_of(value, order) for order, value in enumerate(arrays))
    assert all(same(trace.value(capture), value) for capture, value in zip(trace.captures, arrays, strict=True))


def test_views_and_foreign_byte_order_are_written_as_what_they_show(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    trace = write(tmp_path, [base.T, base[::2, ::-3], base.astype(">f4")])
    found = [trace.value(capture) for capture in trace.captures]
    assert [np.array_equal(a, b) for a, b in zip(found, [base.T, base[::2, ::-3], base], strict=True)] == [True] * 3


def test_a_capture_may_be_changed_as_soon_as_it_was_added(tmp_path: Path) -> None:
    value = np.ones(3, np.float32)
    with TraceWriter(tmp_path, {}) as writer:
        writer.add(capture_of(value, 0), value)
        value[...] = 7
    trace = TraceFolder(tmp_path)
    assert trace.value(trace.captures[0]).tolist() == [1, 1, 1]


def test_what_was_read_cannot_be_written_to(tmp_path: Path) -> None:
    trace = write(tmp_path, [np.ones(3)])
    with pytest.raises(ValueError, match="read-only"):
        trace.value(trace.captures[0])[0] = 2


def test_a_sealed_trace_opens_with_the_real_safetensors(tmp_path: Path) -> None:
    readable = [value for value in values() if value.dtype.name not in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}]
    trace = write(tmp_path, readable)
    with safetensors.safe_open(tmp_path / TENSORS, "np") as file:
        assert set(file.keys()) == {capture.key for capture in trace.captures}
        for capture, value in zip(trace.captures, readable, strict=True):
            assert same(file.get_tensor(capture.key), value), capture.key


def test_dtypes_that_numpy_lacks_lie_where_the_safetensors_header_says(tmp_path: Path) -> None:
    arrays = values()
    trace = write(tmp_path, arrays)
    raw = (tmp_path / TENSORS).read_bytes()
    entries = dict(safetensors.deserialize(raw))
    assert {entry["dtype"] for entry in entries.values()} >= {"BF16", "F8_E4M3", "F8_E5M2"}
    for capture, value in zip(trace.captures, arrays, strict=True):
        assert bytes(entries[capture.key]["data"]) == value.tobytes()


def test_a_dtype_without_a_name_in_safetensors_is_bytes_there_and_itself_here(tmp_path: Path) -> None:
    value = np.array([1 + 2j, 3.0], np.complex128)
    trace = write(tmp_path, [value, np.ones(2, np.float32)])
    assert same(trace.value(trace.captures[0]), value)
    with safetensors.safe_open(tmp_path / TENSORS, "np") as file:
        assert file.get_tensor("block.0#0").tobytes() == value.tobytes()
        assert file.get_tensor("block.1#0").tolist() == [1, 1]


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    trace = write(tmp_path, [])
    assert trace.complete
    assert trace.captures == ()


def test_a_manifest_cut_at_any_byte_keeps_all_whole_lines(tmp_path: Path) -> None:
    arrays = [np.full((2, 2), order, np.float32) for order in range(3)]
    write(tmp_path, arrays)
    manifest = (tmp_path / MANIFEST).read_bytes()
    first_line = manifest.index(b"\n") + 1
    for cut in range(first_line, len(manifest)):
        (tmp_path / MANIFEST).write_bytes(manifest[:cut])
        trace = TraceFolder(tmp_path)
        assert not trace.complete
        assert len(trace.captures) == min(manifest[:cut].count(b"\n") - 1, 3)
        assert all(same(trace.value(capture), arrays[capture.order]) for capture in trace.captures)


def test_a_manifest_cut_in_its_first_line_is_no_trace(tmp_path: Path) -> None:
    write(tmp_path, [np.ones(2)])
    manifest = (tmp_path / MANIFEST).read_bytes()
    for cut in range(manifest.index(b"\n") + 1):
        (tmp_path / MANIFEST).write_bytes(manifest[:cut])
        with pytest.raises(RunFolderError, match="not a trace folder"):
            TraceFolder(tmp_path)


def test_tensors_that_did_not_reach_the_disk_are_left_out(tmp_path: Path) -> None:
    arrays = [np.full(4, order, np.float32) for order in range(3)]
    write(tmp_path, arrays)
    for missing, left in ((1, 2), (16, 2), (17, 1), (47, 0)):
        write(tmp_path, arrays)
        unseal(tmp_path)
        os.truncate(tmp_path / TENSORS, 8 + TRACE_HEADER_BYTES + 48 - missing)
        assert len(TraceFolder(tmp_path).captures) == left


@pytest.mark.parametrize("damage", [b'{"module": \n', b"\xff\xfe\n", b"not json\n"])
def test_a_damaged_line_is_one_clear_error(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, [np.ones(2)])
    with (tmp_path / MANIFEST).open("ab") as stream:
        stream.write(damage)
    with pytest.raises(RunFolderError, match="is damaged"):
        TraceFolder(tmp_path)


@pytest.mark.parametrize("first", ["[]", '"text"', json.dumps({"schema": "mindalign.trace/99"})])
def test_another_schema_is_refused(tmp_path: Path, first: str) -> None:
    write(tmp_path, [])
    (tmp_path / MANIFEST).write_text(first + "\n", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"mindalign\.trace/1"):
        TraceFolder(tmp_path)


def test_a_folder_without_its_tensors_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError):
        TraceFolder(tmp_path / "nothing")
    write(tmp_path, [np.ones(2)])
    (tmp_path / TENSORS).unlink()
    with pytest.raises(RunFolderError):
        TraceFolder(tmp_path)


def test_an_exception_leaves_the_trace_readable_and_not_sealed(tmp_path: Path) -> None:
    def crash() -> None:
        with TraceWriter(tmp_path, {}) as writer:
            writer.add(capture_of(np.ones(3), 0), np.ones(3))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    trace = TraceFolder(tmp_path)
    assert not trace.complete
    assert trace.value(trace.captures[0]).tolist() == [1, 1, 1]


def test_a_killed_process_leaves_every_capture_that_it_had_noted(tmp_path: Path) -> None:
    code = f"""
import os, signal, numpy, pathlib
from align.core.traces import Capture
from align.traces.trace_folder import TraceWriter
writer = TraceWriter(pathlib.Path({str(tmp_path)!r}), {{}})
for n in range(5):
    writer.add(Capture(n, str(n), 0, "", "Linear", (7,), "float32"), numpy.full(7, n, numpy.float32))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    trace = TraceFolder(tmp_path)
    assert not trace.complete
    assert [trace.value(capture).tolist() for capture in trace.captures] == [[n] * 7 for n in range(5)]


def test_a_second_run_replaces_the_first_whole(tmp_path: Path) -> None:
    write(tmp_path, [np.ones(2)] * 5)
    trace = write(tmp_path, [np.zeros(3)])
    assert [trace.value(capture).tolist() for capture in trace.captures] == [[0, 0, 0]]


def test_a_header_larger_than_its_room_leaves_the_manifest_in_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (trace_folder, trace_writer):
        monkeypatch.setattr(module, "TRACE_HEADER_BYTES", 64)
    trace = write(tmp_path, [np.full(2, 3.0), np.full(2, 4.0)])
    assert trace.complete
    assert [trace.value(capture).tolist() for capture in trace.captures] == [[3, 3], [4, 4]]


def test_the_room_for_the_header_holds_ten_thousand_captures(tmp_path: Path) -> None:
    longest = "resnet.encoder.stages.3.layers.5.layer.2.normalization"
    with TraceWriter(tmp_path, {}) as writer:
        for order in range(10_000):
            writer.add(Capture(order, longest, order, "", "BatchNorm2d", (1,), "uint8"), np.zeros(1, np.uint8))
    with safetensors.safe_open(tmp_path / TENSORS, "np") as file:
        assert len(file.keys()) == 10_000


def test_a_trace_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DestinationError, match="cannot write the trace"):
        TraceWriter(tmp_path / "file", {})


def test_a_full_disk_says_so_and_keeps_what_was_written(tmp_path: Path) -> None:
    code = f"""
import pathlib, resource, signal, numpy
from align.core.traces import Capture
from align.errors import DestinationError
from align.traces.thresholds import TRACE_HEADER_BYTES
from align.traces.trace_folder import TraceWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (TRACE_HEADER_BYTES + 5000, TRACE_HEADER_BYTES + 5000))
try:
    with TraceWriter(pathlib.Path({str(tmp_path)!r}), {{}}) as writer:
        for n in range(3):
            writer.add(Capture(n, str(n), 0, "", "Linear", (500,), "float32"), numpy.full(500, n, numpy.float32))
except DestinationError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"cannot write the trace {tmp_path}: File too large\nHint: ")
    assert result.stderr == ""
    trace = TraceFolder(tmp_path)
    assert not trace.complete
    assert [trace.value(capture).max() for capture in trace.captures] == [0, 1]
