"""What is at fault on the page: one card a fault, with a link to each rung that saw it.

Two rungs saw one fault where they name the same module, and the same cause or the same thing to write. Their cards
become one; a section says in a line which cards are its own. The words are those that the commands print.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.names.user_rules import fold_names
from align.report.blocks import first_names, fold_rows, format_fact, format_facts, layer_name
from align.report.judged_run import rung_title
from align.report.kinds.culprits import culprit_groups
from align.report.kinds.ladder import cause_in_words
from align.report.kinds.steps import culprit_facts
from align.report.page_blocks import facts_html
from align.report.thresholds import CARD_LINES, OPEN_CARDS
from align.runs.baseline import read_difference, read_last_run
from align.runs.rung import CAUSES
from align.words.catalogue import say, spoken, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.report.judged_run import JudgedRun
    from align.runs.rung import Culprit, RungResult


def anchor(name: str) -> str:
    """The id of a part of the page: each language has one of its own."""
    return f"{spoken()}-{name}"


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
    anchors = [anchor(f"rung-{place}-{one.name}") for place, one in enumerate(run.rungs, 1)]
    owners: dict[str, int] = {}
    for place in sorted(range(len(run.rungs)), key=lambda place: run.rungs[place].state != "failed"):
        if run.document(run.rungs[place]) is not None:
            owners.setdefault(run.rungs[place].kind, place)
    placed = []
    for place, (result, place_on_page) in enumerate(zip(run.rungs, anchors, strict=True)):
        owner = owners.get(result.kind, place)
        document = run.document(result)
        told_under = "" if document is None or owner == place else anchors[owner]
        placed.append(PageRung(result, rung_title(result), document, place_on_page, told_under))
    return tuple(placed)


# The faults of a run, each with the rungs that saw it.


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its card, the id of that on the page, and the rungs that saw it, the lowest first."""

    card: FaultCard
    anchor: str
    seen_in: tuple[PageRung, ...]


def page_faults(rungs: Sequence[PageRung]) -> tuple[Fault, ...]:
    """Return the faults that the rungs saw, in the order in which a rung first names them.

    A loss that differs without a fault of its own shows what is wrong in the forward pass of the same steps.
    """
    cards_seen = [(rung, card) for rung in rungs for card in fault_cards(rung)]
    followers = [rung for rung in rungs if rung.result.state == "failed" and not rung.result.culprits]
    faults = []
    for number, group in enumerate(_of_one_fault(cards_seen), 1):
        members = [cards_seen[place] for place in group]
        seen = {rung.anchor for rung, _ in members}
        kinds = {rung.result.kind for rung, card in members if card.is_of_forward}
        seen |= {rung.anchor for rung in followers if rung.result.kind in kinds}
        seen_in = tuple(rung for rung in rungs if rung.anchor in seen)
        faults.append(Fault(_as_one_card(members), anchor(f"fault-{number}"), seen_in))
    return tuple(faults)


def _of_one_fault(cards_seen: Sequence[tuple[PageRung, FaultCard]]) -> list[list[int]]:
    """The places of cards that tell of one fault, together; the groups in the order of their first card.

    A card that knows neither the cause nor what to write tells of what a rung below knows at its place.
    """
    owners: dict[tuple[str, str], int] = {}
    group_of: list[int] = []
    for number, (rung, card) in enumerate(cards_seen):
        marks = [(place, known) for place in card.places for known in (card.cause_id, card.change) if known]
        any_cause = [(place, "") for place in card.places]
        alike = [owners[mark] for mark in marks or any_cause if mark in owners]
        joined = {group_of[one] for one in alike if marks or cards_seen[one][0] is not rung}
        group = min(joined, default=number)
        if len(joined) > 1:
            group_of = [group if one in joined else one for one in group_of]
        group_of.append(group)
        owners |= dict.fromkeys([*marks, *any_cause], number)
    return list(grouped((group, number) for number, group in enumerate(group_of)).values())


def _as_one_card(members: Sequence[tuple[PageRung, FaultCard]]) -> FaultCard:
    """The card of the rung that knows most of a fault, with the places of all, and what it lacks from the others."""
    ordered = sorted(members, key=lambda member: _rank(member[0]))
    first, *others = cards = [card for _, card in ordered]
    places = tuple(dict.fromkeys(place for card in cards for place in card.places))
    if not others or len(places) == len(first.places):
        title, sides = first.title, first.sides
    else:
        title, sides = ", ".join(fold_names(places)), max(cards, key=lambda card: len(card.places)).sides
    filled = {name: _first_known(cards, name) for name in ("cause", "facts", "change", "line", "command")}
    return replace(first, title=title, places=places, sides=sides or _first_known(cards, "sides"), **filled)


def _rank(rung: PageRung) -> int:
    return TELLING.index(rung.result.kind if rung.result.kind in TELLING else "")


def _first_known(cards: Sequence[FaultCard], name: str) -> Any:
    values = [getattr(card, name) for card in cards]
    return next(filter(None, values), values[0])


def faults_section(faults: Sequence[Fault], code: FaultCode) -> str:
    """Return the section of all faults, "" where there is none."""
    if not faults:
        return ""
    cards = [_card(fault, code) for fault in faults]
    shown = "".join(cards[:OPEN_CARDS])
    if rest := "".join(cards[OPEN_CARDS:]):
        title = escape(say("page.more_cards", count=len(faults) - OPEN_CARDS))
        rest = f'<details class="fold"><summary>{title}</summary><div class="cards">{rest}</div></details>'
    title = f"<h2>{escape(say('page.faults', count=len(faults)))}</h2>"
    if len(faults) > 1:
        title += f'<p class="label needs-script">{escape(say("page.next_fault"))}</p>'
    return f'<section id="{anchor("faults")}" class="faults">{title}<div class="cards">{shown}</div>{rest}</section>'


def fault_links(rung: PageRung, faults: Sequence[Fault]) -> str:
    """Return a line for each fault that a rung saw, which leads to its card."""
    seen = [fault for fault in faults if rung in fault.seen_in]
    items = [f'<li><a href="#{fault.anchor}">{escape(_summary(fault.card))}</a></li>' for fault in seen]
    if not items:
        return ""
    shown = f'<ul class="lines">{"".join(items[:OPEN_CARDS])}</ul>'
    if rest := items[OPEN_CARDS:]:
        title = escape(say("page.more_cards", count=len(rest)))
        shown += f'<details class="fold"><summary>{title}</summary><ul class="lines">{"".join(rest)}</ul></details>'
    return f"<h3>{escape(say('page.at_fault'))}</h3>{shown}"


def _summary(card: FaultCard) -> str:
    """A fault in a line: where, and what to write, or else why."""
    return say("page.fault_line", place=card.title, what=card.change or card.cause)


def _card(fault: Fault, code: FaultCode) -> str:
    card = fault.card
    label = f'<span class="label">{escape(say("page.cause"))}</span>'
    cause = f'<p class="cause">{label} {escape(card.cause)}</p>' if card.cause else ""
    sides = "".join(_side(*one) for one in card.sides)
    actions = "".join(
        f"<div><dt>{escape(say(f'page.{key}'))}</dt><dd>{_code(text)}{_copy() if key == 'command' else ''}</dd></div>"
        for key, text in (("change", card.change), ("line", card.line), ("command", card.command))
        if text
    )
    parts = [
        f'<h3 class="path">{escape(card.title)}{code.new_mark(card)}</h3>{cause}{_seen(fault)}',
        f'<div class="sides">{sides}</div>' if sides else "",
        facts_html(card.facts),
        f'<dl class="actions">{actions}</dl>' if actions else "",
        code.html(card),
    ]
    return f'<article class="card" id="{fault.anchor}">{"".join(parts)}</article>'


def _seen(fault: Fault) -> str:
    """The rungs that saw a fault, each with a link to its section."""
    links = ", ".join(f'<a href="#{rung.anchor}">{escape(rung.title)}</a>' for rung in fault.seen_in)
    return f'<p class="seen"><span class="label">{escape(say("page.seen_in"))}</span> {links}</p>'


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


# The code at fault on its card: the patch that `align fix` planned, or else the line with those around it.


@dataclass(frozen=True, slots=True)
class FaultCode:
    """Lines of code by place, each with those around it, and a planned fix, {} where there is none that still holds.

    `new` are the places of faults that the run before did not have.
    """

    sources: Mapping[str, str]
    fix: Mapping[str, Any]
    new: frozenset[str] = frozenset()

    def new_mark(self, card: FaultCard) -> str:
        """A word behind the name of a card whose fault is new since the run before."""
        is_new = not self.new.isdisjoint(card.places)
        return f' <span class="new">{escape(say("page.new"))}</span>' if is_new else ""

    def html(self, card: FaultCard) -> str:
        """The code of a card; "" where the run folder has none of it."""
        planned = [place for place in self.fix.get("places", ()) if _is_meant(place, card)]
        hunks = dict.fromkeys(self._patch(place) for place in planned)  # one may hold several places
        if rows := [row for hunk in hunks for row in hunk]:
            label = f'<p class="label">{escape(say("page.planned"))}</p>'
            return label + _code_html(rows)
        place = next(
            (one for one in sorted(self.sources) if re.search(rf"(?<!\S){re.escape(one)}(?!\d)", card.line)), ""
        )
        if not place:
            return ""
        number = int(place.rpartition(":")[2])
        lines = enumerate(self.sources[place].split("\n"), max(number - 1, 1))
        return _code_html([("at" if row == number else "", str(row), line) for row, line in lines])

    def _patch(self, place: Mapping[str, Any]) -> tuple[CodeRow, ...]:
        """The hunk of a planned place, with a line before and behind what changes."""
        texts = (one["text"] for one in self.fix["patches"] if one["root"] == place["root"])
        rows = next((rows for text in texts if (rows := patch_rows(text, place["file"], place["line"]))), [])
        changed = [number for number, (kind, _, _) in enumerate(rows) if kind]
        return tuple(rows[max(changed[0] - 1, 0) : changed[-1] + 2] if changed else ())


CodeRow = tuple[str, str, str]  # "out", "in", "at" or ""; the number of the line in the old text; the line
HUNK = re.compile(r"@@ -(\d+)")


def run_code(run: JudgedRun) -> FaultCode:
    """The code that a run folder holds of its faults; a plan that is older than the comparison counts no more."""
    record = (read_last_run(run.folder) or {}).get("record") or {}
    fix = run.folder.read("fix") or {}
    compared = run.documents.get("forward", {}).get("created", "")
    holds = fix.get("state") == "planned" and fix["created"] >= compared
    new = [one for one in (read_difference(run.folder) or {"new": []})["new"] if one["kind"] == "finding"]
    places = frozenset(one["text_from"]["facts"]["place"] for one in new)
    return FaultCode(record.get("sources", {}), fix if holds else {}, places)


def patch_rows(text: str, file: str, line: int) -> list[CodeRow]:
    r"""The rows of the hunk of a unified diff that changes this line of a file, by its old number; [] without one.

    >>> patch_rows("--- a/p.py\n+++ b/p.py\n@@ -6 +6 @@\n-a = 1\n+a = 2\n", "p.py", 6)
    [('out', '6', 'a = 1'), ('in', '', 'a = 2')]
    """
    name, number, hunks = "", 0, list[list[CodeRow]]()
    for row in text.splitlines():
        if row.startswith("--- a/"):
            name = row.removeprefix("--- a/").rstrip("\t")
        elif match := HUNK.match(row):
            number = int(match[1])
            hunks += [[]] if name == file else []
        elif name == file and hunks and row[:1] in KINDS:
            hunks[-1].append((KINDS[row[:1]], "" if row[0] == "+" else str(number), row[1:]))
            number += row[0] != "+"
    return next((rows for rows in hunks if ("out", str(line)) in [row[:2] for row in rows]), [])


KINDS = {"-": "out", "+": "in", " ": ""}


def _is_meant(place: Mapping[str, Any], card: FaultCard) -> bool:
    """Tell whether a place of a fix is of a card: one of its layers, with its cause; rules of optimizers say whose."""
    causes = {place_cause.removeprefix("optimizer-") for place_cause in place["cause"].split(CAUSES)}
    return not {*place["layers"]}.isdisjoint(card.places) and card.cause_id.removeprefix("optimizer-") in causes


def _code_html(rows: Sequence[CodeRow]) -> str:
    signs = {"out": "-", "in": "+"}
    shown = "".join(
        f'<span class="row {kind}"><span class="no">{number:>5} {signs.get(kind, " ")}</span> {escape(line)}\n</span>'
        for kind, number, line in rows
    )
    return f'<pre class="code">{shown}</pre>'


# What one rung knows of its faults, a card each: both sides with their settings, the cause, what to write and where.
# Parts of one cause share a card.

SIDES = ("reference", "candidate")
TELLING = ("forward", "step", "lint", "")  # kinds of results, the one whose card knows most of a fault first
VERSUS = " vs "  # format: between the two values of a setting in the facts of a culprit
ALIKE = ("kind", "part", "candidate_class", "reference_class", "cause", "sureness", "change", "step")


@dataclass(frozen=True, slots=True)
class FaultCard:
    """One part at fault, or several of one cause; all in words, "" and () for what is not known.

    `sides` are both names with the settings there, `command` shows the fault alone, or again. `places` and `cause_id`
    are what it is known again by, `is_of_forward` tells whether training steps saw it before any gradient.
    """

    title: str
    cause: str = ""
    sides: tuple[tuple[str, str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    change: str = ""
    line: str = ""
    command: str = ""
    places: tuple[str, ...] = ()
    cause_id: str = ""
    is_of_forward: bool = False


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
        card = FaultCard(names["candidate"], cause, sides, tuple(shown.items()), change, line, command)
        yield replace(card, places=_named(group), cause_id=group[0]["cause"])


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
        below, cause_id = known.get(_place(worst)), worst["cause"]
        if below and below.cause and not worst["cause"]:  # a rung below knows it
            cause, change = say("page.from_below", cause=cause_in_words(below.cause)), below.change
            cause_id = below.cause
        change = change or (below.change if below else "")
        sides, other = _settings_of_step(worst)
        shown[""] = other
        card = FaultCard(title, cause, sides, _said(shown), change, _lines(group), _again(rung))
        places = (*_named(group), *(name for culprit in group for name in culprit["also"]))
        yield replace(card, places=places, cause_id=cause_id, is_of_forward=worst["kind"] == "forward")


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
        card = FaultCard(sides[1][1], cause, sides, (), first["change"], _lines(group), _again(rung))
        yield replace(card, places=_named(group), cause_id=first["rule"])


def _of_ladder(rung: PageRung, _: dict[str, Any]) -> Iterable[FaultCard]:
    """What the ladder itself knows of a fault."""
    culprits = [{key: getattr(culprit, key) for key in culprit.__slots__} for culprit in rung.result.culprits]
    for _folded, group in fold_rows(
        culprits, lambda culprit: (culprit["place"], (culprit["cause"], culprit["change"]))
    ):
        title = ", ".join(fold_names(culprit["place"] for culprit in group))
        first = group[0]
        cause, change, again = cause_in_words(first["cause"]), first["change"], _again(rung)
        card = FaultCard(title, cause, (), (), change, _lines(group), again)
        yield replace(card, places=tuple(culprit["place"] for culprit in group), cause_id=str(first["cause"]))


def _named(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The modules of a group, by their name in the port."""
    return tuple(one["candidate"] or one["reference"] or one["part"] for one in group)


def _lines(group: Iterable[Mapping[str, Any]]) -> str:
    lines = list(dict.fromkeys(one["line"] for one in group if one.get("line")))
    return first_names(lines, CARD_LINES)


def _again(rung: PageRung) -> str:
    """The command that compared this, which shows it again."""
    return rung.result.commands[-1] if rung.result.commands else ""
