"""The layer with which a suspected cause is tried: the candidate's own, rebuilt as the finding says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.parameters import ParameterSet
from align.core.protocols import LayerRebuilder, SettingsReader
from align.core.transforms import IDENTITY
from align.forward.causes.changes_to_try import changes_for, same_kind, sources_of_added

if TYPE_CHECKING:
    from align.core.protocols import Model
    from align.core.transforms import Transform
    from align.lint.lint_result import SettingFinding
    from align.models.open_side import Side


@dataclass(frozen=True, slots=True)
class Owner:
    """The reference's layer that owns the parameters of one of the candidate's, and which piece of them these are."""

    path: str
    piece: Transform = IDENTITY


def rebuilt_layer(
    reference: Side, candidate: Side, *findings: SettingFinding, piece: Transform = IDENTITY
) -> Model | None:
    """Rebuild the candidate's layer so that these findings, all of one pair of layers, are ended.

    The layer holds its own values, and the reference's (a `piece` of them, if the reference fuses several layers) for
    parameters that only the change gives it. Where a finding
    asks for another kind of layer, it is one of the reference's kind and settings. In evaluation mode. None where
    that cannot be had truthfully; see LayerRebuilder.
    """
    if not isinstance(candidate.reader, LayerRebuilder):
        return None
    path = findings[0].candidate
    if changes := changes_for(*findings):
        layer = candidate.reader.rebuilt(candidate.model, path, changes)
        return layer if layer is None or _fill_added(layer, (reference, candidate), findings[0], piece) else None
    return _of_the_kind(reference, findings[0].reference, candidate)


def _of_the_kind(reference: Side, path: str, candidate: Side) -> Model | None:
    """Build a layer of the candidate's framework as the reference's at `path` is."""
    if not isinstance(reference.reader, SettingsReader) or not isinstance(candidate.reader, LayerRebuilder):
        return None
    settings = {layer.path: layer for layer in reference.reader.read_settings(reference.model)}
    plan = same_kind(settings[path], candidate.reader.name) if path in settings else None
    return None if plan is None else candidate.reader.built(plan.class_name, plan.arguments)


def _fill_added(layer: Model, sides: tuple[Side, Side], finding: SettingFinding, piece: Transform) -> bool:
    """Give the layer the reference's values of parameters that it had not; False where they cannot be told."""
    reference, candidate = sides
    built = candidate.reader.read_parameters(layer, candidate.label)
    had = _below(finding.candidate, candidate)
    if len(built.parameters) <= len(had.parameters):
        return True
    sources = sources_of_added(built, had, _below(finding.reference, reference), piece)
    if sources is None:
        return False
    values, theirs = candidate.reader.read_values(layer), reference.reader.read_values(reference.model)
    added = {name: piece.apply(theirs[source]) for name, source in sources.items()}
    candidate.reader.load_values(layer, values | added)
    return True


def _below(path: str, side: Side) -> ParameterSet:
    """The parameters and modules of one layer, with its path taken off theirs."""
    whole = side.reader.read_parameters(side.model, side.label)
    prefix = f"{path}." if path else ""
    modules = [
        replace(one, path=one.path.removeprefix(prefix) if one.path != path else "")
        for one in whole.modules
        if one.path == path or one.path.startswith(prefix)
    ]
    parameters = [
        replace(one, module=one.module.removeprefix(prefix) if one.module != path else "")
        for one in whole.parameters
        if one.module == path or one.module.startswith(prefix)
    ]
    return ParameterSet(side.label, whole.framework, tuple(parameters), tuple(modules))
