"""Choices of the user that settle nothing: a kind that no rule has, or a pattern that reaches no such layer."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.names.from_file.infer_children import CUSTOM
from align.names.from_file.infer_layers import AS_IS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from align.core.name_map import LayerChoice
    from align.names.from_file.infer_layers import LayerReading
    from align.rules.directed_rules import DirectedRule
    from align.rules.layer_rules import LayerRule


def choice_faults(
    choices: Iterable[LayerChoice],
    used: Set[LayerChoice | None],
    readings: Sequence[LayerReading],
    rules: Iterable[LayerRule],
    ways: Iterable[DirectedRule],
) -> Iterable[str]:
    """What is wrong with each choice that was not used; `ways` are rules of layers that leave something in a file."""
    known = {kind for rule in rules for kind in (rule.kind, rule.id)} | {AS_IS, CUSTOM}
    held = sorted({way.id for way in ways} | {AS_IS, CUSTOM})
    for choice in dict.fromkeys(choices):
        if choice.kind not in known:
            yield f"{choice}: no layer rule is called {choice.kind!r}; {_instead(choice.kind, held)}"
        elif choice not in used:
            yield f"{choice}: {_why_idle(choice, readings)}"


def _instead(kind: str, held: Sequence[str]) -> str:
    meant = kind.lower().replace("_", "-")
    close = [meant] if meant in held else get_close_matches(meant, held)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(held)}"


def _why_idle(choice: LayerChoice, readings: Sequence[LayerReading]) -> str:
    reached = [reading for reading in readings if fnmatchcase(reading.group.prefix, choice.pattern)]
    if reached:
        return f"no layer that the pattern reaches looks like that kind: {first_few([_can_be(one) for one in reached])}"
    names = (reading.group.path(attribute) for reading in readings for attribute in reading.group.shapes)
    if meant := next((name for name in names if fnmatchcase(name, choice.pattern)), ""):
        layer = meant.rpartition(".")[0]
        return (
            f"the pattern reaches parameters, such as {meant}, and is for the path of the layer, {layer or 'nothing'!r}"
        )
    return "no layer of the file has such a path"


def _can_be(reading: LayerReading) -> str:
    where = reading.group.prefix or "the top level"
    ids = " or ".join(dict.fromkeys(rule.id for rule in reading.rules)) or "no layer that a rule knows"
    return f"{where} is {ids} by {reading.choice}" if reading.choice else f"{where} can be {ids}"
