"""The page of a run folder as one file: the verdict, the strip of rungs, a section a rung, the sources."""

from __future__ import annotations

import datetime as dt
import string
from html import escape
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.verdicts import Outcome
from align.report.judged_run import judged_run
from align.report.kind_parts.ladder_commands import next_steps
from align.report.kind_parts.ladder_culprits import culprit_lines
from align.report.kind_parts.report_summary import source_blocks
from align.report.notebook.template_files import read_template
from align.report.page.fix_section import fix_section
from align.report.page.page_blocks import block_html, embedded
from align.report.page.page_rungs import page_rungs
from align.report.page.rung_sections import rung_section, rung_strip
from align.report.rendering.blocks import TONES
from align.report.rendering.html import with_pasted
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.report.judged_run import JudgedRun
    from align.report.page.page_rungs import PageRung
    from align.runs.run_folder import RunFolder

SCRIPTS = ("report_page.js", "report_tables.js", "report_trees.js")  # the first offers what the others use
OF_MODELS = ("forward", "lint", "step")
MARKS = {"aligned": "✓", "not aligned": "✗", "could not compare": "!", "within the prediction": "!"}
# What scripts say: texts whose facts they fill in.
SPOKEN = (
    "rows",
    "rows_of",
    "show_open",
    "hide_open",
    "more_nodes",
    "open_node",
    "close_node",
    "dark",
    "light",
    "copied",
)
FACTS = {"rows": ("count",), "rows_of": ("shown", "count"), "show_open": ("count",), "hide_open": ("count",)}
FACTS |= {"more_nodes": ("count",), "open_node": ("name",), "close_node": ("name",)}


def page_html(folder: RunFolder) -> str:
    """Return the page of a run folder, which loads nothing from anywhere.

    Raises RunFolderError for results that are damaged, KeyError and the like for one that lacks a field.
    """
    run = judged_run(folder.path)
    rungs = page_rungs(run)
    titles = {rung.anchor: rung.title for rung in rungs}
    created = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return string.Template(read_template("report_page.html")).substitute(
        title=escape(say("page.title", folder=folder.path.name)),
        style=read_template("report_page.css"),
        skip=escape(say("page.skip")),
        folder=escape(folder.path.name),
        verdict=_verdict(run, rungs),
        strip=rung_strip(rungs),
        sections="".join(rung_section(rung, titles) for rung in rungs) + fix_section(folder),
        sources=_sources(rungs),
        words=embedded({key: say(f"page.{key}", **_left_open(key)) for key in SPOKEN}),
        script="\n".join(f"{{\n{read_template(name)}}}" for name in SCRIPTS),
        made=escape(say("page.made", created=created, version=__version__)),
    )


def _left_open(key: str) -> dict[str, str]:
    """Facts that stand for themselves, for a script to fill in."""
    return {fact: f"{{{fact}}}" for fact in FACTS.get(key, ())}


def _verdict(run: JudgedRun, rungs: Sequence[PageRung]) -> str:
    verdict, outcome = run.verdict, run.verdict.outcome.value
    lines = [_sides(rungs), *([say("verdict.caveats", caveats="; ".join(verdict.caveats))] if verdict.caveats else [])]
    if missing := [rung.title for rung in rungs if rung.result.state == "not run"]:
        lines.append(say("rung.not_run", names=", ".join(missing)))
    paragraphs = "".join(f"<p>{with_pasted(line)}</p>" for line in (*lines, *_next(run)) if line)
    first = f'<p class="first">{escape(_first(rungs))}</p>' if _first(rungs) else ""
    mark = f'<span class="mark" aria-hidden="true">{MARKS[outcome]}</span>'
    return (
        f'<div class="verdict {TONES.get(outcome, "plain")}">{mark}'
        f'<div><h1><span class="outcome">{escape(word("outcome", outcome))}</span> '
        f'<span class="what">{escape(verdict.reason)}</span></h1>{first}{paragraphs}</div></div>'
    )


def _first(rungs: Sequence[PageRung]) -> str:
    """The first part at fault: its cause, its line, and what to write; of several one of which that is known."""
    found = next((rung.result.culprits for rung in rungs if rung.is_faulty and rung.result.culprits), ())
    return next(iter(culprit_lines(sorted(found, key=lambda one: not one.change))), "")


def _sides(rungs: Sequence[PageRung]) -> str:
    """The names of both sides: of a comparison of models, or else of the first result that has two."""
    ordered = sorted(rungs, key=lambda rung: rung.result.kind not in OF_MODELS)
    for rung in ordered:
        names = [(rung.document or {}).get(side) for side in ("reference", "candidate")]
        if all(isinstance(name, str) and name for name in names):
            return say("rung.sides", reference=names[0], candidate=names[1])
    return ""


def _next(run: JudgedRun) -> list[str]:
    """What to do next; of a port that is aligned the sections say what could be compared too."""
    if run.verdict.outcome is Outcome.ALIGNED:
        return []
    return [say("page.next", step=step) for step in next_steps(run.rungs, run.climb)]


def _sources(rungs: Sequence[PageRung]) -> str:
    documents: dict[str, dict[str, Any]] = {rung.result.kind: rung.document for rung in rungs if rung.document}
    body = "".join(map(block_html, source_blocks(documents)))
    title = escape(say("sources.title"))
    return (
        f'<section class="rung sources"><details><summary class="head"><h2>{title}</h2></summary>'
        f'<div class="body">{body}</div></details></section>'
    )
