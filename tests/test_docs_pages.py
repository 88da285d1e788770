"""The pages of docs/ are found from its index, their links lead somewhere, and the commands at their top exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

import align
from align.cli.given import find_commands
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


def test_every_link_of_the_site_leads_to_a_page_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("make_site", DOCS / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    make_site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_site)
    monkeypatch.setattr(make_site, "SITE", tmp_path)
    make_site.main()
    pages = sorted(tmp_path.rglob("*.md"))
    assert {tmp_path / "index.md", tmp_path / "zh" / "index.md", tmp_path / "install.md"} <= {*pages}
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)\s#]+)", prose(page)) if "://" not in link]
    assert len(links) > 300
    assert [(page.name, link) for page, link in links if not (page.parent / link).is_file()] == []


def test_the_version_and_the_requirements_are_the_same_wherever_they_stand() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    named = [
        re.findall(r'^version = "(.+)"', project, re.MULTILINE)[0],
        re.findall(r'set version = "(.+)" %', recipe)[0],
        citation["version"],
        re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0],
    ]
    assert named == [align.__version__] * 4
    released = re.findall(r"^## \[.+?\] - (\S+)$", changelog, re.MULTILINE)[0]
    assert str(citation["date-released"]) == released
    block = project.partition("dependencies = [")[2].partition("\n]")[0]
    needed = dict(re.findall(r'"([\w-]+)(>=[\d.]+(?:,<[\d.]+)?)', block))  # one recipe for all systems
    given = dict(re.findall(r"^    - ([\w-]+) (>=[\d.]+(?:,<[\d.]+)?)$", recipe.partition("  run:")[2], re.MULTILINE))
    plain = {re.sub(r"^python-", "", name).lower(): least for name, least in given.items() if name != "python"}
    assert plain == {name.lower(): least for name, least in needed.items()}


def test_entries_of_the_changelog_are_short_lines() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(" ") or len(line) > 160] == []


def test_what_the_repositorys_host_reads_is_sound() -> None:
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]
    documents = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    assert {"release.yml", "error.yml", "wrong_result.yml", "missing.yml", "CITATION.cff"} <= documents.keys()
    for name in ("error.yml", "wrong_result.yml", "missing.yml"):
        assert {"name", "description", "body"} <= documents[name].keys()
        assert len({field["id"] for field in documents[name]["body"]}) == len(documents[name]["body"])
    skill = (ROOT / "SKILL.md").read_text(encoding="utf-8")
    assert {"name", "description"} == yaml.safe_load(skill.split("---")[1]).keys()
    for page in ("SKILL.md", "llms.txt"):
        text = (ROOT / page).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]+)\)", text)
        assert [link for link in links if not (ROOT / link).is_file()] == []
        assert set(re.findall(r"`align ([a-z]+)", text)) <= set(find_commands())
