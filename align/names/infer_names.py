"""Target names out of a checkpoint alone: what the file can decide, what it leaves open, and how to settle that.

The attributes under one prefix (`bn1.weight`, `bn1.running_mean` ...) and their shapes are held against the file forms
of all layer rules. Where every rule that fits gives the same names and shapes, that is the answer; where they differ,
or where none fits what is clearly a layer, it is open until the user says which it is. Nothing is chosen by likelihood.
Layers that differ only in their numbers share a line and a choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.names_in_file import targets_without_wrappers
from align.core.name_map import Dropped, Evidence, Fill, LayerChoice, NameMap, Pairing, Unmatched
from align.core.transforms import IDENTITY, Reshape
from align.errors import OpenNamesError, UsageError, as_lines
from align.names.infer_layers import (
    AS_IS,
    CUSTOM,
    AttributeChange,
    RenamedChildren,
    find_renamed_children,
    read_groups,
    read_otherwise,
)
from align.names.thresholds import MOST_NAMES_IN_WARNING
from align.names.user_rules import common_glob, fold_alike
from align.rules.layer_rules import TargetFamily, directed_rules, layer_rules
from align.words.catalogue import few, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.parameters import Parameter, Shape, StoredTensor
    from align.names.infer_layers import LayerReading, OtherReadings
    from align.rules.layer_rules import DirectedRule, LayerRule
    from align.words.catalogue import Note


LABELS = {
    "nn": ("torch file", "mindspore nn"),
    "mint": ("torch file", "mindspore mint"),
    "torch": ("mindspore file", "torch"),
}


def map_from_file(
    tensors: Mapping[str, StoredTensor | Parameter],
    family: TargetFamily = "nn",
    layers: Iterable[str] = (),
    known_kinds: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Return the map to names of `mindspore.nn` or `mint.nn`, or from a MindSpore file's to those of torch.

    What a wrapper such as DistributedDataParallel put into the names is in no target's, and a warning says so.
    `layers` are the user's choices, each "PATTERN=KIND": PATTERN is a glob on the prefix of a layer, KIND the kind or
    id of a layer rule, or "as-is". `known_kinds` maps prefixes to kinds known otherwise. Raises OpenNamesError
    listing all that the file does not decide, and UsageError for choices that cannot be applied.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> from align.checkpoints.open_checkpoint import open_checkpoint
    >>> path = Path(tempfile.mkdtemp(), "torch.npz")
    >>> numpy.savez(path, **{"embed.weight": numpy.ones((5, 2))})
    >>> inferred = map_from_file(open_checkpoint(path).tensors, layers=["embed=embedding"])
    >>> inferred.name_map.pairings[0].target
    'embed.embedding_table'
    """
    inferred = infer_from_file(tensors, family, layers, known_kinds)
    if inferred.open:
        raise open_names_error(inferred.open)
    return inferred


def infer_from_file(
    tensors: Mapping[str, StoredTensor | Parameter],
    family: TargetFamily,
    layers: Iterable[str],
    known_kinds: Mapping[str, Sequence[str]] | None,
) -> InferredNames:
    """Return what `map_from_file` does, with what is open; raises UsageError for choices that cannot be applied."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    inferred = infer_names(shapes, layer_rules(), family, [_choice(text) for text in layers], known_kinds)
    if inferred.faults:
        raise UsageError.of("names_error.choices_idle", faults=as_lines(inferred.faults))
    name_map, fills, words = targets_without_wrappers(inferred.name_map, inferred.fills)
    if not words:
        return inferred
    said = sentence("map_warning.wrapper_taken_off", words=words)
    return replace(inferred, name_map=name_map, fills=fills, warnings=(*inferred.warnings, said))


def _choice(text: str) -> LayerChoice:
    pattern, equals, kind = text.rpartition("=")
    if not equals or not kind:
        raise UsageError.of("names_error.no_choice", choice=text)
    return LayerChoice(pattern, kind)


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


def infer_names(
    shapes: Mapping[str, Shape],
    rules: Sequence[LayerRule],
    family: TargetFamily,
    choices: Sequence[LayerChoice] = (),
    known_kinds: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Decide the target's name of every tensor of a checkpoint.

    The target's layers are those of `mindspore.nn` or `mint.nn` for a torch file, or torch's for a MindSpore file.
    `shapes` maps the file's names, in its order, to shapes. `known_kinds` maps prefixes to the kinds that a
    model or a family says the layer is; they count less than the user's choices, the last most, and need not be of use.
    """
    every, shapes = shapes, {name: shape for name, shape in shapes.items() if not _is_odd(name)}
    ways = directed_rules(rules, family, alone=not any("." in name for name in shapes))
    containers = find_renamed_children(shapes, ways, choices, known_kinds or {})
    readings = read_groups(shapes, ways, choices, known_kinds or {})
    otherwise = read_otherwise(readings, ways, shapes)
    renames = {old: new for container in containers for old, new in container.renames.items()}
    changes: dict[str, tuple[AttributeChange, Evidence, str]] = {}
    filled: dict[str, int] = {}
    open_layers = [_open_container(container) for container in containers if container.choice is None]
    for reading in readings:
        # Torch takes any parameter under any name: where nothing else can be meant, the one that is there stays.
        if len(reading.outcomes) > 1 or (reading.odd and not reading.choice and family != "torch"):
            open_layers.append(_open_layer(reading))
            continue
        (outcome,) = reading.outcomes
        path = reading.group.path
        evidence: Evidence = "user" if reading.choice in choices else "rule" if reading.rules else "file"
        changes |= {path(name): (change, evidence, ", ".join(outcome.ids)) for name, change in outcome.changes.items()}
        filled |= {path(name): value for name, value in outcome.filled.items()}
        renames |= {reading.group.prefix: ""} if outcome.lifted else {}
    used = {c.choice for c in containers} | {reading.choice for reading in readings}
    added = {_place(name, renames): value for name, value in filled.items()}
    paths = {reading.group.prefix: _renamed_path(reading.group.prefix, renames) for reading in readings}
    return InferredNames(
        name_map=_name_map(every, changes, family, renames),
        open=tuple(open_layers),
        faults=tuple(choice_faults(choices, used, readings, rules, ways)),
        fills=tuple(
            Fill(name, np.array(value, np.int64), sentence("fill_reason.default", value=value))
            for name, value in added.items()
        ),
        warnings=(*_kept_names(readings, family), *inferred_name_warnings(readings, otherwise, family, paths)),
    )


def _kept_names(readings: Sequence[LayerReading], family: TargetFamily) -> list[str]:
    """What is said of layers that no rule knows and whose names stay for want of another choice."""
    odd = [one for one in readings if family == "torch" and one.odd and not one.choice and len(one.outcomes) == 1]
    names = [one.group.path(attribute) for one in odd for attribute in one.group.shapes]
    return [sentence("file_warning.kept", count=len(names), names=names)] if names else []


def _open_layer(reading: LayerReading) -> OpenLayer:
    alternatives = []
    for outcome in reading.outcomes:
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
        if _is_odd(name):
            pairings.append(Pairing(name, name, "file", 1.0, IDENTITY, AS_IS))
        if name not in changes or _is_odd(name):
            continue
        change, evidence, ids = changes[name]
        if isinstance(change, str):
            dropped.append(Dropped(name, "source", change))
        else:
            prefix, dot, _ = name.rpartition(".")
            pairings.append(Pairing(name, _place(f"{prefix}{dot}{change[0]}", renames), evidence, 1.0, change[1], ids))
    return NameMap(*LABELS[family], tuple(pairings), tuple(dropped))


def _is_odd(name: str) -> bool:
    """Tell whether a name is an attribute of a module without a name, which no framework has: it stays."""
    return name.rpartition(".")[:2] == ("", ".")


def _place(name: str, renames: dict[str, str]) -> str:
    """The name with every renamed module on its path."""
    prefix, dot, attribute = name.rpartition(".")
    path = _renamed_path(prefix, renames)
    return f"{path}{dot}{attribute}" if path == prefix or path else attribute


def _renamed_path(path: str, renames: dict[str, str]) -> str:
    """The path with every renamed child on it under its new name; one that is renamed to "" is left out."""
    parts = path.split(".")
    new = (renames.get(".".join(parts[: n + 1]), part) for n, part in enumerate(parts))
    return ".".join(part for part in new if part) if renames else path


def choice_faults(
    choices: Iterable[LayerChoice],
    used: Set[LayerChoice | None],
    readings: Sequence[LayerReading],
    rules: Iterable[LayerRule],
    ways: Iterable[DirectedRule],
) -> Iterable[str]:
    """What is wrong with each choice that was not used; `ways` are rules of layers that leave something in a file."""
    known = {kind for rule in rules for kind in (rule.kind, rule.id)} | {AS_IS, CUSTOM}
    choice_ids = sorted({way.id for way in ways} | {AS_IS, CUSTOM})
    for choice in dict.fromkeys(choices):
        if choice.kind not in known:
            meant = choice.kind.lower().replace("_", "-")
            close = [meant] if meant in choice_ids else get_close_matches(meant, choice_ids)
            instead = say("choice_fault.close", names=close) if close else say("choice_fault.known", names=choice_ids)
            yield say("choice_fault.no_rule", choice=choice, kind=choice.kind, instead=instead)
        elif choice not in used:
            yield f"{choice}: {_why_idle(choice, readings)}"


def _why_idle(choice: LayerChoice, readings: Sequence[LayerReading]) -> str:
    reached = [reading for reading in readings if fnmatchcase(reading.group.prefix, choice.pattern)]
    if reached:
        return say("choice_fault.no_such_kind", layers=[_can_be(one) for one in reached])
    names = (reading.group.path(attribute) for reading in readings for attribute in reading.group.shapes)
    if meant := next((name for name in names if fnmatchcase(name, choice.pattern)), ""):
        return say("choice_fault.parameters", name=meant, layer=meant.rpartition(".")[0] or "nothing")
    return say("choice_fault.no_path")


def _can_be(reading: LayerReading) -> str:
    where = reading.group.prefix or say("model_part.top_level")
    ids = " or ".join(dict.fromkeys(rule.id for rule in reading.rules)) or say("choice_fault.no_known_layer")
    if reading.choice:
        return say("choice_fault.is", layer=where, kinds=ids, choice=reading.choice)
    return say("choice_fault.can_be", layer=where, kinds=ids)


def open_names_error(layers: Sequence[OpenLayer]) -> OpenNamesError:
    """The error that lists open layers, and how to settle the first of them."""
    lines = [_line(layer.prefix, layer) for layer in layers]
    folded = []
    globs = []
    for name, places in fold_alike((layer.prefix, _likeness(layer)) for layer in layers):
        globs.append(common_glob([layers[place].prefix for place in places]))
        line = _line(name, layers[places[0]])
        alike = say("map_error.alike", line=line, count=len(places), glob=globs[-1])
        folded.append(alike if len(places) > 1 else line)
    hint = say("names_reason.say_which", choices=_choices(globs[0], layers[0]), top=not layers[0].prefix)
    return OpenNamesError(lines, hint, folded)


def open_names(layers: Sequence[OpenLayer]) -> list[Unmatched]:
    """The names of open layers, with what each may be and the option that says which; a module stands for its own."""
    unmatched = []
    for _, places in fold_alike((layer.prefix, _likeness(layer)) for layer in layers):
        own = [layers[place] for place in places]
        choices = _choices(common_glob([layer.prefix for layer in own]), own[0])
        reason = sentence("open_reason.say_which", ways=_ways(own[0]), choices=choices)
        names = [f"{layer.prefix}.{attribute}".strip(".") for layer in own for attribute in layer.shapes or ("",)]
        unmatched += [Unmatched(name, "source", reason) for name in names]
    return unmatched


def _likeness(layer: OpenLayer) -> tuple[object, ...]:
    return tuple(layer.shapes.items()), layer.alternatives


def _line(name: str, layer: OpenLayer) -> str:
    shapes = ", ".join(f"{attribute} {shape}" for attribute, shape in layer.shapes.items())
    return f"{name or '(top level)'}{f' ({shapes})' if shapes else ''}: {_ways(layer)}"


def _ways(layer: OpenLayer) -> str:
    return "; ".join(f"{ids} -> {', '.join(names)}" for ids, names in layer.alternatives)


def _choices(glob: str, layer: OpenLayer) -> str:
    """All that the layer can be, none before the others: the first is often not the right one."""
    first, *others = [ids.partition(",")[0] for ids, _ in layer.alternatives]
    return " or ".join([f"--layer '{glob}={first}'", *(f"...={other}" for other in others)])


# What a user should know of names that a checkpoint decided, though nothing is open.
#
# MindSpore's layers have parameters that torch's can lack: the file is right and complete, and a strict load still
# misses them. Where only some of the kinds that a layer can be would miss any, the warning says which kinds.

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
        yield "file_warning.lacks", {"count": len(missing), "names": few(missing, MOST_NAMES_IN_WARNING)}


def _refused_perhaps(readings: Iterable[LayerReading]) -> Iterator[Note]:
    """Parameters that the target's layer has only on request, whichever of its kinds the layer is."""
    by_kind: dict[str, list[str]] = {}
    for reading in readings:
        names = reading.group.shapes
        written = dict.fromkeys(
            r for rule in reading.rules for r, name in rule.source.parameters.items() if name in names
        )
        known = [rule.target.may_lack if rule.target else {} for rule in reading.rules]
        for role in written:
            if known and all(role in may_lack for may_lack in known):
                by_kind.setdefault(known[0][role], []).append(reading.group.prefix)
    for reason, prefixes in by_kind.items():
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
    by_kinds: dict[str, list[str]] = {}
    for reading in readings:
        if reading.rules and not any(rule.target for rule in reading.rules):
            by_kinds.setdefault(", ".join(rule.id for rule in reading.rules), []).append(reading.group.prefix)
    for kinds, prefixes in by_kinds.items():
        yield "file_warning.no_layer", {"place": PLACES[family], "kinds": kinds, "layers": _paths(prefixes)}


def _perhaps_deeper(found: Mapping[str, list[str]]) -> Iterator[Note]:
    """Layers whose number of dimensions no convolution in the file tells, and whose names would differ by it."""
    for rule_id, prefixes in found.items():
        facts = {"layers": _paths(prefixes), "kind": rule_id, "first": prefixes[0]}
        yield "file_warning.dimensions", {"count": len(prefixes), **facts}


def _perhaps_flat(by_kinds: Mapping[str, list[str]]) -> Iterator[Note]:
    """Kernels of a single element, taken as 2-D like the others in the file."""
    if by_kinds:
        prefixes = next(iter(by_kinds.values()))
        facts = {"layers": _paths(prefixes), "first": prefixes[0], "kinds": [*by_kinds]}
        yield "file_warning.unit_kernels", {"count": len(prefixes), **facts}


def _absent(reading: LayerReading, rule: DirectedRule) -> list[str]:
    """Parameters that the target's layer always has and the group lacks, by the target's names."""
    if rule.target is None:
        return []
    own = rule.source.parameters
    return [rule.target.parameters[r] for r in rule.target.always if own.get(r) not in reading.group.shapes]


def _paths(prefixes: Sequence[str]) -> list[str]:
    return [prefix or say("model_part.top_level") for prefix in prefixes]
