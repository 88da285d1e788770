"""The parameters of a checkpoint: its modules are the prefixes of its names, their classes what a layer rule tells.

A group of attributes that the rules of one kind alone explain has that rule's class; what the file leaves open has
none, and may then be any layer with the same roles and shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.checkpoints.tied_tensors import tied_names
from align.core.parameters import Module, Parameter, ParameterSet
from align.names.from_file.infer_layers import read_groups
from align.rules.directed_rules import directed_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.name_map import FrameworkName
    from align.names.from_file.infer_layers import LayerReading
    from align.rules.directed_rules import DirectedRule, TargetFamily
    from align.rules.layer_rules import LayerRule


def parameters_of_file(
    label: str, framework: FrameworkName, tensors: Mapping[str, StoredTensor], rules: Sequence[LayerRule]
) -> ParameterSet:
    """Return what a file tells of its parameters, in its order; `framework` is whose names it has."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    family: TargetFamily = "nn" if framework == "torch" else "torch"
    known = directed_rules(rules, family, alone=not any("." in name for name in shapes))
    readings = read_groups(shapes, known, (), {})
    ties = {name: names[0] for names in tied_names(tensors.values()) for name in names[1:]}
    return ParameterSet(
        label,
        framework,
        tuple(_parameter(tensor, ties.get(name)) for name, tensor in tensors.items()),
        tuple(_module(reading) for reading in readings),
        order="file",
    )


def _parameter(tensor: StoredTensor, tied_to: str | None) -> Parameter:
    module, _, attribute = tensor.name.rpartition(".")
    return Parameter(tensor.name, tensor.shape, tensor.dtype, module, attribute, tied_to=tied_to)


def _module(reading: LayerReading) -> Module:
    group = reading.group
    return Module(group.prefix, _classes(reading), tuple(group.path(attribute) for attribute in group.shapes))


def _classes(reading: LayerReading) -> tuple[str, ...]:
    """A class that all rules stand for that can be meant; none where they are of two kinds, or name things unlike."""
    rules = [rule for rule in reading.rules if not _is_asked_for(reading, rule)] or reading.rules
    alike = {(rule.kind, *sorted(rule.source.parameters.items()), *rule.source.insert_axis.items()) for rule in rules}
    if reading.odd or len(alike) != 1 or rules[0].inner:
        return ()
    return rules[0].source.classes[:1]


def _is_asked_for(reading: LayerReading, rule: DirectedRule) -> bool:
    """Whether torch's layer has one of these parameters on request only, as an InstanceNorm its statistics."""
    families = [family for family in (rule.source, rule.target) if family is not None]
    roles = {role for role, attribute in rule.source.parameters.items() if attribute in reading.group.shapes}
    return any(roles & family.may_lack.keys() for family in families)
