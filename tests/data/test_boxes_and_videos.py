"""Orders of channels, forms of boxes and layouts of videos are named and confirmed; what merely looks so is not."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from align import compare_data
from align.core.verdicts import Outcome

COUNT, BATCH = 32, 8
GENERATOR = np.random.default_rng(4)
PICTURES = np.kron(GENERATOR.random((COUNT, 4, 6, 4)), np.ones((1, 4, 4, 1))).astype(np.float32)  # RGBA, 16 x 24
GREY = np.repeat(PICTURES[..., :1], 3, 3)
VIDEOS = np.kron(GENERATOR.random((COUNT, 5, 3, 2, 2)), np.ones((4, 4))).astype(np.float32)
SHORT = np.kron(GENERATOR.random((COUNT, 3, 6, 2, 2)), np.ones((4, 4))).astype(np.float32)
LABELS = GENERATOR.integers(0, 10, COUNT)
CORNERS = [np.sort(GENERATOR.uniform(0, 16, (number % 4, 2, 2)), 1).reshape(-1, 4) for number in range(COUNT)]
TABLE = GENERATOR.normal(size=(COUNT, 4))


def batches(*columns, names=()):
    made = [tuple(column[start : start + BATCH] for column in columns) for start in range(0, len(columns[0]), BATCH)]
    return [dict(zip(names, batch, strict=True)) for batch in made] if names else made


def causes(reference, candidate, *, beside=LABELS):
    result = compare_data(batches(reference, beside), batches(candidate, beside))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert all(cause.confirmed for cause in result.causes if cause.id != "values")
    return {cause.id: cause.facts for cause in result.causes}


def test_each_order_of_three_and_of_four_channels_is_named_by_its_letters():
    for order in [*permutations(range(3))][1:]:
        named = causes(PICTURES[..., :3], PICTURES[..., order])
        assert named == {"channel-order": {"reference": "RGB", "candidate": "".join("RGB"[place] for place in order)}}
    for order in ((3, 0, 1, 2), (2, 1, 0, 3), (3, 2, 1, 0)):
        named = causes(PICTURES, PICTURES[..., order])
        assert named == {"channel-order": {"reference": "RGBA", "candidate": "".join("RGBA"[place] for place in order)}}


def test_an_order_of_channels_that_changes_nothing_is_not_named():
    assert compare_data(batches(GREY, LABELS), batches(GREY[..., [0, 2, 1]], LABELS)).causes == ()
    opaque = np.concatenate([PICTURES[..., :3], np.ones_like(PICTURES[..., :1])], 3)
    assert causes(opaque, opaque[..., [3, 0, 1, 2]])["channel-order"]["candidate"] == "ARGB"


VIDEO_LAYOUTS = {"TCHW": (0, 1, 2, 3), "CTHW": (1, 0, 2, 3), "THWC": (0, 2, 3, 1)}


def test_layouts_of_videos_are_named_and_undone():
    for (one, axes), (two, others) in permutations(VIDEO_LAYOUTS.items(), 2):
        reference, candidate = (VIDEOS.transpose(0, *(axis + 1 for axis in order)) for order in (axes, others))
        facts = causes(reference, candidate)["layout"]
        assert (facts["reference"], facts["candidate"]) == (one, two)
        undone = candidate.transpose(0, *(axis + 1 for axis in eval(facts["axes"])))
        assert np.array_equal(undone, reference)


def test_of_a_short_video_nobody_knows_which_axis_holds_channels():
    swapped = SHORT[:, :, :3]
    assert set(causes(swapped, swapped[:, ::-1])) == {"values"}
    assert causes(SHORT, SHORT.swapaxes(1, 2))["layout"]["axes"] == "[1, 0, 2, 3]"


def lengths(boxes):
    return [np.concatenate([box[:, :2], box[:, 2:] - box[:, :2]], 1) for box in boxes]


def centres(boxes):
    return [np.concatenate([(box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]], 1) for box in boxes]


def rows_first(boxes):
    return [box[:, [1, 0, 3, 2]] for box in boxes]


def shares(boxes):
    return [box / [24, 16, 24, 16] for box in boxes]


def named_boxes(reference, candidate, name="boxes"):
    sides = [batches(PICTURES, boxes, names=("image", name)) for boxes in (reference, candidate)]
    return {cause.id: cause.facts for cause in compare_data(*sides).causes if cause.confirmed}


BOXES = {
    "corners": (CORNERS, "xyxy"),
    "lengths": (lengths(CORNERS), "xywh"),
    "centres": (centres(CORNERS), "cxcywh"),
}


@pytest.mark.parametrize(("one", "two"), [*permutations(BOXES, 2)])
def test_each_form_of_boxes_is_named_against_each_other_one(one, two):
    (reference, wanted), (candidate, given) = BOXES[one], BOXES[two]
    assert named_boxes(reference, candidate) == {"box-form": {"reference": wanted, "candidate": given}}
    by_rows = {"xyxy": "yxyx", "xywh": "yxhw", "cxcywh": "cycxhw"}[given]
    assert named_boxes(reference, rows_first(candidate))["box-form"]["candidate"] == by_rows


def test_boxes_as_shares_of_the_picture_are_named_with_its_size():
    facts = named_boxes(CORNERS, shares(CORNERS), name="target")["box-scale"]
    assert facts == {"side": "candidate", "width": pytest.approx(24), "height": pytest.approx(16)}
    turned = named_boxes(shares(centres(CORNERS)), lengths(CORNERS))
    assert turned["box-form"] == {"reference": "cxcywh", "candidate": "xywh"}
    assert turned["box-scale"]["side"] == "reference"


def test_boxes_that_differ_otherwise_are_not_named_by_a_form():
    other = [box + GENERATOR.uniform(0, 1, box.shape) for box in CORNERS]
    assert named_boxes(CORNERS, other) == {}
    assert named_boxes(CORNERS, [box.astype(np.float32) for box in CORNERS]) == {}


def test_rows_of_four_numbers_are_no_boxes_by_an_exchange_or_a_factor():
    assert set(causes(TABLE, TABLE[:, [1, 0, 3, 2]])) == {"column-order"}
    assert set(causes(abs(TABLE) * 100, abs(TABLE))) == {"scale"}
    series = GENERATOR.random((COUNT, 6, 4))
    result = compare_data(batches(series * [30, 20, 30, 20], LABELS), batches(series, LABELS))
    assert not {cause.id for cause in result.causes} & {"box-form", "box-scale"}


def test_shuffled_videos_are_found_again_in_another_layout():
    order = GENERATOR.permutation(COUNT)
    result = compare_data(batches(VIDEOS, LABELS), batches(VIDEOS.swapaxes(1, 2)[order], LABELS[order]))
    assert [cause.id for cause in result.causes] == ["layout"]
    assert [finding.code for finding in result.findings] == ["order-differs"]
