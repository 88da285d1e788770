"""The pages of docs/ are found from its index, their links lead somewhere, and the commands at their top exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from align.cli.main import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"```.*?```", re.DOTALL)
TOP = "## The three commands that most users need"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def top_commands() -> dict[str, list[str]]:
    """All lines that begin with `align` between the heading of the three commands and the next, by page."""
    parts = {page.name: page.read_text(encoding="utf-8").partition(f"{TOP}\n")[2] for page in PAGES}
    joined = {name: part.partition("\n## ")[0].replace("\\\n", " ") for name, part in parts.items() if part}
    return {name: re.findall(r"^ *(align .*)$", part, re.MULTILINE) for name, part in joined.items()}


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} == linked


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link]
    ends = [(page.parent / file if file else page, heading) for file, _, heading in links]
    assert [end for end, _ in ends if not end.exists()] == []
    assert [(end, heading) for end, heading in ends if heading and heading not in anchors(end)] == []


def test_the_commands_at_the_top_of_a_page_have_these_options(capsys: pytest.CaptureFixture[str]) -> None:
    shown = top_commands()
    assert len(shown) > 15
    known: dict[str, set[str]] = {}
    for page, commands in shown.items():
        assert 2 <= len(commands) <= 3, page
        for command in commands:
            name = command.split()[1]
            if name not in known:
                assert main([name, "--help"]) == 0, command
                known[name] = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
            assert set(re.findall(r"(?<=\s)--[a-z-]+", command)) <= known[name], command
