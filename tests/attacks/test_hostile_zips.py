from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError


def array_bytes(value) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


@pytest.fixture
def good(build, tmp_path):
    return build.torch(tmp_path / "m.pth", build.table(w=build.tensor((4,), (1,))))


@pytest.mark.parametrize("bad", ["../../etc/cron.d/x", "/etc/passwd", "a/../../x", "a\\..\\x"])
def test_a_record_that_leaves_the_archive_is_refused(tmp_path, bad):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{bad}.npy", array_bytes(np.ones(2)))
    with pytest.raises(HostileFileError, match="leaves the archive"):
        open_checkpoint(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_records_of_one_name_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", array_bytes(np.ones(2)))
        archive.writestr("w.npy", array_bytes(np.zeros(2)))
    with pytest.raises(HostileFileError, match="one name"):
        open_checkpoint(path)


def test_two_pickles_are_refused(build, tmp_path):
    path = build.torch(tmp_path / "m.pth", build.table())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", build.table(w=build.tensor((4,), (1,))))
    with pytest.raises(NotACheckpointError, match=r"2 records data\.pkl"):
        open_checkpoint(path)


def test_a_record_with_another_name_in_place_is_refused(good):
    data = good.read_bytes()
    good.write_bytes(data.replace(b"model/data/0", b"model/data/9", 1))
    with pytest.raises(HostileFileError, match="in place"):
        open_checkpoint(good)


def test_a_longer_extra_field_in_place_does_not_shift_the_data(build, tmp_path):
    """The directory's lengths must not be trusted for the payload's offset."""
    path = tmp_path / "m.pth"
    info = zipfile.ZipInfo("model/data/0")
    info.extra = struct.pack("<HH", 0x4246, 8) + b"pad-pad-"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", build.table(w=build.tensor((4,), (1,))))
        archive.writestr(info, np.arange(4, dtype="<f4").tobytes())
        info.extra = b""
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 1, 2, 3]


def test_overlapping_records_are_refused(good):
    """Both directory entries point at the first record."""
    data = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        end = archive.start_dir
    second = data.index(b"PK\x01\x02", end + 4)
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    good.write_bytes(data)
    with pytest.raises(NotACheckpointError):
        open_checkpoint(good)


@pytest.mark.parametrize("field", [20, 24])
@pytest.mark.parametrize("size", [0, 1 << 20, 0xFFFFFFF0])
def test_absurd_sizes_in_the_directory_are_refused(good, field, size):
    data = bytearray(good.read_bytes())
    last = data.rindex(b"PK\x01\x02")
    data[last + field : last + field + 4] = struct.pack("<I", size)
    good.write_bytes(data)
    with pytest.raises(NotACheckpointError):
        open_checkpoint(good)


def test_a_compressed_torch_file_is_refused(build, tmp_path):
    path = tmp_path / "m.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", build.table(w=build.tensor((4,), (1,))))
        archive.writestr("model/data/0", bytes(16))
    with pytest.raises(HostileFileError, match="compressed"):
        open_checkpoint(path)


def test_a_torchscript_program_is_named_and_refused(build, tmp_path):
    path = build.torch(tmp_path / "m.pt", build.table(), {"constants.pkl": b"", "code/__torch__.py": b""})
    with pytest.raises(UnsupportedCheckpointError, match="TorchScript"):
        open_checkpoint(path)


def test_a_storage_record_shorter_than_the_pickle_says_is_refused(build, tmp_path):
    path = build.torch(tmp_path / "m.pth", build.table(w=build.tensor((4,), (1,))), {"data/0": bytes(15)})
    with pytest.raises(NotACheckpointError, match="15 bytes"):
        open_checkpoint(path)


def test_an_array_of_objects_is_refused_without_unpickling_it(tmp_path):
    marker = tmp_path / "was-run"

    class Bomb:
        def __reduce__(self):
            return marker.touch, ()

    np.savez(tmp_path / "m.npz", w=np.array([Bomb()], dtype=object))
    with pytest.raises(UnsupportedCheckpointError, match="Python objects") as error:
        open_checkpoint(tmp_path / "m.npz")
    assert "pickled" in error.value.hint
    assert not marker.exists()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 5000 + ")" * 5000 + "}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os').system('false')}",
        "{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 60_000 + ",}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 20_000 + ")}",
        "nothing",
    ],
)
def test_a_lying_array_header_is_refused(tmp_path, header):
    path = tmp_path / "m.npz"
    body = header.encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body + bytes(4))
    with pytest.raises((NotACheckpointError, UnsupportedCheckpointError)):
        open_checkpoint(path)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", array_bytes(np.zeros(1 << 16)))
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 0xFFFFFFF0)
    path.write_bytes(data)
    with pytest.raises(HostileFileError, match="claims"):
        open_checkpoint(path)


def test_an_empty_directory_behind_a_sound_record_is_refused(tmp_path):
    """Found by fuzzing."""
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", array_bytes(np.ones(2)))
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"PK\x01\x02")] + b"PK\x05\x06" + bytes(18))
    with pytest.raises(NotACheckpointError, match="directory is empty"):
        open_checkpoint(path)


@pytest.mark.parametrize("descr", [",f2", "f4,f4", "(2,)f4", "<f4\\\\", "<M8[ns]", "<U99999999", "<S4294967295"])
def test_a_dtype_that_numpy_would_have_to_parse_as_code_is_refused(tmp_path, descr):
    """Found by fuzzing: NumPy gives what stands between commas to Python's own parser."""
    path = tmp_path / "m.npz"
    body = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (0, 2), }}\n".encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body)
    with pytest.raises(NotACheckpointError, match="no valid header"):
        open_checkpoint(path)


def extended(name: bytes, offset: int, size: int) -> bytes:
    """A directory entry whose sizes and offset stand in a zip64 field, where they have 64 bits."""
    field = struct.pack("<HH3Q", 1, 24, size, size, offset)
    head = struct.pack(
        "<4s6H3L5H2L",
        b"PK\x01\x02",
        45,
        45,
        0,
        0,
        0,
        0,
        0,
        *[0xFFFFFFFF] * 2,
        *[len(name), len(field), 0, 0, 0],
        0,
        0xFFFFFFFF,
    )
    return head + name + field


@pytest.mark.parametrize(
    ("offset", "size"),
    [(1 << 63, 16), ((1 << 64) - 1, 16), ((1 << 63) - 1, 16), (0, (1 << 64) - 16), (0, 1 << 63), (1 << 40, 1 << 40)],
)
def test_offsets_and_sizes_that_overflow_are_refused(tmp_path, offset, size):
    name, content = b"w.npy", array_bytes(np.ones(2))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, len(content), len(content), len(name), 0) + name
    directory = extended(name, offset, size)
    start = len(local) + len(content)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), start, 0)
    path = tmp_path / "m.npz"
    path.write_bytes(local + content + directory + end)
    with pytest.raises(NotACheckpointError):
        open_checkpoint(path)


def test_a_record_quoted_inside_another_is_refused(tmp_path):
    """The densest zip bombs: each record's data begins with the next record's header, so that all share one kernel."""
    inner = zipped({"b.npy": array_bytes(np.ones(2))})
    header_end = inner.index(b"PK\x01\x02")
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, header_end, header_end, 5, 0) + b"a.npy"
    directory = bytearray(inner[header_end : inner.index(b"PK\x05\x06")])
    directory[42:46] = struct.pack("<L", len(local))
    outer = directory.replace(b"b.npy", b"a.npy")
    outer[20:28] = struct.pack("<2L", header_end, header_end)
    outer[42:46] = bytes(4)
    body = local + inner[:header_end]
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, len(outer) + len(directory), len(body), 0)
    path = tmp_path / "m.npz"
    path.write_bytes(body + outer + directory + end)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["a.npy", "b.npy"]
    with pytest.raises(HostileFileError, match="in what follows"):
        open_checkpoint(path)


def zipped(records) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_more_records_than_a_plain_zip_can_count_are_read(tmp_path):
    count, path = 65_600, tmp_path / "m.npz"
    one = zipped({"00000.npy": array_bytes(np.ones(1, np.int8))})
    start = one.index(b"PK\x01\x02")
    record, entry = one[:start], one[start : one.index(b"PK\x05\x06")]
    records = b"".join(record.replace(b"00000", b"%05d" % n) for n in range(count))
    places = (struct.pack("<L", n * len(record)) + b"%05d" % n for n in range(count))
    entries = b"".join(entry.replace(bytes(4) + b"00000", place) for place in places)
    whole = (count, count, len(entries), len(records))
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *whole)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(records) + len(entries), 1)
    path.write_bytes(
        records
        + entries
        + end
        + locator
        + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)
    )
    assert len(open_checkpoint(path).tensors) == count


@pytest.mark.parametrize("damage", ["crc", "length", "stream"])
def test_a_compressed_array_that_is_not_what_it_claims_is_refused_when_it_is_unpacked(tmp_path, damage):
    from align.checkpoints.extents import byte_blocks

    path = tmp_path / "m.npz"
    np.savez_compressed(path, w=np.random.default_rng(0).standard_normal(1000))
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    if damage == "crc":
        data[entry + 16] ^= 1
    elif damage == "length":  # the stream ends before what the directory and the array's header claim
        with zipfile.ZipFile(path) as archive:
            short = archive.read("w.npy")[:-80]
        path.write_bytes(deflated("w.npy", short))
        data = bytearray(path.read_bytes())
        entry = data.rindex(b"PK\x01\x02")
        data[entry + 24 : entry + 28] = struct.pack("<L", len(short) + 80)
    else:
        data[entry - 3000] ^= 0xFF
    path.write_bytes(data)
    tensor = open_checkpoint(path).tensors["w"]
    with pytest.raises(NotACheckpointError):
        tensor.load()
    with pytest.raises(NotACheckpointError):
        list(byte_blocks(tensor))


def deflated(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize("descr", ["<f4", ">f4", "<U4"])
@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_empty_array_of_a_shape_that_no_array_can_have_is_refused(tmp_path, descr, fortran, method):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": fortran, "shape": (0, 10**30)})
    with zipfile.ZipFile(tmp_path / "m.npz", "w", method) as archive:
        archive.writestr("w.npy", head.getvalue())
    with pytest.raises(HostileFileError, match="claims the shape"):
        open_checkpoint(tmp_path / "m.npz")
