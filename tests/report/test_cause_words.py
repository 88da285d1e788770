"""Every relation that the hypotheses can tell has words for the user, and a line in docs/causes.md."""

from __future__ import annotations

import re
from pathlib import Path

import align.forward.relations
from align.forward.relations.moved_values import FUNCTIONS
from align.words.catalogue import catalogue

RELATIONS = Path(align.forward.relations.__file__).parent
SOURCES = [*RELATIONS.glob("*.py")]
PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
OTHERS = {"log-softmax", *FUNCTIONS}  # functions, no relations


def documented() -> set[str]:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}


def test_every_documented_relation_has_words() -> None:
    assert len(documented()) > 50
    assert documented() - catalogue()["cause"].keys() == set()


def test_every_relation_of_several_words_in_the_code_is_documented() -> None:
    found = {
        name for path in SOURCES for name in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', path.read_text(encoding="utf-8"))
    }
    assert len(found) > 30
    assert found - documented() - OTHERS == set()


def test_the_example_of_the_page_prints_what_it_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    said = re.findall(r"# (.*)", code)[0]
    lines: list[str] = []
    exec(code, {"print": lambda *values: lines.append(" ".join(map(str, values)))})
    assert lines == [said]
