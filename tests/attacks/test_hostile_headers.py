from __future__ import annotations

import json
import os
import struct
import zlib

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def safetensors(path, header, data=bytes(8)):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def varint(value):
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def field(number, data):
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def ckpt(path, tag=b"w", dims=b"\x08\x02", kind=b"Float32", content=bytes(8), more=b""):
    inner = dims + field(2, kind) + field(3, content) + more
    path.write_bytes(field(1, field(1, tag) + field(2, inner)))
    return path


def test_the_builders_make_readable_files(tmp_path):
    assert open_checkpoint(safetensors(tmp_path / "a.safetensors", {"w": ENTRY})).tensors["w"].shape == (2,)
    assert open_checkpoint(ckpt(tmp_path / "a.ckpt")).tensors["w"].shape == (2,)


@pytest.mark.parametrize("length", [1 << 32, 1 << 39, 100_000_001, 10_000])
def test_a_header_longer_than_the_file_is_refused(tmp_path, length):
    path = tmp_path / "m.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b'{"w":{}}')
    with pytest.raises(NotACheckpointError, match="header claims"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "entry",
    [
        {**ENTRY, "data_offsets": [0, 16]},
        {**ENTRY, "data_offsets": [8, 16]},
        {**ENTRY, "data_offsets": [8, 0]},
        {**ENTRY, "data_offsets": [-8, 0]},
        {**ENTRY, "data_offsets": [0, 8, 9]},
        {**ENTRY, "data_offsets": "08"},
        {**ENTRY, "shape": [-2]},
        {**ENTRY, "shape": [2.0]},
        {**ENTRY, "shape": [True, 2]},
        {**ENTRY, "shape": 2},
        {**ENTRY, "shape": [1] * 65 + [2]},
        {**ENTRY, "shape": [1 << 70]},
        {**ENTRY, "dtype": "F31"},
        {**ENTRY, "dtype": ["F32"]},
        {**ENTRY, "more": 1},
        {"dtype": "F32"},
        [],
        None,
    ],
)
def test_a_malformed_entry_is_refused(tmp_path, entry):
    with pytest.raises((NotACheckpointError, UnsupportedCheckpointError)):
        open_checkpoint(safetensors(tmp_path / "m.safetensors", {"w": entry}))


def test_overlapping_tensors_are_refused(tmp_path):
    header = {"v": ENTRY, "w": {**ENTRY, "data_offsets": [4, 12]}}
    with pytest.raises(HostileFileError, match="overlaps"):
        open_checkpoint(safetensors(tmp_path / "m.safetensors", header, bytes(12)))


def test_a_gap_between_tensors_is_refused(tmp_path):
    header = {"v": ENTRY, "w": {**ENTRY, "data_offsets": [16, 24]}}
    with pytest.raises(HostileFileError, match="gap"):
        open_checkpoint(safetensors(tmp_path / "m.safetensors", header, bytes(24)))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"w":' + json.dumps(ENTRY).encode() + b',"w":' + json.dumps(ENTRY).encode() + b"}",
        b"{" + b'"a":{' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"w":' + b"9" * 10_000 + b"}",
        b'{"__metadata__":{"format":1}}',
        b'{"__metadata__":[]}',
        b"{\xff}",
        b'{"w"',
    ],
)
def test_a_header_that_is_no_sound_json_is_refused(tmp_path, raw):
    with pytest.raises(NotACheckpointError):
        open_checkpoint(safetensors(tmp_path / "m.safetensors", raw, b""))


@pytest.mark.parametrize(
    "change",
    [
        {"content": bytes(7)},
        {"content": bytes(9)},
        {"dims": b"\x08\x03"},
        {"dims": b"\x08" + b"\xff" * 9 + b"\x01"},
        {"dims": b"\x08" + b"\xff" * 12},
        {"dims": b"\x08\x01" * 32 + b"\x08\x02"},
        {"dims": b"\x08\x00\x08" + b"\xff" * 8 + b"\x7f", "content": b""},
        {"dims": b"\x08\x00\x08" + b"\xff" * 9 + b"\x01", "content": b""},
        {"dims": b"\x0a\x42" + b"\x01" * 65 + b"\x02"},
        {"dims": b"\x0a\x02\x02\x80"},
        {"dims": b"\x10\x02"},
        {"dims": b""},
        {"kind": b"Float31"},
        {"kind": b"\xff"},
        {"tag": b"\xff\xfe"},
        {"tag": b""},
        {"more": field(3, bytes(8))},
        {"more": b"\x0b"},
        {"more": b"\x1a" + b"\xff" * 9 + b"\x01"},
        {"tag": b"w" * 70_000},
    ],
)
def test_an_entry_that_lies_about_its_tensor_is_refused(tmp_path, change):
    with pytest.raises((NotACheckpointError, UnsupportedCheckpointError)):
        open_checkpoint(ckpt(tmp_path / "m.ckpt", **change))


def test_every_length_that_points_beyond_its_message_is_refused(tmp_path):
    path = ckpt(tmp_path / "m.ckpt")
    data = path.read_bytes()
    for place in (1, 3, 6, 10, 19):
        for value in (0x7F, data[place] + 1):
            changed = bytearray(data)
            changed[place] = value
            path.write_bytes(changed)
            with pytest.raises((NotACheckpointError, UnsupportedCheckpointError)):
                open_checkpoint(path)


def test_a_gigabyte_of_dims_is_refused_at_once(tmp_path):
    path = tmp_path / "m.ckpt"
    tag, dims = field(1, b"w"), b"\x0a" + varint(1 << 30)
    tensor = b"\x12" + varint((1 << 30) + len(dims)) + dims
    path.write_bytes(b"\x0a" + varint((1 << 30) + len(tag) + len(tensor)) + tag + tensor)
    os.truncate(path, path.stat().st_size + (1 << 30))
    with pytest.raises(HostileFileError, match=r"more than \d+ axes"):
        open_checkpoint(path)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("what", [b"\x0a\x01w", b"\x12\x00"])
def test_thousands_of_fields_are_refused_at_the_limit(tmp_path, what, few_fields):
    path = tmp_path / "m.ckpt"
    path.write_bytes(field(1, field(1, b"w") + what * 2 * few_fields))
    with pytest.raises(HostileFileError, match=r"more than [0-9]+ fields"):
        open_checkpoint(path)


def test_a_wrong_crc_is_refused_when_the_file_is_checked(tmp_path):
    path = ckpt(tmp_path / "m.ckpt")
    data = path.read_bytes()
    path.write_bytes(data + b"crc_num" + zlib.crc32(data).to_bytes(10, "big"))
    open_checkpoint(path).check()
    path.write_bytes(data[:-1] + b"\x01" + b"crc_num" + zlib.crc32(data).to_bytes(10, "big"))
    checkpoint = open_checkpoint(path)
    with pytest.raises(NotACheckpointError, match=r"crc is 0x.*the file says 0x"):
        checkpoint.check()
    path.write_bytes(data[:-3])
    with pytest.raises(NotACheckpointError, match="crc"):
        checkpoint.check()


@pytest.mark.parametrize("magic", [0x7F3A5ED8, 0x7F3A5ED9, 0x7F3A5EDA])
def test_an_encrypted_checkpoint_is_named(tmp_path, magic):
    path = tmp_path / "m.ckpt"
    path.write_bytes(struct.pack("<I", magic) + bytes(100))
    with pytest.raises(UnsupportedCheckpointError, match="encrypted"):
        open_checkpoint(path)


def test_map_parameters_are_named(tmp_path):
    path = tmp_path / "m.ckpt"
    path.write_bytes(field(1, field(1, b"hash") + field(3, b"")))
    with pytest.raises(UnsupportedCheckpointError, match="'hash' is a map parameter"):
        open_checkpoint(path)
