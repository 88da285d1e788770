"""The layer with which a suspected cause is tried: the candidate's own, rebuilt as the finding says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.parameters import ParameterSet
from align.core.protocols import LayerRebuilder, SettingsReader
from align.core.transforms import IDENTITY
from align.rules.layer_rules import layer_rules, role_of, rule_for
from align.rules.pitfalls import pitfalls
from align.rules.setting_forms import axes_of, equal_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.layer_settings import LayerSettings, Setting
    from align.core.parameters import Parameter, Shape
    from align.core.protocols import Model
    from align.core.transforms import Transform
    from align.lint.lint_result import SettingFinding
    from align.models.open_side import Side
    from align.rules.layer_rules import FamilyName
    from align.rules.setting_forms import Form

FAMILIES_OF: dict[str, tuple[FamilyName, ...]] = {"torch": ("torch",), "mindspore": ("nn", "mint")}
NOTHING = "identity"  # the kind of a layer that returns what it is given
WINDOWS = frozenset({"kernel", "stride", "padding"})  # settings of layers that reduce what stands in a window


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
    plan = planned_kind(reference, findings[0].reference, candidate)
    return None if plan is None else candidate.reader.built(plan.class_name, plan.arguments)


def planned_kind(reference: Side, path: str, candidate: Side) -> LayerPlan | None:
    """Plan a layer of the candidate's framework as the reference's at `path` is; None where same_kind has none."""
    if not isinstance(reference.reader, SettingsReader):
        return None
    settings = {layer.path: layer for layer in reference.reader.read_settings(reference.model)}
    return same_kind(settings[path], candidate.reader.name) if path in settings else None


def _fill_added(layer: Model, sides: tuple[Side, Side], finding: SettingFinding, piece: Transform) -> bool:
    """Give the layer the reference's values of parameters that it had not; False where they are not known."""
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


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """A layer to build: the public name of its class and the arguments of its constructor."""

    class_name: str
    arguments: dict[str, Setting]


def changes_for(*findings: SettingFinding) -> dict[str, Setting]:
    """Return the constructor's arguments that end all these findings of one layer, none where one asks for another.

    They come of the same rule as the words of `SettingFinding.change`.
    """
    if not all(finding.arguments for finding in findings):
        return {}
    return {name: value for finding in findings for name, value in finding.arguments.items()}


def same_kind(reference: LayerSettings, framework: str) -> LayerPlan | None:
    """Plan a layer of the reference's kind, set as it is, in another framework.

    None for a kind that no rule knows, that the framework lacks, or that has parameters, whose values nobody could
    give it.
    """
    known = rule_for(reference.classes)
    if known is None or any(family.parameters for family in known[0].families.values()):
        return None
    families = [known[0].families[name] for name in FAMILIES_OF.get(framework, ()) if name in known[0].families]
    if not families:
        return None
    axes = axes_of(reference.classes)
    name = next((one for one in families[0].classes if axes_of((one,)) == axes), families[0].classes[0])
    return _planned(name, _settings_given(reference, name))


def same_windows(layer: LayerSettings) -> Iterator[LayerPlan]:
    """Plan the layers of its own family that slide the same windows to another end: the largest for the mean."""
    known, own = rule_for(layer.classes), _forms_of(layer.classes)
    if known is None or not own.keys() >= WINDOWS:
        return
    kind, family = known[0].kind, known[1]
    for rule in layer_rules():
        names = rule.families[family].classes if rule.kind != kind and family in rule.families else ()
        alike = (
            one for one in names if axes_of((one,)) == axes_of(layer.classes) and _forms_of((one,)).keys() >= WINDOWS
        )
        for name in alike:
            forms = _forms_of((name,))
            given = [(forms[one], own[one].given(layer.values, layer.classes)) for one in sorted(WINDOWS)]
            yield from filter(None, [_planned(name, given)])


def nothing_for(layer: LayerSettings) -> LayerPlan | None:
    """Plan what stands in the place of a layer of its own family that is left out; None for one with parameters."""
    known = rule_for(layer.classes)
    if known is None or any(family.parameters for family in known[0].families.values()):
        return None
    nothing = (one.families for one in layer_rules() if one.kind == NOTHING != known[0].kind)
    return next((LayerPlan(one[known[1]].classes[0], {}) for one in nothing if known[1] in one), None)


def _forms_of(classes: Sequence[str]) -> dict[str, Form]:
    """How a class keeps each setting that rules know of it, by the setting's name."""
    return {rule.setting: form for rule in pitfalls() if (form := rule.form_of(classes))}


def _planned(name: str, given: Iterable[tuple[Form, Setting]]) -> LayerPlan | None:
    """Plan a layer that is given these settings, each after its form there; None where it cannot be."""
    arguments: dict[str, Setting] = {}
    beside: dict[str, Setting] = {}
    for form, value in given:
        if form.alternative(value):
            return None
        arguments |= {key: own for key, own in form.arguments(value) if (key, own) not in form.beside}
        beside |= dict(form.beside)
    return LayerPlan(name, {**arguments, **beside})


def _settings_given(reference: LayerSettings, name: str) -> Iterator[tuple[Form, Setting]]:
    """Settings of the reference that a class can be given and lacks without, each after the form that it has there."""
    for rule in pitfalls():
        mine, theirs = rule.form_of(reference.classes), rule.form_of((name,))
        if mine is not None and theirs is not None and mine.readable(reference.values):
            value = mine.read(reference.values, reference.classes)
            if theirs.lacking is None or not equal_settings(value, theirs.lacking):
                yield theirs, value


def sources_of_added(
    layer: ParameterSet, had: ParameterSet, reference: ParameterSet, piece: Transform = IDENTITY
) -> dict[str, str] | None:
    """Map the parameters that a layer has beyond those that it `had` to the reference's of the same role and shape.

    All three are parameters below one layer, its path taken off; of the reference's the layer has a `piece`. None where
    one has no counterpart.
    """
    before = {(one.module, one.attribute) for one in had.parameters}
    theirs = {_role(one, reference): one for one in reference.parameters}
    added = [one for one in layer.parameters if (one.module, one.attribute) not in before]
    sources = {one.name: theirs.get(_role(one, layer)) for one in added}
    found = {name: source.name for name, source in sources.items() if source is not None}
    same_shape = all(
        layer.by_name[one].shape == _cut(reference.by_name[source], piece) for one, source in found.items()
    )
    return found if len(found) == len(added) and same_shape else None


def _cut(parameter: Parameter, piece: Transform) -> Shape | None:
    """The shape of a piece of a parameter, None where it has no such piece."""
    try:
        return piece.output_shape(parameter.shape)
    except ValueError:
        return None


def _role(parameter: Parameter, side: ParameterSet) -> tuple[str, str]:
    classes = next(module.classes for module in side.modules if module.path == parameter.module)
    return parameter.module, role_of(classes, parameter.attribute) or parameter.attribute
