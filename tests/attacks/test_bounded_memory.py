"""Files that claim or hold far more than they are: refused, or read, in little memory and time.

Each is opened in a process of its own, whose peak the system tells; a hundred megabytes over what it began with are
allowed if the test names no other number. The system ends one that goes on for twenty seconds of the processor's time.
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

from align.checkpoints import pickled_tensors as interpreter
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.protobuf import number_bytes
from align.errors import HostileFileError

MOST_MEGABYTES = 100
SECONDS = 20
# Opens the file of each line in a copy of a process that has imported all; prints what was said and the megabytes.
SERVER = """
import json, os, resource, sys, warnings
from align.checkpoints.extents import byte_blocks
from align.core.load_code import checkpoint_formats
from align.errors import AlignError
from align.checkpoints.open_checkpoint import open_checkpoint
checkpoint_formats()
warnings.simplefilter("ignore", DeprecationWarning)  # of threads at a fork, which only NumPy's library has

def peak():
    with open("/proc/self/status") as status:  # getrusage starts from the peak of the parent
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

def opened(path, seconds, room):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if room is not None:
        with open("/proc/self/statm") as pages:
            most = int(pages.read().split()[0]) * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = peak()
    try:
        tensors = open_checkpoint(path).tensors.values()
        said = f"read {sum(len(block) for tensor in tensors for block in byte_blocks(tensor))}"
    except AlignError as error:
        said = error.message
    return said, peak() - before

for line in sys.stdin:
    if not (child := os.fork()):
        print(json.dumps(opened(*json.loads(line))), flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(json.dumps([f"ended by {os.waitstatus_to_exitcode(status)}", None]), flush=True)
"""


@pytest.fixture(scope="module")
def opened():
    """Open the file and read all of its tensors in blocks; return the message or what was read."""
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def opened(path, most: int = MOST_MEGABYTES, room: int | None = None) -> str:
        server.stdin.write(json.dumps([str(path), SECONDS, room]) + "\n")
        said, megabytes = json.loads(server.stdout.readline())
        assert megabytes is not None, said
        assert megabytes < most, (said, megabytes)
        return said

    yield opened
    server.communicate(timeout=600)


def local_header(name: bytes, size: int, packed: int, method: int = 0, crc: int = 0) -> bytes:
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, method, 0, 0, crc, packed, size, len(name), 0) + name


def entry(name: bytes, size: int, packed: int, offset: int = 0, method: int = 0, crc: int = 0) -> bytes:
    head = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, method, 0, 0, crc, packed, size, len(name), *[0] * 4, 0, offset
    )
    return head + name


def end(count: int, size: int, start: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), size, start, 0)


def test_a_sound_file_is_read(tmp_path, opened):
    np.savez(tmp_path / "m.npz", w=np.ones(100))
    assert opened(tmp_path / "m.npz") == "read 800"


def test_a_pickle_of_gigabytes_is_refused_unread(tmp_path, opened):
    """The file is sparse: three gigabytes of zeros take no room on the disk."""
    size, name, path = 3 << 30, b"m/data.pkl", tmp_path / "m.pth"
    with path.open("wb") as stream:
        stream.write(local_header(name, size, size))
        start = stream.seek(size, 1)
        directory = entry(name, size, size)
        stream.write(directory + end(1, len(directory), start))
    assert "pickle" in opened(path)


@pytest.mark.parametrize("name", ["m/data.pkl", "w.npy"])
def test_a_directory_of_a_million_records_is_refused_unread(tmp_path, name, opened):
    records = 1_000_000
    first = local_header(name.encode(), 0, 0)
    directory = entry(name.encode(), 0, 0) + entry(b"other", 0, 0) * records
    path = tmp_path / "m.pth"
    path.write_bytes(first + directory + end(records, len(directory), len(first)))
    assert "zip directory claims" in opened(path)


def test_an_array_of_zeros_is_unpacked_in_blocks(tmp_path, opened):
    """Half a gigabyte in half a megabyte is honest: nothing refuses it, and it needs no memory."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 29,)})
    packer, zeros = zlib.compressobj(6, zlib.DEFLATED, -15), bytes(1 << 24)
    first, block = (packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH) for part in (head.getvalue(), zeros))
    packed, crc = first + 32 * block + packer.flush(), zlib.crc32(head.getvalue())
    for _ in range(32):
        crc = zlib.crc32(zeros, crc)
    size, name, path = len(head.getvalue()) + (1 << 29), b"w.npy", tmp_path / "m.npz"
    local = local_header(name, size, len(packed), 8, crc)
    directory = entry(name, size, len(packed), 0, 8, crc)
    path.write_bytes(local + packed + directory + end(1, len(directory), len(local) + len(packed)))
    assert path.stat().st_size < 1 << 20
    assert opened(path) == f"read {1 << 29}"


def test_a_pickle_packed_to_a_thousandth_is_refused(tmp_path, opened):
    with zipfile.ZipFile(tmp_path / "m.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("m/data.pkl", bytes(200 << 20))
    assert "compressed" in opened(tmp_path / "m.pth")


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"":0}', b'""', b"300"])
def test_a_header_of_safetensors_full_of_small_values_is_refused(tmp_path, value, opened):
    raw = b'{"w":[' + (value + b",") * 4_000_000 + b"[]]}"
    (tmp_path / "m.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    assert "header" in opened(tmp_path / "m.safetensors")


def test_a_header_of_safetensors_of_four_gigabytes_is_refused_unread(tmp_path, opened):
    path = tmp_path / "m.safetensors"
    with path.open("wb") as stream:
        stream.write((4 << 30).to_bytes(8, "little") + b'{"w":')
        stream.truncate(5 << 30)
    assert "header claims" in opened(path)


@pytest.mark.parametrize("opcode", [b"]", b"}", b")", b"N", b"(", b"\x8f", b"K\x00", b"2", b"]q\x00", b"]\x94"])
def test_a_pickle_of_nothing_but_one_opcode_is_bounded(tmp_path, opcode, build, opened):
    """Eighty bytes an opcode, beside what any file takes: twelve million, as many as there may be, need a gigabyte.

    Of what is put into the memo, too, there may be a third as much.
    """
    build.torch(tmp_path / "m.pth", b"\x80\x04N" + opcode * 500_000 + b".")
    assert opened(tmp_path / "m.pth", MOST_MEGABYTES if opcode[1:] == b"\x94" else 48)


def test_a_pickle_of_too_many_opcodes_is_refused_at_their_number(tmp_path, build, monkeypatch):
    """They are counted alike whatever their number; all that there may be need a gigabyte, by what one needs above."""
    assert interpreter.MOST_OPCODES * (48 << 20) // 500_000 < 1200 << 20
    monkeypatch.setattr(interpreter, "MOST_OPCODES", 50_000)
    build.torch(tmp_path / "m.pth", b"\x80\x04N" + b"}" * 50_000 + b".")
    with pytest.raises(HostileFileError, match="opcodes"):
        open_checkpoint(tmp_path / "m.pth")


def test_memory_that_runs_out_is_told_as_any_other_fault(tmp_path, build, opened):
    build.torch(tmp_path / "m.pth", b"\x80\x04N" + b"}" * 5_000_000 + b".")
    assert "took all memory" in opened(tmp_path / "m.pth", 200, 100 << 20)


@pytest.fixture
def pickled(tmp_path, build, opened):
    """Open a pickle in which `shared` has the number 1 and `entries` stand beside a tensor."""

    def write(shared: bytes, *entries: bytes, most: int = MOST_MEGABYTES) -> str:
        table = b"}(" + build.text("w") + build.tensor((4,), (1,)) + b"".join(entries) + b"u."
        return opened(build.torch(tmp_path / "m.pth", b"\x80\x02" + shared + b"q\x010" + table), most)

    return write


def test_a_list_that_thousands_of_dicts_are_made_of_is_not_copied_for_each(build, pickled):
    pairs = b"](" + b"".join(build.whole(n) + b"K\x00\x86" for n in range(2000)) + b"e"
    make = build.name("collections", "OrderedDict") + b"q\x020"
    dicts = b"](" + b"h\x02h\x01\x85R" * 10_000 + b"e"
    assert "copies more" in pickled(make + pairs, build.text("x"), dicts, most=300)


def test_a_shape_of_a_million_axes_is_neither_read_nor_shown(build, pickled):
    ones = b"(" + b"K\x01" * 1_000_000 + b"t"
    maker = build.name("torch._utils", "_rebuild_tensor_v2")
    odd = maker + b"(NK\x00h\x01h\x01\x89NtR"
    assert pickled(ones, *(build.whole(n) + odd for n in range(3000))) == "read 16"


@pytest.mark.parametrize("many", ["mappings", "others"])
def test_keys_of_a_million_letters_are_cut_where_they_are_shown(tmp_path, build, many, opened):
    key, tensor = build.text("k" * 1_000_000) + b"q\x01", build.text("w") + build.tensor((4,), (1,))
    inner = [build.text(f"c{n}") + (b"N" if many == "others" else b"}" + tensor + b"s") for n in range(1000)]
    body = b"}" + key + b"}h\x01" * 19 + b"}(" + b"".join(inner) + (tensor if many == "others" else b"") + b"u"
    said = opened(build.torch(tmp_path / "m.pth", b"\x80\x02" + body + b"s" * 20 + b"."))
    assert said == "read 16" if many == "others" else "1,000 of its entries" in said or "1000 of its entries" in said
    assert len(said) < 10_000


def test_arguments_of_a_million_values_are_not_copied_for_each_call(build, pickled):
    ones = b"(" + b"K\x01" * 1_000_000 + b"t"
    assert pickled(ones, build.text("x"), b"](" + b"h\x01h\x01R" * 10_000 + b"e") == "read 16"


def test_classes_whose_names_have_a_million_letters_are_cut_where_they_are_shown(build, pickled):
    calls = (build.text(f"{n}") + b"h\x01h\x01\x93)R" for n in range(20_000))
    assert pickled(build.text("m" * 1_000_000), *calls) == "read 16"


def test_a_storage_with_a_name_of_thousands_of_letters_is_not_repeated_for_each_tensor(tmp_path, build, opened):
    key = "k" * 60_000
    shared = build.tensor((4,), (1,), key=key).partition(b"(")[2]
    reference = shared[: shared.index(b"Q") + 1]
    maker, one = build.name("torch._utils", "_rebuild_tensor_v2"), b"(h\x01K\x00h\x02h\x02\x89NtR"
    tensors = b"".join(build.text(f"{n}") + maker + one for n in range(20_000))
    body = b"\x80\x02" + reference + b"q\x010K\x04\x85q\x020}(" + tensors + b"u."
    assert "repeating" not in opened(build.torch(tmp_path / "m.pth", body, {f"data/{key}": bytes(16)}))


def field(number: int, data: bytes) -> bytes:
    return number_bytes(number << 3 | 2) + number_bytes(len(data)) + data


def test_a_node_with_a_long_name_and_thousands_of_graphs_is_named_once(tmp_path, opened):
    graphs = b"".join(field(5, field(1, b"%x" % n) + field(6, b"")) for n in range(60_000))
    weight = field(5, b"\x08\x01\x10\x01" + field(8, b"w") + field(9, bytes(4)))
    graph = field(7, weight + field(1, field(3, b"n" * 65_000) + graphs))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08" + field(2, b"x") + graph)
    assert opened(tmp_path / "m.onnx") == "read 4"


@pytest.mark.parametrize(("descr", "fortran"), [("<f4", True), (">f4", False), (">f4", True)])
def test_an_array_that_cannot_be_read_in_blocks_is_in_memory_once(tmp_path, descr, fortran, opened):
    head, megabytes = io.BytesIO(), 64
    shape = (1 << 10, megabytes << 8)
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": fortran, "shape": shape})
    with (
        zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("w.npy", "w") as stream,
    ):
        stream.write(head.getvalue())
        for _ in range(megabytes):
            stream.write(bytes(1 << 20))
    assert opened(tmp_path / "m.npz", megabytes + 60) == f"read {megabytes << 20}"
