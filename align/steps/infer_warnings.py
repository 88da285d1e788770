"""What a user should know of names that a checkpoint decided, though nothing is open.

MindSpore's layers have parameters that torch's can lack: the file is right and complete, and a strict load still misses
them. Where only some of the kinds that a layer can be would miss any, the warning says which kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.words import counted, some
from align.steps.infer_children import renamed
from align.steps.infer_layers import axes_of, could_be_deeper, fates_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.mappings import LayerFamily, LayerRule
    from align.core.parameters import Shape
    from align.steps.infer_layers import Reading

MOST_NAMED = 12
PLACES = {"nn": "mindspore.nn", "mint": "mindspore.mint.nn"}


def warnings_of(
    shapes: Mapping[str, Shape],
    readings: Sequence[Reading],
    rules: Sequence[LayerRule],
    family: str,
    renames: dict[str, str],
    *,
    alone: bool,
) -> Iterable[str]:
    """Say, a line each, what a strict load will miss, what the family lacks, and what the names look like."""
    yield from _missing(readings, family, renames, alone=alone)
    yield from _missing_perhaps(readings, family)
    yield from _without_a_layer(readings, family)
    yield from _perhaps_deeper(shapes, readings, rules, family)
    if shapes and all(name.startswith("module.") for name in shapes):
        yield "every name starts with 'module.' (saved from DataParallel), and so will every target's name"


def _missing(readings: Iterable[Reading], family: str, renames: dict[str, str], *, alone: bool) -> Iterable[str]:
    """Parameters that the target has whichever of its kinds the layer is."""
    missing = []
    for reading in readings:
        path = renamed(reading.group.prefix, renames)
        absent = [_absent(reading, rule, family, alone=alone) for rule in _with_layer(reading, family)]
        if absent:
            common = [name for name in absent[0] if all(name in other for other in absent)]
            missing += [f"{path}.{name}" if path else name for name in common]
    if missing:
        have = counted(len(missing), "parameter")
        yield f"the target also has {have} that the file lacks; a strict load will miss: {some(missing, MOST_NAMED)}"


def _missing_perhaps(readings: Iterable[Reading], family: str) -> Iterable[str]:
    """Parameters that the target has if the layer is one of some kinds; layers of one such doubt share a line."""
    doubts: dict[tuple[str, ...], list[str]] = {}
    for reading in readings:
        absent = {rule.id: _absent(reading, rule, family, alone=False) for rule in _with_layer(reading, family)}
        fewest = min(absent.values(), key=len, default=[])
        without = [rule_id for rule_id, names in absent.items() if len(names) == len(fewest)]
        more = [rule_id for rule_id, names in absent.items() if len(names) > len(fewest)]
        if more:
            extra = [name for name in absent[more[0]] if name not in fewest]
            key = " or ".join(without), " or ".join(more), ", ".join(extra)
            doubts.setdefault(key, []).append(reading.group.prefix)
    for (kinds, others, names), prefixes in doubts.items():
        yield (
            f"{counted(len(prefixes), 'layer')} taken as {kinds} ({_listed(prefixes)}): as {others}, {PLACES[family]} "
            f"would also have {names}, which the file lacks and a strict load would miss; --layer says what it is"
        )


def _without_a_layer(readings: Iterable[Reading], family: str) -> Iterable[str]:
    """Layers for which the family has nothing: their names stay, and the port brings a class of its own."""
    found: dict[str, list[str]] = {}
    for reading in readings:
        if reading.rules and not _with_layer(reading, family):
            found.setdefault(", ".join(rule.id for rule in reading.rules), []).append(reading.group.prefix)
    for kinds, prefixes in found.items():
        yield f"{PLACES[family]} has no layer for {kinds}; the names stay as they are: {_listed(prefixes)}"


def _perhaps_deeper(
    shapes: Mapping[str, Shape], readings: Iterable[Reading], rules: Sequence[LayerRule], family: str
) -> Iterable[str]:
    """Layers whose number of dimensions no convolution in the file tells, and whose names would differ by it."""
    axes = axes_of(shapes)
    if axes & {3, 4}:
        return
    found: dict[str, list[str]] = {}
    for reading in readings:
        if reading.rules and not reading.choice and not reading.odd:
            names = fates_of(reading.group, reading.rules[0], family, alone=False)
            for rule in could_be_deeper(reading.group, rules, axes):
                if fates_of(reading.group, rule, family, alone=False) != names:
                    found.setdefault(rule.id, []).append(reading.group.prefix)
    for rule_id, prefixes in found.items():
        yield (
            f"no convolution in the file tells of how many dimensions {counted(len(prefixes), 'layer')} is: "
            f"{_listed(prefixes)}; if {rule_id}, the names are others: --layer '{prefixes[0]}={rule_id}'"
        )


def _with_layer(reading: Reading, family: str) -> list[LayerRule]:
    """The rules that can be meant and for which the family has a layer."""
    return [rule for rule in reading.rules if family in rule.families]


def _absent(reading: Reading, rule: LayerRule, family: str, *, alone: bool) -> list[str]:
    """Parameters that the family's layer always has and the group lacks, by the family's names."""
    layers: dict[str, LayerFamily] = {str(name): one for name, one in rule.families.items()}
    target, torch = layers[family], layers["torch"]
    names = target.parameters | target.alone if alone else target.parameters
    return [names[role] for role in target.always if torch.parameters.get(role) not in reading.group.shapes]


def _listed(prefixes: Sequence[str]) -> str:
    return some([prefix or "the top level" for prefix in prefixes])
