"""Masks of dropout: the same for the same place, of the share and the shape that a layer drops by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.training import DropoutCall, DropoutLayer
from align.training.replay_dropout import ListedCalls, PlannedMasks, draw_mask

LAYER = DropoutLayer("drop", object(), 0.25)


def test_a_mask_keeps_its_share_and_scales_it_up() -> None:
    mask = draw_mask(0, (200, 100), 0.25)
    assert {*np.unique(mask)} == {0.0, 1 / 0.75}
    assert abs(np.mean(mask == 0) - 0.25) < 0.01
    assert not draw_mask(0, (3, 4), 1.0).any()


def test_the_place_and_the_shape_tell_masks_apart() -> None:
    one = draw_mask(3, (8, 8), 0.5)
    assert np.array_equal(one, draw_mask(3, (8, 8), 0.5))
    assert not np.array_equal(one, draw_mask(4, (8, 8), 0.5))
    assert not np.array_equal(one.ravel(), draw_mask(3, (64,), 0.5))


@pytest.mark.parametrize(
    ("shape", "spatial", "drawn"),
    [
        ((4, 6, 5), 1, (4, 6, 1)),
        ((6, 5), 1, (6, 1)),
        ((4, 6, 5, 3), 2, (4, 6, 1, 1)),
        ((4, 6, 5), 2, (4, 6, 1)),
        ((4, 6, 5, 3, 2), 3, (4, 6, 1, 1, 1)),
        ((6, 5, 3, 2), 3, (6, 1, 1, 1)),
    ],
)
def test_channels_are_dropped_whole(shape: Any, spatial: int, drawn: Any) -> None:
    assert draw_mask(0, shape, 0.5, spatial).shape == drawn


def test_a_planned_call_gets_the_mask_of_the_reference_s() -> None:
    masks = PlannedMasks({(0, "drop"): DropoutCall(5, "other", "Dropout", (8, 8), 0.5, 0)})
    masks.begin()
    planned, own = masks.mask(LAYER, (8, 8), active=False), masks.mask(LAYER, (8, 8), active=True)
    assert planned is not None
    assert own is not None
    assert np.array_equal(planned, draw_mask(5, (8, 8), 0.5))
    assert np.array_equal(own, draw_mask(1, (8, 8), 0.25))
    assert masks.mask(LAYER, (8, 8), active=False) is None
    masks.begin()
    again = masks.mask(LAYER, (8, 8), active=True)
    assert again is not None
    assert np.array_equal(again, planned)


def test_calls_are_listed_by_run_and_those_outside_apart() -> None:
    listed = ListedCalls()
    for _ in range(2):
        listed.begin()
        assert not (listed.mask(LAYER, (2, 3), active=True) - 1.0).any()
        listed.end()
    listed.mask(LAYER, (2, 3), active=True)
    assert [[one.share for one in run] for run in listed.kinds] == [[0.25]]
    assert (listed.outside, listed.called) == (["drop"], {"drop"})
