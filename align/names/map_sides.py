"""A side of a name map: a live model, or a checkpoint, of which only the headers are read until values are needed.

The modules of a checkpoint are the prefixes of its names, their classes what a layer rule tells. A group of attributes
that the rules of one kind alone explain has that rule's class; what the file leaves open has none, and may then be any
layer with the same roles and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.extents import require_unchanged, tied_names
from align.checkpoints.inspect_checkpoint import refuse_placeholders
from align.checkpoints.names_in_file import declared_framework, source_framework, state_beside_weights
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.checkpoints import StoredTensor
from align.core.dtypes import dtype_name
from align.core.parameters import Module, Origin, OriginNorm, Parameter, ParameterSet
from align.core.progress import collector_paused
from align.core.protocols import OriginFollower, SettingsReader
from align.core.registry import file_models
from align.errors import CannotRunError, SideError
from align.models.open_side import Side, SideRequest, open_side, open_sides
from align.names.infer_layers import read_groups
from align.names.thresholds import USUAL_NORM_EPSILON
from align.names.user_rules import NameRules
from align.rules.layer_rules import directed_rules, layer_rules, role_of, rule_for
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from align.core.checkpoints import Checkpoint
    from align.core.name_map import FrameworkName
    from align.core.protocols import Model
    from align.names.infer_layers import LayerReading
    from align.rules.layer_rules import DirectedRule, LayerRule, TargetFamily


@dataclass(frozen=True, slots=True)
class MapSide:
    """The parameters of one side; `live` is its model if it is one, `tensors` are those of its checkpoint.

    `left_out` are tensors of a checkpoint that are no parameters (the state of an optimizer), with the reason; `file`
    is the checkpoint.
    """

    parameters: ParameterSet
    live: Side | None = None
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    file: Checkpoint | None = None

    @property
    def values(self) -> Mapping[str, StoredTensor]:
        """The values by name, none of a model that was filled from no checkpoint: fresh ones tell nothing."""
        if self.live is None or not self.live.filled:
            return self.tensors
        arrays = self.live.reader.read_values(self.live.model)
        return {
            name: StoredTensor(name, array.shape, dtype_name(array.dtype), lambda array=array: array)  # type: ignore[misc]
            for name, array in arrays.items()
        }


def open_map_side(side: str | Path | Model | Side | SideRequest) -> MapSide:
    """Read a checkpoint's headers, or build (or take) a model.

    A text that names a file or folder which is there, and is no Python file, is a checkpoint. Raises what opening
    either raises.
    """
    if _is_file(side):
        return _of_file(side)
    return _live_side(open_side(side))


def open_map_sides(
    reference: str | Path | Model | Side | SideRequest,
    candidate: str | Path | Model | Side | SideRequest,
    *,
    trial: bool = False,
) -> tuple[MapSide, MapSide]:
    """Open both sides of a map; two models are separated as `open_sides` does, for a trial if there will be one."""
    if _is_file(reference) or _is_file(candidate):
        for side in (reference, candidate):
            if not _is_file(side):
                (side if isinstance(side, SideRequest) else SideRequest(side)).check()
        live = [open_map_side(side) for side in (reference, candidate) if not _is_file(side)]
        wanted = live[0].parameters.names if live else ()
        sides = [_of_file(side, wanted) if _is_file(side) else live[0] for side in (reference, candidate)]
        return sides[0], sides[1]
    first, second = open_sides(reference, candidate, "trial" if trial else "names")
    first, second = follow_origins(first, second)
    return _live_side(first), _live_side(second)


def _is_file(side: str | Path | Model | Side | SideRequest) -> bool:
    if file_models(side) is not None:
        return False
    return isinstance(side, Path) or (isinstance(side, str) and is_checkpoint(side))


def _live_side(side: Side) -> MapSide:
    return MapSide(side.reader.read_parameters(side.model, side.label), side)


def require_unchanged_files(sides: Iterable[MapSide]) -> None:
    """Raise NotACheckpointError for a checkpoint that was written to, replaced or removed since it was opened."""
    for side in sides:
        if side.file is not None:
            require_unchanged(side.file)


def require_parameters(sides: Iterable[MapSide]) -> None:
    """Raise CannotRunError naming the sides that have no parameters."""
    if empty := [side.parameters.label for side in sides if not side.parameters.parameters]:
        raise CannotRunError.of("names_error.no_parameters", sides=empty)


def is_checkpoint(side: str) -> bool:
    """Tell whether a side is a path to a checkpoint; raises SideError for what can be neither that nor a model."""
    if Path(side).exists() and Path(side).suffix != ".py":
        return True
    if ":" not in side:
        raise SideError(side, say("names_reason.no_side"))
    return False


def _of_file(side: object, wanted: Container[str] = ()) -> MapSide:
    checkpoint = open_checkpoint(Path(str(side)))
    refuse_placeholders(checkpoint)
    return checkpoint_side(checkpoint, wanted)


@collector_paused()
def checkpoint_side(checkpoint: Checkpoint, wanted: Container[str] = ()) -> MapSide:
    """Read as torch's names where neither file nor names tell; the map then does not say whose they are.

    What is no weight by itself is one where it is `wanted`, as a parameter of the model on the other side.
    """
    framework, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    named = declared_framework(checkpoint.metadata) or (framework if framework == "mindspore" else None)
    beside = state_beside_weights(checkpoint)
    state = {name: reason for name, reason in beside.items() if name not in wanted}
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in state}
    parameters = parameters_of_file(str(checkpoint.path), framework, tensors, layer_rules())
    return MapSide(replace(parameters, framework=named), None, tensors, state, checkpoint)


def parameters_of_file(
    label: str, framework: FrameworkName, tensors: Mapping[str, StoredTensor], rules: Sequence[LayerRule]
) -> ParameterSet:
    """Return what a file tells of its parameters, in its order; `framework` is whose names it has."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    family: TargetFamily = "nn" if framework == "torch" else "torch"
    known = directed_rules(rules, family, alone=not any("." in name for name in shapes))
    readings = read_groups(shapes, known, (), {})
    classes = _classes_of(readings)
    ties = {name: names[0] for names in tied_names(tensors.values()) for name in names[1:]}
    return ParameterSet(
        label,
        framework,
        tuple(_parameter(tensor, ties.get(name)) for name, tensor in tensors.items()),
        tuple(map(_module, readings, classes)),
        order="file",
    )


def _parameter(tensor: StoredTensor, tied_to: str | None) -> Parameter:
    module, _, attribute = tensor.name.rpartition(".")
    return Parameter(tensor.name, tensor.shape, tensor.dtype, module, attribute, tied_to=tied_to)


def _classes_of(readings: Iterable[LayerReading]) -> Iterator[tuple[str, ...]]:
    """The classes of each layer; those of layers that repeat are found once."""
    known: dict[tuple[object, ...], tuple[str, ...]] = {}
    for reading in readings:
        layer = (bool(reading.odd), *map(id, reading.rules), *reading.group.shapes)
        if (found := known.get(layer)) is None:
            found = known[layer] = _classes(reading)
        yield found


def _module(reading: LayerReading, classes: tuple[str, ...]) -> Module:
    group = reading.group
    return Module(group.prefix, classes, tuple(group.path(attribute) for attribute in group.shapes))


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


# An exported model beside the one that it may come from: what the export folded, turned or left out is found again.
#
# The names that both sides have in common are matched first. What then has no counterpart is looked for by its value:
# an export multiplies a BatchNorm into a convolution, keeps constants in the place of a table's rows, and leaves
# zeros out.

_TORCH_ATTRIBUTES = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
_NORM = "batch_norm"


def follow_origins(reference: Side, candidate: Side) -> tuple[Side, Side]:
    """Both sides, an exported one with its parameters as the other, which is not exported, knows them."""
    return followed_side(reference, candidate), followed_side(candidate, reference)


def followed_side(side: Side, origin: Side, *, same_values: bool = True) -> Side:
    """The side with what its origin tells of it; any side that is no export as it is.

    `same_values` tells whether the export is meant to have the origin's values.
    """
    if not isinstance(side.reader, OriginFollower) or isinstance(origin.reader, OriginFollower):
        return side
    theirs = origin.reader.read_parameters(origin.model, origin.label)
    own = side.reader.read_parameters(side.model, side.label)
    known = Origin(
        theirs,
        origin.reader.read_values(origin.model),
        tuple(_norms(theirs, _epsilons(origin))),
        _paired(own, theirs),
        _biases(theirs),
        frozenset(name for one in theirs.modules if rule_for(one.classes[:1]) for name in one.parameters),
        same_values,
    )
    return replace(side, model=side.reader.followed(side.model, known))


def _paired(own: ParameterSet, theirs: ParameterSet) -> dict[str, str]:
    from align.names.matching.match_names import match_names  # it needs SciPy, and a conversion imports this module

    pairs = match_names(own, theirs, NameRules()).pairings
    return {one.source: one.target for one in pairs}


def _epsilons(origin: Side) -> dict[str, float]:
    if not isinstance(origin.reader, SettingsReader):
        return {}
    layers = origin.reader.read_settings(origin.model)
    return {one.path: eps for one in layers if isinstance(eps := one.values.get("eps"), float)}


def _norms(side: ParameterSet, epsilons: dict[str, float]) -> Iterator[OriginNorm]:
    for module in side.modules:
        rule = rule_for(module.classes)
        if rule is None or rule[0].kind != _NORM:
            continue
        names = dict(_by_role(side, module))
        if set(names) == set(_TORCH_ATTRIBUTES.values()):
            yield OriginNorm(module.path, epsilons.get(module.path, USUAL_NORM_EPSILON), names)


def _by_role(side: ParameterSet, module: Module) -> Iterator[tuple[str, str]]:
    for name in module.parameters:
        role = role_of(module.classes, side.by_name[name].attribute) or ""
        if role in _TORCH_ATTRIBUTES:
            yield _TORCH_ATTRIBUTES[role], name


def _biases(side: ParameterSet) -> dict[str, str]:
    found = {}
    for module in side.modules:
        roles = dict(_by_role(side, module))
        if "weight" in roles and "bias" in roles:
            found[roles["weight"]] = roles["bias"]
    return found
