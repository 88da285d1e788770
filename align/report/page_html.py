"""The page of a run folder as one file: the verdict, the strip of rungs, a section a rung, the sources.

It stands there in every language, and shows that of its reader first. What has no words stands there once: the marks of
plots, the data behind tables and trees.
"""

from __future__ import annotations

import datetime as dt
import shlex
import string
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.align_sequences import grouped
from align.core.documents import in_words
from align.core.load_code import INSTALL_HINT
from align.core.verdicts import Outcome
from align.names.user_rules import fold_names
from align.report.blocks import (
    TONES,
    Block,
    Lines,
    Table,
    first_names,
    fold_rows,
    format_fact,
    format_facts,
    layer_name,
)
from align.report.judged_run import judged_run, rung_title
from align.report.kinds.culprits import culprit_blocks, culprit_groups, fix_blocks, patch_blocks, patch_title
from align.report.kinds.ladder import (
    cause_in_words,
    culprit_lines,
    next_steps,
    remedy_lines,
    rung_reason,
    source_blocks,
)
from align.report.kinds.steps import culprit_facts
from align.report.open_run import LISTED_WHOLE, read_template
from align.report.page_blocks import (
    block_html,
    draw_page_plot,
    embedded,
    facts_html,
    model_trees,
    share_data,
    shared_marks,
)
from align.report.show_result import result_blocks, with_pasted
from align.report.thresholds import CARD_LINES, OPEN_CARDS
from align.runs.rung import CAUSES
from align.words.catalogue import LANGUAGES, listed, reader_language, say, speaking, spoken, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.report.judged_run import JudgedRun
    from align.report.page_blocks import PagePlot
    from align.runs.run_folder import RunFolder
    from align.runs.rung import Culprit, RungResult


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
    "dark",
    "light",
    "copied",
)
FACTS = {"rows": ("count",), "rows_of": ("shown", "count"), "show_open": ("count",), "hide_open": ("count",)}
FACTS |= {"more_nodes": ("count",), "open_node": ("name",), "close_node": ("name",)}


def page_html(folder: RunFolder) -> str:
    """Return the page of a run folder, which loads nothing from anywhere.

    Pages of two readers differ in `lang` and title alone. Raises RunFolderError for results that are damaged, KeyError
    and the like for one that lacks a field.
    """
    created = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    plots: dict[str, PagePlot] = {}
    versions, skips, words = {}, "", {}
    for language in LANGUAGES:
        with speaking(language):
            run = judged_run(folder.path)
            plots = plots or _plots(run)
            versions[language] = _version(run, plots, created)
            skips += (
                f'<a class="version skip" lang="{language}" href="#{_anchor("rungs")}">{escape(say("page.skip"))}</a>'
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
    sections = "".join(rung_section(rung, titles, plots) for rung in rungs)
    if not plots and find_spec("matplotlib") is None:
        sections += f'<p class="note">{escape(say("page.no_plots", install=INSTALL_HINT["matplotlib"]))}</p>'
    footer = escape(say("page.made", created=created, version=__version__))
    return (
        f'<div class="version" lang="{spoken()}"><main>{_verdict(run, rungs)}'
        f'<div id="{_anchor("rungs")}">{rung_strip(rungs)}</div>{sections}{fix_section(run.folder)}{_sources(rungs)}'
        f"</main><footer>{footer}</footer></div>"
    )


def _words(folder: str) -> dict[str, str]:
    """What scripts say, and the title of the page."""
    title = say("page.title", folder=folder)
    return {"title": title, **{key: say(f"page.{key}", **_left_open(key)) for key in SPOKEN}}


def _anchor(name: str) -> str:
    """The id of a part of the page: each language has one of its own."""
    return f"{spoken()}-{name}"


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


# The rungs of a run folder with their places on the page.


@dataclass(frozen=True, slots=True)
class PageRung:
    """One rung with its place on the page: `title` is its name in words, `document` its result, None if it has none.

    `told_under` is the anchor of another rung that shows the same result, "" where this one does.
    """

    result: RungResult
    title: str
    document: dict[str, Any] | None
    anchor: str
    told_under: str = ""

    @property
    def is_faulty(self) -> bool:
        """Tell whether a reader should look at it at once."""
        return self.result.state in ("failed", "could not compare")


def page_rungs(run: JudgedRun) -> tuple[PageRung, ...]:
    """Give each rung an anchor; of several that read one result the first that failed shows it, or else the first."""
    anchors = [_anchor(f"rung-{place}-{one.name}") for place, one in enumerate(run.rungs, 1)]
    owners: dict[str, int] = {}
    for place in sorted(range(len(run.rungs)), key=lambda place: run.rungs[place].state != "failed"):
        if run.document(run.rungs[place]) is not None:
            owners.setdefault(run.rungs[place].kind, place)
    placed = []
    for place, (result, anchor) in enumerate(zip(run.rungs, anchors, strict=True)):
        owner = owners.get(result.kind, place)
        document = run.document(result)
        told_under = "" if document is None or owner == place else anchors[owner]
        placed.append(PageRung(result, rung_title(result), document, anchor, told_under))
    return tuple(placed)


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
        f'<section id="{_anchor("fix")}" class="rung fix"><details open>{head}'
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


def rung_section(rung: PageRung, titles: Mapping[str, str], plots: Mapping[str, PagePlot]) -> str:
    """Return the section of a rung; `titles` are those of all rungs by anchor, `plots` those of the page by name."""
    reason = f'<span class="reason">{escape(_reason(rung))}</span>'
    head = f"{_mark(rung)}<h2>{escape(rung.title)}</h2>{_state(rung)}{reason}"
    body = _body(rung, titles, plots) if rung.document is not None else _remedy(rung)
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


def _body(rung: PageRung, titles: Mapping[str, str], plots: Mapping[str, PagePlot]) -> str:
    document, cards = rung.document or {}, fault_cards(rung)
    parts = [_cards(cards)]
    if rung.told_under:
        title = escape(say("page.told_under", title=titles[rung.told_under]))
        parts.append(f'<p class="line"><a href="#{rung.told_under}">{title}</a></p>')
    elif rung.result.kind == "forward":
        parts.append(_trees(document))
    parts += [plots[name].figure() for name in PLOTS.get(_plotted(rung), ()) if name in plots]
    if not rung.told_under:
        parts.append(_blocks(rung, document, has_cards=bool(cards)))
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
    return "".join(block_html(block, _name(rung, block)) for block in blocks)


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
    return blocks[:1] if kind == "step" else []


def _name(rung: PageRung, block: Block) -> str:
    is_layers = isinstance(block, Table) and block.title == say("forward.layers")
    return "layers" if is_layers and rung.result.kind == "forward" else ""


def _cards(cards: Sequence[FaultCard]) -> str:
    shown = "".join(map(_card, cards[:OPEN_CARDS]))
    if rest := "".join(map(_card, cards[OPEN_CARDS:])):
        title = escape(say("page.more_cards", count=len(cards) - OPEN_CARDS))
        rest = f'<details class="fold"><summary>{title}</summary><div class="cards">{rest}</div></details>'
    return f'<div class="cards">{shown}</div>{rest}' if shown else ""


def _card(card: FaultCard) -> str:
    label = f'<span class="label">{escape(say("page.cause"))}</span>'
    cause = f'<p class="cause">{label} {escape(card.cause)}</p>' if card.cause else ""
    sides = "".join(_side(*one) for one in card.sides)
    actions = "".join(
        f"<div><dt>{escape(say(f'page.{key}'))}</dt><dd>{_code(text)}{_copy() if key == 'command' else ''}</dd></div>"
        for key, text in (("change", card.change), ("line", card.line), ("command", card.command))
        if text
    )
    parts = [
        f'<h3 class="path">{escape(card.title)}</h3>{cause}',
        f'<div class="sides">{sides}</div>' if sides else "",
        facts_html(card.facts),
        f'<dl class="actions">{actions}</dl>' if actions else "",
    ]
    return f'<article class="card">{"".join(parts)}</article>'


def _side(side: str, name: str, setting: str) -> str:
    label = f'<span class="label">{escape(word("word", side))}</span><span class="path">{escape(name)}</span>'
    return f'<div class="side {side}">{label}{_code(setting) if setting else ""}</div>'


def _code(text: str) -> str:
    """A name, or a command whose options are not broken at their dashes."""
    words = (
        f'<span class="option">{escape(one)}</span>' if one.startswith("--") else escape(one) for one in text.split(" ")
    )
    return f"<code>{' '.join(words)}</code>"


def _copy() -> str:
    return f'<button type="button" class="copy needs-script">{escape(say("page.copy"))}</button>'


def _trees(document: dict[str, Any]) -> str:
    """Both trees as data; the page's script draws what is opened of them."""
    trees = model_trees(document)
    if trees is None:
        return ""
    modes = "".join(
        f'<label><input type="radio" name="{_anchor("mode")}" value="{mode}">{escape(say(f"page.{mode}"))}</label>'
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
    return (
        f'<div class="trees needs-script" data-mode="gathered"><h3>{escape(say("page.trees"))}</h3>'
        f'<fieldset class="tools"><legend>{escape(say("page.coloured_by"))}</legend>{modes}</fieldset>'
        f'<div class="legend">{legend}</div><div class="both">{sides}</div><div class="chosen" role="status"></div>'
        f'<script type="application/json">{embedded(trees)}</script></div>'
    )


def _commands(commands: Sequence[str]) -> str:
    if not commands:
        return ""
    lines = "\n".join(map(escape, commands))
    return f'<details class="fold"><summary>{escape(say("page.commands"))}</summary><pre>{lines}</pre></details>'


# A card for each part at fault: both sides with their settings, the cause, what to write and where, and a command.
#
# The words are those that the commands print; parts of one cause share a card.

SIDES = ("reference", "candidate")
VERSUS = " vs "  # format: between the two values of a setting in the facts of a culprit
ALIKE = ("kind", "part", "candidate_class", "reference_class", "cause", "sureness", "change", "step")


@dataclass(frozen=True, slots=True)
class FaultCard:
    """One part at fault, or several of one cause; all in words, "" and () for what is not known.

    `sides` are both names with the settings there, `command` shows the fault alone, or again.
    """

    title: str
    cause: str = ""
    sides: tuple[tuple[str, str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    change: str = ""
    line: str = ""
    command: str = ""


def fault_cards(rung: PageRung) -> tuple[FaultCard, ...]:
    """Return the cards of a rung that failed, the gravest first as its result has them."""
    if rung.document is None or rung.result.state != "failed":
        return ()
    makers: dict[str, Callable[[PageRung, dict[str, Any]], Iterable[FaultCard]]] = {
        "forward": _of_forward,
        "step": _of_step,
        "lint": _of_lint,
    }
    return tuple(makers.get(rung.result.kind, _of_ladder)(rung, rung.document))


def _of_forward(_: PageRung, document: dict[str, Any]) -> Iterable[FaultCard]:
    for place, (group, facts) in enumerate(culprit_groups(document)):
        shown = dict(facts)
        change, line = shown.pop(say("culprit.change"), ""), shown.pop(say("culprit.line"), "")
        cause = shown.pop(say("culprit.cause"), "")
        shown.pop(say("culprit.settings"), None)
        names = {side: shown.pop(word("word", side)) for side in SIDES}
        settings = group[0]["facts"] if set(SIDES) <= set(group[0]["facts"]) else {}
        sides = tuple((side, names[side], format_fact(settings[side]) if settings else "") for side in SIDES)
        command = _reproducer(document, group[0], is_first=place == 0)
        yield FaultCard(names["candidate"], cause, sides, tuple(shown.items()), change, line, command)


def _reproducer(document: dict[str, Any], culprit: dict[str, Any], *, is_first: bool) -> str:
    """`align repro` of the layer; of the module around it where the code in front of it is at fault.

    "" where the models or the inputs have no name, or where that module has none.
    """
    sources = {role: one.get("text") or one.get("path", "") for role, one in document["made_from"].items()}
    if not all(sources.get(role) for role in (*SIDES, "inputs")):
        return ""
    path = layer_name(culprit["reference"], culprit["call"]) if culprit["reference"] else ""
    layer = path if culprit["part"] == "layer" else culprit["reference"].rpartition(".")[0]
    if not layer and not is_first:
        return ""
    options = {"--layer": layer, "--map": sources.get("map", ""), "--inputs": sources["inputs"]}
    options |= {f"--{side}-checkpoint": sources.get(f"{side} checkpoint", "") for side in SIDES}
    words = [sources["reference"], sources["candidate"]]
    words += [part for option, value in options.items() if value for part in (option, value)]
    return shlex.join(["align", "repro", *words, "--out", "repro"])


def _of_step(rung: PageRung, document: dict[str, Any]) -> Iterable[FaultCard]:
    known = {(culprit.place, culprit.line): culprit for culprit in rung.result.culprits}
    own = _one_a_place([culprit for culprit in document["culprits"] if _place(culprit) in known], known)
    for _, group in fold_rows(
        own, lambda culprit: (culprit["candidate"], (*(culprit[key] for key in ALIKE), str(culprit["facts"])))
    ):
        worst = max(group, key=lambda culprit: float(culprit["factor"]))
        shown = dict(culprit_facts(worst))
        title = shown.pop(say("step.where"))
        if len(group) > 1:
            title = f"{', '.join(fold_names(culprit['candidate'] for culprit in group))} ({worst['candidate_class']})"
        cause, change = shown.pop(say("step.cause"), ""), shown.pop(say("step.change"), "")
        shown.pop(say("step.line"), None)
        below = known.get(_place(worst))
        if below and below.cause and not worst["cause"]:  # a rung below knows it
            cause, change = say("page.from_below", cause=cause_in_words(below.cause)), below.change
        sides, other = _settings_of_step(worst)
        shown[""] = other
        yield FaultCard(title, cause, sides, _said(shown), change, _lines(group), _again(rung))


def _settings_of_step(culprit: Mapping[str, Any]) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """What differs as both sides have it, with their names, and all else that is known, in words."""
    pairs = {name: str(fact).split(VERSUS) for name, fact in culprit["facts"].items() if str(fact).count(VERSUS) == 1}
    other = format_facts({name: fact for name, fact in culprit["facts"].items() if name not in pairs})
    if not pairs:
        return (), other
    texts = [", ".join(f"{name}={values[place]}" for name, values in pairs.items()) for place in range(len(SIDES))]
    return tuple((side, culprit[side], text) for side, text in zip(SIDES, texts, strict=True)), other


def _said(shown: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in shown.items() if text)


def _one_a_place(culprits: Sequence[dict[str, Any]], known: Mapping[tuple[str, str], Culprit]) -> list[dict[str, Any]]:
    """One culprit for all that the ladder takes for one fault, with what is known of each."""
    groups = grouped(((*_place(one), one["kind"], one["part"]), one) for one in culprits)
    return [one for group in groups.values() for one in _as_one(group, known[_place(group[0])])]


def _as_one(group: list[dict[str, Any]], below: Culprit) -> list[dict[str, Any]]:
    causes = {cause for culprit in group for cause in culprit["cause"].split(CAUSES)}
    if len(group) == 1 or causes != {*below.cause.split(CAUSES)}:
        return group
    worst = max(group, key=lambda culprit: float(culprit["factor"]))
    facts = {name: fact for culprit in group for name, fact in culprit["facts"].items() if name != "or"}
    sureness = "suspected" if any(culprit["sureness"] == "suspected" for culprit in group) else worst["sureness"]
    together = {"cause": below.cause, "change": below.change, "facts": facts, "sureness": sureness}
    return [worst | together | {"parameters": [name for culprit in group for name in culprit["parameters"]]}]


def _place(one: Mapping[str, Any]) -> tuple[str, str]:
    return str(one["candidate"] or one["part"]), one["line"]


def _of_lint(rung: PageRung, document: dict[str, Any]) -> Iterable[FaultCard]:
    found = [finding for finding in document["findings"] if finding["severity"] != "note"]
    settings = ("rule", "reference_setting", "candidate_setting", "change")
    for _, group in fold_rows(found, lambda finding: (finding["candidate"], tuple(finding[key] for key in settings))):
        first = group[0]
        names = {side: ", ".join(fold_names(finding[side] for finding in group)) for side in SIDES}
        sides = tuple((side, names[side] or first[f"{side}_class"], str(first[f"{side}_setting"])) for side in SIDES)
        cause = say("lint.effect", rule=first["rule"], effect=first["effect"])
        title = sides[1][1]
        yield FaultCard(title, cause, sides, (), first["change"], _lines(group), _again(rung))


def _of_ladder(rung: PageRung, _: dict[str, Any]) -> Iterable[FaultCard]:
    """What the ladder itself knows of a fault."""
    culprits = [{key: getattr(one, key) for key in one.__slots__} for one in rung.result.culprits]
    for _folded, group in fold_rows(culprits, lambda one: (one["place"], (one["cause"], one["change"]))):
        title = ", ".join(fold_names(one["place"] for one in group))
        first = group[0]
        yield FaultCard(title, cause_in_words(first["cause"]), (), (), first["change"], _lines(group), _again(rung))


def _lines(group: Iterable[Mapping[str, Any]]) -> str:
    lines = list(dict.fromkeys(one["line"] for one in group if one.get("line")))
    return first_names(lines, CARD_LINES)


def _again(rung: PageRung) -> str:
    """The command that compared this, which shows it again."""
    return rung.result.commands[-1] if rung.result.commands else ""
