"""What a user should know of names that a checkpoint decided, though nothing is open.

MindSpore's layers have parameters that torch's can lack: the file is right and complete, and a strict load still misses
them. Where only some of the kinds that a layer can be would miss any, the warning says which kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.names.thresholds import MOST_NAMES_IN_WARNING
from align.words.catalogue import say, sentence
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.names.from_file.infer_layers import LayerReading, OtherReadings
    from align.rules.directed_rules import DirectedRule
    from align.words.catalogue import Note

PLACES = {"nn": "mindspore.nn", "mint": "mindspore.mint.nn", "torch": "torch.nn"}


def inferred_name_warnings(
    readings: Sequence[LayerReading], otherwise: OtherReadings, family: str, paths: Mapping[str, str]
) -> tuple[str, ...]:
    """Say, a line each, what a strict load will miss, what the family lacks, and what the names look like.

    `paths` are those of the target by the prefixes of the file.
    """
    notes = [
        *_missing(readings, paths),
        *_missing_perhaps(readings, family),
        *_refused_perhaps(readings),
        *_without_a_layer(readings, family),
        *_perhaps_deeper(otherwise.deeper),
        *_perhaps_flat(otherwise.flat),
    ]
    return tuple(sentence(key, **facts) for key, facts in notes)


def _missing(readings: Iterable[LayerReading], paths: Mapping[str, str]) -> Iterator[Note]:
    """Parameters that the target has whichever of its kinds the layer is."""
    missing = []
    for reading in readings:
        path = paths[reading.group.prefix]
        absent = [_absent(reading, rule) for rule in reading.rules if rule.target]
        if absent:
            common = [name for name in absent[0] if all(name in other for other in absent)]
            missing += [f"{path}.{name}" if path else name for name in common]
    if missing:
        yield "file_warning.lacks", {"count": len(missing), "names": first_few(missing, MOST_NAMES_IN_WARNING)}


def _refused_perhaps(readings: Iterable[LayerReading]) -> Iterator[Note]:
    """Parameters that the target's layer has only on request, whichever of its kinds the layer is."""
    found: dict[str, list[str]] = {}
    for reading in readings:
        names = reading.group.shapes
        written = dict.fromkeys(
            r for rule in reading.rules for r, name in rule.source.parameters.items() if name in names
        )
        known = [rule.target.may_lack if rule.target else {} for rule in reading.rules]
        for role in written:
            if known and all(role in may_lack for may_lack in known):
                found.setdefault(known[0][role], []).append(reading.group.prefix)
    for reason, prefixes in found.items():
        layers = list(dict.fromkeys(prefixes))
        yield "file_warning.refused", {"count": len(layers), "layers": _paths(layers), "reason": reason}


def _missing_perhaps(readings: Sequence[LayerReading], family: str) -> Iterator[Note]:
    """Parameters that the target has if the layer is one of some kinds; layers of one such doubt share a line.

    Layers with statistics stand behind a convolution: a LayerNorm of a net of other layers is not doubted.
    """
    doubts: dict[tuple[str, ...], list[str]] = {}
    for reading in _behind_convolutions(readings):
        absent = {rule.id: _absent(reading, rule) for rule in reading.rules if rule.target}
        fewest = min(absent.values(), key=len, default=[])
        without = [rule_id for rule_id, names in absent.items() if len(names) == len(fewest)]
        more = [rule_id for rule_id, names in absent.items() if len(names) > len(fewest)]
        if more:
            extra = [name for name in absent[more[0]] if name not in fewest]
            key = " or ".join(without), " or ".join(more), ", ".join(extra)
            doubts.setdefault(key, []).append(reading.group.prefix)
    for (kinds, others, names), prefixes in doubts.items():
        facts = {"kinds": kinds, "others": others, "place": PLACES[family], "names": names}
        yield "file_warning.taken_as", dict(count=len(prefixes), layers=_paths(prefixes), **facts)


def _behind_convolutions(readings: Iterable[LayerReading]) -> Iterator[LayerReading]:
    """Layers behind a convolution of as many channels, and those with no weights before them."""
    channels: set[int] | None = None
    for reading in readings:
        shapes = reading.group.shapes.values()
        if reading.rules and any(len(shape) > 1 for shape in shapes):
            channels = {number for shape in shapes if len(shape) > 2 for number in shape[:2]}
        elif channels is None or any(shape[0] in channels for shape in shapes if shape):
            yield reading


def _without_a_layer(readings: Iterable[LayerReading], family: str) -> Iterator[Note]:
    """Layers for which the family has nothing: their names stay, and the port brings a class of its own."""
    found: dict[str, list[str]] = {}
    for reading in readings:
        if reading.rules and not any(rule.target for rule in reading.rules):
            found.setdefault(", ".join(rule.id for rule in reading.rules), []).append(reading.group.prefix)
    for kinds, prefixes in found.items():
        yield "file_warning.no_layer", {"place": PLACES[family], "kinds": kinds, "layers": _paths(prefixes)}


def _perhaps_deeper(found: Mapping[str, list[str]]) -> Iterator[Note]:
    """Layers whose number of dimensions no convolution in the file tells, and whose names would differ by it."""
    for rule_id, prefixes in found.items():
        facts = {"layers": _paths(prefixes), "kind": rule_id, "first": prefixes[0]}
        yield "file_warning.dimensions", {"count": len(prefixes), **facts}


def _perhaps_flat(found: Mapping[str, list[str]]) -> Iterator[Note]:
    """Kernels of a single element, taken as 2-D like the others in the file."""
    if found:
        prefixes = next(iter(found.values()))
        facts = {"layers": _paths(prefixes), "first": prefixes[0], "kinds": [*found]}
        yield "file_warning.unit_kernels", {"count": len(prefixes), **facts}


def _absent(reading: LayerReading, rule: DirectedRule) -> list[str]:
    """Parameters that the target's layer always has and the group lacks, by the target's names."""
    if rule.target is None:
        return []
    own = rule.source.parameters
    return [rule.target.parameters[r] for r in rule.target.always if own.get(r) not in reading.group.shapes]


def _paths(prefixes: Sequence[str]) -> list[str]:
    return [prefix or say("model_part.top_level") for prefix in prefixes]
