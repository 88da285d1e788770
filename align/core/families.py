"""Ready maps of known model families: `mappings/models/NAME.toml`, found by looking into the folder.

A family says how the paths of one published implementation become those of another, part by part, in both directions.
What the layers at these paths call their parameters, the layer rules know; `layers` settles what they leave open.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from align.core.mappings import mappings_folder
from align.core.names import LayerChoice
from align.errors import MappingRuleError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

START = "^"
NUMBER = "#"


@dataclass(frozen=True, slots=True)
class PathRule:
    """Some parts of a torch path, and what stands in their place in the MindSpore path.

    `^` ties the parts to the start of the path, `#` stands for a number, which is kept.
    """

    torch: str
    mindspore: str

    def applied(self, path: str, *, backwards: bool) -> str | None:
        """The path with the parts replaced once; None if it does not have them."""
        old, new = (self.mindspore, self.torch) if backwards else (self.torch, self.mindspore)
        match = _pattern(old).search(path)
        if match is None:
            return None
        numbers = iter(match.groups())
        parts = (next(numbers) if part == NUMBER else part for part in new.removeprefix(START).split("."))
        return f"{path[: match.start()]}{'.'.join(parts)}{path[match.end() :]}"


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family: `about` says which implementations it joins, `layers` what its layers are, by their torch paths.

    `dropped` maps globs over torch names to the reason to leave them out.
    """

    name: str
    about: str
    paths: tuple[PathRule, ...]
    layers: tuple[LayerChoice, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)

    def moved(self, name: str, *, backwards: bool) -> str | None:
        """The name at its place in the other implementation; None if the family does not know it.

        Rules are applied one after the other, on the way back from the last to the first.
        """
        known = False
        for rule in reversed(self.paths) if backwards else self.paths:
            new = rule.applied(name, backwards=backwards)
            known, name = known or new is not None, new or name
        return name if known else None


def read_family(name: str) -> ModelFamily:
    """Read a family by its name; raises UsageError with the known ones, MappingRuleError for a faulty file."""
    files = {path.stem: path for path in sorted((mappings_folder() / "models").glob("*.toml"))}
    if name not in files:
        close = get_close_matches(name, files, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"no model family is called {name!r}", f"{hint}known: {', '.join(files) or 'none'}")
    return _read(files[name])


def _read(path: Path) -> ModelFamily:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        family = ModelFamily(
            path.stem,
            str(table.pop("about")),
            tuple(_path_rule(pair) for pair in table.pop("paths")),
            tuple(LayerChoice(glob, str(kind)) for glob, kind in table.pop("layers", {}).items()),
            {glob: str(reason) for glob, reason in table.pop("dropped", {}).items()},
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, f"the family is malformed: {error!r}") from error
    if table:
        raise MappingRuleError(path, f"the family has unknown keys {sorted(table)}")
    return family


def _path_rule(pair: Any) -> PathRule:
    torch, mindspore = pair
    if torch.split(".").count(NUMBER) != mindspore.split(".").count(NUMBER):
        msg = f"{torch!r} and {mindspore!r} must hold the same number of {NUMBER}"
        raise ValueError(msg)
    return PathRule(torch, mindspore)


def _pattern(parts: str) -> re.Pattern[str]:
    texts = (r"(\d+)" if part == NUMBER else re.escape(part) for part in parts.removeprefix(START).split("."))
    start = "^" if parts.startswith(START) else r"(?:^|(?<=\.))"
    return re.compile(start + r"\.".join(texts) + r"(?=\.)")
