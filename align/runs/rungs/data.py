"""The batches of both data pipelines: no command compares them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.runs.rung import Missing, Rung, judged_by_verdict
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(_project: Project, _run: Path) -> Missing:
    return Missing(sentence("ladder.no_data"))


PLUGIN = Rung("data", 50, plan=_plan, judge=judged_by_verdict, summary="batches of both data pipelines")
