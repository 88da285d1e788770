"""Versions, devices and switches of both sides: `align doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Plan, Rung, judged_by_verdict, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(_project: Project, run: Path) -> Plan:
    return Plan("doctor", (("doctor", "--run", shown(run)),), {})


def _judge(document: Mapping[str, Any]) -> Judgement:
    errors = [one for one in document["findings"] if one["severity"] == "error"]
    return judged_by_verdict(document, tuple(Culprit(one["subject"], one["message"]) for one in errors))


PLUGIN = Rung("environment", 10, plan=_plan, judge=_judge, kinds=("doctor",), summary="versions, devices and switches")
