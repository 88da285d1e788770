"""Chinese takes two columns a character: tables, facts and lines keep to the width, and lose none of it."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from align.report import show_result
from align.report.blocks import Column, Facts, Lines, Row, Table, shorten_path, text_width
from align.report.show_result import blocks_as_text
from align.words.catalogue import UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

SENTENCE = (
    "标杆的 `fc1.weight`（待比对侧为 fc.weight）在第 3 个 step 之后相差 10%，是其阈值的 12.5 倍；请先检查学习率。"
)
LETTERS = "标杆待比对侧权重梯度优化器，。；（）“”、　abc fc1.weight 10% — … é 𠀀"


def longest(text: str) -> int:
    return max(map(cell_len, text.splitlines()))


def without_space(text: str) -> str:
    return re.sub(r"[\s│╭╮╰╯─]", "", text)


@pytest.mark.parametrize("width", [40, 80, 100])
def test_sentences_break_between_characters_and_keep_to_the_width(width: int) -> None:
    lines = blocks_as_text([Lines("标题", (SENTENCE * 4,))], width)
    assert longest(lines) <= width
    assert without_space(lines) == without_space("标题" + SENTENCE * 4)
    body = lines.splitlines()[1:]
    assert all(cell_len(line) > width - 20 for line in body[:-1])  # no line ends at its first space
    assert not [line for line in body if line.strip()[0] in "，。；）”、%"]
    assert not [line for line in body if line.rstrip()[-1] in "（“"]


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("kinds", [("path", "text"), ("path", "words", "number"), ("text", "text", "words")])
def test_tables_with_long_cells_keep_to_the_width(kinds: Sequence[str], width: int) -> None:
    cells = {
        "path": "模型.编码器.层.自注意力.查询.权重" * 3,
        "text": SENTENCE,
        "words": SENTENCE * 2,
        "number": "0.125",
    }
    columns = tuple(Column(f"第 {place} 列的标题", kind) for place, kind in enumerate(kinds))  # type: ignore[arg-type]
    shown = blocks_as_text([Table("标题", columns, (Row(tuple(cells[kind] for kind in kinds)),), note=SENTENCE)], width)
    assert longest(shown) <= width
    for text in {cells[kind] for kind in kinds if kind in ("text", "words")}:
        assert in_order(text, shown) == without_space(text)


def in_order(text: str, shown: str) -> str:
    """The characters of a text that a table still shows, each as often as the text has it."""
    left = list(without_space(shown))
    found = []
    for letter in without_space(text):
        if letter in left:
            left.remove(letter)
            found.append(letter)
    return "".join(found)


def test_facts_keep_to_the_width() -> None:
    shown = blocks_as_text([Facts("标题", (("很长的标签，多于一行所能容纳的宽度" * 2, SENTENCE * 3),))], 100)
    assert longest(shown) <= 100
    assert {*map(cell_len, shown.splitlines())} == {100}  # the right border stands in one column


def test_a_long_table_is_drawn_as_a_short_one() -> None:
    columns = (Column("层", "path"), Column("结论"), Column("差异", "number"))
    rows = tuple(
        Row((f"编码器.层{i}.weight", "未对齐" if i % 3 else "aligned", f"{i / 7:.3g}"), "bad" if i % 3 else "good")
        for i in range(show_result.LONG_TABLE + 5)
    )
    fast = blocks_as_text([Table("", columns, rows)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(show_result, "LONG_TABLE", len(rows))
        assert blocks_as_text([Table("", columns, rows)]) == fast


@pytest.mark.parametrize("width", range(1, 30))
def test_a_path_is_cut_to_columns_and_not_to_letters(width: int) -> None:
    for path in ("模型.编码器.层.自注意力.权重", "model.编码器.0.权重" * 2, "很长的名称没有点" * 3):
        cut = shorten_path(path, width)
        assert text_width(cut) <= width
        assert set(cut) <= {*path, "…"}


def test_text_without_wide_characters_breaks_at_spaces_as_before() -> None:
    words, dice = re.compile(r"\s*\S+\s*"), random.Random(0)
    narrow = [*map(chr, range(32, 127)), *"\t\n\u2009\u2028 é×→…“”‘’—%" * 2]
    for _ in range(2000):
        text = "".join(dice.choices(narrow, k=dice.randint(0, 40)))
        assert units(re.compile(UNIT), text) == units(words, text)


def test_each_character_is_in_one_unit() -> None:
    dice = random.Random(0)
    for _ in range(2000):
        text = "x" + "".join(dice.choices(LETTERS, k=dice.randint(0, 40)))
        assert "".join(units(re.compile(UNIT), text)) == text


def units(form: re.Pattern[str], text: str) -> list[str]:
    found, end = [], 0
    while unit := form.match(text, end):
        found.append(unit[0])
        end = unit.end()
    return found
