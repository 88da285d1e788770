from __future__ import annotations

import os
import pickle
import tracemalloc

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError

REFUSED = (NotACheckpointError, UnsupportedCheckpointError)


def test_the_builder_makes_a_readable_file(build, tmp_path):
    path = build.torch(tmp_path / "m.pth", build.table(w=build.tensor((2, 2), (2, 1))))
    assert open_checkpoint(path).tensors["w"].load().tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(("module", "attribute"), [("os", "system"), ("builtins", "eval"), ("torch", "load")])
def test_a_call_beside_the_tensors_is_named_and_never_made(build, tmp_path, module, attribute):
    marker = tmp_path / "was-run"
    call = build.name(module, attribute) + build.many(build.text(f"touch {marker}")) + b"R"
    path = build.torch(tmp_path / "m.pth", build.table(w=build.tensor((4,), (1,)), boom=call))
    checkpoint = open_checkpoint(path)
    assert checkpoint.other == {"boom": f"{module}.{attribute}"}
    assert not marker.exists()


def test_a_class_with_reduce_is_not_built(build, tmp_path):
    marker = tmp_path / "was-run"

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    path = build.torch(tmp_path / "m.pth", pickle.dumps({"model": Bomb()}, protocol=4))
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(path)
    assert not marker.exists()


def test_a_call_inside_a_persistent_id_is_not_made(build, tmp_path):
    marker = tmp_path / "was-run"
    call = build.name("os", "system") + build.many(build.text(f"touch {marker}")) + b"R"
    reference = build.many(build.text("storage"), call, build.text("0"), build.text("cpu"), build.whole(4)) + b"Q"
    value = build.name("torch._utils", "_rebuild_tensor_v2")
    value += build.many(reference, build.whole(0), build.numbers((4,)), build.numbers((1,)), b"\x89", b"N") + b"R"
    with pytest.raises(HostileFileError):
        open_checkpoint(build.torch(tmp_path / "m.pth", build.table(w=value)))
    assert not marker.exists()


@pytest.mark.parametrize("opcode", [b"\x82\x01", b"\x83\x01\x00", b"\x97"])
def test_extension_codes_and_buffers_are_refused(build, tmp_path, opcode):
    with pytest.raises(NotACheckpointError):
        open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02" + opcode + b"."))


@pytest.mark.parametrize(
    "body",
    [
        b".",
        b"0.",
        b"t.",
        b"\x86.",
        b"R.",
        b"h\x07.",
        b"}u.",
        b"}(Nu.",
        b"]NNs.",
        b"(lNa.",
        b"Na.",
        b"N(NNu.",
        b"b.",
        b"q\x00.",
    ],
)
def test_a_pickle_that_uses_what_it_never_made_is_refused(build, tmp_path, body):
    with pytest.raises(REFUSED):
        open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02" + body))


@pytest.mark.parametrize("wrap", [b"\x85", b"(t", b"R"])
def test_deep_nesting_does_not_overflow_the_stack(build, tmp_path, wrap):
    """Tuples in tuples, and calls of calls: `x(x(x(...)))` with whatever stands below as the callee."""
    depth = 50_000
    opening = {b"\x85": b"N", b"(t": b"", b"R": b"N" * (depth + 1)}[wrap]
    closing = b"(" * depth + b"t" * depth if wrap == b"(t" else wrap * depth
    path = build.torch(tmp_path / "m.pth", b"\x80\x02}" + build.text("w") + opening + closing + b"s.")
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(path)


@pytest.mark.parametrize("place", range(7))
def test_deep_nesting_in_a_tensor_s_arguments_is_refused(build, tmp_path, place):
    deep = b"N" + b"\x85" * 50_000
    arguments = [b"N", build.whole(0), build.numbers((4,)), build.numbers((1,)), b"\x89", b"N", b"}"]
    arguments[place] = deep
    for maker in ("_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_from_type_v2", "_rebuild_parameter"):
        call = build.name("torch._utils", maker) + build.many(*arguments) + b"R"
        with pytest.raises(REFUSED):
            open_checkpoint(build.torch(tmp_path / "m.pth", build.table(w=call)))


def test_an_integer_of_a_million_digits_is_not_printed(build, tmp_path):
    number = b"\x8b" + (1_000_000).to_bytes(4, "little") + b"\x7f" * 1_000_000
    path = build.torch(tmp_path / "m.pth", build.table(w=build.tensor((4,), (1,)), n=number))
    assert open_checkpoint(path).other == {"n": "int"}


def test_a_name_with_control_characters_is_refused(build, tmp_path):
    path = build.torch(tmp_path / "m.pth", build.table(**{"w\x1b[2J": build.tensor((4,), (1,))}))
    with pytest.raises(HostileFileError) as error:
        open_checkpoint(path)
    assert error.value.message.isprintable()
    assert "rename the tensor" in error.value.hint
    assert "cut short" not in error.value.hint


def test_names_of_classes_and_keys_do_not_write_to_the_terminal(build, tmp_path):
    escape = "\x1b[2J"
    state = b"}(" + build.text("_modules") + b"}" + build.text("_parameters") + b"}" + build.text("w")
    module = build.name("m", f"Net{escape}") + b")\x81" + state + build.tensor((4,), (1,)) + b"ub"
    weights = b"}" + build.text("w") + build.tensor((4,), (1,)) + b"s"
    odd = build.table(w=build.tensor((4,), (1,), make=f"_rebuild_{escape}"))
    for pickle_of_it in (
        build.table(**{f"a{escape}": module}),
        build.table(**{f"a{escape}": weights, f"b{escape}": weights}),
        odd,
    ):
        with pytest.raises(UnsupportedCheckpointError) as error:
            open_checkpoint(build.torch(tmp_path / "m.pth", pickle_of_it))
        assert str(error.value).replace("\n", "").isprintable()
    beside = build.table(**{f"a{escape}": weights, "thing": build.name("m", f"Class{escape}") + b")R"})
    checkpoint = open_checkpoint(build.torch(tmp_path / "m.pth", beside))
    said = [checkpoint.key, checkpoint.entries[0].key, *checkpoint.other, *checkpoint.other.values()]
    assert all(text.isprintable() for text in said)


def test_a_deeply_nested_dict_key_is_not_hashed(build, tmp_path):
    body = b"\x80\x02}N" + b"\x85" * 50_000 + b"Ns."
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(build.torch(tmp_path / "m.pth", body))


def test_an_unhashable_key_is_kept_apart(build, tmp_path):
    body = b"\x80\x02}(]N" + build.text("w") + build.tensor((4,), (1,)) + b"u."
    assert set(open_checkpoint(build.torch(tmp_path / "m.pth", body)).tensors) == {"w"}


@pytest.mark.usefixtures("guarded")
def test_references_that_double_at_every_level_take_neither_time_nor_memory(build, tmp_path):
    body = b"\x80\x02}" + build.text("w")
    body += b"]" + b"".join(
        b"q" + bytes([n]) + b"]" + b"h" + bytes([n]) + b"a" + b"h" + bytes([n]) + b"a" for n in range(200)
    )
    path = build.torch(tmp_path / "m.pth", body + b"s.")
    with pytest.raises(REFUSED):
        open_checkpoint(path)


@pytest.mark.usefixtures("guarded")
def test_tensors_are_counted_once_however_often_they_are_referred_to(build, tmp_path):
    doubling = b"".join(b"q" + bytes([n]) + b"0]" + (b"h" + bytes([n]) + b"a") * 2 for n in range(200))
    hidden = b"]" + build.tensor((4,), (1,)) + b"a" + doubling
    checkpoint = open_checkpoint(build.torch(tmp_path / "m.pth", build.table(w=build.tensor((4,), (1,)), deep=hidden)))
    assert checkpoint.other_tensors == {"deep": 1}


@pytest.mark.usefixtures("guarded")
def test_mappings_that_hold_each_other_many_times_are_looked_at_once(build, tmp_path):
    level = b"}"
    for depth in range(4):
        keys = b"".join(build.text(f"k{n}") + b"h" + bytes([depth]) for n in range(2000))
        level += b"q" + bytes([depth]) + b"0}(" + keys + b"u"
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02" + level + b"."))


@pytest.mark.usefixtures("guarded")
def test_integer_keys_of_one_hash_are_refused_their_place(build, tmp_path):
    keys = b"".join(build.whole((2**61 - 1) * n) + b"N" for n in range(100_000))
    path = build.torch(tmp_path / "m.pth", b"\x80\x02}(" + keys + b"u.")
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("shape", "stride", "more"),
    [
        ((5,), (1,), {}),
        ((4,), (1,), {"offset": 1}),
        ((2, 2), (4, 1), {}),
        ((4,), (1,), {"count": 5}),
        ((4,), (1,), {"storage": "DoubleStorage"}),
        ((-4,), (1,), {}),
        ((4,), (-1,), {"offset": 3}),
        ((4,), (1,), {"offset": -1}),
        ((4,), (1, 1), {}),
        ((1 << 62, 4), (0, 0), {}),
        ((1 << 40,), (0,), {}),
        ((1 << 70,), (1,), {}),
        ((1,) * 65, (1,) * 65, {}),
        ((4,), (1,), {"key": "1"}),
        ((4,), (1,), {"key": "../data.pkl"}),
        ((4,), (1,), {"count": -4}),
        ((4,), (1,), {"storage": "SpyStorage"}),
        ((4,), (1,), {"make": "_rebuild_qtensor"}),
    ],
)
def test_a_view_outside_its_storage_is_refused(build, tmp_path, shape, stride, more):
    path = build.torch(tmp_path / "m.pth", build.table(w=build.tensor(shape, stride, **more)))
    tracemalloc.start()
    with pytest.raises(REFUSED, match="w"):
        open_checkpoint(path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_a_pickle_with_two_roots_uses_the_last_and_runs_nothing(build, tmp_path):
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02}N."))


@pytest.mark.parametrize("stride", [1 << 60, 1 << 61, (1 << 63) - 1])
def test_the_stride_of_an_axis_of_one_element_means_nothing(build, tmp_path, stride):
    """Torch takes it; NumPy counts strides in 63 bits of bytes."""
    pickled = build.table(w=build.tensor((1, 2), (stride, 2)), v=build.tensor((2, 1, 2), (1, stride, 2)))
    tensors = open_checkpoint(build.torch(tmp_path / "m.pth", pickled)).tensors
    assert [tensor.load().tolist() for tensor in tensors.values()] == [[[0, 0]], [[[0, 0]], [[0, 0]]]]


@pytest.mark.parametrize(("stored", "stride", "length", "count"), [(4, 0, 1 << 28, 40), (1 << 16, 1, 1 << 16, 5000)])
def test_the_bytes_that_a_file_repeats_are_limited_as_a_whole(build, tmp_path, stored, stride, length, count):
    """Forty gigabytes in six kilobytes, each tensor below the limit; or most of one storage a thousand times."""
    tensors = {f"w{n}": build.tensor((length - n,), (stride,), stored) for n in range(count)}
    few = dict(list(tensors.items())[: 1 if stride == 0 else 1000])
    records = {"data/0": bytes(4 * stored)}
    assert len(open_checkpoint(build.torch(tmp_path / "m.pth", build.table(**few), records)).tensors) == len(few)
    with pytest.raises(HostileFileError, match="by repeating"):
        open_checkpoint(build.torch(tmp_path / "m.pth", build.table(**tensors), records))


def test_one_view_under_thousands_of_names_repeats_nothing(build, tmp_path):
    tied = build.table(**{f"w{n}": build.tensor((1 << 16,), (1,), 1 << 16) for n in range(5000)})
    path = build.torch(tmp_path / "m.pth", tied, {"data/0": bytes(1 << 18)})
    assert len({tensor.identity for tensor in open_checkpoint(path).tensors.values()}) == 1
