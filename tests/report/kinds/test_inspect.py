from __future__ import annotations

import pytest

from align.checkpoints.inspect_checkpoint import Inspection, TensorFacts
from align.core.parameters import Entry
from align.report.show_result import blocks_as_text, result_blocks
from align.report.thresholds import INSPECTED_ENTRIES_SHOWN, LIST_LINES


def inspection(tensors=(), **changes):
    facts = {
        "path": "m.pth", "format": "torch", "naming": "torch", "files": {"m.pth": 5 << 20},
        "metadata": {"format": "pt"}, "key": "", "entries": (), "ties": (), "overlaps": (), "other": {},
        "crc_unchecked": False,
    }  # fmt: skip
    return Inspection(tensors=tuple(tensors), **{**facts, **changes})


def tensor(name, shape=(4, 3), dtype="float32", *, contiguous=True):
    return TensorFacts(name, shape, dtype, 48, contiguous)


@pytest.fixture
def text_of(document):
    def text_of(result, **options):
        text = blocks_as_text(result_blocks(document(result), **options))
        assert max(map(len, text.splitlines())) <= 100
        return text

    return text_of


def rows(text):
    """Lines by their first word, with single spaces."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.split()}


def test_names_fold_where_shape_and_dtype_are_alike_only(text_of):
    tensors = [tensor(f"layers.{n}.q") for n in range(12)] + [
        tensor("layers.12.q", (8, 3)),
        tensor("layers.13.q", dtype="float16"),
    ]
    found = rows(text_of(inspection(tensors)))
    assert found["layers.{0…11}.q"] == "12 (4, 3) float32 576 B"
    assert found["layers.12.q"] == "(8, 3) float32 48 B"
    assert found["layers.13.q"] == "(4, 3) float16 48 B"
    assert found["float32"] == "13 168 624 B"


def test_experts_fold_over_both_numbers_and_all_shows_each(text_of):
    tensors = [tensor(f"layers.{n}.experts.{m}.w") for n in range(2) for m in range(256)]
    assert rows(text_of(inspection(tensors)))["layers.{0…1}.experts.{0…255}.w"].startswith("512 ")
    text = text_of(inspection(tensors), show_all=True)
    assert all(f"layers.{n}.experts.{m}.w " in text for n in range(2) for m in range(256))


def test_a_table_without_end_is_cut_and_says_so(text_of):
    names = [f"{letter}{other}x" for letter in "abcdefghijklmnopqrst" for other in "abcdefghij"]
    text = text_of(inspection([tensor(name) for name in names], other=dict.fromkeys(names, "1")))
    assert f"{len(names) - INSPECTED_ENTRIES_SHOWN} more rows" in text
    assert f"and {len(names) - LIST_LINES} more" in text
    assert "more" not in text_of(inspection([tensor(name) for name in names]), show_all=True)


def test_ties_strides_overlaps_and_what_else_there_is_are_listed(text_of):
    found = inspection(
        [tensor("a"), tensor("t", contiguous=False)], ties=(("a", "b", "c"),), overlaps=(("flat", "view"),),
        other={"epoch": "3"}, crc_unchecked=True,
    )  # fmt: skip
    text = text_of(found)
    for said in ("a = b = c", "flat / view", "epoch: 3", "not checked", "\n  t\n"):
        assert said in text, said


def test_entries_to_choose_from_are_listed_with_the_option(text_of):
    entries = (Entry("", 1, 48), Entry("ema", 2, 96))
    text = text_of(inspection(key=None, entries=entries))
    assert rows(text)["ema"] == "2 96 B"
    assert "'' (the top level)" in text
    assert "choose one with --key" in text
    chosen = text_of(inspection([tensor("a")], key="ema", entries=entries))
    assert rows(chosen)["ema"] == "2 96 B taken"
    assert "choose one" not in chosen


def test_a_plain_file_has_no_table_of_entries(text_of):
    assert "--key" not in text_of(inspection([tensor("a")], entries=(Entry("", 1, 48),)))


def test_text_of_a_file_cannot_steer_the_terminal(text_of):
    steering = "\x1b]0;owned\x07"
    found = inspection([tensor("a")], metadata={"note": steering, steering: "x" * 5000}, other={steering: steering})
    text = text_of(found)
    assert "\x1b" not in text
    assert "\\x1b]0;owned" in text
    assert "x" * 300 not in text.replace("\n", "")


def test_a_number_of_any_length_in_a_name_is_shown(text_of):
    name = "w" + "1" * 6000
    assert "w111" in text_of(inspection([tensor(name), tensor(name[:-1] + "2")]))


def test_shards_are_counted(text_of):
    text = text_of(inspection([tensor("a")], files={"a-1": 1 << 30, "a-2": 1 << 30}))
    assert "2 GiB in 2 files" in text
