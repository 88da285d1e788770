from __future__ import annotations

import json

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from align.convert.convert_checkpoint import parse_size, plan_shards
from align.convert.write_checkpoint import index_bytes, index_name, shard_names
from align.core.parameters import StoredTensor
from align.errors import UsageError


def stored(name, nbytes, storage=None):
    value = np.zeros(nbytes, np.uint8)
    return StoredTensor(name, value.shape, "uint8", lambda: value, storage=storage)


def names_of(shards):
    return [[tensor.name for tensor in shard] for shard in shards]


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("500MB", 5 * 10**8), ("2GiB", 2 << 30), ("1TiB", 1 << 40), ("4 kb", 4000), ("0.1GB", 10**8),
     ("7", 7), ("7B", 7), (123, 123)],
)  # fmt: skip
def test_a_size_is_a_number_and_a_unit(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "0", "-1GB", "0.1B", "5XB", "5iB", "1e9", "5GB2", "nan", "٣GB", "9" * 40, -5]
)
def test_what_is_no_size_is_refused_with_a_hint(text) -> None:
    with pytest.raises(UsageError, match="is not a size") as error:
        parse_size(text)
    assert "5GB" in error.value.hint


def test_a_shard_is_filled_until_the_next_tensor_would_not_fit() -> None:
    sizes = {"a": 6, "b": 6, "c": 2, "d": 2, "e": 2}
    assert names_of(plan_shards([stored(n, s) for n, s in sizes.items()], 10)) == [["a"], ["b", "c", "d"], ["e"]]


def test_a_tensor_larger_than_the_limit_is_alone_even_among_empty_ones() -> None:
    sizes = {"a": 1, "big": 11, "empty": 0, "b": 10}
    assert names_of(plan_shards([stored(n, s) for n, s in sizes.items()], 10)) == [["a"], ["big"], ["empty", "b"]]


def test_tied_tensors_come_into_one_shard() -> None:
    tensors = [stored("in", 4, "0"), stored("a", 6), stored("b", 6), stored("out", 4, "0")]
    assert names_of(plan_shards(tensors, 10)) == [["in", "out"], ["a"], ["b"]]


def test_one_storage_seen_in_two_shapes_is_not_tied() -> None:
    assert names_of(plan_shards([stored("a", 4, "0"), stored("b", 3, "0")], 4)) == [["a"], ["b"]]


def test_nothing_makes_no_shard() -> None:
    assert plan_shards([], 1) == []


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, "0", "1"])), max_size=20), st.integers(1, 20)
)
def test_every_tensor_is_in_one_shard_and_none_is_overfull(drawn, most) -> None:
    tensors = [stored(str(place), *size) for place, size in enumerate(drawn)]
    shards = plan_shards(tensors, most)
    assert sorted(t.name for shard in shards for t in shard) == sorted(t.name for t in tensors)
    for shard in shards:
        assert sum(t.nbytes for t in shard) <= most or len({t.identity for t in shard}) == 1


def test_the_names_and_the_index_follow_the_convention() -> None:
    shards = [[stored("b", 6)], [stored("a", 3), stored("权重", 0)]]
    names = shard_names("model.safetensors", 2)
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert index_name("model.safetensors") == "model.safetensors.index.json"
    assert json.loads(index_bytes(shards, names)) == {
        "metadata": {"total_size": 9},
        "weight_map": {"b": names[0], "a": names[1], "权重": names[1]},
    }


def test_a_single_shard_keeps_the_name() -> None:
    assert shard_names("pytorch_model.bin", 1) == ["pytorch_model.bin"]


@pytest.mark.frameworks
def test_hugging_face_cuts_and_names_alike() -> None:
    from huggingface_hub.serialization import split_state_dict_into_shards_factory

    sizes = [6, 6, 2, 6, 2, 2, 1, 0, 9]  # theirs puts one above the limit out of order
    tensors = [stored(str(place), size) for place, size in enumerate(sizes)]
    theirs = split_state_dict_into_shards_factory(
        {tensor.name: tensor for tensor in tensors},
        get_storage_size=lambda tensor: tensor.nbytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=10,
    )
    shards = plan_shards(tensors, 10)
    index = json.loads(index_bytes(shards, shard_names("model.safetensors", len(shards))))
    assert index["weight_map"] == theirs.tensor_to_filename
    assert index["metadata"] == theirs.metadata
