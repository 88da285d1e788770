"""The strip of rungs, and a section for each: what is at fault first, then pictures, then the tables.

A section whose rung failed stands open; the others are one line until they are opened. A rung without a result is that
line alone, with what to do where its command could not run.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from align.report.kind_parts.forward_culprits import culprit_blocks
from align.report.kind_parts.ladder_culprits import remedy_lines, rung_reason
from align.report.open_run import LISTED_WHOLE
from align.report.page.fault_cards import FaultCard, fault_cards
from align.report.page.model_trees import model_trees
from align.report.page.page_blocks import block_html, embedded, facts_html
from align.report.page.plot_svg import plot_svg
from align.report.rendering.blocks import Block, Lines, Table
from align.report.show_result import result_blocks
from align.report.thresholds import OPEN_CARDS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.report.page.page_rungs import PageRung

MARKS = {"passed": "✓", "failed": "✗", "could not compare": "!", "blocked": "⊘", "stale": "↻", "not run": "·"}
MARKS["foreseen"] = "≈"
# The plots of a rung, by its name or the kind of its result.
PLOTS = {
    "map": ("coverage",),
    "forward": ("error_by_depth", "difference_histogram"),
    "step": ("gradient_norms", "update_sizes"),
    "gradients": ("gradient_norms",),
    "optimizer": ("update_sizes",),
    "curve": ("loss_curves",),
    "batch": ("layers_by_rank", "steps_by_rank"),
}


def rung_strip(rungs: Sequence[PageRung]) -> str:
    """Return the list of all rungs, each with its state and a link to its section."""
    items = "".join(
        f'<li><a href="#{rung.anchor}" class="{_style(rung)}">{_mark(rung)}'
        f'<span class="name">{escape(rung.title)}</span>{_state(rung)}</a></li>'
        for rung in rungs
    )
    return f'<nav aria-label="{escape(say("page.rungs"))}"><ol class="strip">{items}</ol></nav>'


def rung_section(rung: PageRung, titles: dict[str, str]) -> str:
    """Return the section of a rung; `titles` are those of all rungs by anchor."""
    reason = f'<span class="reason">{escape(_reason(rung))}</span>'
    head = f"{_mark(rung)}<h2>{escape(rung.title)}</h2>{_state(rung)}{reason}"
    body = _body(rung, titles) if rung.document is not None else _remedy(rung)
    if body:
        is_open = " open" if rung.is_faulty or rung.document is None else ""
        head = f'<details{is_open}><summary class="head">{head}</summary><div class="body">{body}</div></details>'
    else:
        head = f'<div class="head">{head}</div>'
    return f'<section id="{rung.anchor}" class="rung {_style(rung)}">{head}</section>'


def _style(rung: PageRung) -> str:
    return rung.result.state.replace(" ", "-")


def _mark(rung: PageRung) -> str:
    return f'<span class="mark" aria-hidden="true">{MARKS.get(rung.result.state, "–")}</span>'


def _state(rung: PageRung) -> str:
    return f'<span class="state">{escape(word("rung_state", rung.result.state))}</span>'


def _reason(rung: PageRung) -> str:
    if rung.result.state == "not run" and not rung.result.reason:
        return say("rung.no_sections")
    return rung_reason(rung.result)


def _body(rung: PageRung, titles: dict[str, str]) -> str:
    document, cards = rung.document or {}, fault_cards(rung)
    parts = [_cards(cards)]
    if rung.told_under:
        title = escape(say("page.told_under", title=titles[rung.told_under]))
        parts.append(f'<p class="line"><a href="#{rung.told_under}">{title}</a></p>')
    elif rung.result.kind == "forward":
        parts.append(_trees(document))
    parts += [plot_svg(name, document) for name in PLOTS.get(_plotted(rung), ())]
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
        f'<label><input type="radio" name="mode" value="{mode}">{escape(say(f"page.{mode}"))}</label>'
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
