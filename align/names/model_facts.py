"""What a live model tells of its checkpoint: that the names are its own, and of what class each layer is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.parameters import state_dict_faults
from align.names.from_file.infer_layers import AS_IS, CUSTOM
from align.names.layers.read_layers import USUAL_ROLES
from align.rules.layer_rules import rule_for
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Module, Parameter, ParameterSet


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
            unknown.setdefault(module.class_name, []).append(module.path or "the top level")
    for name, paths in unknown.items():
        yield sentence("map_warning.no_rule", name=name, count=len(paths), paths=paths)
    if absent := [p.name for p in model.parameters if p.name not in tensors]:
        yield sentence("map_warning.tied", names=absent)


def _prefixes(module: Module) -> list[str]:
    """Where the file has the module's parameters: in MindSpore their names need not follow its path."""
    return [name.rpartition(".")[0] for name in module.parameters]
