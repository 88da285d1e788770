"""Files that claim or hold far more than they are: refused, or read, in little memory and time.

Each is opened in a process of its own, whose peak and seconds the system tells; a hundred megabytes over the bare
interpreter are allowed, and ten seconds on a busy machine.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

MOST_MEGABYTES = 100
SECONDS = 10
OPEN = """
import json, resource, sys, time
from align.core.extents import byte_blocks
from align.core.registry import checkpoint_formats
from align.errors import AlignError
from align.workflows.open_checkpoint import open_checkpoint
checkpoint_formats()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.process_time()
try:
    tensors = open_checkpoint(sys.argv[1]).tensors.values()
    said = f"read {sum(len(block) for tensor in tensors for block in byte_blocks(tensor))}"
except AlignError as error:
    said = error.message
print(json.dumps([said, peak() - before, time.process_time() - started]))
"""


def opened(path) -> str:
    """Open the file and read all of its tensors in blocks; return the message or what was read."""
    command = [sys.executable, "-c", OPEN, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    said, megabytes, seconds = json.loads(printed)
    assert megabytes < MOST_MEGABYTES, (said, megabytes)
    assert seconds < SECONDS, (said, seconds)
    return said


def local_header(name: bytes, size: int, packed: int, method: int = 0, crc: int = 0) -> bytes:
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, method, 0, 0, crc, packed, size, len(name), 0) + name


def entry(name: bytes, size: int, packed: int, offset: int = 0, method: int = 0, crc: int = 0) -> bytes:
    head = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, method, 0, 0, crc, packed, size, len(name), *[0] * 4, 0, offset
    )
    return head + name


def end(count: int, size: int, start: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), size, start, 0)


def test_a_sound_file_is_read(tmp_path):
    np.savez(tmp_path / "m.npz", w=np.ones(100))
    assert opened(tmp_path / "m.npz") == "read 800"


def test_a_pickle_of_gigabytes_is_refused_unread(tmp_path):
    """The file is sparse: three gigabytes of zeros take no room on the disk."""
    size, name, path = 3 << 30, b"m/data.pkl", tmp_path / "m.pth"
    with path.open("wb") as stream:
        stream.write(local_header(name, size, size))
        start = stream.seek(size, 1)
        directory = entry(name, size, size)
        stream.write(directory + end(1, len(directory), start))
    assert "pickle" in opened(path)


@pytest.mark.parametrize("name", ["m/data.pkl", "w.npy"])
def test_a_directory_of_a_million_records_is_refused_unread(tmp_path, name):
    records = 1_000_000
    first = local_header(name.encode(), 0, 0)
    directory = entry(name.encode(), 0, 0) + b"".join(entry(b"%x" % n, 0, 0) for n in range(records))
    path = tmp_path / "m.pth"
    path.write_bytes(first + directory + end(records, len(directory), len(first)))
    assert "zip directory claims" in opened(path)


def test_an_array_of_zeros_is_unpacked_in_blocks(tmp_path):
    """Half a gigabyte in half a megabyte is honest: nothing refuses it, and it needs no memory."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 29,)})
    packer, crc, packed = zlib.compressobj(9, zlib.DEFLATED, -15), 0, b""
    for block in (head.getvalue(), *[bytes(1 << 24)] * 32):
        packed, crc = packed + packer.compress(block), zlib.crc32(block, crc)
    packed += packer.flush()
    size, name, path = len(head.getvalue()) + (1 << 29), b"w.npy", tmp_path / "m.npz"
    local = local_header(name, size, len(packed), 8, crc)
    directory = entry(name, size, len(packed), 0, 8, crc)
    path.write_bytes(local + packed + directory + end(1, len(directory), len(local) + len(packed)))
    assert path.stat().st_size < 1 << 20
    assert opened(path) == f"read {1 << 29}"


def test_a_pickle_packed_to_a_thousandth_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", bytes(200 << 20))
    assert "compressed" in opened(tmp_path / "m.pth")


def test_a_header_of_safetensors_full_of_lists_is_refused(tmp_path):
    raw = b'{"w":[' + b"[]," * 4_000_000 + b"[]]}"
    (tmp_path / "m.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    assert "header" in opened(tmp_path / "m.safetensors")


def test_a_header_of_safetensors_of_four_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "m.safetensors"
    with path.open("wb") as stream:
        stream.write((4 << 30).to_bytes(8, "little") + b'{"w":')
        stream.truncate(5 << 30)
    assert "header claims" in opened(path)


@pytest.mark.parametrize("opcode", [b"]", b"}", b")", b"N", b"(", b"\x8f", b"K\x00", b"2", b"]q\x00", b"]\x94"])
def test_a_pickle_of_nothing_but_one_opcode_is_bounded(tmp_path, opcode, build):
    """Two hundred bytes an opcode at most; how many there may be is limited too."""
    build.torch(tmp_path / "m.pth", b"\x80\x04N" + opcode * 500_000 + b".")
    opened(tmp_path / "m.pth")
