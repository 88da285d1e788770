"""A run as a JUnit file, which CI systems show: one test case for each rung.

What was not run, is only foreseen, not available or blocked, is skipped, which is no pass; what could not be compared,
and what is stale, is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from align.report.judged_run import rung_title
from align.report.kind_parts.ladder_culprits import culprit_lines, remedy_lines, rung_reason
from align.words.catalogue import say
from align.words.message_words import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.report.judged_run import JudgedRun
    from align.runs.ladder_result import RungResult, RungState

ELEMENTS: dict[RungState, str] = {
    "failed": "failure",
    "could not compare": "error",
    "stale": "error",
    "blocked": "skipped",
    "not run": "skipped",
    "not available": "skipped",
    "foreseen": "skipped",
}
COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
HOST = "localhost"  # what the schema wants where no host is known: a run may have been copied from another one


def as_junit(run: JudgedRun) -> str:
    """Return a run as a JUnit document with one suite; times are in seconds, the time of day is UTC.

    Source: the schemas of Jenkins' xunit plugin and of Ant's junit task, of which it holds both.
    """
    rungs = run.rungs
    name = printable(say("export.suite", folder=run.name))
    totals = {"name": name, "tests": str(len(rungs)), **_counts(rungs), "time": _seconds(rungs)}
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(
        root, "testsuite", {**totals, "timestamp": f"{run.created:%Y-%m-%dT%H:%M:%S}", "hostname": HOST}
    )
    for rung in rungs:
        _add_case(suite, rung, name)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_case(suite: ET.Element, rung: RungResult, classname: str) -> None:
    title = printable(rung_title(rung))
    case = ET.SubElement(suite, "testcase", {"name": title, "classname": classname, "time": _seconds([rung])})
    if rung.state not in ELEMENTS:
        return
    reason = rung_reason(rung)
    facts = {"message": printable(reason)}
    if ELEMENTS[rung.state] != "skipped":
        facts["type"] = rung.state
    element = ET.SubElement(case, ELEMENTS[rung.state], facts)
    lines = [reason, *culprit_lines(rung.culprits), *remedy_lines(rung), *rung.commands]
    element.text = "\n".join(printable(line) for line in dict.fromkeys("\n".join(lines).split("\n")))


def _counts(rungs: Sequence[RungResult]) -> dict[str, str]:
    elements = [ELEMENTS.get(rung.state) for rung in rungs]
    return {name: str(elements.count(element)) for name, element in COUNTS.items()}


def _seconds(rungs: Sequence[RungResult]) -> str:
    return f"{sum(rung.seconds or 0.0 for rung in rungs):.3f}"
