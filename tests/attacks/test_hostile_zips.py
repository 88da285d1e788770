from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.workflows.open_checkpoint import open_checkpoint


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
    with pytest.raises(HostileFileError, match="pickle"):
        open_checkpoint(tmp_path / "m.npz")
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
