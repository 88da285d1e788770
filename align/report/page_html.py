"""The page of a run folder as one file: the verdict, the strip of rungs, a section a rung, the sources.

It stands there in every language, and shows that of its reader first. What has no words stands there once: the marks of
plots, the data behind tables and trees.
"""

from __future__ import annotations

import datetime as dt
import string
from dataclasses import replace
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.documents import in_words
from align.core.load_code import INSTALL_HINT
from align.core.verdicts import Outcome
from align.report.blocks import (
    TONES,
    Block,
    Facts,
    Lines,
    Table,
)
from align.report.judged_run import head_facts, judged_run
from align.report.kinds.culprits import culprit_blocks, fix_blocks, patch_blocks, patch_title
from align.report.kinds.ladder import (
    against_blocks,
    culprit_lines,
    next_steps,
    remedy_lines,
    rung_reason,
    since_line,
    source_blocks,
)
from align.report.open_run import LISTED_WHOLE, read_template
from align.report.page_blocks import (
    block_html,
    draw_page_plot,
    embedded,
    facts_html,
    folded_facts,
    model_trees,
    share_data,
    shared_marks,
)
from align.report.page_faults import anchor, fault_links, faults_section, page_faults, page_rungs, run_code
from align.report.show_result import result_blocks, with_pasted
from align.runs.baseline import read_difference
from align.words.catalogue import LANGUAGES, listed, reader_language, say, speaking, spoken, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.report.judged_run import JudgedRun
    from align.report.page_blocks import PagePlot
    from align.report.page_faults import Fault, PageRung
    from align.runs.run_folder import RunFolder


SCRIPTS = ("report_page.js", "report_tables.js", "report_trees.js")  # the first offers what the others use
OF_MODELS = ("forward", "lint", "step")
OUTCOME_MARKS = {"aligned": "✓", "not aligned": "✗", "could not compare": "!", "within the prediction": "!"}
# What scripts say: texts whose facts they fill in.
SPOKEN = (
    "language",
    "rows",
    "rows_of",
    "show_open",
    "hide_open",
    "more_nodes",
    "open_node",
    "close_node",
    "place_of",
    "dark",
    "light",
    "copied",
)
FACTS = {"rows": ("count",), "rows_of": ("shown", "count"), "show_open": ("count",), "hide_open": ("count",)}
FACTS |= {"more_nodes": ("count",), "open_node": ("name",), "close_node": ("name",), "place_of": ("place", "count")}


def page_html(folder: RunFolder) -> str:
    """Return the page of a run folder, which loads nothing from anywhere.

    Pages of two readers differ in `lang` and title alone. Raises RunFolderError for results that are damaged, KeyError
    and the like for one that lacks a field.
    """
    created = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    plots: dict[str, PagePlot] = {}
    read = cache(folder.read)
    versions, skips, words = {}, "", {}
    for language in LANGUAGES:
        with speaking(language):
            run = judged_run(folder.path, read)
            plots = plots or _plots(run)
            versions[language] = _version(run, plots, created)
            skips += (
                f'<a class="version skip" lang="{language}" href="#{anchor("rungs")}">{escape(say("page.skip"))}</a>'
            )
            words[language] = _words(folder.path.name)
    bodies, data = share_data(versions)
    return string.Template(read_template("report_page.html")).substitute(
        language=reader_language(),
        title=escape(words[reader_language()]["title"]),
        style=read_template("report_page.css"),
        skips=skips,
        folder=escape(folder.path.name),
        versions="\n".join(bodies),
        marks=shared_marks(plots.values()),
        data=data,
        words=embedded(words),
        script="\n".join(f"{{\n{read_template(name)}}}" for name in SCRIPTS),
    )


def _plots(run: JudgedRun) -> dict[str, PagePlot]:
    """The plots of all sections by name; none without the library that draws them."""
    if find_spec("matplotlib") is None:
        return {}
    return {
        name: draw_page_plot(name, rung.document)
        for rung in page_rungs(run)
        if rung.document is not None
        for name in PLOTS.get(_plotted(rung), ())
    }


def _version(run: JudgedRun, plots: Mapping[str, PagePlot], created: str) -> str:
    """All that the page says, in the language that is spoken now."""
    rungs = page_rungs(run)
    titles = {rung.anchor: rung.title for rung in rungs}
    faults = page_faults(rungs)
    sections = faults_section(faults, run_code(run)) + "".join(
        rung_section(rung, titles, plots, faults) for rung in rungs
    )
    if not plots and find_spec("matplotlib") is None:
        sections += f'<p class="note">{escape(say("page.no_plots", install=INSTALL_HINT["matplotlib"]))}</p>'
    footer = escape(say("page.made", created=created, version=__version__))
    return (
        f'<div class="version" lang="{spoken()}"><main>{_verdict(run, rungs)}'
        f"{_head(run)}"
        f'<div id="{anchor("rungs")}">{rung_strip(rungs)}</div>{sections}{fix_section(run.folder)}{_sources(rungs)}'
        f"</main><footer>{footer}</footer></div>"
    )


def _words(folder: str) -> dict[str, str]:
    """What scripts say, and the title of the page."""
    title = say("page.title", folder=folder)
    return {"title": title, **{key: say(f"page.{key}", **_left_open(key)) for key in SPOKEN}}


def _left_open(key: str) -> dict[str, str]:
    """Facts that stand for themselves, for a script to fill in."""
    return {fact: f"{{{fact}}}" for fact in FACTS.get(key, ())}


def _verdict(run: JudgedRun, rungs: Sequence[PageRung]) -> str:
    verdict, outcome = run.verdict, run.verdict.outcome.value
    caveats = [say("verdict.caveats", caveats=listed(verdict.caveats, "; "))] if verdict.caveats else []
    lines = [_sides(rungs), *caveats]
    if missing := [rung.title for rung in rungs if rung.result.state == "not run"]:
        lines.append(say("rung.not_run", names=listed(missing)))
    paragraphs = "".join(f"<p>{with_pasted(line)}</p>" for line in (*lines, *_next(run)) if line)
    first = f'<p class="first">{escape(_first(rungs))}</p>' if _first(rungs) else ""
    mark = f'<span class="mark" aria-hidden="true">{OUTCOME_MARKS[outcome]}</span>'
    return (
        f'<div class="verdict {TONES.get(outcome, "plain")}">{mark}'
        f'<div><h1><span class="outcome">{escape(word("outcome", outcome))}</span> '
        f'<span class="what">{escape(verdict.reason)}</span></h1>{first}{paragraphs}</div></div>'
    )


def _head(run: JudgedRun) -> str:
    """What the run rests on, and what is new and mended since the one before."""
    facts = facts_html((say(f"page.{name}"), text) for name, text in head_facts(run).items())
    label = escape(say("page.facts"))
    return f'<section class="rests" aria-label="{label}">{facts}{_since(run)}</section>'


def _since(run: JudgedRun) -> str:
    """The difference to the run before in a line, which unfolds to each item; "" for the first run of a folder."""
    document = in_words(read_difference(run.folder), spoken())
    if document is None:
        return ""
    line, items = escape(since_line(document)), against_blocks(document, show_all=True)[:-1]
    if not items:
        return f'<p class="since">{line}</p>'
    body = "".join(map(block_html, items))
    return f'<details class="since"><summary>{line}</summary><div class="body">{body}</div></details>'


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


# The section of the changes of a port: the places, the patch as text, the layers, and what remained after it.


def fix_section(folder: RunFolder) -> str:
    """Return the section of the last `align fix` of a run folder; "" where there is none, or where it was undone."""
    document = in_words(folder.read("fix"), spoken())
    if document is None or document["state"] == "undone" or not document["faults"]:
        return ""
    shown = [one for one in fix_blocks(document) if one not in patch_blocks(document)]
    patches = "".join(
        f"<h3>{escape(patch_title(one))}</h3><pre>{escape(one['text'])}</pre>" for one in document["patches"]
    )
    body = "".join(map(block_html, shown[:1])) + patches + "".join(map(block_html, shown[1:]))
    title = escape(say("page.fix_applied" if document["state"] == "applied" else "page.fix_planned"))
    head = f'<summary class="head"><h2>{title}</h2></summary>'
    return (
        f'<section id="{anchor("fix")}" class="rung fix"><details open>{head}'
        f'<div class="body">{body}</div></details></section>'
    )


# The strip of rungs, and a section for each: what is at fault first, then pictures, then the tables.
#
# A section whose rung failed stands open; the others are one line until they are opened. A rung without a result is
# that line alone, with what to do where its command could not run.

RUNG_MARKS = {"passed": "✓", "failed": "✗", "could not compare": "!", "blocked": "⊘", "stale": "↻", "not run": "·"}
RUNG_MARKS["foreseen"] = "≈"
# The plots of a rung, by its name or the kind of its result.
PLOTS = {
    "map": ("coverage",),
    "forward": ("error_by_depth", "difference_histogram"),
    "step": ("gradient_norms", "update_sizes"),
    "gradients": ("gradient_norms",),
    "optimizer": ("update_sizes",),
    "curve": ("loss_curves",),
    "data": ("samples",),
    "watch": ("departures_by_step", "departing_figures"),
    "memory": ("memory_by_phase", "memory_by_step"),
    "tokens": ("difference_by_position",),
    "batch": ("layers_by_rank", "steps_by_rank"),
    "advise": ("step_parts",),
}


def rung_strip(rungs: Sequence[PageRung]) -> str:
    """Return the list of all rungs, each with its state and a link to its section."""
    items = "".join(
        f'<li><a href="#{rung.anchor}" class="{_style(rung)}">{_mark(rung)}'
        f'<span class="name">{escape(rung.title)}</span>{_state(rung)}</a></li>'
        for rung in rungs
    )
    return f'<nav aria-label="{escape(say("page.rungs"))}"><ol class="strip">{items}</ol></nav>'


def rung_section(
    rung: PageRung, titles: Mapping[str, str], plots: Mapping[str, PagePlot], faults: Sequence[Fault] = ()
) -> str:
    """Return the section of a rung; `titles` are those of all rungs by anchor, `plots` those of the page by name.

    Of the `faults` of the page it names those that the rung saw.
    """
    reason = f'<span class="reason">{escape(_reason(rung))}</span>'
    head = f"{_mark(rung)}<h2>{escape(rung.title)}</h2>{_state(rung)}{reason}"
    body = _body(rung, titles, plots, faults) if rung.document is not None else _remedy(rung)
    if body:
        is_open = " open" if rung.is_faulty or rung.document is None else ""
        head = f'<details{is_open}><summary class="head">{head}</summary><div class="body">{body}</div></details>'
    else:
        head = f'<div class="head">{head}</div>'
    return f'<section id="{rung.anchor}" class="rung {_style(rung)}">{head}</section>'


def _style(rung: PageRung) -> str:
    return rung.result.state.replace(" ", "-")


def _mark(rung: PageRung) -> str:
    return f'<span class="mark" aria-hidden="true">{RUNG_MARKS.get(rung.result.state, "–")}</span>'


def _state(rung: PageRung) -> str:
    return f'<span class="state">{escape(word("rung_state", rung.result.state))}</span>'


def _reason(rung: PageRung) -> str:
    if rung.result.state == "not run" and not rung.result.reason:
        return say("rung.no_sections")
    return rung_reason(rung.result)


def _body(rung: PageRung, titles: Mapping[str, str], plots: Mapping[str, PagePlot], faults: Sequence[Fault]) -> str:
    document = rung.document or {}
    parts = [fault_links(rung, faults)]
    if rung.told_under:
        title = escape(say("page.told_under", title=titles[rung.told_under]))
        parts.append(f'<p class="line"><a href="#{rung.told_under}">{title}</a></p>')
    elif rung.result.kind == "forward":
        parts.append(_trees(document))
    parts += [plots[name].figure() for name in PLOTS.get(_plotted(rung), ()) if name in plots]
    if not rung.told_under:
        parts.append(_blocks(rung, document, has_cards=bool(parts[0])))
    return "".join([*parts, _commands(rung.result.commands)])


def _remedy(rung: PageRung) -> str:
    """What to do about a command that could not run, and left nothing else to show."""
    lines = tuple(remedy_lines(rung.result))
    return block_html(Lines("", lines)) if lines else ""


def _plotted(rung: PageRung) -> str:
    """What tells the plots of a rung: its name where several read one result, else the kind of that."""
    kind = rung.result.kind
    return rung.result.name if kind == "step" else {"loss": "curve"}.get(kind, kind)


def _blocks(rung: PageRung, document: dict[str, Any], *, has_cards: bool) -> str:
    """What the command prints, without what the cards say and the head of the section."""
    blocks = result_blocks(document, show_all=rung.result.kind in LISTED_WHOLE)
    if has_cards:
        on_cards = _on_cards(rung.result.kind, document, blocks)
        blocks = [_folded(block) for block in blocks if block not in on_cards]
    if "verdict" in document and isinstance(blocks[-1], Lines) and not blocks[-1].title:
        blocks[-1] = Lines("", blocks[-1].lines[1:], "quiet")
    panel, folded = blocks[0], ""
    if has_cards and rung.result.kind == "step" and isinstance(panel, Facts):
        folded, blocks = folded_facts(panel), blocks[1:]
    return folded + "".join(block_html(block, _name(rung, block)) for block in blocks)


def _folded(block: Block) -> Block:
    """Fold the table of all parts at fault away, which the cards show."""
    if isinstance(block, Table) and block.title == say("culprit.table"):
        return replace(block, folded=True)
    return block


def _on_cards(kind: str, document: dict[str, Any], blocks: list[Block]) -> list[Block]:
    """The blocks that say no more than the cards."""
    if kind == "forward":
        return culprit_blocks(document, show_all=True)[:1]
    if kind == "lint" and not any(one["severity"] == "note" for one in document["findings"]):
        return [block for block in blocks if block.title in (say("lint.title"), say("lint.effect_title"))]
    return []


def _name(rung: PageRung, block: Block) -> str:
    is_layers = isinstance(block, Table) and block.title == say("forward.layers")
    return "layers" if is_layers and rung.result.kind == "forward" else ""


def _trees(document: dict[str, Any]) -> str:
    """Both trees as data; the page's script draws what is opened of them."""
    trees = model_trees(document)
    if trees is None:
        return ""
    modes = "".join(
        f'<label><input type="radio" name="{anchor("mode")}" value="{mode}">{escape(say(f"page.{mode}"))}</label>'
        for mode in ("alone", "gathered")
    )
    legend = "".join(
        f'<span class="node g{level} a{level}"><span class="dot"></span>{escape(word("tree_level", str(level)))}</span>'
        for level in (1, 2, 3, 4, 5, 6)
    )
    sides = "".join(
        f'<div class="tree" data-side="{side}" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<p class="label">{escape(word("word", side))}</p><ul></ul></div>'
        for side, label in ((side, say("page.tree_of", side=word("word", side))) for side in trees)
    )
    label = escape(say("page.find"))
    find = f'<input type="search" placeholder="{label}" aria-label="{label}"><span class="count" role="status"></span>'
    return (
        f'<div class="trees needs-script" data-mode="gathered"><h3>{escape(say("page.trees"))}</h3>'
        f'<fieldset class="tools"><legend>{escape(say("page.coloured_by"))}</legend>{modes}{find}</fieldset>'
        f'<p class="label">{escape(say("page.next_red"))}</p>'
        f'<div class="legend">{legend}</div><div class="both">{sides}</div><div class="chosen" role="status"></div>'
        f'<script type="application/json">{embedded(trees)}</script></div>'
    )


def _commands(commands: Sequence[str]) -> str:
    if not commands:
        return ""
    lines = "\n".join(map(escape, commands))
    return f'<details class="fold"><summary>{escape(say("page.commands"))}</summary><pre>{lines}</pre></details>'
