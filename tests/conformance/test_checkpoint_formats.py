"""What every checkpoint format promises, held for each that is found."""

from __future__ import annotations

import io
import tracemalloc

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, numpy_dtype
from align.core.protocols import CheckpointFormat
from align.errors import NotACheckpointError, UnsupportedCheckpointError

FORMATS = checkpoint_formats()
REFUSED = (NotACheckpointError, UnsupportedCheckpointError)
DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    "float8_e8m0fnu",
]  # fmt: skip
NAMES = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters=":"), min_size=1, max_size=12
)


def stored(name, value, storage=None):
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value, storage=storage)


@st.composite
def state_dicts(draw):
    """Up to six tensors of any dtype and any bits, some of them views of other strides, some tied to the one before."""
    tensors = []
    for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=6)):
        if tensors and draw(st.booleans()):
            tensors.append(stored(name, tensors[-1].load(), tensors[-1].storage))
        else:
            value = draw(views(draw(st.sampled_from(DTYPES))))
            tensors.append(stored(name, value, draw(st.sampled_from([None, f"storage {len(tensors)}"]))))
    return tensors


@st.composite
def views(draw, dtype):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = int(np.prod(shape)) * numpy_dtype(dtype).itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == "bool":
        data = bytes(byte & 1 for byte in data)
    value = np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
    kinds = [
        lambda v: v,
        np.transpose,
        lambda v: v[::2],
        lambda v: v[..., ::-1],
        lambda v: np.broadcast_to(v, (2, *v.shape)),
    ]
    return draw(st.sampled_from(kinds if shape else kinds[:2]))(value)


ONE = [stored("layer.weight", np.arange(6, dtype=np.float32).reshape(2, 3))]
WRITERS = [name for name, plugin in FORMATS.items() if not plugin.problems(ONE, {})]


def test_there_are_formats_that_write() -> None:
    assert {"ckpt", "safetensors", "npz", "torch"} <= set(WRITERS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_keeps_the_protocol(name) -> None:
    plugin = FORMATS[name]
    assert isinstance(plugin, CheckpointFormat)
    assert plugin.suffixes
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in plugin.suffixes)
    assert "\n" not in plugin.summary


def test_no_suffix_belongs_to_two_formats() -> None:
    suffixes = [suffix for plugin in FORMATS.values() for suffix in plugin.suffixes]
    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_that_cannot_write_says_so_before_writing(name) -> None:
    if name not in WRITERS:
        assert FORMATS[name].problems([], {}), "that is how a format that is only read is told"
        with pytest.raises(NotImplementedError):
            FORMATS[name].write(io.BytesIO(), ONE, {})
    else:
        stream = io.BytesIO()
        FORMATS[name].write(stream, ONE, {})
        assert stream.getvalue()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"P", b"PK\x03\x04", b"\x0a", b"\x80\x02", b"\x08\x08:\x05", b"{}", bytes(600), b"text\n" * 200],
)
def test_what_is_no_checkpoint_is_refused(name, content, tmp_path) -> None:
    path = tmp_path / f"file{FORMATS[name].suffixes[0]}"
    path.write_bytes(content)
    with pytest.raises(REFUSED):
        open_checkpoint(path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("flavour", ["pt", "ms"])
@hypothesis.given(tensors=state_dicts())
@hypothesis.example(tensors=[stored("w", np.frombuffer(b"/data.pklPK\x03\x04.npy", np.uint8))])
@hypothesis.settings(max_examples=60, deadline=None)
def test_what_is_written_reads_back_bit_for_bit(name, flavour, tensors, tmp_path_factory) -> None:
    plugin = FORMATS[name]
    metadata = {"format": flavour}
    refused = {line.split(": ")[0] for line in plugin.problems(tensors, metadata)}
    held = [tensor for tensor in tensors if tensor.name not in refused]
    path = tmp_path_factory.mktemp(name) / "file"
    with path.open("wb") as stream:
        plugin.write(stream, held, metadata)
    if not held:
        return
    found = open_checkpoint(path)
    assert found.format == name
    assert set(found.tensors) == {tensor.name for tensor in held}
    for tensor in held:
        other = found.tensors[tensor.name]
        assert (other.shape, other.dtype, other.nbytes) == (tensor.shape, tensor.dtype, tensor.nbytes)
        value = other.load()
        assert value.shape == tensor.shape
        assert value.tobytes() == tensor.load().tobytes()
        assert not value.flags.writeable or not value.size


@pytest.mark.parametrize("name", WRITERS)
def test_equal_tensors_give_equal_files(name) -> None:
    streams = [io.BytesIO(), io.BytesIO()]
    for stream in streams:
        FORMATS[name].write(stream, ONE, {"format": "ms"})
    assert streams[0].getvalue() == streams[1].getvalue()


@pytest.mark.parametrize("name", WRITERS)
def test_neither_opening_nor_writing_nor_reading_in_blocks_holds_a_tensor(name, tmp_path) -> None:
    big = [stored("layer.weight", np.arange(8 << 20, dtype=np.float32))]
    path = tmp_path / "file"
    tracemalloc.start()
    with path.open("wb") as stream:
        FORMATS[name].write(stream, big, {})
    tensor = open_checkpoint(path).tensors["layer.weight"]
    assert tensor.extent is not None
    assert sum(len(block) for block in byte_blocks(tensor)) == tensor.nbytes
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
