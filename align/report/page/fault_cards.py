"""A card for each part at fault: both sides with their settings, the cause, what to write and where, and a command.

The words are those that the commands print; parts of one cause share a card.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike, fold_names
from align.report.kind_parts.forward_culprits import cause_words, culprit_groups
from align.report.kind_parts.ladder_culprits import cause_in_words
from align.report.kinds.step import culprit_facts
from align.report.rendering.format_values import format_fact, format_facts, layer_name
from align.report.thresholds import CARD_LINES
from align.runs.training_steps import CAUSES
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.report.page.page_rungs import PageRung
    from align.runs.rung import Culprit

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
    known = {(one.place, one.line): one for one in rung.result.culprits}
    own = _one_a_place([one for one in document["culprits"] if _place(one) in known], known)
    for group in _alike(own, lambda one: (one["candidate"], (*(one[key] for key in ALIKE), str(one["facts"])))):
        worst = max(group, key=lambda one: float(one["factor"]))
        shown = dict(culprit_facts(worst))
        title = shown.pop(say("step.where"))
        if len(group) > 1:
            title = f"{', '.join(fold_names(one['candidate'] for one in group))} ({worst['candidate_class']})"
        cause, change = shown.pop(say("step.cause"), ""), shown.pop(say("step.change"), "")
        shown.pop(say("step.line"), None)
        below = known.get(_place(worst))
        if below and below.cause and not worst["cause"]:  # a rung below knows it
            cause, change = say("page.from_below", cause=cause_in_words(below.cause)), below.change
        sides, other = _settings_of_step(worst)
        shown[""] = other
        yield FaultCard(title, cause, sides, _said(shown), change, _lines(group), _again(rung))


def _settings_of_step(one: Mapping[str, Any]) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """What differs as both sides have it, with their names, and all else that is known, in words."""
    pairs = {name: str(fact).split(VERSUS) for name, fact in one["facts"].items() if str(fact).count(VERSUS) == 1}
    other = format_facts({name: fact for name, fact in one["facts"].items() if name not in pairs})
    if not pairs:
        return (), other
    texts = [", ".join(f"{name}={values[place]}" for name, values in pairs.items()) for place in range(len(SIDES))]
    return tuple((side, one[side], text) for side, text in zip(SIDES, texts, strict=True)), other


def _said(shown: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in shown.items() if text)


def _one_a_place(culprits: Sequence[dict[str, Any]], known: Mapping[tuple[str, str], Culprit]) -> list[dict[str, Any]]:
    """One culprit for all that the ladder takes for one fault, with what is known of each."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for one in culprits:
        groups.setdefault((*_place(one), one["kind"], one["part"]), []).append(one)
    return [one for group in groups.values() for one in _as_one(group, known[_place(group[0])])]


def _as_one(group: list[dict[str, Any]], below: Culprit) -> list[dict[str, Any]]:
    causes = {cause for one in group for cause in one["cause"].split(CAUSES)}
    if len(group) == 1 or causes != {*below.cause.split(CAUSES)}:
        return group
    worst = max(group, key=lambda one: float(one["factor"]))
    facts = {name: fact for one in group for name, fact in one["facts"].items() if name != "or"}
    sureness = "suspected" if any(one["sureness"] == "suspected" for one in group) else worst["sureness"]
    together = {"cause": below.cause, "change": below.change, "facts": facts, "sureness": sureness}
    return [worst | together | {"parameters": [name for one in group for name in one["parameters"]]}]


def _place(one: Mapping[str, Any]) -> tuple[str, str]:
    return str(one["candidate"] or one["part"]), one["line"]


def _of_lint(rung: PageRung, document: dict[str, Any]) -> Iterable[FaultCard]:
    found = [one for one in document["findings"] if one["severity"] != "note"]
    settings = ("rule", "reference_setting", "candidate_setting", "change")
    for group in _alike(found, lambda one: (one["candidate"], tuple(one[key] for key in settings))):
        first = group[0]
        names = {side: ", ".join(fold_names(one[side] for one in group)) for side in SIDES}
        sides = tuple((side, names[side] or first[f"{side}_class"], str(first[f"{side}_setting"])) for side in SIDES)
        cause = say("lint.effect", rule=first["rule"], effect=first["effect"])
        title = sides[1][1]
        yield FaultCard(title, cause, sides, (), first["change"], _lines(group), _again(rung))


def _of_ladder(rung: PageRung, _: dict[str, Any]) -> Iterable[FaultCard]:
    """What the ladder itself knows of a fault."""
    culprits = [{key: getattr(one, key) for key in one.__slots__} for one in rung.result.culprits]
    for group in _alike(culprits, lambda one: (one["place"], (one["cause"], one["change"]))):
        title = ", ".join(fold_names(one["place"] for one in group))
        first = group[0]
        yield FaultCard(title, cause_words(first["cause"]), (), (), first["change"], _lines(group), _again(rung))


def _alike(culprits: Sequence[Any], named: Callable[[Any], tuple[str, Any]]) -> list[list[Any]]:
    """Put those together that differ in the numbers of their names alone."""
    return [[culprits[place] for place in places] for _, places in fold_alike(map(named, culprits))]


def _lines(group: Iterable[Mapping[str, Any]]) -> str:
    lines = list(dict.fromkeys(one["line"] for one in group if one.get("line")))
    rest = len(lines) - CARD_LINES
    return ", ".join(lines[:CARD_LINES]) + (say("word.and_more", count=rest) if rest > 0 else "")


def _again(rung: PageRung) -> str:
    """The command that compared this, which shows it again."""
    return rung.result.commands[-1] if rung.result.commands else ""
