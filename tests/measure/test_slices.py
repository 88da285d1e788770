"""Parts of a tensor that are judged apart: what is found, what is not, and the faults that show by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.measure.limits import RoundingNoise, judge_tensor, limit_by_noise, measure_parts, slices_of

if TYPE_CHECKING:
    from align.core.traces import Limit, Measurement
    from align.measure.limits import JudgedTensor


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def judged(reference: Any, candidate: Any, left_out: Any = None) -> JudgedTensor:
    """Judge as in a comparison whose noise is that of rounding to float32."""
    noise = RoundingNoise(measure_parts("x", reference.astype(np.float64), reference))

    def limit_of(measurement: Measurement, part: str) -> Limit | None:
        return limit_by_noise(noise, ("x", part), measurement, ("float32", "float32"))

    return judge_tensor(reference, candidate, limit_of, left_out)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (64, 64), (2, 8, 5, 5), (1, 1000)])
def test_numbers_of_one_size_are_not_cut(shape: tuple[int, ...]) -> None:
    for seed in range(20):
        assert slices_of(values(*shape, seed=seed)) == ()
        assert slices_of(np.maximum(values(*shape, seed=seed), 0.0)) == ()


def test_integers_and_probabilities_are_not_cut() -> None:
    assert slices_of(np.array([[1, 1_000_000] * 50])) == ()
    one_hot = np.full((8, 16), 1e-9, np.float32)
    one_hot[:, 3] = 1.0
    assert [one.label for one in slices_of(one_hot) if "element" in one.label] == []


def test_a_mask_value_and_all_else_are_judged_apart() -> None:
    masked = values(4, 6, 8)
    masked[:, 0] = -1e4
    found = {one.label: one.elements.size for one in slices_of(masked)}
    assert found["the elements around 1e+04"] == 4 * 8
    assert found["all but the 32 elements around 1e+04"] == 4 * 5 * 8


def test_each_axis_is_cut_where_its_slices_are_of_other_sizes() -> None:
    wide = values(4, 6, 8)
    wide[..., 3] *= 1e4
    assert {one.label for one in slices_of(wide)} == {"index 3 of axis 2", "indices 0, 1, 2 and others of axis 2"}
    tall = values(4, 6, 8)
    tall[1] *= 1e4
    assert "index 1 of axis 0" in {one.label for one in slices_of(tall)}


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e7])
def test_a_fault_beside_a_huge_channel_shows(scale: float) -> None:
    reference = values(4, 6, 8)
    reference[..., 0] *= scale
    wrong = reference.copy()
    wrong[..., 3] *= 1.001
    found = judged(reference, wrong)
    assert found.factor > 1.0
    assert "axis 2" in found.part
    assert found.measurement.worst[2] == 3
    assert judged(reference, reference * (1 + 1e-7 * np.sign(values(4, 6, 8, seed=1)))).factor < 1.0


@pytest.mark.parametrize("mask", [-100.0, -1e4, -1e9, np.finfo(np.float32).min])
def test_a_fault_beside_a_mask_value_shows_and_another_mask_value_too(mask: float) -> None:
    reference = values(4, 6, 8)
    reference[:, 0] = mask
    wrong, other = reference.copy(), reference.copy()
    wrong[:, 3] *= 1.001
    other[:, 0] = mask * 0.999
    assert judged(reference, wrong).factor > 1.0
    assert judged(reference, other).factor > 1.0
    assert judged(reference, reference.copy()).factor == 0.0


def test_what_is_left_out_does_not_count_and_is_told() -> None:
    reference = values(2, 5, 8)
    padding = np.zeros((2, 5, 8), bool)
    padding[0, 3:] = True
    wrong = reference.copy()
    wrong[0, 3:] += 1.0
    found = judged(reference, wrong, padding)
    assert found.factor == 0.0
    assert found.left_out is not None
    assert found.left_out > 1.0
    hollow = wrong.copy()
    hollow[0, 4] = np.nan
    assert judged(reference, hollow, padding).factor == np.inf
    wrong[1, 2, 4] += 1.0
    found = judged(reference, wrong, padding)
    assert found.factor > 1.0
    assert found.measurement.worst == (1, 2, 4)


def test_a_fault_of_a_small_channel_shows_among_ten_orders_of_magnitude() -> None:
    scale = 10.0 ** np.arange(-6, 2, dtype=np.float32)
    reference = values(24, 8) * scale
    assert judged(reference, reference * np.float32(1 + 2e-7)).factor <= 1.0
    for channel in range(8):
        wrong = reference.copy()
        wrong[:, channel] *= 1.01
        assert judged(reference, wrong).factor > 1.0


@pytest.mark.parametrize("axis", range(4))
def test_a_fault_beside_one_huge_slice_of_any_axis_shows(axis: int) -> None:
    sizes = np.ones((3, 4, 5, 6), np.float32)
    np.moveaxis(sizes, axis, 0)[0] = 1e4
    reference = values(3, 4, 5, 6) * sizes
    wrong = np.where(sizes == 1, reference * np.float32(1.001), reference)
    assert judged(reference, reference).factor == 0.0
    assert judged(reference, wrong).factor > 1.0
