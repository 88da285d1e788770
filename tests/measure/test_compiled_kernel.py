"""The compiled kernel gives what NumPy's gives, whatever the values; NumPy's own figures are checked elsewhere."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.measure.measure_arrays import CompiledKernel, CompiledLoops, NumpyKernel, RunningSums, load_loops
from align.measure.thresholds import TILE

pytestmark = pytest.mark.frameworks  # needs numba

NAN, INF = math.nan, math.inf
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64]
BLOCK = 4 * TILE


@pytest.fixture(scope="module")
def loops() -> CompiledLoops:
    return load_loops()


def check_alike(loops: CompiledLoops, reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any]) -> None:
    found, expected = RunningSums(), RunningSums()
    CompiledKernel(loops, BLOCK).add(found, reference, candidate)
    NumpyKernel(BLOCK).add(expected, reference, candidate)
    assert found.identical == expected.identical
    one, other = (dataclasses.asdict(sums.result(reference.shape)) for sums in (found, expected))
    for name, value in other.items():
        if value is None:
            assert one[name] is None, name
            continue
        assert one[name] == pytest.approx(value, rel=1e-12, abs=1e-12 if name == "cosine" else 0.0), name


def normal(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(size)


def test_floats_really_go_through_the_compiled_loop(loops: CompiledLoops) -> None:
    class OnlyFused(NumpyKernel):
        def _add_block(self, *arguments: object) -> None:
            raise AssertionError("NumPy was asked")

    kernel = type("Kernel", (CompiledKernel, OnlyFused), {})(loops, BLOCK)
    for dtype in DTYPES[:4]:
        sums = RunningSums()
        kernel.add(sums, normal(3 * BLOCK + 7).astype(dtype), normal(3 * BLOCK + 7, 1).astype(dtype))
        assert sums.count == sums.finite == 3 * BLOCK + 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, TILE - 1, TILE, TILE + 1, BLOCK, 2 * BLOCK + TILE + 3])
def test_every_dtype_and_every_edge_of_tiles_and_blocks(loops: CompiledLoops, dtype: Any, size: int) -> None:
    reference = (normal(size) * 20).astype(dtype)
    check_alike(loops, reference, (normal(size, 1) * 20).astype(dtype))
    check_alike(loops, reference, reference.copy())


@pytest.mark.parametrize("pair", [(np.float32, np.float16), (np.float32, np.float64), (np.int32, np.float32)])
def test_two_dtypes(loops: CompiledLoops, pair: tuple[Any, Any]) -> None:
    check_alike(loops, (normal(9000) * 9).astype(pair[0]), (normal(9000) * 9).astype(pair[1]))


@pytest.mark.parametrize("place", [0, TILE - 1, TILE, BLOCK - 1, BLOCK + 5])
@pytest.mark.parametrize("values", [(NAN, NAN), (NAN, 1.0), (INF, INF), (INF, -INF), (1.0, INF)])
def test_nan_and_inf_anywhere(loops: CompiledLoops, place: int, values: tuple[float, float]) -> None:
    reference, candidate = normal(2 * BLOCK).astype(np.float32), normal(2 * BLOCK, 1).astype(np.float32)
    reference[place], candidate[place] = values
    check_alike(loops, reference, candidate)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1e200, 1.7e308])
def test_the_ends_of_float64(loops: CompiledLoops, scale: float) -> None:
    numbers = np.array([0.0, 1.0, -1.0, 0.5, -0.25])
    check_alike(loops, scale * np.resize(numbers, 3000), scale * np.resize(numbers[::-1], 3000))


def test_the_largest_relative_difference_of_zeros_and_denormals(loops: CompiledLoops) -> None:
    reference = np.array([0.0, 5e-324, 1e-308, 3.0, -0.0])
    check_alike(loops, reference, np.array([7.0, 1.0, 1e-308, 3.0, 0.0]))
    check_alike(loops, np.zeros(5000, np.float32), normal(5000).astype(np.float32))


def test_read_only_and_unaligned_memory(loops: CompiledLoops) -> None:
    raw = np.arange(8 * 5000 + 1, dtype=np.uint8)
    for dtype in (np.float32, np.float64):
        unaligned = raw[1:].view(dtype)
        reference = np.frombuffer(raw[:-1].tobytes(), dtype)
        assert not unaligned.flags.aligned
        assert not reference.flags.writeable
        check_alike(loops, reference, unaligned)


numbers = st.floats(width=32) | st.sampled_from([0.0, -0.0, 2.0**-149, 2.0**127, NAN, INF, -INF])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_the_values(loops: CompiledLoops, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    size = data.draw(st.integers(0, 40))
    both = (data.draw(arrays.arrays(dtype, size, elements=numbers)) for _ in range(2))
    check_alike(loops, *both)
