from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from align.checkpoints.extents import byte_blocks
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.errors import NotACheckpointError, UnsupportedCheckpointError

ONNX = checkpoint_formats()["onnx"]
NUMBERS = np.array([[0, 1, 2], [3, 100, 5]])
DTYPES = {
    "FLOAT": "float32",
    "UINT8": "uint8",
    "INT8": "int8",
    "UINT16": "uint16",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "FLOAT16": "float16",
    "DOUBLE": "float64",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
}


def values(dtype: str) -> np.ndarray:
    """Values with both signs, the extremes of integers, NaN and the infinities of floats."""
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    flat = NUMBERS.astype(kind)
    if kind.kind in "iu":
        flat[0] = np.iinfo(kind).min, np.iinfo(kind).max, np.iinfo(kind).max // 3
    elif dtype not in ("bool", "float8_e4m3fn"):
        flat[0] = -1.5, np.nan, np.inf
    return flat


def model(initializers, nodes=(), **more) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "net", [], [], list(initializers))
    return helper.make_model(graph, producer_name="pytest", producer_version="7.1", **more)


def judge(path) -> dict[str, np.ndarray]:
    """Every initializer as the onnx package reads it."""
    loaded = onnx.load(str(path))
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in loaded.graph.initializer}


def assert_reads_as_onnx(path) -> None:
    expected = judge(path)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "onnx"
    assert list(checkpoint.tensors) == list(expected)
    for name, value in expected.items():
        tensor = checkpoint.tensors[name]
        found = tensor.load()
        assert (tensor.shape, found.shape, found.dtype) == (value.shape, value.shape, value.dtype)
        assert tensor.dtype == value.dtype.name
        assert found.tobytes() == value.tobytes()
        assert b"".join(bytes(block) for block in byte_blocks(tensor, 8)) == value.tobytes()
        assert not found.flags.writeable or not found.size


def typed(name: str, kind: str, value: np.ndarray) -> onnx.TensorProto:
    """The value in the typed field that the ONNX specification names for it, written without its helpers."""
    tensor = TensorProto(name=name, data_type=getattr(TensorProto, kind), dims=value.shape)
    flat = np.ascontiguousarray(value).reshape(-1)
    if kind in ("FLOAT", "COMPLEX64"):
        tensor.float_data.extend(flat.view(np.float32).tolist())
    elif kind in ("DOUBLE", "COMPLEX128"):
        tensor.double_data.extend(flat.view(np.float64).tolist())
    elif kind == "INT64":
        tensor.int64_data.extend(flat.tolist())
    elif kind in ("UINT32", "UINT64"):
        tensor.uint64_data.extend(flat.tolist())
    elif kind.startswith(("INT", "UINT")):
        tensor.int32_data.extend(flat.tolist())
    else:  # bool and the small floats go in by their bits
        tensor.int32_data.extend(flat.view(f"u{flat.itemsize}").tolist())
    return tensor


def test_raw_data_of_every_dtype_is_read_as_onnx_reads_it(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    tensors = [numpy_helper.from_array(values(dtype), f"层.{kind}") for kind, dtype in DTYPES.items()]
    onnx.save(model(tensors), path)
    assert all(tensor.HasField("raw_data") for tensor in tensors)
    assert_reads_as_onnx(path)
    assert all(tensor.extent is not None for tensor in open_checkpoint(path).tensors.values())


def test_typed_data_of_every_dtype_is_read_as_onnx_reads_it(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model([typed(kind, kind, values(dtype)) for kind, dtype in DTYPES.items()]), path)
    assert_reads_as_onnx(path)


def test_zero_dimensional_and_empty_tensors_are_read(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    tensors = [
        numpy_helper.from_array(np.array(7, np.int64), "scalar"),
        numpy_helper.from_array(np.zeros((0, 3)), "none"),
    ]
    tensors += [
        typed("typed", "FLOAT16", np.array(2.5, np.float16)),
        typed("nothing", "INT32", np.zeros((2, 0), np.int32)),
    ]
    onnx.save(model(tensors), path)
    assert_reads_as_onnx(path)


def test_many_numbers_of_every_length_are_decoded(tmp_path) -> None:
    """Numbers of one to ten bytes across the borders of the blocks in which they are decoded."""
    rng = np.random.default_rng(0)
    wide = rng.integers(-(1 << 63), 1 << 63, 300_000) >> rng.integers(0, 64, 300_000)
    path = tmp_path / "m.onnx"
    onnx.save(model([typed("wide", "INT64", wide), typed("u", "UINT64", wide.view(np.uint64))]), path)
    found = open_checkpoint(path).tensors
    assert np.array_equal(found["wide"].load(), wide)
    assert np.array_equal(found["u"].load(), wide.view(np.uint64))


def number(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + number(value >> 7) if value > 0x7F else bytes([value])


def piece(key: int, data: bytes) -> bytes:
    return number(key << 3 | 2) + number(len(data)) + data


def with_initializer(path, message: bytes):
    path.write_bytes(b"\x08\x08" + piece(7, piece(5, message)))
    return path


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("FLOAT", b"".join(b"\x25" + np.float32(n).tobytes() for n in range(4))),
        ("FLOAT", piece(4, np.float32([0, 1]).tobytes()) + piece(4, np.float32([2, 3]).tobytes())),
        ("DOUBLE", b"".join(b"\x51" + np.float64(n).tobytes() for n in range(4))),
        ("INT8", b"\x28\x00\x28\x01\x28\x02\x28\x03"),
        ("INT64", b"\x38\x00" + piece(7, b"\x01\x02") + b"\x38\x03"),
        ("UINT32", piece(11, b"\x00\x01") + piece(11, b"") + piece(11, b"\x02\x03")),
    ],
)
@pytest.mark.parametrize("dims", [b"\x08\x02\x08\x02", piece(1, b"\x02\x02"), b"\x08\x02" + piece(1, b"\x02")])
def test_values_and_dims_may_be_packed_or_not(tmp_path, kind, data, dims) -> None:
    message = dims + bytes([0x10, getattr(TensorProto, kind)]) + piece(8, b"w") + data
    path = with_initializer(tmp_path / "m.onnx", message)
    assert_reads_as_onnx(path)
    assert open_checkpoint(path).tensors["w"].load().tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("data", [piece(5, b"\x00\x01\x02\xac\x02"), b"\x28\x00\x28\x01\x28\x02\x28\xac\x02"])
def test_a_typed_bool_is_true_unless_it_is_zero(tmp_path, data) -> None:
    """The onnx package keeps the byte of 2 in its array of bools, where it is neither."""
    path = with_initializer(tmp_path / "m.onnx", b"\x08\x04\x10\x09" + piece(8, b"w") + data)
    found = open_checkpoint(path).tensors["w"].load()
    assert found.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert found.tolist() == (judge(path)["w"].view(np.uint8) != 0).tolist()


def test_fields_that_are_not_known_are_passed_over(tmp_path) -> None:
    strange = b"\xa0\x3e\x05" + b"\xa5\x3e" + bytes(4) + b"\xa1\x3e" + bytes(8) + piece(500, b"new")
    message = strange + b"\x08\x02\x10\x01" + piece(8, b"w") + piece(9, np.float32([1, 2]).tobytes()) + strange
    path = with_initializer(tmp_path / "m.onnx", message)
    assert_reads_as_onnx(path)


@pytest.mark.parametrize("one_file", [True, False])
def test_external_data_is_read_where_it_lies(tmp_path, one_file) -> None:
    path = tmp_path / "m.onnx"
    tensors = [numpy_helper.from_array(np.full((n, 40), n, np.float32), f"block.{n}") for n in range(1, 5)]
    onnx.save(
        model([*tensors, numpy_helper.from_array(np.int64([1, 2]), "shape")]),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location="weights.data" if one_file else None,
        size_threshold=300,
    )
    assert_reads_as_onnx(path)
    checkpoint = open_checkpoint(path)
    assert checkpoint.files == (path, *sorted(p for p in tmp_path.iterdir() if p != path))
    assert len(checkpoint.files) == (2 if one_file else 4)
    assert checkpoint.tensors["block.4"].extent.path != path
    assert checkpoint.tensors["block.1"].extent.path == path  # 160 bytes are below the threshold


def test_external_data_in_a_folder_below_and_beside_linked_models(tmp_path) -> None:
    """A snapshot of a model hub is a folder of links into a store."""
    store, snapshot = tmp_path / "store", tmp_path / "snapshot"
    (store / "parts").mkdir(parents=True)
    snapshot.mkdir()
    tensor = numpy_helper.from_array(np.ones(300, np.float32), "w")
    onnx.save(model([tensor]), store / "m.onnx", save_as_external_data=True, location="parts/w.bin")
    assert open_checkpoint(store / "m.onnx").tensors["w"].load().sum() == 300
    (snapshot / "m.onnx").symlink_to(store / "m.onnx")
    (snapshot / "parts").mkdir()
    (snapshot / "parts" / "w.bin").symlink_to(store / "parts" / "w.bin")
    checkpoint = open_checkpoint(snapshot / "m.onnx")
    assert checkpoint.tensors["w"].load().sum() == 300
    assert checkpoint.files == (snapshot / "m.onnx", snapshot / "parts" / "w.bin")


def test_missing_external_files_are_all_named(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    tensors = [numpy_helper.from_array(np.ones(300, np.float32), name) for name in ("a", "b")]
    onnx.save(model(tensors), path, save_as_external_data=True, all_tensors_to_one_file=False)
    (tmp_path / "a").unlink()
    (tmp_path / "b").unlink()
    with pytest.raises(UnsupportedCheckpointError, match="2 files with data of its tensors not found: a, b"):
        open_checkpoint(path)


def test_tensors_that_share_their_external_bytes_are_tied(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    tensors = [numpy_helper.from_array(np.full(300, n, np.float32), name) for n, name in enumerate("abc")]
    onnx.save(model(tensors), path, save_as_external_data=True, location="w")
    loaded = onnx.load(str(path), load_external_data=False)
    loaded.graph.initializer[2].external_data[1].value = loaded.graph.initializer[0].external_data[1].value
    path.write_bytes(loaded.SerializeToString())
    found = open_checkpoint(path).tensors
    assert found["a"].storage == found["c"].storage != found["b"].storage
    assert_reads_as_onnx(path)


def test_what_is_no_plain_tensor_is_named(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    text = helper.make_tensor("words", TensorProto.STRING, [1], [b"x"])
    int4 = helper.make_tensor("int4", TensorProto.INT4, [2], [1, 2])
    fnuz = helper.make_tensor("fnuz", TensorProto.FLOAT8E4M3FNUZ, [1], [1.0])
    plain = numpy_helper.from_array(np.ones(2, np.float32), "w")
    made = model([text, int4, plain, fnuz])
    indices = numpy_helper.from_array(np.int64([1]), "at")
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(numpy_helper.from_array(np.ones(1), "few"), indices, [9])
    )
    onnx.save(made, path)
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.other == {
        "words": "text",
        "int4": "INT4 tensor",
        "fnuz": "FLOAT8E4M3FNUZ tensor",
        "few": "sparse tensor",
    }
    assert checkpoint.other_tensors == {"int4": 1, "fnuz": 1, "few": 1}


def test_initializers_of_inner_graphs_are_counted_where_they_are(tmp_path) -> None:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "inner")
    body = helper.make_graph([], "body", [], [], [tensor, numpy_helper.from_array(np.ones(1), "more")])
    empty = helper.make_graph([], "empty", [], [])
    branch = helper.make_node("If", [], [], name="choice", then_branch=body, else_branch=empty)
    outer = helper.make_graph([branch], "outer", [], [], [tensor])
    loop = helper.make_node("Loop", [], [], body=outer)
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    function = helper.make_function("own", "Block", [], [], [branch], [helper.make_opsetid("", 20)])
    path = tmp_path / "m.onnx"
    made = model([tensor], [branch, loop, constant], functions=[function])
    made.training_info.add().algorithm.CopyFrom(outer)
    onnx.save(made, path)
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == ["inner"]
    assert checkpoint.other == {
        "choice.then_branch": "subgraph with 2 initializers",
        "Loop.body": "subgraph with 3 initializers",
        "Block.choice.then_branch": "subgraph with 2 initializers",
        "training": "subgraph with 3 initializers",
    }
    assert sum(checkpoint.other_tensors.values()) == 10


def test_the_metadata_tell_where_the_model_comes_from(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(model([numpy_helper.from_array(np.ones(1), "w")], opset_imports=opsets), path)
    assert open_checkpoint(path).metadata == {
        "producer": "pytest",
        "producer_version": "7.1",
        "graph": "net",
        "opset": "ai.onnx 17, ai.onnx.ml 3",
    }


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_exported_by_torch_keeps_its_names_and_values(tmp_path) -> None:
    import torch

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.LazyLinear(5)
    )
    net.eval()
    image = torch.zeros(1, 3, 8, 8)
    net(image)
    path = tmp_path / "m.onnx"
    options = {"keep_initializers_as_inputs": True, "do_constant_folding": False}
    torch.onnx.export(net, (image,), str(path), dynamo=False, **options)  # the exporter that needs no onnxscript
    assert_reads_as_onnx(path)
    state = net.state_dict()
    found = open_checkpoint(path)
    assert found.metadata["producer"] == "pytorch"
    kept = [name for name in state if name in found.tensors]
    assert "0.weight" in kept
    assert "3.bias" in kept
    for name in kept:
        assert np.array_equal(found.tensors[name].load(), state[name].numpy())


def test_a_model_without_initializers_has_no_tensors(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model([]), path)
    assert open_checkpoint(path).tensors == {}


def test_other_protobuf_files_are_not_taken_for_models(tmp_path) -> None:
    """A TensorFlow SavedModel starts with a small number too, and a long field 2, which in ONNX is the producer."""
    saved_model = b"\x08\x01" + piece(2, bytes(5000))
    for content in (saved_model, b"\x08\x08", b"\x08\x08\x7a\x00", b"\x08\x00" + piece(7, b""), piece(1, b"w")):
        assert not ONNX.recognizes(tmp_path, content[:512])
    assert ONNX.recognizes(tmp_path, (b"\x08\x08" + piece(7, bytes(5000)))[:512])


def test_a_ckpt_and_a_model_are_never_taken_for_each_other(tmp_path) -> None:
    ckpt = checkpoint_formats()["ckpt"]
    onnx.save(model([numpy_helper.from_array(np.ones(1), "w")]), tmp_path / "m.onnx")
    made = (tmp_path / "m.onnx").read_bytes()
    assert (ONNX.recognizes(tmp_path, made), ckpt.recognizes(tmp_path, made)) == (True, False)
    with (tmp_path / "m.ckpt").open("wb") as stream:
        ckpt.write(stream, list(open_checkpoint(tmp_path / "m.onnx").tensors.values()), {})
    made = (tmp_path / "m.ckpt").read_bytes()
    assert (ONNX.recognizes(tmp_path, made), ckpt.recognizes(tmp_path, made)) == (False, True)


@pytest.mark.parametrize("content", [b"\x08\x08" + piece(2, b"x"), b"\x08\x08" + piece(7, b"") * 2])
def test_a_model_has_one_graph(tmp_path, content) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(NotACheckpointError, match="a model has one"):
        open_checkpoint(tmp_path / "m.onnx")
