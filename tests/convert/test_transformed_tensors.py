"""What a target is made of: in blocks or as an array it is the same bytes."""

from __future__ import annotations

import tracemalloc

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks, mapped
from align.convert.plan_conversion import plan_conversion, transformed_tensor, with_dtype
from align.core.name_map import Fill, NameMap, Pairing
from align.core.parameters import Extent, StoredTensor, rounded_as
from align.core.transforms import IDENTITY, Add, Cast, Permute, Reshape, Scale, chained

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"]


def in_file(tmp_path, value):
    path = tmp_path / f"raw{len(list(tmp_path.iterdir()))}"
    path.write_bytes(value.tobytes())
    extent = Extent(path, 0, value.nbytes)
    return StoredTensor("t", value.shape, value.dtype.name, mapped(extent, value.shape, value.dtype.name), extent)


@hypothesis.settings(
    max_examples=200, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(data=st.data())
def test_blocks_and_array_are_the_same_bytes(tmp_path, data) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    before, after = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(DTYPES))
    value = np.random.default_rng(0).integers(0, 99, shape).astype(np.dtype(getattr(ml_dtypes, before, before)))
    steps = [Permute(tuple(data.draw(st.permutations(range(len(shape)))))), Cast(after), Reshape((value.size,))]
    chosen = data.draw(st.lists(st.sampled_from(steps[:2]), max_size=2, unique=True))
    chosen += (
        data.draw(st.sampled_from([(), (Add(1.0),), (Scale(0.3), Add(-2.0))]))
        if not chosen and rounded_as(before)
        else ()
    )
    transform = chained(*chosen, *data.draw(st.sampled_from([(), (steps[2],)])))
    made = transformed_tensor(in_file(tmp_path, value), "x", transform)
    block = 16 * data.draw(st.integers(1, 5))
    blocks = [bytes(part) for part in byte_blocks(made, block)]
    assert b"".join(blocks) == np.ascontiguousarray(transform.apply(value)).tobytes() == made.load().tobytes()
    assert all(len(part) == block for part in blocks[:-1])
    assert (made.shape, made.dtype) == (made.load().shape, made.load().dtype.name)


@pytest.mark.parametrize(
    "transform", [Cast("bfloat16"), chained(Reshape((1 << 12, 1 << 10)), Cast("float64")), Permute((1, 0)), Scale(0.5)]
)
def test_no_large_tensor_is_held_in_memory(tmp_path, transform) -> None:
    source = in_file(tmp_path, np.zeros((1 << 10, 1 << 12), np.float32))
    made = transformed_tensor(source, "x", transform)
    tracemalloc.start()
    assert sum(len(block) for block in byte_blocks(made)) == made.nbytes
    assert tracemalloc.get_traced_memory()[1] < 6 << 20
    tracemalloc.stop()


def test_bytes_that_stay_keep_their_place_in_the_file_and_others_do_not(tmp_path) -> None:
    source = in_file(tmp_path, np.ones((2, 3), np.float32))
    assert transformed_tensor(source, "x", Reshape((6,))).extent == source.extent
    for transform in (Cast("float16"), Permute((1, 0)), chained(Reshape((6,)), Cast("float16"))):
        assert transformed_tensor(source, "x", transform).extent is None


def tied(**transforms):
    value = np.arange(9, dtype=np.float32).reshape(3, 3)
    tensors = {n: StoredTensor(n, value.shape, "float32", lambda: value, storage="one") for n in transforms}
    pairings = tuple(Pairing(n, n.upper(), "user", 1.0, t) for n, t in transforms.items())
    return plan_conversion(tensors, NameMap("a", "b", pairings))


def test_one_storage_with_unlike_transforms_is_no_tie() -> None:
    square = Permute((1, 0))
    assert tied(a=IDENTITY, b=square).ties == ()
    assert tied(a=square, b=square).ties == (("A", "B"),)
    plan = tied(a=IDENTITY, b=square, c=IDENTITY)
    assert plan.ties == (("A", "C"),)
    assert len({target.identity for target in plan.targets}) == 2


def test_only_floating_tensors_are_cast_and_only_where_the_dtype_differs() -> None:
    kinds = ["float32", "float16", "bfloat16", "int64", "bool", "complex64"]
    tensors = {k: StoredTensor(k, (2,), k, lambda: np.ones(2)) for k in kinds}
    pairings = tuple(Pairing(k, k, "user", 1.0) for k in kinds)
    cast, _ = with_dtype(NameMap("a", "b", pairings), (), tensors, "float16")
    assert {p.source: p.transform for p in cast.pairings if p.transform != IDENTITY} == {
        "float32": Cast("float16"), "bfloat16": Cast("float16"),
    }  # fmt: skip


def test_filled_floats_are_cast_like_all_others_and_filled_counts_are_not() -> None:
    fills = Fill("scale", np.array([0.1], np.float32), "kept"), Fill("count", np.array(3), "kept")
    _, cast = with_dtype(NameMap("a", "b"), fills, {}, "bfloat16")
    scale, count = plan_conversion({}, NameMap("a", "b"), cast).tensors
    assert (scale.target.dtype, scale.transform.as_table()["from"], scale.before.dtype) == (
        "bfloat16",
        "float32",
        "float32",
    )
    assert (count.target.dtype, count.transform) == ("int64", IDENTITY)


def test_a_cast_follows_what_the_map_says_and_leaves_a_cast_to_integers_alone() -> None:
    tensors = {n: StoredTensor(n, (2, 3), "float32", lambda: np.ones((2, 3))) for n in "ab"}
    pairings = (Pairing("a", "a", "user", 1.0, Reshape((6,))), Pairing("b", "b", "user", 1.0, Cast("int8")))
    first, second = with_dtype(NameMap("a", "b", pairings), (), tensors, "bfloat16")[0].pairings
    assert first.transform == chained(Reshape((6,)), Cast("bfloat16"))
    assert second.transform == Cast("int8")
    assert first.transform.as_table() == {
        "op": "chain",
        "steps": [{"op": "reshape", "shape": [6]}, {"op": "cast", "dtype": "bfloat16", "from": "float32"}],
    }
