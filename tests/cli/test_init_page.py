"""docs/init.md quotes what its command prints, and names every option that there is."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree

import align


def test_the_page_quotes_what_the_command_prints(page):
    copytree(Path(align.__file__).parents[1] / "examples" / "first_port", Path(), dirs_exist_ok=True)
    for name in ("epoch1.pth", "epoch2.pth"):
        Path(name).touch()
    assert page.run_commands() == [0]


def test_the_page_names_every_option(page):
    assert set(re.findall(r"--[a-z][a-z-]+", page.text)) == page.known_options()
