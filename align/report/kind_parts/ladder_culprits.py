"""A rung of the ladder in words: why it is in its state, what is at fault, and what to do about it.

Culprits of one cause are one, and their places are folded.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from align.names.fold_names import fold_alike
from align.report.kind_parts.forward_culprits import cause_words
from align.report.rendering.blocks import Lines
from align.report.thresholds import CULPRITS_SHOWN
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.runs.ladder_result import RungResult
    from align.runs.rung import Culprit


FAULTY = ("failed", "could not compare")


def culprit_lines(culprits: Sequence[Culprit]) -> list[str]:
    """Return a line for each cause and kind of place."""
    return [one.place + say("ladder_table.culprit", **_facts(one)) for one in folded_culprits(culprits)]


def folded_culprits(culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return one culprit for all of one cause whose places differ in numbers only; its place says how many.

    >>> from align.runs.rung import Culprit
    >>> folded_culprits([Culprit("layer.0.norm", "eps"), Culprit("layer.1.norm", "eps")])[0].place
    'layer.{0…1}.norm (2)'
    """
    groups: dict[Culprit, list[str]] = {}
    for one in culprits:
        groups.setdefault(replace(one, place="", cause=cause_in_words(one.cause)), []).append(one.place)
    return [
        replace(alike, place=f"{place} ({len(members)})" if len(members) > 1 else place)
        for alike, places in groups.items()
        for place, members in fold_alike((place, "") for place in places)
    ]


def rung_reason(rung: RungResult) -> str:
    """Why a rung is in its state, with what to write into the project file to make it available."""
    if rung.state == "not available" and rung.settle:
        lines = [settle_line(line) for line in rung.settle.splitlines()]
        return say("ladder_table.settle", reason=rung.reason, lines=lines)
    return rung.reason


def settle_line(line: str, form: str = "ladder_table.under") -> str:
    """Return a line for the project file with the place where it belongs.

    >>> settle_line('[reference] log = "a.log"')
    'under [reference]: log = "a.log"'
    >>> settle_line('[reference] log = "a.log"', "ladder_table.to_paste")
    'log = "a.log"  # under [reference]'
    """
    table, _, own = line.partition(" ")
    return say(form, table=table, line=own)


def remedy_lines(rung: RungResult) -> list[str]:
    """What to do about a command that could not run, and that command: its hint may name an option to add."""
    if not rung.hint:
        return []
    again = [say("ladder_table.again_alone", command=rung.commands[-1])] if rung.commands else []
    return [say("ladder_table.hint", hint=rung.hint), *again]


def failure_lines(rung: RungResult, folder: str, *, show_all: bool) -> Lines:
    """What a rung found that failed or could not compare, and where all of it stands."""
    title = say("ladder_table.failure", name=rung.name, state=word("rung_state", rung.state), reason=rung.reason)
    lines = culprit_lines(rung.culprits)
    shown = lines if show_all else lines[:CULPRITS_SHOWN]
    more = [say("ladder_table.more", count=len(lines) - len(shown))] if len(shown) < len(lines) else []
    text = next((path for path in rung.evidence if path.endswith(".txt")), "")
    whole = [say("ladder_table.whole", path=shlex.quote(f"{folder}/{text}"))] if text else []
    return Lines(title, (*shown, *more, *remedy_lines(rung), *whole), "bad")


def _facts(culprit: Culprit) -> dict[str, str]:
    return {name: fact for name, fact in asdict(culprit).items() if name != "place"}


def cause_in_words(cause: str) -> str:
    """The words of a cause that is an id; a sentence stays as it is."""
    words = cause_words(cause)
    is_unknown = words == cause.replace(" + ", "; ")
    return "; ".join(word("step_cause", one) for one in cause.split(" + ")) if is_unknown else words
