"""Paths with placeholders, `rank{rank}/step{step}.npz`, matched with what is there.

`{rank}` and `{step}` are whole numbers, with or without zeros in front; `{name}` is any text without a slash. What a
placeholder stood for on one side finds its counterpart on the other: as a number, not as text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from align.batch.job import place_order
from align.batch.jobs.remote_listing import remote_names
from align.remote.remote_files import remote_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NUMBERS = ("rank", "step")
PLACEHOLDERS = (*NUMBERS, "name")
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
Place = tuple[int | None, int | None, str]  # rank, step, name
Found = dict[Place, list[tuple[str, dict[str, str]]]]  # paths, with what each placeholder stood for


def placeholders(pattern: str) -> list[str]:
    """The names of the placeholders of a pattern, in their order."""
    return _PLACEHOLDER.findall(pattern)


def match_paths(pattern: str) -> Found:
    """Each place that a pattern finds, with all paths of it and what every placeholder stood for, in order."""
    found: Found = {}
    for path, texts in sorted(_matches(pattern), key=lambda one: one[0]):
        found.setdefault(_place(texts), []).append((path, texts))
    return dict(sorted(found.items(), key=lambda one: (place_order(one[0][1], one[0][0]), one[0][2])))


def filled(pattern: str, texts: Mapping[str, str]) -> str:
    """The pattern with texts in the place of its placeholders."""
    return _PLACEHOLDER.sub(lambda one: texts.get(one[1], one[0]), pattern)


def _place(texts: Mapping[str, str]) -> Place:
    rank, step = (int(texts[name]) if name in texts else None for name in NUMBERS)
    return rank, step, texts.get("name", "")


def _matches(pattern: str) -> Iterator[tuple[str, dict[str, str]]]:
    if not placeholders(pattern):
        if remote_url(pattern) is not None or Path(pattern).exists():
            yield pattern, {}
        return
    if remote_url(pattern) is not None:
        whole = _expression(pattern)
        for name in remote_names(_PLACEHOLDER.sub("*", pattern)):
            if found := whole.fullmatch(name):
                yield name, found.groupdict()
        return
    path = Path(pattern)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    yield from _walked(Path(path.anchor), parts, {})


def _walked(folder: Path, parts: tuple[str, ...], known: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Follow a pattern part by part: folders that do not fit are never listed."""
    if not parts:
        yield str(folder), known
        return
    first, *rest = parts
    if not placeholders(first):
        if (folder / first).exists():
            yield from _walked(folder / first, tuple(rest), known)
        return
    fits = _expression(first)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = fits.fullmatch(path.name)
        if found and all(known.get(name, text) == text for name, text in found.groupdict().items()):
            yield from _walked(path, tuple(rest), known | found.groupdict())


def _expression(pattern: str) -> re.Pattern[str]:
    """What a pattern fits; a placeholder that stands there twice has the same text twice."""
    seen: set[str] = set()
    parts = []
    for place, part in enumerate(_PLACEHOLDER.split(pattern)):
        if place % 2 == 0:
            parts.append(re.escape(part))
        elif part in seen:
            parts.append(f"(?P={part})")
        else:
            seen.add(part)
            parts.append(f"(?P<{part}>{'[0-9]+' if part in NUMBERS else '[^/]+'})")
    return re.compile("".join(parts))
