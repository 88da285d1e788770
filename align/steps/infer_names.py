"""Target names out of a torch checkpoint alone: what the file can decide, and what it leaves open.

The attributes under one prefix (`bn1.weight`, `bn1.running_mean` ...) and their shapes are held against the file forms
of all layer rules. Where every rule that fits gives the same names and shapes, that is the answer; where they differ,
or where none fits what is clearly a layer, it is open until the user says which it is. Nothing is chosen by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.names import Dropped, Evidence, NameMap, Pairing
from align.core.transforms import Reshape
from align.steps.infer_children import CUSTOM, Container, find_containers, renamed
from align.steps.infer_layers import AS_IS, Fate, Fates, fates_of, is_rare, kept, read_groups
from align.steps.infer_warnings import warnings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.mappings import LayerRule
    from align.core.names import LayerChoice
    from align.core.parameters import Shape
    from align.steps.infer_layers import Reading

TargetFamily = Literal["nn", "mint"]


@dataclass(frozen=True, slots=True)
class OpenLayer:
    """A layer that the file does not decide: each alternative's rule ids and the names that it would give.

    The likeliest alternative comes first.
    """

    prefix: str
    shapes: dict[str, Shape]
    alternatives: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class InferredNames:
    """The map as far as it is decided; `faults` are choices that name no known kind or fit no layer."""

    name_map: NameMap
    open: tuple[OpenLayer, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]


def infer_names(
    shapes: Mapping[str, Shape],
    rules: Sequence[LayerRule],
    family: TargetFamily,
    choices: Sequence[LayerChoice] = (),
) -> InferredNames:
    """Decide the target's name of every tensor of a torch checkpoint for layers of `mindspore.nn` or `mint.nn`.

    `shapes` maps the file's names, in its order, to shapes.
    """
    containers = find_containers(shapes, rules, family, choices)
    readings = read_groups(shapes, rules, choices)
    alone = [reading.group.prefix for reading in readings] == [""]  # one layer that is no part of a net
    renames = {old: new for container in containers for old, new in container.renames.items()}
    fates: dict[str, tuple[Fate, Evidence, str]] = {}
    open_layers = [_open_container(container) for container in containers if container.choice is None]
    for reading in readings:
        outcomes = _outcomes(reading, family, alone=alone)
        if len(outcomes) > 1 or (reading.odd and not reading.choice):
            open_layers.append(_open_layer(reading, outcomes))
            continue
        ids, decided = outcomes[0]
        evidence: Evidence = "user" if reading.choice else "rule" if reading.rules else "file"
        fates |= {reading.group.path(attribute): (fate, evidence, ids) for attribute, fate in decided.items()}
    used = {c.choice for c in containers} | {reading.choice for reading in readings}
    return InferredNames(
        _name_map(shapes, fates, family, renames),
        tuple(open_layers),
        tuple(_faults(choices, rules, used)),
        tuple(warnings_of(shapes, readings, rules, family, renames, alone=alone)),
    )


def _outcomes(reading: Reading, family: TargetFamily, *, alone: bool) -> list[tuple[str, Fates]]:
    """Different outcomes among the rules, each with the ids that lead to it; that of no rule is to keep the names."""
    group = reading.group
    rules = sorted(reading.rules, key=lambda rule: is_rare(group, rule))
    made = [(rule.id, fates_of(group, rule, family, alone=alone)) for rule in rules]
    if not rules or (reading.odd and not reading.choice):
        made.insert(0, (AS_IS if reading.odd else "", kept(group)))
    outcomes: list[tuple[list[str], Fates]] = []
    for rule_id, fates in made:
        same = next((ids for ids, other in outcomes if _told(other) == _told(fates)), None)
        if same is None:
            outcomes.append(([rule_id], fates))
        else:
            same.append(rule_id)
    return [(", ".join(ids), fates) for ids, fates in outcomes]


def _told(fates: Fates) -> dict[str, object]:
    """What tells outcomes apart: names and transforms, and that something is dropped, not why."""
    return {attribute: isinstance(fate, str) or fate for attribute, fate in fates.items()}


def _open_layer(reading: Reading, outcomes: Iterable[tuple[str, Fates]]) -> OpenLayer:
    alternatives = []
    for ids, fates in outcomes:
        names = tuple(_in_words(attribute, fate) for attribute, fate in fates.items())
        alternatives.append((ids, names))
    return OpenLayer(reading.group.prefix, reading.group.shapes, tuple(alternatives))


def _in_words(attribute: str, fate: Fate) -> str:
    if isinstance(fate, str):
        return f"{attribute} dropped"
    name, transform = fate
    return f"{name} {transform.shape}" if isinstance(transform, Reshape) else name


def _open_container(container: Container) -> OpenLayer:
    old, new = tuple(container.children), tuple(container.children.values())
    return OpenLayer(container.prefix, {}, ((", ".join(container.ids), new), (CUSTOM, old)))


def _name_map(
    shapes: Mapping[str, Shape], fates: dict[str, tuple[Fate, Evidence, str]], family: str, renames: dict[str, str]
) -> NameMap:
    pairings, dropped = [], []
    for name in shapes:
        if name not in fates:
            continue
        fate, evidence, ids = fates[name]
        if isinstance(fate, str):
            dropped.append(Dropped(name, "source", fate))
        else:
            prefix, dot, _ = name.rpartition(".")
            pairings.append(Pairing(name, f"{renamed(prefix, renames)}{dot}{fate[0]}", evidence, 1.0, fate[1], ids))
    return NameMap("torch file", f"mindspore {family}", tuple(pairings), tuple(dropped))


def _faults(choices: Iterable[LayerChoice], rules: Sequence[LayerRule], used: set[LayerChoice | None]) -> Iterable[str]:
    known = {kind for rule in rules for kind in (rule.kind, rule.id)} | {AS_IS, CUSTOM}
    for choice in dict.fromkeys(choices):
        if choice.kind not in known:
            yield f"{choice}: no layer rule is called {choice.kind!r}; known: {', '.join(sorted(known))}"
        elif choice not in used:
            yield f"{choice}: no layer of the file matches the pattern and looks like that kind"
