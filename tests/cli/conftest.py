"""The pages of docs/, and their commands run as a reader would."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from align.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
UNLISTED = {"--help", "--project"}
NUMBERS = re.compile(r"\d+\.\d+|\b\d{3,}\b")  # of measurements; counts and versions are shorter
FIGURES_APART = 0.5  # a multiple of rounding is another one under the kernels of another processor


def squeezed(line: str) -> str:
    """Without the spaces that the width of a terminal makes."""
    return " ".join(line.split())


@dataclass(frozen=True)
class Page:
    """The page of one command."""

    command: str
    capsys: pytest.CaptureFixture[str]

    @property
    def text(self) -> str:
        return (DOCS / f"{self.command}.md").read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)

    def write_files(self) -> None:
        """Write the blocks of code that begin with the name of a file into the current folder."""
        for block in [block for kind in ("python", "toml", "sh", "yaml") for block in self.blocks(kind)]:
            if named := re.match(r"# (\S+\.\w+)\n", block):
                Path(named[1]).write_text(block, encoding="utf-8")

    def state_dict(self) -> dict[str, Any]:
        """The weights of the first model that the page shows."""
        state: dict[str, Any] = runpy.run_path(self.blocks("python")[0].split()[1])["build"]().state_dict()
        return state

    def run_commands(self, block: int | None = None) -> list[int]:
        """Run what stands after the prompts, in order; all lines quoted must be printed. Return the exit codes.

        Without `block` those of all blocks are run. Figures of rounding are those of a processor's kernels: another one
        may give other ones, of the same size.
        """
        codes = []
        shown = self.blocks("console")
        for part in "".join(shown if block is None else shown[block : block + 1]).split("$ ")[1:]:
            command, *quoted = part.splitlines()
            codes.append(main(shlex.split(command)[1:]))
            printed = [*map(squeezed, "".join(self.capsys.readouterr()).splitlines())]
            assert quoted
            assert [line for line in quoted if not any(is_printed(squeezed(line), one) for one in printed)] == []
        return codes

    def named_options(self) -> set[str]:
        """The options that stand above the example."""
        return set(re.findall(r"--[a-z-]+", self.text.split("## Example")[0]))

    def known_options(self) -> set[str]:
        """The options that the command lists in its help, but for those of all commands."""
        main([self.command, "--help"])
        return set(re.findall(r"--[a-z-]+", self.capsys.readouterr().out)) - UNLISTED


def is_printed(quoted: str, printed: str) -> bool:
    """Tell whether a line is the one that was printed: the same words, and numbers that are as large."""
    if quoted == printed:
        return True
    words = [NUMBERS.split(line) for line in (quoted, printed)]
    numbers = [[*map(float, NUMBERS.findall(line))] for line in (quoted, printed)]
    return words[0] == words[1] and numbers[1] == pytest.approx(numbers[0], rel=FIGURES_APART)


@pytest.fixture
def page(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Page:
    """The page that `test_COMMAND_page.py` is about, its files written into an empty current folder."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    made = Page(request.path.stem.removeprefix("test_").removesuffix("_page"), capsys)
    made.write_files()
    return made
