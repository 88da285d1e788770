"""ONNX models built byte by byte, because the onnx package would refuse to write most of them."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError

REFUSED = (NotACheckpointError, UnsupportedCheckpointError)
FLOAT, INT8, INT32, INT64, DOUBLE = 1, 3, 6, 7, 11


def number(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + number(value >> 7) if value > 0x7F else bytes([value])


def field(key: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def tensor(name=b"w", dims=(2,), kind=FLOAT, data: bytes = field(9, bytes(8))) -> bytes:
    return b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name) + data


def external(**table: str) -> bytes:
    pairs = [field(13, field(1, key.encode()) + field(2, value.encode())) for key, value in table.items()]
    return b"".join(pairs) + field(14, 1)


@pytest.fixture
def onnx(tmp_path):
    def write(*initializers: bytes, more: bytes = b""):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        path = folder / "m.onnx"
        path.write_bytes(field(1, 8) + field(7, b"".join(field(5, one) for one in initializers) + more))
        return path

    return write


def test_the_builder_makes_readable_files(onnx) -> None:
    path = onnx(tensor())
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 0]
    (path.parent / "w.bin").write_bytes(bytes(12))
    path = onnx(tensor(data=external(location="w.bin", offset="4", length="8")))
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 0]


@pytest.mark.parametrize(
    "initializer",
    [
        tensor(name=b""),
        tensor(name=b"\xff"),
        tensor(name=b"\x1b[2J"),
        tensor(name=b"w" * 70_000),
        tensor(dims=(3,)),
        tensor(dims=(2**64 - 1,)),
        tensor(dims=(2**63,)),
        tensor(dims=(2**31, 2**31), kind=DOUBLE),
        tensor(dims=(2**40, 2**40, 2**40)),
        tensor(dims=(0, 2**62), data=b""),
        tensor(dims=(0, 2**63 - 1, 2**63 - 1), data=b""),
        tensor(dims=[1] * 32 + [2]),
        tensor(dims=()) + field(1, bytes([1]) * 65 + bytes([2])),
        tensor(dims=()) + field(1, b"\x80"),
        tensor(dims=()) + field(1, b"\xff" * 11),
        tensor(kind=0),
        tensor(kind=99),
        tensor(kind=2**63),
        tensor(data=b""),
        tensor(data=field(9, bytes(7))),
        tensor(data=field(9, bytes(9))),
        tensor(data=field(9, bytes(8)) * 2),
        tensor(data=field(9, bytes(8)) + field(4, bytes(8))),
        tensor(data=field(4, bytes(4))),
        tensor(data=field(4, bytes(9))),
        tensor(data=field(5, bytes(2))),
        tensor(data=field(3, field(1, 0) + field(2, 1))),
        tensor(dims=(1 << 40,), kind=INT8, data=field(5, bytes(2))),
        tensor() + b"\x0b",
        tensor() + b"\x7c",
    ],
)
def test_an_initializer_that_lies_is_refused(onnx, initializer) -> None:
    with pytest.raises(REFUSED):
        open_checkpoint(onnx(initializer))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (INT32, field(5, bytes(1))),
        (INT32, field(5, bytes(3))),
        (INT32, field(5, 0) * 3),
        (INT32, field(5, b"\x00\x80")),
        (INT32, field(5, b"\x80" * 11 + b"\x00")),
        (INT32, field(5, b"\xff" * 4 + b"\x7f\x00")),
        (INT8, field(5, b"\x00\x80\x02")),
        (INT64, field(7, b"\x00") + field(5, b"\x00")),
        (FLOAT, field(4, bytes(4)) + field(4, bytes(3))),
        (FLOAT, field(4, bytes(8)) + field(4, bytes(4))),
    ],
)
def test_typed_values_that_do_not_fit_their_shape_are_refused_when_they_are_read(onnx, kind, data) -> None:
    path = onnx(tensor(kind=kind, data=data))
    with pytest.raises(NotACheckpointError):
        open_checkpoint(path).tensors["w"].load()


def test_two_initializers_of_one_name_are_refused(onnx) -> None:
    with pytest.raises(HostileFileError, match="two initializers are called 'w'"):
        open_checkpoint(onnx(tensor(), tensor()))
    with pytest.raises(HostileFileError, match="two initializers are called 'w'"):
        open_checkpoint(onnx(tensor(), tensor(kind=22)))


@pytest.mark.parametrize("depth", [34, 1000, 20_000])
def test_graphs_nested_too_deep_are_refused(onnx, depth) -> None:
    lengths = []
    size = 0
    for _ in range(depth):  # node, attribute and graph around what is inside, from the innermost outwards
        for key in (6, 5, 1):
            lengths.append(number(key << 3 | 2) + number(size))
            size += len(lengths[-1])
    path = onnx(more=b"".join(reversed(lengths)))
    with pytest.raises(HostileFileError, match="nested more than 32 deep"):
        open_checkpoint(path)


@pytest.mark.parametrize("length", [2**63 - 1, 2**63, 2**64 - 1, 2**70 - 1])
@pytest.mark.parametrize("opening", [b"\x3a", b"\x12", b"\x3a\x7f\x2a", b"\xa2\x01"])
def test_a_length_of_exabytes_is_refused(tmp_path, opening, length) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + opening + number(length) + bytes(200))
    with pytest.raises(NotACheckpointError):
        open_checkpoint(path)


def test_a_model_cut_at_any_byte_is_refused(onnx) -> None:
    path = onnx(tensor(), tensor(b"v", kind=INT64, data=field(7, b"\x01\x80\x01")))
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(NotACheckpointError):
            open_checkpoint(path)


def test_a_model_with_any_byte_changed_is_refused_or_stays_inside_itself(onnx) -> None:
    (onnx().parent / "w.bin").write_bytes(bytes(8))
    path = onnx(
        tensor(), tensor(b"v", kind=INT64, data=field(7, b"\x01\x02")), tensor(b"x", data=external(location="w.bin"))
    )
    data = path.read_bytes()
    for place in range(len(data)):
        for change in (0x01, 0x08, 0x80, 0xFF):
            path.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            try:
                for found in open_checkpoint(path).tensors.values():
                    assert found.load().nbytes == found.nbytes
            except REFUSED:
                continue


def test_a_model_that_shrinks_after_it_was_opened_is_noticed(onnx) -> None:
    path = onnx(tensor(kind=INT64, data=field(7, b"\x01\x02")))
    found = open_checkpoint(path).tensors["w"]
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(NotACheckpointError, match="ends at byte"):
        found.load()


def test_a_gigabyte_of_dims_is_refused_at_once(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    start = b""
    for opening in (b"\x0a", b"\x2a", b"\x3a"):  # dims in an initializer in a graph
        start = opening + number((1 << 30) + len(start)) + start
    path.write_bytes(b"\x08\x08" + start)
    os.truncate(path, path.stat().st_size + (1 << 30))
    tracemalloc.start()
    with pytest.raises(HostileFileError, match=r"more than \d+ axes"):
        open_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("what", [b"\x0a\x00", b"\x52\x00"])
def test_thousands_of_fields_are_refused_at_the_limit(tmp_path, what, few_fields) -> None:
    """Empty nodes, or descriptions."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + field(7, what * 2 * few_fields))
    with pytest.raises(HostileFileError, match=r"more than [0-9]+ fields"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "location",
    [
        "",
        ".",
        "..",
        "../secret",
        "/etc/passwd",
        "a/../../secret",
        "..\\secret",
        "a\\b",
        "\0",
        "w\x1b[2J",
        "link",
        "below/up",
    ],
)
def test_external_data_outside_the_folder_are_refused(onnx, tmp_path, location) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    folder = onnx().parent
    (folder / "link").symlink_to("../secret")
    (folder / "below").mkdir()
    (folder / "below" / "up").symlink_to(tmp_path / "secret")
    with pytest.raises(HostileFileError, match="it names"):
        open_checkpoint(onnx(tensor(data=external(location=location))))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.name)])
def test_external_data_that_are_no_plain_file_are_refused_without_opening_them(onnx, make) -> None:
    make(onnx().parent / "w.bin")
    with pytest.raises(NotACheckpointError):
        open_checkpoint(onnx(tensor(data=external(location="w.bin"))))


def test_a_device_as_external_data_is_refused(onnx) -> None:
    (onnx().parent / "w.bin").symlink_to("/dev/zero")
    with pytest.raises(HostileFileError, match="outside its folder"):
        open_checkpoint(onnx(tensor(data=external(location="w.bin"))))


@pytest.mark.parametrize(
    "table",
    [
        {"offset": "-1"},
        {"offset": "1"},
        {"offset": "9223372036854775807"},
        {"offset": "99999999999999999999999"},
        {"offset": "0x0"},
        {"offset": "٠"},
        {"offset": " 0"},
        {"offset": ""},
        {"offset": "1" * 60_000},
        {"length": "7"},
        {"length": "9"},
        {"length": "-8"},
        {"length": "8.0"},
        {"offset": "8", "length": "8"},
    ],
)
def test_external_data_at_an_impossible_place_are_refused(onnx, table) -> None:
    (onnx().parent / "w.bin").write_bytes(bytes(8))
    with pytest.raises(NotACheckpointError):
        open_checkpoint(onnx(tensor(data=external(location="w.bin", **table))))


def test_external_data_said_twice_or_beside_inline_data_are_refused(onnx) -> None:
    (onnx().parent / "w.bin").write_bytes(bytes(8))
    for data in (external(location="w.bin") * 2, external(location="w.bin") + field(9, bytes(8)), field(14, 1)):
        with pytest.raises(NotACheckpointError):
            open_checkpoint(onnx(tensor(data=data)))


def test_external_tensors_that_overlap_are_refused(onnx) -> None:
    (onnx().parent / "w.bin").write_bytes(bytes(12))
    first = tensor(data=external(location="w.bin"))
    second = tensor(b"v", data=external(location="w.bin", offset="4"))
    with pytest.raises(HostileFileError, match=r"overlap at byte 4 of w\.bin"):
        open_checkpoint(onnx(first, second))


def test_values_are_read_only_from_where_they_were_checked(onnx) -> None:
    """Many initializers may share bytes; none may claim more than there are."""
    (onnx().parent / "w.bin").write_bytes(np.float32([1, 2]).tobytes())
    names = [f"w{n}".encode() for n in range(100)]
    found = open_checkpoint(onnx(*[tensor(name, data=external(location="w.bin")) for name in names])).tensors
    assert len({one.identity for one in found.values()}) == 1
    assert all(one.load().tolist() == [1, 2] for one in found.values())
