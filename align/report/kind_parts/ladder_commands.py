"""What a reader types after a climb: the same climb again, or from a rung on."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.core.about import RUN_FOLDER
from align.runs.project_file import NAME
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping


def climb_again(document: Mapping[str, Any]) -> str:
    """The words that end a climb that failed."""
    return say("ladder_table.again", options=_options(document))


def climb_from(document: Mapping[str, Any], name: str) -> str:
    """The command that goes on with a rung."""
    return say("ladder_table.go_on", options=_options(document), name=name)


def _options(document: Mapping[str, Any]) -> str:
    """The project file and the run folder that the climb was given, if they are not those taken without a word."""
    project = document.get("made_from", {}).get("project", {}).get("path", NAME)
    folder = document.get("run_folder", RUN_FOLDER)
    given = {"--project": project if project != NAME else "", "--folder": folder if folder != RUN_FOLDER else ""}
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given.items() if value)
