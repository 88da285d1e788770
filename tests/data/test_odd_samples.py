"""What samples are beside pictures, rows of tokens and numbers: gaps, dates, empty lists, detectors' targets."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from align import compare_data
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import InputsError

COUNT = 40
GENERATOR = np.random.default_rng(0)
PICTURES = GENERATOR.random((COUNT, 3, 8, 8)).astype(np.float32)
LABELS = GENERATOR.integers(0, 10, COUNT)
TABLE = GENERATOR.normal(size=(COUNT, 4))
BOXES = [GENERATOR.random((number % 4, 4)).astype(np.float32) for number in range(COUNT)]
WORDS = ["a" * (1 + number // 4) + str(number) for number in range(COUNT)]
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(number) for number in range(COUNT)]


def batches(*columns, size=8, names=()):
    made = [tuple(column[start : start + size] for column in columns) for start in range(0, len(columns[0]), size)]
    return [dict(zip(names, batch, strict=True)) for batch in made] if names else made


def for_detectors():
    """As detectors collate: a tuple of pictures, and a tuple of mappings."""
    targets = [{"boxes": box, "labels": np.arange(len(box))} for box in BOXES]
    return [tuple(map(tuple, batch)) for batch in batches(PICTURES, targets)]


EQUAL = {
    "infinities": (batches(np.where(TABLE > 0.5, np.inf, TABLE), LABELS),) * 2,
    "nothing but NaN": (batches(np.full((COUNT, 4), np.nan), LABELS),) * 2,
    "dates": (batches(DAYS), batches(np.array(DAYS, "datetime64[D]"))),
    "complex numbers": (batches(TABLE + 1j * TABLE[::-1]), batches((TABLE + 1j * TABLE[::-1]).astype(np.complex64))),
    "boxes as lists": (batches(PICTURES, BOXES), batches(PICTURES, [box.astype(float).tolist() for box in BOXES])),
    "an array of arrays": (batches(PICTURES, BOXES), batches(PICTURES, np.array([*BOXES, None], object)[:-1])),
    "words in longer batches": (batches(WORDS, LABELS), [*batches(WORDS, LABELS, size=COUNT)]),
    "targets of detectors": (for_detectors(), for_detectors()),
    "a batch of nothing": (batches(TABLE), [(TABLE[:0],), *batches(TABLE)]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_samples_of_odd_kinds_agree(name):
    result = compare_data(*EQUAL[name])
    assert result.causes == ()
    assert {finding.code for finding in result.findings} <= {"dtypes-differ", "batch-size"}
    assert (result.order.order, result.order.paired) == ("same", COUNT)
    assert not any(row.different for row in result.fields)


def test_targets_of_detectors_are_fields_of_their_own():
    other = for_detectors()
    other[1][1][2]["labels"] = other[1][1][2]["labels"] + 1
    result = compare_data(for_detectors(), other)
    assert [row.reference for row in result.fields] == ["0", "1.boxes", "1.labels"]
    assert [row.different for row in result.fields] == [0, 0, 1]


MANY = 700  # more than are kept
LATE = np.arange(MANY) == MANY - 1
GAPS = np.where(GENERATOR.random((MANY, 6)) < 0.3, np.nan, GENERATOR.normal(size=(MANY, 6)))
HUGE = 2**60 + GENERATOR.integers(0, 2**50, (MANY, 3))
WAVES = GENERATOR.normal(size=(MANY, 4)) + 1j
TEXTS = np.array(["", "b", "c", ""] * (MANY // 4))
UNLIKE = {
    "NaN in a late sample": (GAPS, np.where(LATE[:, None], np.nan_to_num(GAPS), GAPS)),
    "numbers beside NaN in a late sample": (GAPS, GAPS * np.where(LATE, 2, 1)[:, None]),
    "the last digit of a huge number": (HUGE, HUGE + (np.arange(MANY) == 3)[:, None]),
    "the imaginary part": (WAVES, WAVES + 1j * LATE[:, None]),
    "an empty word": (TEXTS, np.where(LATE, "d", TEXTS)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_one_unlike_sample_of_many_is_seen(name):
    numbers = np.arange(MANY)
    result = compare_data(*(batches(numbers, part) for part in UNLIKE[name]))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert [row.different for row in result.fields] == [0, 1]


def named_oddly():
    return batches([f"{word}.jpg" for word in WORDS], LABELS, BOXES, names=("file", "x#1", "a/b"))


def test_any_name_of_a_field_can_be_captured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["capture", "--data", f"{__file__}:named_oddly", "--out", "held"]) == 0
    assert main(["data", "held", f"{__file__}:named_oddly"]) == 0
    assert "agree in 3 fields" in capsys.readouterr().out


def test_objects_are_refused_by_name():
    with pytest.raises(InputsError, match="holds meta, which are neither numbers nor words"):
        compare_data([{"x": TABLE, "meta": [object()] * COUNT}], [{"x": TABLE}])


INFINITE = np.where(TABLE > 0.5, np.inf, TABLE)
CHANGED = {
    "infinities, scaled": (INFINITE, INFINITE * 2),
    "pictures with infinities": (np.where(PICTURES > 0.9, np.inf, PICTURES), PICTURES[:, :, ::-1] * 2),
    "one channel of three": (PICTURES, PICTURES[:, :1]),
    "NaN in place of all numbers": (PICTURES[:, 0], PICTURES[:, 0] * np.nan),
    "a last sample of another rank": (LABELS, [*LABELS[:-1], LABELS[-1:]]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CHANGED)
def test_odd_changes_are_seen_without_a_warning_of_numpy(name):
    one, two = CHANGED[name]
    result = compare_data(batches(one, np.arange(COUNT)), batches(two, np.arange(COUNT)))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert len(result.causes) > 0


def test_batches_without_a_value_and_iterators_that_were_read_are_said_to_be_so():
    with pytest.raises(InputsError, match="item 0 of list is empty"):
        compare_data([None, None], [{"x": TABLE}])
    left = iter(batches(TABLE, LABELS))
    with pytest.raises(InputsError, match="an iterator that is at its end, which was read before"):
        compare_data(lambda: left, lambda: left)


@pytest.mark.frameworks
def test_a_dataset_of_mindspore_without_a_sample_is_said_to_be_so(tmp_path, monkeypatch, capsys):
    from mindspore.dataset import NumpySlicesDataset

    def empty():
        return NumpySlicesDataset({"x": TABLE[:0]}).batch(4)

    with pytest.raises(InputsError, match="empty gives no sample"):
        compare_data(empty, [{"x": TABLE}])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sides.py").write_text(
        "def empty():\n    import numpy as np\n    from mindspore.dataset import NumpySlicesDataset\n\n"
        "    return NumpySlicesDataset({'x': np.zeros((0, 3))})\n"
    )
    assert main(["capture", "--data", "sides.py:empty", "--out", "captured"]) == 2
    assert "sides.py:empty gives no sample" in capsys.readouterr().err
