"""Versions, devices and switches of both sides: `align doctor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from align.lint.environment_facts import environment_facts
from align.runs.rung import Culprit, Judgement, Plan, Rung, judged_by_verdict, shown
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(_project: Project, run: Path) -> Plan:
    return Plan("doctor", (("doctor", "--run", shown(run)),), environment_facts())


def _judge(document: Mapping[str, Any]) -> Judgement:
    """Errors are at fault; warnings fail nothing, and are said."""
    errors = [one for one in document["findings"] if one["severity"] == "error"]
    judged = judged_by_verdict(document, tuple(Culprit(one["subject"], one["message"]) for one in errors))
    warnings = [f"{one['subject']}: {one['message']}" for one in document["findings"] if one["severity"] == "warning"]
    return (
        replace(judged, reason=sentence("ladder.warnings", reason=judged.reason, warnings=warnings))
        if warnings
        else judged
    )


PLUGIN = Rung("environment", 10, plan=_plan, judge=_judge, kinds=("doctor",), summary="versions, devices and switches")
