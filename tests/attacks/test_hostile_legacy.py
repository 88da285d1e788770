from __future__ import annotations

import os
import pickle
import struct
import tracemalloc

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError

REFUSED = (NotACheckpointError, UnsupportedCheckpointError)
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
MACHINE = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
START = b"".join(pickle.dumps(value, 2) for value in (MAGIC, PROTOCOL, MACHINE))


def storage(data: bytes, count: int | None = None) -> bytes:
    return struct.pack("<q", len(data) // 4 if count is None else count) + data


def write(path, body: bytes, keys=("0",), storages: bytes | None = None):
    """A file in torch's old form: the pickled object, the list of keys, the storages."""
    path.write_bytes(
        START + body + pickle.dumps(list(keys), 2) + (storage(bytes(16)) if storages is None else storages)
    )
    return path


def view_of(build, shape, view: tuple[str, int, int], *, offset=0, count=8) -> bytes:
    """A tensor over a storage that is itself a view of another."""
    reference = build.many(
        build.text("storage"), build.name("torch", "FloatStorage"), build.text("0"), build.text("cpu"),
        build.whole(count), build.many(build.text(view[0]), *map(build.whole, view[1:])),
    )  # fmt: skip
    geometry = (build.whole(offset), build.numbers(shape), build.numbers([1] * len(shape)))
    return (
        build.name("torch._utils", "_rebuild_tensor_v2") + build.many(reference + b"Q", *geometry, b"\x89", b"N") + b"R"
    )


@pytest.fixture
def one(build):
    return build.table(w=build.tensor((4,), (1,)))


def test_the_builder_makes_a_readable_file(one, tmp_path):
    path = write(tmp_path / "m.pth", one, storages=storage(struct.pack("<4f", 1, 2, 3, 4)))
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "torch-legacy"
    assert checkpoint.tensors["w"].load().tolist() == [1, 2, 3, 4]


def test_a_storage_that_views_another_is_read_from_its_place(build, tmp_path):
    body = build.table(a=view_of(build, (3,), ("7", 2, 5), offset=1), b=view_of(build, (3,), ("8", 3, 3)))
    path = write(tmp_path / "m.pth", body, storages=storage(struct.pack("<8f", *range(8))))
    tensors = open_checkpoint(path).tensors
    assert tensors["a"].load().tolist() == tensors["b"].load().tolist() == [3, 4, 5]
    assert tensors["a"].storage == tensors["b"].storage


@pytest.mark.parametrize(
    ("shape", "view", "offset"),
    [
        ((5,), ("7", 4, 4), 0),
        ((4,), ("7", 4, 4), 1),
        ((4,), ("7", 5, 4), 0),
        ((4,), ("7", -1, 4), 0),
        ((4,), ("7", 0, 1 << 62), 0),
        ((4,), ("7", 1 << 62, 4), 0),
        ((0,), ("7", 0, -1), 0),
    ],
)
def test_a_view_outside_its_storage_or_of_more_than_it_is_refused(build, tmp_path, shape, view, offset):
    body = build.table(w=view_of(build, shape, view, offset=offset))
    with pytest.raises(HostileFileError):
        open_checkpoint(write(tmp_path / "m.pth", body, storages=storage(bytes(32))))


def test_a_malformed_view_is_refused(build, tmp_path):
    whole = view_of(build, (4,), ("7", 0, 4))
    assert whole.count(build.text("7")) == 1
    for instead in (b"", build.text("7") + b"N", b"N" + b"\x85" * 50_000):
        body = build.table(w=whole.replace(build.text("7"), instead))
        with pytest.raises(HostileFileError):
            open_checkpoint(write(tmp_path / "m.pth", body, storages=storage(bytes(32))))


@pytest.mark.parametrize("count", [0, 3, 5, -1, -4, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_a_count_in_place_that_is_not_the_pickle_s_is_refused(one, tmp_path, count):
    with pytest.raises(NotACheckpointError, match="elements in place"):
        open_checkpoint(write(tmp_path / "m.pth", one, storages=storage(bytes(16), count)))


@pytest.mark.parametrize("count", [1 << 30, 1 << 61, (1 << 63) - 1])
def test_a_huge_count_that_the_pickle_claims_too_takes_no_memory(build, tmp_path, count):
    body = build.table(w=build.tensor((4,), (1,), count))
    tracemalloc.start()
    with pytest.raises(NotACheckpointError, match="ends at byte"):
        open_checkpoint(write(tmp_path / "m.pth", body, storages=storage(bytes(16), count)))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (["0", "0"], "twice"),
        (["0", "1"], "nothing refers"),
        (["9" * 1000], "nothing refers"),
        ([0], "no list"),
        ([["0"]], "no list"),
        (("0",), None),
        ([], "missing"),
    ],
)
def test_a_lying_list_of_storages_is_refused(one, tmp_path, keys, reason):
    path = write(tmp_path / "m.pth", one, keys, storage(bytes(16)) * 2)
    if reason is None:
        path.write_bytes(START + one + pickle.dumps(keys, 2) + storage(bytes(16)))
        reason = "no list"
    with pytest.raises(NotACheckpointError, match=reason):
        open_checkpoint(path)


def test_two_references_that_disagree_on_a_storage_are_refused(build, tmp_path):
    body = build.table(a=build.tensor((4,), (1,), 4), b=build.tensor((1,), (1,), 5))
    with pytest.raises(HostileFileError, match="16 bytes and 20"):
        open_checkpoint(write(tmp_path / "m.pth", body))


def test_a_storage_of_an_unknown_class_hides_where_the_next_one_lies(build, tmp_path):
    body = build.table(a=build.tensor((4,), (1,)), b=build.tensor((4,), (1,), key="1", storage="SpyStorage"))
    with pytest.raises(UnsupportedCheckpointError, match="SpyStorage"):
        open_checkpoint(write(tmp_path / "m.pth", body, ["0", "1"], storage(bytes(16)) * 2))


@pytest.mark.parametrize("place", ["storage", "module", "text", "list"])
def test_a_call_inside_a_persistent_id_is_not_made(build, tmp_path, place):
    marker = tmp_path / "was-run"
    call = build.name("os", "system") + build.many(build.text(f"touch {marker}")) + b"R"
    reference = {
        "storage": build.many(build.text("storage"), call, build.text("0"), build.text("cpu"), build.whole(4)),
        "module": build.many(build.text("module"), call, build.text("a.py"), build.text("import os")),
        "text": b"P" + f"{marker}\n".encode(),
        "list": b"]" + call + b"a",
    }[place]
    hook = reference if place == "text" else reference + b"Q"
    body = build.table(w=build.tensor((4,), (1,)), hook=hook)
    if place == "module":
        assert list(open_checkpoint(write(tmp_path / "m.pth", body)).tensors) == ["w"]
    else:
        with pytest.raises(REFUSED):
            open_checkpoint(write(tmp_path / "m.pth", body))
    assert not marker.exists()


def test_code_in_the_other_pickles_is_not_run(one, tmp_path):
    marker = tmp_path / "was-run"

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    bomb, good = pickle.dumps(Bomb(), 2), [pickle.dumps(value, 2) for value in (MAGIC, PROTOCOL, MACHINE)]
    for place in range(1, 5):
        pickles = [*good, one, pickle.dumps(["0"], 2)]
        pickles[place] = bomb
        path = tmp_path / "m.pth"
        path.write_bytes(b"".join(pickles) + storage(bytes(16)))
        with pytest.raises(REFUSED):
            open_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize("little", [False, 1, None, "yes"])
def test_another_byte_order_is_refused(one, tmp_path, little):
    machine = pickle.dumps({"little_endian": little}, 2)
    path = tmp_path / "m.pth"
    path.write_bytes(pickle.dumps(MAGIC, 2) + pickle.dumps(PROTOCOL, 2) + machine + one + pickle.dumps(["0"], 2))
    with pytest.raises(UnsupportedCheckpointError, match="little-endian"):
        open_checkpoint(path)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("endless", [b"N", b"(", b"]", b"}q\x00", b"X\x00\x00\x00\x00", b"\x95" + bytes(8)])
def test_a_pickle_without_end_is_refused_in_time_that_grows_with_its_length(tmp_path, endless, growth):
    def refuse(count):
        path = tmp_path / "m.pth"
        path.write_bytes(START + b"\x80\x02" + endless * count)
        with pytest.raises(REFUSED):
            open_checkpoint(path)

    assert growth(refuse, 2000) < 3
    refuse(200_000)


def test_a_pickle_is_not_looked_for_in_all_of_a_huge_file(tmp_path, bytes_read, guard):
    path = tmp_path / "m.pth"
    path.write_bytes(START + b"\x80\x02" + b"c")
    os.truncate(path, 64 << 30)
    before = bytes_read()
    tracemalloc.start()
    with guard(3), pytest.raises(NotACheckpointError):  # to look at all that is mapped takes longer
        open_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert bytes_read() - before < 256 << 20


def test_a_huge_file_is_opened_without_being_read(build, tmp_path):
    count = 8 << 30
    path = write(tmp_path / "m.pth", build.table(w=build.tensor((count,), (1,), count)), storages=storage(b"", count))
    os.truncate(path, path.stat().st_size + 4 * count)
    tracemalloc.start()
    tensor = open_checkpoint(path).tensors["w"]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert tensor.extent.offset + tensor.nbytes == path.stat().st_size
    assert tensor.load()[count - 1] == 0


def test_a_file_cut_at_any_byte_is_refused(build, tmp_path):
    body = build.table(a=build.tensor((2, 2), (2, 1)), b=build.tensor((2,), (1,), 2, key="1"))
    whole = write(tmp_path / "m.pth", body, ["0", "1"], storage(bytes(16)) + storage(bytes(8))).read_bytes()
    assert len(open_checkpoint(tmp_path / "m.pth").tensors) == 2
    cut = tmp_path / "cut.pth"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(REFUSED):
            open_checkpoint(cut)


def test_a_file_with_any_byte_changed_is_refused_or_stays_inside_itself(build, tmp_path):
    body = build.table(a=build.tensor((2, 2), (2, 1)), b=view_of(build, (2,), ("7", 1, 2), count=4))
    whole = write(tmp_path / "m.pth", body).read_bytes()
    changed = tmp_path / "changed.pth"
    for place in range(len(whole)):
        for change in (0x01, 0x80, 0xFF):
            data = bytearray(whole)
            data[place] ^= change
            changed.write_bytes(data)
            try:
                tensors = open_checkpoint(changed).tensors.values()
            except REFUSED:
                continue
            for tensor in tensors:
                assert tensor.extent is None or tensor.extent.offset + tensor.extent.nbytes <= len(data)
                assert tensor.load().nbytes == tensor.nbytes
