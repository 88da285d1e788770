"""Draws `docs/architecture.svg`: the rooms of `align/`, layer by layer; a room imports only what is below it.

Layers come from the contract in `pyproject.toml`, words from the docstrings of the rooms, sub-rooms from the folders:
`python docs/draw_rooms.py`. A test holds the picture to what this draws.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, MARGIN, GAP, LINE = 1080, 16, 12, 15
LETTERS = 6.4  # pixels a letter of the small text takes
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2933 }
  .name { font-size: 15px; font-weight: 600 }
  .inside { fill: #52606d; font-style: italic }
  rect { fill: #f5f7fa; stroke: #7b8794 }
  .to-come { fill: none; stroke-dasharray: 5 4 }
"""


@dataclass(frozen=True)
class Room:
    """One room: its name, what its docstring says first, and its sub-rooms; `built` is False for one to come."""

    name: str
    about: str
    inside: tuple[str, ...]
    built: bool


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(), encoding="utf-8")


def layers() -> list[list[Room]]:
    """The rooms from top to bottom, those of one layer side by side."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = document["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["id"] == "rooms")
    return [[_room(name.strip()) for name in layer.split("|")] for layer in contract["layers"]]


def draw() -> str:
    """The picture as SVG."""
    shapes: list[str] = []
    top = MARGIN
    for layer in layers():
        width = (WIDTH - 2 * MARGIN - GAP * (len(layer) - 1)) / len(layer)
        texts = [_lines(room, width) for room in layer]
        height = LINE * max(len(text) for text in texts) + 18
        for place, (room, text) in enumerate(zip(layer, texts, strict=True)):
            left = MARGIN + place * (width + GAP)
            kind = "" if room.built else ' class="to-come"'
            shapes.append(f'<rect{kind} x="{left:.0f}" y="{top}" width="{width:.0f}" height="{height}" rx="6"/>')
            shapes += [
                f'<text class="{kind}" x="{left + 12:.0f}" y="{top + 20 + LINE * line}">{escape(words)}</text>'
                for line, (kind, words) in enumerate(text)
            ]
        top += height + GAP
    size = f'width="{WIDTH}" height="{top - GAP + MARGIN}" viewBox="0 0 {WIDTH} {top - GAP + MARGIN}"'
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def _room(name: str) -> Room:
    if name.startswith("("):
        return Room(name.strip("()"), "to come", (), built=False)
    folder = ROOT / "align" / name
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    inside = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    return Room(name, docstring.splitlines()[0], tuple(inside), built=True)


def _lines(room: Room, width: float) -> list[tuple[str, str]]:
    letters = int((width - 24) / LETTERS)
    about = [("", line) for line in wrap(room.about, letters)]
    inside = [("inside", line) for line in wrap(" · ".join(room.inside), letters)]
    return [("name", room.name), *about, *inside]


if __name__ == "__main__":
    main()
