"""Each Chinese page says what its English twin says: the same headings, blocks of code, inline code and numbers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TWINS = {path.name: (DOCS / path.name, path) for path in sorted((DOCS / "zh").glob("*.md"))}
TWINS["README.md"] = (ROOT / "README.md", ROOT / "README.zh-CN.md")
NEEDED = {"README", "init", "run", "map", "convert", "forward", "step", "loss", "report", "fix", "capture"}
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]+`")
LINK = re.compile(r"\]\([^)]*\)")


def parts(page: Path) -> dict[str, object]:
    """What both languages share: blocks, inline code, numbers, and how deep the headings are."""
    text = page.read_text(encoding="utf-8")
    prose = LINK.sub("]", FENCE.sub("", text))
    return {
        "blocks": FENCE.findall(text),
        "inline code": Counter(CODE.findall(prose)),
        "numbers": Counter(re.findall(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d(?![\w])", CODE.sub("", prose))),
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
    }


def test_the_main_pages_have_a_twin() -> None:
    assert {f"{name}.md" for name in NEEDED} | {"hyperparameters.md", "project-file.md"} <= TWINS.keys()


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("part", ["blocks", "inline code", "headings", "numbers"])
def test_a_page_and_its_twin_say_the_same(name: str, part: str) -> None:
    english, chinese = (parts(page)[part] for page in TWINS[name])
    assert chinese == english, f"{TWINS[name][1].relative_to(ROOT)} is older than {TWINS[name][0].relative_to(ROOT)}"


@pytest.mark.parametrize("name", TWINS)
def test_each_page_links_its_twin(name: str) -> None:
    for page, other in (TWINS[name], TWINS[name][::-1]):
        third = page.read_text(encoding="utf-8").split("\n")[2]
        link = re.fullmatch(r"\[(?:English|中文)\]\(([^)]+)\)", third)
        assert link, page
        assert (page.parent / link[1]).resolve() == other


@pytest.mark.parametrize("name", TWINS)
def test_every_link_of_a_chinese_page_leads_somewhere(name: str) -> None:
    page = TWINS[name][1]
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8")))
    ends = [link.partition("#")[::2] for link in links if "://" not in link]
    assert [file for file, _ in ends if not (page.parent / file if file else page).exists()] == []

    def anchors(other: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", FENCE.sub("", other.read_text(encoding="utf-8")), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    named = [(page.parent / file if file else page, heading) for file, heading in ends if heading]
    assert [(end.name, heading) for end, heading in named if heading not in anchors(end)] == []
