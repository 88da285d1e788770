"""What a rung of the ladder offers: the commands that it runs on a project, and what their result says.

A rung is a module of `align/runs/rungs/` with one `PLUGIN`. It judges nothing itself: a command does, and a rung runs
the commands that a user could type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align.core.registry import load_plugins
from align.core.verdicts import Outcome
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from align.runs.project_file import Project

RUNGS = "align.runs.rungs"
Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of a rung, one after another, without the word `align`, and by role the files that they read.

    The last command leaves a result of this `kind` in the run folder. `made_from` has files, and texts such as
    `file.py:function`. `outputs` are the files that the commands leave in the run folder for rungs above. `explaining`
    prints a document that knows more of what failed.
    """

    kind: str
    commands: tuple[Command, ...]
    made_from: Mapping[str, Path | str]
    outputs: tuple[Path, ...] = ()
    explaining: Command = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a rung is not available: a sentence, and the lines of the project file that would make it so.

    Each line begins with its table: `[reference] log = "train.log"`. `made_from` are the files that it would read and
    that are named.
    """

    reason: str
    settle: str = ""
    made_from: Mapping[str, Path | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing at fault: the module or name, its cause, the line of source, what to write there; "" where unknown."""

    place: str
    cause: str = ""
    line: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a result says for one rung."""

    outcome: Outcome
    reason: str
    culprits: tuple[Culprit, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: what it is called, where it stands, what it runs on a project, and what it reads from the result.

    Rungs are climbed by ascending `order`. `needs` names rungs without whose success this one can say nothing. An
    `optional` rung is run only where the project file lists it, or `--only` names it. `plan` opens no file of
    the project; `judge` reads results of these `kinds`; `explain` tells what is at fault by a further document.
    """

    name: str
    order: int
    summary: str
    plan: Callable[[Project, Path], Plan | Missing]
    judge: Callable[[Mapping[str, Any]], Judgement]
    kinds: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    optional: bool = False
    requires: tuple[str, ...] = ()
    explain: Callable[[tuple[Culprit, ...], Mapping[str, Any]], tuple[Culprit, ...]] = lambda culprits, _document: (
        culprits
    )


def rungs() -> tuple[Rung, ...]:
    """All rungs from the lowest to the highest.

    >>> [rung.name for rung in rungs()][:2]
    ['environment', 'determinism']
    """
    found: Mapping[str, Any] = load_plugins(RUNGS)
    return tuple(sorted(found.values(), key=lambda rung: rung.order))


def judged_by_verdict(document: Mapping[str, Any], culprits: tuple[Culprit, ...] = ()) -> Judgement:
    """Return the verdict of a document as it stands there, with what its rung found at fault."""
    verdict = document["verdict"]
    return Judgement(Outcome(verdict["outcome"]), verdict["reason"], culprits, verdict["coverage"])


def setting_culprit(finding: Mapping[str, Any]) -> Culprit:
    """A setting of a layer that `align lint` finds at fault."""
    cause = sentence("ladder.setting", candidate=finding["candidate_setting"], reference=finding["reference_setting"])
    return Culprit(finding["candidate"] or finding["reference"], cause, finding.get("line", ""), finding["change"])


def shown(path: Path | str) -> str:
    """A path as one would type it from here: relative where it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def shown_side(side: str) -> str:
    """`file.py:function` with the file as one would type it; `package.module:function` as it is."""
    place, separator, name = side.rpartition(":")
    return f"{shown(place)}{separator}{name}" if place.endswith(".py") else side
