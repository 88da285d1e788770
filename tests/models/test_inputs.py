"""The inputs that both sides get: drawn from a seed, read from a file, returned by a function."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from align.errors import InputsError, MissingFileError, NotACheckpointError, UserCodeError
from align.models.inputs import describe_inputs, make_inputs, read_inputs, save_inputs

if TYPE_CHECKING:
    from pathlib import Path

FUNCTIONS = """
import numpy as np


def inputs():
    return {"ids": np.arange(6).reshape(2, 3), "mask": [[True, False]]}


def a_list():
    return [np.ones(3)]


def words():
    return {"x": np.ones(2), "text": np.array(["hello"])}


def nothing():
    return {}


def fails():
    raise KeyError("no data here")
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "data.py").write_text(FUNCTIONS, encoding="utf-8")
    return str(tmp_path / "data.py")


class TestDrawn:
    def test_a_specification_gives_dtype_and_shape_in_the_order_given(self) -> None:
        inputs = make_inputs(["y=float16[2, 3]", "x=float32[]", "empty=float64[0,4]"], seed=0)
        assert list(inputs) == ["y", "x", "empty"]
        described = [(value.dtype.name, value.shape) for value in inputs.values()]
        assert described == [("float16", (2, 3)), ("float32", ()), ("float64", (0, 4))]

    def test_the_seed_decides_the_values(self) -> None:
        specs = ["x=float32[50]", "ids=int64[50]<100"]
        first, again, other = (make_inputs(specs, seed) for seed in (1, 1, 2))
        assert all(np.array_equal(first[name], again[name]) for name in first)
        assert all(not np.array_equal(first[name], other[name]) for name in first)

    def test_floats_are_standard_normal(self) -> None:
        values = make_inputs(["x=float32[20000]"], seed=3)["x"]
        assert abs(values.mean()) < 0.03
        assert abs(values.std() - 1) < 0.03

    def test_bfloat16_is_drawn_in_its_own_dtype(self) -> None:
        values = make_inputs(["x=bfloat16[4]"], seed=0)["x"]
        assert values.dtype == ml_dtypes.bfloat16
        assert len(set(values.tolist())) == 4

    @pytest.mark.parametrize(
        ("spec", "found"),
        [
            ("ids=int64[1000]<7", set(range(7))),
            ("ids=int64[1000]", {0, 1}),
            ("ids=uint8[5000]<256", set(range(256))),
            ("mask=bool[100]", {False, True}),
        ],
    )
    def test_integers_fill_the_range_below_their_bound(self, spec: str, found: set[int]) -> None:
        (values,) = make_inputs([spec], seed=0).values()
        assert set(values.tolist()) == found

    def test_all_faults_are_listed_together(self) -> None:
        specs = ["x=float32[2", "y=floaty[2]", "ids=int8[2]<1000", "none=int64[2]<0", "a=float32[2]", "a=float32[3]"]
        with pytest.raises(InputsError) as caught:
            make_inputs([*specs, "text=str[2]"], seed=0)
        said = str(caught.value)
        for spec in specs[:4]:
            assert spec in said
        for word in ("floaty", "a is given twice", "str", "NAME=DTYPE[SHAPE]"):
            assert word in said


class TestRead:
    def test_a_mapping_becomes_arrays_in_its_order(self) -> None:
        inputs = read_inputs({"b": [1.0, 2.0], "a": np.float32(3)})
        assert list(inputs) == ["b", "a"]
        assert inputs["a"].shape == ()

    def test_a_function_returns_them(self, data: str) -> None:
        inputs = read_inputs(f"{data}:inputs")
        assert inputs["ids"].shape == (2, 3)
        assert inputs["mask"].dtype == bool

    @pytest.mark.parametrize("name", ["a_list", "words", "nothing"])
    def test_a_function_that_returns_something_else_is_refused(self, data: str, name: str) -> None:
        with pytest.raises(InputsError) as caught:
            read_inputs(f"{data}:{name}")
        assert "numpy array" in caught.value.hint
        assert ("text" in str(caught.value)) == (name == "words")

    def test_a_function_that_fails_is_named(self, data: str) -> None:
        with pytest.raises(UserCodeError, match=r"data\.py:fails failed: KeyError"):
            read_inputs(f"{data}:fails")

    @pytest.mark.parametrize("value", ["hello", {"deep": 1}, [[1], [2, 3]], None])
    def test_what_is_no_numeric_array_is_refused_by_name(self, value: object) -> None:
        with pytest.raises(InputsError, match="odd"):
            read_inputs({"x": np.ones(2), "odd": value})

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_floats_without_a_finite_number_are_refused_by_name(self, dtype: str) -> None:
        hollow = np.full((2, 3), np.nan, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        with pytest.raises(InputsError, match=r"^x: no finite number"):
            read_inputs({"x": hollow, "ids": np.arange(3)})
        hollow[0, 0] = 0.0
        assert read_inputs({"x": hollow, "none": np.empty((0, 3), np.float32)}).keys() == {"x", "none"}

    @pytest.mark.frameworks
    def test_tensors_of_both_frameworks_are_taken_of_any_dtype_and_with_a_gradient(self) -> None:
        import mindspore
        import torch

        half = torch.arange(4, dtype=torch.bfloat16).requires_grad_()
        inputs = read_inputs({"x": half, "ids": torch.arange(3), "y": mindspore.Tensor([1.5, 2.5], mindspore.bfloat16)})
        assert [(one.dtype.name, one.tolist()) for one in inputs.values()] == [
            ("bfloat16", [0, 1, 2, 3]),
            ("int64", [0, 1, 2]),
            ("bfloat16", [1.5, 2.5]),
        ]

    def test_a_file_that_is_missing_or_no_file_of_arrays_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFileError, match=r"gone\.npz"):
            read_inputs(tmp_path / "gone.npz")
        (tmp_path / "text.npz").write_text("some text", encoding="utf-8")
        with pytest.raises(NotACheckpointError, match=r"text\.npz"):
            read_inputs(str(tmp_path / "text.npz"))

    def test_a_file_without_arrays_is_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "empty.npz")
        with pytest.raises((InputsError, NotACheckpointError), match=r"empty\.npz"):
            read_inputs(tmp_path / "empty.npz")


class TestSaved:
    def test_what_is_saved_is_read_back_in_its_order(self, tmp_path: Path) -> None:
        inputs = make_inputs(["z=float32[3,2]", "a=int64[]<9", "m=bool[4]", "h=float16[0,2]"], seed=5)
        save_inputs(tmp_path / "inputs.npz", inputs)
        read = read_inputs(tmp_path / "inputs.npz")
        assert list(read) == list(inputs)
        for name, value in inputs.items():
            assert (read[name].dtype, read[name].shape) == (value.dtype, value.shape)
            assert np.array_equal(read[name], value)

    def test_bfloat16_is_saved_without_loss(self, tmp_path: Path) -> None:
        inputs = make_inputs(["x=bfloat16[64]"], seed=0)
        save_inputs(tmp_path / "inputs.npz", inputs)
        read = read_inputs(tmp_path / "inputs.npz")["x"]
        assert read.dtype == np.float32
        assert np.array_equal(read.astype(ml_dtypes.bfloat16), inputs["x"])

    def test_a_description_holds_shape_dtype_and_hash_of_the_bytes(self) -> None:
        value = np.arange(6, dtype=np.int64).reshape(2, 3)
        described = describe_inputs({"ids": value, "turned": value.T})
        sha256 = hashlib.sha256(value.tobytes()).hexdigest()
        assert described["ids"] == {"shape": [2, 3], "dtype": "int64", "sha256": sha256}
        assert described["turned"]["sha256"] == hashlib.sha256(np.ascontiguousarray(value.T).tobytes()).hexdigest()


def test_inputs_may_be_called_like_the_arguments_of_numpy(tmp_path: Path) -> None:
    inputs = {"file": np.ones(2, np.float32), "allow_pickle": np.zeros((), np.int64)}
    save_inputs(tmp_path / "inputs.npz", inputs)
    read = read_inputs(tmp_path / "inputs.npz")
    assert list(read) == ["file", "allow_pickle"]
    assert read["file"].tolist() == [1.0, 1.0]
