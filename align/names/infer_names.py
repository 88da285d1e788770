"""Target names out of a checkpoint alone: what the file can decide, and what it leaves open.

The attributes under one prefix (`bn1.weight`, `bn1.running_mean` ...) and their shapes are held against the file forms
of all layer rules. Where every rule that fits gives the same names and shapes, that is the answer; where they differ,
or where none fits what is clearly a layer, it is open until the user says which it is. Nothing is chosen by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import Dropped, Evidence, Fill, NameMap, Pairing
from align.core.transforms import Reshape
from align.names.from_file.choice_faults import choice_faults
from align.names.from_file.infer_children import CUSTOM, RenamedChildren, find_renamed_children, renamed_path
from align.names.from_file.infer_layers import (
    AS_IS,
    AttributeChange,
    AttributeChanges,
    attribute_changes,
    filled_by,
    is_rare,
    read_groups,
    unchanged_attributes,
)
from align.names.from_file.inferred_name_warnings import inferred_name_warnings
from align.rules.directed_rules import TargetFamily, directed_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.name_map import LayerChoice
    from align.core.parameters import Shape
    from align.names.from_file.infer_layers import LayerReading
    from align.rules.layer_rules import LayerRule

LABELS = {
    "nn": ("torch file", "mindspore nn"),
    "mint": ("torch file", "mindspore mint"),
    "torch": ("mindspore file", "torch"),
}


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
    """The map as far as it is decided; `faults` are choices that name no known kind or fit no layer.

    `fills` are parameters that the target's layers have and those of the file never do.
    """

    name_map: NameMap
    open: tuple[OpenLayer, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    fills: tuple[Fill, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What rules of these ids make of a layer; with `lifted`, its parameters go one level up."""

    ids: tuple[str, ...]
    changes: AttributeChanges
    filled: dict[str, int]
    lifted: bool = False

    def is_like(self, other: _Outcome) -> bool:
        """Tell whether names and transforms are the same, and what is dropped, whatever the reason."""
        mine, theirs = ({a: isinstance(c, str) or c for a, c in one.changes.items()} for one in (self, other))
        return (mine, self.filled, self.lifted) == (theirs, other.filled, other.lifted)


def infer_names(
    shapes: Mapping[str, Shape],
    rules: Sequence[LayerRule],
    family: TargetFamily,
    choices: Sequence[LayerChoice] = (),
    told: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Decide the target's name of every tensor of a checkpoint.

    The target's layers are those of `mindspore.nn` or `mint.nn` for a torch file, or torch's for a MindSpore file.
    `shapes` maps the file's names, in its order, to shapes. `told` maps prefixes to the kinds that a model or a family
    says the layer is; they count less than the user's choices, the last most, and need not be of use.
    """
    ways = directed_rules(rules, family, alone=not any("." in name for name in shapes))
    containers = find_renamed_children(shapes, ways, choices, told or {})
    readings = read_groups(shapes, ways, choices, told or {})
    renames = {old: new for container in containers for old, new in container.renames.items()}
    changes: dict[str, tuple[AttributeChange, Evidence, str]] = {}
    filled: dict[str, int] = {}
    open_layers = [_open_container(container) for container in containers if container.choice is None]
    for reading in readings:
        outcomes = _outcomes(reading)
        if len(outcomes) > 1 or (reading.odd and not reading.choice):
            open_layers.append(_open_layer(reading, outcomes))
            continue
        (outcome,) = outcomes
        path = reading.group.path
        evidence: Evidence = "user" if reading.choice in choices else "rule" if reading.rules else "file"
        changes |= {path(name): (change, evidence, ", ".join(outcome.ids)) for name, change in outcome.changes.items()}
        filled |= {path(name): value for name, value in outcome.filled.items()}
        renames |= {reading.group.prefix: ""} if outcome.lifted else {}
    used = {c.choice for c in containers} | {reading.choice for reading in readings}
    return InferredNames(
        _name_map(shapes, changes, family, renames),
        tuple(open_layers),
        tuple(choice_faults(choices, used, readings, rules, ways)),
        tuple(inferred_name_warnings(shapes, readings, ways, family, renames)),
        tuple(_fill(_place(name, renames), value) for name, value in filled.items()),
    )


def _outcomes(reading: LayerReading) -> list[_Outcome]:
    """Different outcomes among the rules, each with the ids that lead to it; that of no rule is to keep the names."""
    group = reading.group
    rules = sorted(reading.rules, key=lambda rule: is_rare(group, rule))
    made = [
        _Outcome((rule.id,), attribute_changes(group, rule), filled_by(group, rule), bool(rule.inner)) for rule in rules
    ]
    if not rules or (reading.odd and not reading.choice):
        made.insert(0, _Outcome((AS_IS,) if reading.odd else (), unchanged_attributes(group), {}))
    outcomes: list[_Outcome] = []
    for outcome in made:
        same = next((place for place, other in enumerate(outcomes) if outcome.is_like(other)), None)
        if same is None:
            outcomes.append(outcome)
        else:
            ids = dict.fromkeys([*outcomes[same].ids, *outcome.ids])
            outcomes[same] = replace(outcomes[same], ids=tuple(ids))
    return outcomes


def _open_layer(reading: LayerReading, outcomes: Iterable[_Outcome]) -> OpenLayer:
    alternatives = []
    for outcome in outcomes:
        names = (_in_words(attribute, change) for attribute, change in outcome.changes.items())
        up = "../" if outcome.lifted else ""
        alternatives.append((", ".join(outcome.ids), tuple(up + name for name in names)))
    return OpenLayer(reading.group.prefix, reading.group.shapes, tuple(alternatives))


def _in_words(attribute: str, change: AttributeChange) -> str:
    if isinstance(change, str):
        return f"{attribute} dropped"
    name, transform = change
    return f"{name} {transform.shape}" if isinstance(transform, Reshape) else name


def _open_container(container: RenamedChildren) -> OpenLayer:
    old, new = tuple(container.children), tuple(container.children.values())
    return OpenLayer(container.prefix, {}, ((", ".join(container.ids), new), (CUSTOM, old)))


def _name_map(
    shapes: Mapping[str, Shape],
    changes: dict[str, tuple[AttributeChange, Evidence, str]],
    family: TargetFamily,
    renames: dict[str, str],
) -> NameMap:
    pairings, dropped = [], []
    for name in shapes:
        if name not in changes:
            continue
        change, evidence, ids = changes[name]
        if isinstance(change, str):
            dropped.append(Dropped(name, "source", change))
        else:
            prefix, dot, _ = name.rpartition(".")
            pairings.append(Pairing(name, _place(f"{prefix}{dot}{change[0]}", renames), evidence, 1.0, change[1], ids))
    return NameMap(*LABELS[family], tuple(pairings), tuple(dropped))


def _place(name: str, renames: dict[str, str]) -> str:
    """The name with every renamed module on its path."""
    prefix, _, attribute = name.rpartition(".")
    return f"{renamed_path(prefix, renames)}.{attribute}".removeprefix(".")


def _fill(name: str, value: int) -> Fill:
    return Fill(name, np.array(value, np.int64), f"a MindSpore file has none; {value} is the default")
