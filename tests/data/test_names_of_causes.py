"""A cause is said to be confirmed where the samples show it, and where they show nothing, it is not."""

from __future__ import annotations

import numpy as np
import pytest

from align import compare_data
from align.core.verdicts import Outcome

COUNT, BATCH = 48, 8
GENERATOR = np.random.default_rng(0)
GROUND = np.kron(GENERATOR.random((COUNT, 4, 4, 3)), np.ones((1, 4, 4, 1))) * 200
RAW = np.clip(GROUND + GENERATOR.random((COUNT, 16, 16, 3)) * 55, 0, 255).astype(np.uint8)
PICTURES = ((RAW / 255 - 0.5) / [0.5, 0.4, 0.3]).transpose(0, 3, 1, 2).astype(np.float32)
LABELS = GENERATOR.integers(0, 10, COUNT)
VIDEOS = np.kron(GENERATOR.random((16, 5, 3, 2, 2)), np.ones((4, 4))).astype(np.float32)
MAPS = np.kron(GENERATOR.integers(0, 5, (COUNT, 4, 4)), np.ones((4, 4), int))
TOKENS = GENERATOR.integers(5, 90, (COUNT, 12))
ONES = np.ones(TOKENS.shape, int)


def batches(*columns):
    return [tuple(column[start : start + BATCH] for column in columns) for start in range(0, len(columns[0]), BATCH)]


def changed(values, place, other):
    copy = values.copy()
    copy[place] = other
    return copy


def told(reference, candidate):
    result = compare_data(reference, candidate)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    return [(cause.id, cause.confirmed) for cause in result.causes]


NOISE = GENERATOR.normal(size=PICTURES.shape).astype(np.float32)
DECODED = np.clip(RAW.astype(int) + GENERATOR.integers(-1, 2, RAW.shape), 0, 255)
DECODED = ((DECODED / 255 - 0.5) / [0.5, 0.4, 0.3]).transpose(0, 3, 1, 2).astype(np.float32)
OF_PICTURES = {
    "other decoder": (PICTURES, DECODED, [("grey-levels", True)]),
    "small noise": (PICTURES, PICTURES + NOISE * np.float32(1e-5), [("resize-suspected", False)]),
    "one pixel": (PICTURES, changed(PICTURES, (47, 0, 0, 0), PICTURES[47, 0, 0, 0] + 0.011), [("values", False)]),
    "one picture": (PICTURES, changed(PICTURES, 30, PICTURES[29]), [("values", False)]),
    "two exchanged": (PICTURES, PICTURES[[1, 0, *range(2, COUNT)]], [("values", False)]),
    "green and blue exchanged": (PICTURES, PICTURES[:, [0, 2, 1]], [("channel-order", True)]),
    "zeros": (PICTURES % 0.4, PICTURES * 0, [("values", False)]),
    "videos turned": (VIDEOS, VIDEOS[:, ::-1], [("values", False)]),
    "videos flipped": (VIDEOS, VIDEOS[..., ::-1], [("flip", True)]),
    "maps of labels": (MAPS, np.where(MAPS == 0, 255, MAPS), [("label-map", True)]),
    "maps of labels, flipped": (MAPS, MAPS[..., ::-1], [("flip", True)]),
}


@pytest.mark.parametrize("name", OF_PICTURES)
def test_of_pictures_what_they_show_is_said_and_no_more(name):
    one, two, right = OF_PICTURES[name]
    labels = LABELS[: len(one)]
    assert told(batches(one, labels), batches(two, labels)) == right


UPWARDS = np.broadcast_to(np.arange(12), TOKENS.shape)
OF_ROWS = {
    "a mask without its first": (ONES, changed(ONES, (slice(None), 0), 0), [("tokens", False)]),
    "numbers of sentences": (UPWARDS, UPWARDS // 3, [("merged-tokens", True)]),
    "positions that stand still in the middle": (UPWARDS, np.minimum(UPWARDS, 4) + np.maximum(UPWARDS - 8, 0), None),
    "positions behind the padding": (UPWARDS, np.maximum(UPWARDS - 3, 0), [("position-start", True)]),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_of_rows_what_they_show_is_said_and_no_more(name):
    one, two, right = OF_ROWS[name]
    causes = told(batches(TOKENS, one), batches(TOKENS, two))
    assert causes == right if right else "position-start" not in dict(causes)


OF_LABELS = {
    "words for numbers": (LABELS, LABELS.astype(str), [("dtype", True)]),
    "two classes exchanged": (LABELS % 2, 1 - LABELS % 2, [("label-map", True)]),
    "two numbers": (np.float32([0.3, 0.7]), np.float32([0.1, 0.2]), [("values", False)]),
}


@pytest.mark.parametrize("name", OF_LABELS)
def test_of_labels_what_they_show_is_said_and_no_more(name):
    one, two, right = OF_LABELS[name]
    assert told(batches(PICTURES[: len(one)], one), batches(PICTURES[: len(two)], two)) == right


def test_a_cause_of_the_first_samples_is_not_the_cause_of_all():
    table = GENERATOR.normal(size=(300, 6)).astype(np.float32)
    mixed = np.where(np.arange(300)[:, None] < 100, table * 2, table + 1)
    assert told(batches(table, np.arange(300)), batches(mixed, np.arange(300))) == [("values", False)]


def test_other_values_are_counted_in_all_samples_that_are_kept():
    table = GENERATOR.normal(size=(300, 6))
    other = table + GENERATOR.normal(size=table.shape) * (np.arange(300)[:, None] % 2)
    (cause,) = compare_data(batches(table, np.arange(300)), batches(other, np.arange(300))).causes
    assert (cause.facts["count"], cause.facts["total"]) == (150, 300)


def test_values_that_differ_are_not_called_equal_beside_their_dtypes():
    result = compare_data(
        batches(RAW, LABELS), batches(RAW.astype(np.int16) * GENERATOR.integers(1, 3, RAW.shape), LABELS)
    )
    assert "dtypes-differ" not in {finding.code for finding in result.findings}


def test_a_method_that_overshoots_at_edges_is_told_by_nearly_all_pixels():
    from PIL import Image

    raw = np.where(GROUND > 100, 250, 3).astype(np.uint8)

    def resized(method):
        return batches(np.stack([np.asarray(Image.fromarray(part).resize((12, 12), method)) for part in raw]), LABELS)

    (cause,) = compare_data(resized(Image.BILINEAR), resized(Image.LANCZOS), raw=batches(raw, LABELS)).causes
    assert cause.facts == {"reference": "bilinear, antialias", "candidate": "lanczos, antialias"}
