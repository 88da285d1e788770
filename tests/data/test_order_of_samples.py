"""Samples that are missing, further or shards leave the order of the others what it is."""

from __future__ import annotations

import numpy as np
import pytest

from align import compare_data
from align.core.verdicts import Outcome

COUNT = 120
GENERATOR = np.random.default_rng(3)
TABLE = GENERATOR.normal(size=(COUNT, 6)).astype(np.float32)
LABELS = GENERATOR.integers(0, 10, COUNT)
NUMBERS = np.arange(COUNT)


def batches(numbers, names=("x", "label")):
    columns = TABLE[numbers], LABELS[numbers]
    rows = [[column[start : start + 8] for column in columns] for start in range(0, len(numbers), 8)]
    return [dict(zip(names, row, strict=True)) for row in rows]


def compared(numbers, **options):
    result = compare_data(batches(NUMBERS), batches(numbers), **options)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    return result, [finding.code for finding in result.findings if finding.severity == "error"]


SAME_ORDER = {
    "one is missing": (np.delete(NUMBERS, 20), ["missing-samples"], (1, 0)),
    "some are missing": (np.delete(NUMBERS, [20, 40, 99]), ["missing-samples"], (3, 0)),
    "the first batch is missing": (NUMBERS[8:], ["missing-samples"], (8, 0)),
    "one is there twice": (np.insert(NUMBERS, 30, 5), ["extra-samples"], (0, 1)),
    "drawn with copies": (np.sort(GENERATOR.integers(0, COUNT, COUNT)), ["missing-samples", "extra-samples"], None),
    "every second": (NUMBERS[::2], ["sharded"], None),
    "the third quarter": (NUMBERS[60:90], ["sharded"], None),
    "each one three times in a row": (np.repeat(NUMBERS, 3), ["extra-samples"], (0, 2 * COUNT)),
    "a few more to fill the ranks up": (np.concatenate([NUMBERS, NUMBERS[:16]]), ["extra-samples"], (0, 16)),
}


@pytest.mark.parametrize("name", SAME_ORDER)
def test_what_is_missing_or_further_is_no_other_order(name):
    numbers, codes, counts = SAME_ORDER[name]
    result, found = compared(numbers)
    assert (result.order.order, found) == ("same", codes)
    assert counts in (None, (result.order.missing, result.order.extra))


def test_what_is_missing_shows_in_the_first_batches_too():
    result, codes = compared(np.delete(NUMBERS, 20), batches=10)
    assert (result.order.missing, codes) == (1, ["missing-samples"])


def test_copies_are_told_from_samples_of_their_own():
    result, _ = compared(np.insert(NUMBERS, 30, 5))
    assert "1 sample has no counterpart in the reference: copies of other samples" in result.verdict.reason
    result, codes = compared(GENERATOR.permutation(NUMBERS)[:-5])
    assert codes == ["order-differs", "missing-samples"]


def test_fields_with_a_namesake_are_paired_by_name_beside_one_without():
    turned = [dict(reversed(batch.items())) for batch in batches(NUMBERS, names=("input", "label"))]
    result = compare_data(batches(NUMBERS), turned)
    assert (result.verdict.outcome, result.by_name) == (Outcome.ALIGNED, False)
    assert [(row.reference, row.candidate) for row in result.fields] == [("x", "input"), ("label", "label")]


def test_labels_that_the_loss_leaves_out_are_no_wrong_classes():
    ignored = [{**batch, "label": np.where(batch["label"] == 3, -100, batch["label"])} for batch in batches(NUMBERS)]
    assert compare_data(ignored, ignored, classes=10).findings == ()


def anew(count):
    """Each time in another order."""
    return np.concatenate([GENERATOR.permutation(NUMBERS) for _ in range(count)])


REPEATED = {
    "twice": (np.tile(NUMBERS, 2), 2.0, []),
    "five times, the last cut short": (np.tile(NUMBERS, 5)[:-7], 4.94, []),
    "shuffled anew": (anew(3), 3.0, ["order-differs"]),
    "shuffled anew, the last batch dropped": (anew(2)[:-5], 1.96, ["order-differs"]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_an_epoch_that_is_the_other_one_several_times_over_is_called_repeated(name):
    numbers, times, codes = REPEATED[name]
    for side, sides in (("candidate", (NUMBERS, numbers)), ("reference", (numbers, NUMBERS))):
        result = compare_data(*map(batches, sides), batches=None)
        (cause,) = result.causes
        assert (cause.id, cause.confirmed, cause.facts["side"], cause.facts["times"]) == ("repeat", True, side, times)
        assert [finding.code for finding in result.findings if finding.severity == "error"] == codes
        assert (result.order.paired, result.order.missing, result.order.extra) == (COUNT, 0, 0)


def test_an_epoch_without_an_end_is_repeated_at_least_as_often_as_was_read():
    class Endless:
        def __iter__(self):
            while True:
                yield from batches(NUMBERS)

    (cause,) = compare_data(batches(NUMBERS), Endless(), batches=40).causes
    assert "the other side's epoch at least 2.67 times over: 320 samples against 120" in cause.message


def test_values_are_compared_within_the_first_time_of_a_side_that_repeats():
    scaled = [{**batch, "x": batch["x"] / np.float32(3)} for batch in batches(np.tile(NUMBERS, 2))]
    result = compare_data(batches(NUMBERS), scaled)
    assert [(cause.id, cause.confirmed) for cause in result.causes] == [("repeat", True), ("scale", True)]


def test_more_draws_than_samples_are_no_repeat():
    drawn = GENERATOR.integers(0, COUNT, 2 * COUNT)
    for numbers in (drawn, np.concatenate([NUMBERS, drawn]), np.concatenate([NUMBERS, NUMBERS[::2], NUMBERS[::2]])):
        assert "repeat" not in [cause.id for cause in compared(numbers)[0].causes]


def test_two_sides_that_repeat_alike_agree():
    sides = [batches(np.tile(NUMBERS, 3)) for _ in range(2)]
    assert compare_data(*sides, batches=None).verdict.outcome is Outcome.ALIGNED
