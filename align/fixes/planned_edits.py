"""What is to change in the source of a port: the edits, what was refused, and the new text of each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """One place of the port's source that changes.

    `line` is that of the old text, `before` and `after` the source of the changed statement or expression. `layers` are
    all layers of the port that this place makes, `cause` the id of a rule or relation, `arguments` what is set.
    """

    file: str
    line: int
    before: str
    after: str
    layers: tuple[str, ...]
    cause: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefusedFix:
    """A confirmed change for which no safe edit was found; `reason` is a key of words, `facts` are its facts."""

    layers: tuple[str, ...]
    cause: str
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedEdits:
    """All edits, all refusals, and the new whole text of each changed file."""

    edits: tuple[SourceEdit, ...]
    refused: tuple[RefusedFix, ...]
    texts: Mapping[Path, str]
