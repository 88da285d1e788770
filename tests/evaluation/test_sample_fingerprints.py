from __future__ import annotations

import numpy as np
import pytest

from align.evaluation.dataset_batches import count_differing_samples, sample_fingerprints

IMAGES = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
LABELS = np.arange(4)


def facts(*inputs, labels=LABELS):
    return sample_fingerprints(inputs, labels, 4)


def test_the_same_samples_in_other_dtypes_are_alike() -> None:
    other = facts(IMAGES.astype(np.float64), labels=LABELS.astype(np.int32))
    assert count_differing_samples(facts(IMAGES), other) == (0, 0)


def test_rounding_of_another_pipeline_is_no_difference() -> None:
    moved = IMAGES * np.float32(1 + 3e-7) + np.float32(1e-7)
    assert count_differing_samples(facts(IMAGES), facts(moved)) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:, ::-1],  # channels the other way round
        lambda x: x[..., ::-1],  # mirrored
        lambda x: x.swapaxes(2, 3),
        lambda x: x * 1.001,
        lambda x: x + 0.001,
        lambda x: -x,
    ],
)
def test_what_pipelines_really_do_otherwise_is_seen_in_every_sample(change) -> None:
    assert count_differing_samples(facts(IMAGES), facts(change(IMAGES))) == (4, 0)


def test_one_token_of_one_sample_is_seen() -> None:
    ids = np.random.default_rng(0).integers(0, 50_000, (4, 512))
    other = ids.copy()
    other[2, 100] += 1
    assert count_differing_samples(facts(ids), facts(other)) == (1, 0)


def test_other_labels_are_counted_and_only_common_samples_compared() -> None:
    assert count_differing_samples(facts(IMAGES), facts(IMAGES, labels=LABELS + 1)) == (0, 4)
    assert count_differing_samples(facts(IMAGES), facts(IMAGES)[:3]) == (0, 0)


def test_nan_is_never_alike() -> None:
    broken = IMAGES.copy()
    broken[1, 0, 0, 0] = np.nan
    assert count_differing_samples(facts(broken), facts(broken)) == (1, 0)


def test_labels_may_be_texts_or_anything_else() -> None:
    boxes = [[(1, 2)], [], [(3, 4), (5, 6)], []]
    assert count_differing_samples(facts(IMAGES, labels=boxes), facts(IMAGES, labels=boxes)) == (0, 0)
    texts = np.array(["a", "b", "c", "d"])
    assert count_differing_samples(facts(IMAGES, labels=texts), facts(IMAGES, labels=texts[::-1])) == (0, 4)
