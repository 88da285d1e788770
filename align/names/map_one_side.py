"""The name map of one side alone: what `mindspore.nn`, `mint.nn` or torch call its parameters.

A live model tells of what class each layer is, and that a checkpoint's names are its own; of a checkpoint some layers
may be any of several, and nothing is written until the user says which they are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import naming_direction
from align.core.name_map import FRAMEWORKS, Dropped
from align.core.parameters import ParameterSet, state_dict_faults, summarize_parameters
from align.core.piece_transforms import join_fault
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import MapError, UsageError
from align.names.family_maps import AUTO, map_from_family, recognise_families
from align.names.from_file.infer_layers import AS_IS, CUSTOM
from align.names.from_file.map_sides import MapSide, open_map_side, require_parameters
from align.names.infer_names import infer_from_file, open_names
from align.names.layers.read_layers import USUAL_ROLES
from align.names.map_export import write_map_file
from align.names.map_result import MapResult
from align.names.read_map_rules import MapRules, read_map_rules
from align.names.user_rules import NameRules, apply_rules
from align.rules.layer_rules import rule_for
from align.rules.model_families import read_family
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from align.checkpoints.names_in_file import NamingDirection
    from align.core.checkpoints import StoredTensor
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Module, Parameter
    from align.core.protocols import Model
    from align.models.open_side import Side
    from align.names.infer_names import InferredNames
    from align.rules.directed_rules import TargetFamily

LABELS = {"nn": "mindspore.nn", "mint": "mindspore.mint.nn", "torch": "torch"}


def map_one_side(
    reference: str | Path | Model | Side,
    target: TargetFamily,
    *,
    family: str | None = None,
    layers: Iterable[str] = (),
    rules: NameRules | Path | str | None = None,
    out: Path | str | None = None,
) -> MapResult:
    """Map the parameters of a model or checkpoint to the names that the `target`'s layers give them.

    `layers` settle what a checkpoint leaves open, each "PATTERN=KIND"; `family` is a ready map instead. `rules` and
    `out` are as in `map_parameters`, but `out` is only written if nothing is open. Raises UsageError if the names are
    the target's already, MapError for names that the family lacks or rules that contradict the rest.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> weights = {"weight": np.ones(3), "bias": np.zeros(3)}
    >>> norm = ArrayModel((ArrayLayer("norm", "torch.nn.LayerNorm", lambda x, **_: x, weights),))
    >>> [(pair.source, pair.target) for pair in map_one_side(norm, "nn").name_map.pairings]
    [('norm.weight', 'norm.gamma'), ('norm.bias', 'norm.beta')]
    """
    own_rules = rules if isinstance(rules, NameRules) else None
    given_rules = MapRules(own_rules) if own_rules is not None else read_map_rules(_path(rules), _path(out))
    side = open_map_side(reference)
    require_parameters([side])
    way = _direction(side, target)
    inferred = _inferred(side, target, family, layers)
    name_map = replace(
        _ruled(side, inferred, given_rules.rules),
        source=side.parameters.label,
        target=LABELS[target],
        frameworks=(way.source, way.framework),
    )
    made = _made(side, name_map)
    counts = summarize_parameters(side.parameters), summarize_parameters(made)
    parameters = side.parameters.parameters, made.parameters
    result = MapResult(name_map, *counts, _verdict(name_map), *parameters, inferred.warnings)
    if out is not None and name_map.complete:
        write_map_file(Path(out), result, given_rules.kept)
    return result


def _path(path: object) -> Path | None:
    return Path(path) if isinstance(path, (str, Path)) else None


def _direction(side: MapSide, target: TargetFamily) -> NamingDirection:
    label, source = side.parameters.label, FRAMEWORKS.get(side.parameters.framework or "", "torch")
    way = naming_direction(source, target, None)
    if way.family is None:
        other = "torch" if source == "mindspore" else "nn or mint"
        raise UsageError.of("names_error.names_already", side=label, framework=source, other=other)
    return way


def _inferred(side: MapSide, target: TargetFamily, family: str | None, layers: Iterable[str]) -> InferredNames:
    tensors = side.tensors or side.parameters.by_name
    if family is not None:
        if listed := list(layers):
            raise UsageError.of("names_error.layer_with_family", layer=listed[0])
        if family == AUTO:
            known = [one.name for one in recognise_families(tensors, side.parameters.framework or "torch")]
            raise UsageError.of("names_error.family_of_one_side", known=known, none=not known)
        return map_from_family(read_family(family), tensors, target)
    inferred = infer_from_file(tensors, target, layers, layer_kinds(side.parameters) if side.live else None)
    warnings = model_warnings(side.parameters, side.parameters.by_name) if side.live else _families(side, inferred)
    return replace(inferred, warnings=(*inferred.warnings, *warnings))


def _families(side: MapSide, inferred: InferredNames) -> Iterator[str]:
    """Say which families know all names of a file that leaves some open: the user knows whether the port is one."""
    for known in recognise_families(side.tensors, side.parameters.framework or "torch") if inferred.open else ():
        yield sentence("map_warning.family", about=known.family.about, name=known.name)


def _ruled(side: MapSide, inferred: InferredNames, rules: NameRules) -> NameMap:
    """The map with what is open and left out, and with what the user says in place of what was found."""
    ruled = apply_rules(rules, side.parameters.names, None)
    named = {pairing.source for pairing in ruled.pairings} | {drop.name for drop in ruled.dropped}
    place = {name: number for number, name in enumerate(side.parameters.names)}
    found = [*ruled.pairings, *(pairing for pairing in inferred.name_map.pairings if pairing.source not in named)]
    _require_apart(found, rules)
    return replace(
        inferred.name_map,
        pairings=tuple(sorted(found, key=lambda pairing: place[pairing.source])),
        dropped=(
            *ruled.dropped,
            *(drop for drop in inferred.name_map.dropped if drop.name not in named),
            *(Dropped(name, "source", reason) for name, reason in side.left_out.items()),
            *(Dropped(fill.name, "target", fill.reason) for fill in inferred.fills),
        ),
        unmatched=tuple(one for one in open_names(inferred.open) if one.name not in named),
        unused_rules=ruled.unused_rules,
    )


def _require_apart(pairings: Iterable[Pairing], rules: NameRules) -> None:
    takers: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        takers.setdefault(pairing.target, []).append(pairing)
    shared = {to: own for to, own in takers.items() if len(own) > 1 and join_fault([one.transform for one in own])}
    if shared:
        makers = {to: [rules.named(one.source) for one in own] for to, own in shared.items()}
        faults = [say("rule_fault.all_lead", names=names, target=to) for to, names in makers.items()]
        raise MapError(rules.label, faults)


def _made(side: MapSide, name_map: NameMap) -> ParameterSet:
    """What the pairs make: the target's parameters, each once."""
    made: dict[str, Parameter] = {}
    for pairing in name_map.pairings:
        source, (module, _, attribute) = side.parameters.by_name[pairing.source], pairing.target.rpartition(".")
        tied = name_map.by_source.get(source.tied_to or "")
        made[pairing.target] = replace(
            source,
            name=pairing.target,
            shape=pairing.transform.output_shape(source.shape),
            module=module,
            attribute=attribute,
            tied_to=tied.target if tied else None,
        )
    return ParameterSet(name_map.target, name_map.frameworks[1], tuple(made.values()))


def _verdict(name_map: NameMap) -> Verdict:
    left = len(name_map.unmatched)
    coverage = Coverage("parameters", len(name_map.pairings), len(name_map.dropped), left)
    if name_map.complete:
        return Verdict(Outcome.ALIGNED, sentence("map_verdict.named", dropped=len(name_map.dropped)), coverage)
    return Verdict(Outcome.NOT_ALIGNED, sentence("map_verdict.names_open", count=left), coverage)


def model_faults(parameters: Sequence[Parameter], tensors: Mapping[str, StoredTensor]) -> list[str]:
    """Every name and shape in which the file and the model differ; of tied parameters one name is enough."""
    groups: dict[str, set[str]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.tied_to or parameter.name, set()).add(parameter.name)
    shapes = {
        parameter.name: parameter.shape
        for parameter in parameters
        if parameter.name in tensors or groups[parameter.tied_to or parameter.name].isdisjoint(tensors)
    }
    return state_dict_faults(shapes, {name: tensor.shape for name, tensor in tensors.items()})


def layer_kinds(model: ParameterSet) -> dict[str, list[str]]:
    """Path of each layer -> the kinds that it is, by its class; what counts most comes last.

    A class that no rule knows keeps its parameters' names, and is no module with renamed children.
    """
    kinds_by_path: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for module in model.modules:
        known = rule_for(module.classes)
        for path in dict.fromkeys((module.path, *_prefixes(module))):
            kinds_by_path.setdefault(path, []).extend([CUSTOM, known[0].id if known else AS_IS])
        attributes = known[0].families[known[1]].parameters.values() if known else ()
        for attribute in attributes:
            if known and "." in attribute:
                child = f"{module.path}.{attribute.rpartition('.')[0]}".removeprefix(".")
                inner[child] = [known[0].id]
    return {path: [*kinds, *inner.get(path, ())] for path, kinds in kinds_by_path.items()}


def model_warnings(model: ParameterSet, tensors: Container[str]) -> Iterable[str]:
    """Say which layers are of classes that no rule knows, and which tied names the file lacks.

    A module that holds a token or another parameter of its own beside its children is no layer.
    """
    unknown: dict[str, list[str]] = {}
    for module in model.modules:
        if rule_for(module.classes) is None and any(p.rpartition(".")[2] in USUAL_ROLES for p in module.parameters):
            unknown.setdefault(module.class_name, []).append(module.path or say("model_part.top_level"))
    for name, paths in unknown.items():
        yield sentence("map_warning.no_rule", name=name, count=len(paths), paths=paths)
    if absent := [p.name for p in model.parameters if p.name not in tensors]:
        yield sentence("map_warning.tied", names=absent)


def _prefixes(module: Module) -> list[str]:
    """Where the file has the module's parameters: in MindSpore their names need not follow its path."""
    return [name.rpartition(".")[0] for name in module.parameters]
