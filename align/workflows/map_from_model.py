"""What a live model tells of its checkpoint: that the names are its own, and of what class each layer is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.filling import fill_faults
from align.core.mappings import rule_for
from align.steps.infer_children import CUSTOM
from align.steps.infer_layers import AS_IS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    return fill_faults(shapes, {name: tensor.shape for name, tensor in tensors.items()})


def told_by(model: ParameterSet) -> dict[str, list[str]]:
    """Path of each module -> the kinds of layer that it is, by its class; what counts most comes last.

    A class that no rule knows keeps its parameters' names, and is no module with renamed children.
    """
    told: dict[str, list[str]] = {}
    for module in model.modules:
        told.setdefault(module.path, []).extend(_kinds(module))
    for module in model.modules:
        known = rule_for(module.classes)
        names = known[0].families[known[1]].parameters.values() if known else ()
        for inner in {name.rpartition(".")[0] for name in names if "." in name}:
            told.setdefault(f"{module.path}.{inner}".removeprefix("."), []).append(known[0].id if known else AS_IS)
    return told


def _kinds(module: Module) -> list[str]:
    known = rule_for(module.classes)
    if known is None:
        return [CUSTOM, AS_IS]
    return [CUSTOM, known[0].id]
