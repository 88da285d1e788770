"""What the settings of both sides suggest for a layer at fault: what rules compare, switches, and equal names.

Where no rule compares two settings (a layer without counterpart, layers of a user's own classes), nothing is known of
them but what they are called; so they are only tried, never reported unless they mend a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.parameters import ParameterSet
from align.core.protocols import LayerRebuilder, SettingsReader
from align.core.transforms import IDENTITY
from align.forward.thresholds import MOST_MODULES_AROUND
from align.lint.compare_settings import LayerPair, SettingFinding, compare_settings
from align.rules.layer_rules import layer_rules, role_of, rule_for
from align.rules.pitfalls import axes_of, equal_settings, pitfalls, with_padding
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Parameter, Shape
    from align.core.protocols import LayerSettings, Model, Setting
    from align.core.transforms import Transform
    from align.forward.forward_result import Culprit
    from align.forward.locate_faults import Fault
    from align.models.open_side import Side
    from align.rules.layer_rules import FamilyName
    from align.rules.pitfalls import Form, Pitfall
    from align.traces.module_calls import CallPair

    BothSettings = tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]]


SETTING_DIFFERS = "setting-differs"
LAYER_EXTRA = "layer-extra"
LAST = -1  # no limit: axis


def findings_of(
    faults: Sequence[Fault], settings: BothSettings, rules: Sequence[Pitfall], owners: Mapping[str, str]
) -> dict[str, tuple[SettingFinding, ...]]:
    """What the settings of the layers at fault say, by the candidate's path, the gravest first.

    `owners` are the layers of the reference that hold the parameters of a layer of the port.
    """
    pairs = {fault.path: pair for fault in faults if (pair := _settings_of(fault, settings))}
    findings: dict[str, tuple[SettingFinding, ...]] = {}
    for finding in compare_settings(list(pairs.values()), rules).findings:
        findings[finding.candidate] = (*findings.get(finding.candidate, ()), finding)
    for path, pair in pairs.items():
        findings.setdefault(
            path, (*same_named_settings(pair.reference, pair.candidate), *switched_settings(pair.candidate, rules))
        )
        if len(set(pair.kinds)) > 1:  # a dense layer in the place of a convolution: their settings do not compare
            findings[path] = (*findings_of_unpaired((pair.reference.path, path), settings, rules), *findings[path])
    for path in (fault.path for fault in faults if fault.path in settings[1] and fault.path not in findings):
        findings[path] = findings_of_unpaired((owners.get(path, ""), path), settings, rules)
    return findings


def findings_of_unpaired(
    paths: tuple[str, str], settings: BothSettings, rules: Sequence[Pitfall]
) -> tuple[SettingFinding, ...]:
    """What to try at a layer of the port whose calls have no counterpart.

    It is held against the layer of the reference that owns the same parameters, "" if none does; what no rule knows of
    both are its switches.
    """
    mine, theirs = (side.get(path) for side, path in zip(settings, paths, strict=True))
    if theirs is None:
        return ()
    found = compare_settings([LayerPair(mine, theirs)], rules).findings if mine else ()
    unknown = [rule for rule in rules if mine is None or rule.form_of(mine.classes) is None]
    return (*found, *(replace(one, reference=paths[0]) for one in switched_settings(theirs, unknown)))


def keeping_size(findings: Sequence[SettingFinding], layer: LayerSettings) -> SettingFinding | None:
    """The dilation of the reference, with as much more padding as keeps the size of what a layer of the port returns.

    The sides may pad at other places, in the layer or in the code in front of it. Then neither side's padding goes with
    the other's dilation.
    """
    by_setting = {finding.setting: finding for finding in findings}
    dilation = by_setting.get("dilation")
    if dilation is None or "padding" not in by_setting:
        return None
    forms = {rule.setting: form for rule in pitfalls() if (form := rule.form_of(layer.classes))}
    before, padding = (forms[name].read(layer.values, layer.classes) for name in ("dilation", "padding"))
    after, kernel = (
        settings.get(name) for settings, name in ((dilation.arguments, "dilation"), (layer.values, "kernel_size"))
    )
    values = [_by_axis(setting, kernel) for setting in (before, after, padding, kernel)]
    if None in values:
        return None
    more = [(new - old) * (size - 1) / 2 for old, new, _, size in zip(*filter(None, values), strict=True)]
    wanted = [own + extra for own, extra in zip(values[2] or (), more, strict=True)]
    if any(width < 0 or width % 1 for width in wanted):
        return None
    whole = tuple(int(width) for width in wanted)
    added = dict(forms["padding"].arguments(whole[0] if len(set(whole)) == 1 else whole))
    written = "".join(f", {name}={value!r}" for name, value in added.items())
    change = f"{dilation.change.removesuffix(')')}{written})"
    return replace(dilation, arguments={**dilation.arguments, **added}, change=change)


def _by_axis(value: Setting, kernel: Setting) -> tuple[int, ...] | None:
    """A whole number for each axis of a kernel; None for anything else, as unlike paddings of both ends."""
    axes = len(kernel) if isinstance(kernel, tuple) else 0
    values = value if isinstance(value, tuple) else (value,) * axes
    return values if len(values) == axes > 0 and all(type(one) is int for one in values) else None  # type: ignore[return-value]


def _settings_of(fault: Fault, settings: BothSettings) -> LayerPair | None:
    """The settings of the layer to be looked at and of its counterpart, if there is one."""
    mine, kind = fault.pair.reference, fault.pair.candidate.kind
    if fault.made_by:
        if fault.made_by.counterpart is None:
            return None
        mine = fault.made_by.counterpart
        kind = mine.kind
    if mine.module not in settings[0] or fault.path not in settings[1]:
        return None
    return LayerPair(settings[0][mine.module], settings[1][fault.path], kinds=(mine.kind, kind))


def findings_around(fault: Fault, settings: BothSettings) -> tuple[SettingFinding, ...]:
    """Settings of one name that differ in the modules that run the code in front of a call, the innermost first."""
    mine, theirs = fault.pair.reference.module, fault.pair.candidate.module
    around = [(mine, theirs)] if fault.part == "code" else []
    while mine and theirs:
        mine, theirs = mine.rpartition(".")[0], theirs.rpartition(".")[0]
        around.append((mine, theirs))
    pairs = [
        (settings[0][a], settings[1][b])
        for a, b in around[:MOST_MODULES_AROUND]
        if a in settings[0] and b in settings[1]
    ]
    return tuple(finding for pair in pairs for finding in same_named_settings(*pair))


def with_same_change(culprits: Sequence[Culprit], settings: BothSettings, pairs: Iterable[CallPair]) -> list[Culprit]:
    """Name with each confirmed culprit the other layers whose settings differ in the same way, seen or not."""
    confirmed = [
        culprit for culprit in culprits if culprit.arguments and not culprit.layer and culprit.sureness == "confirmed"
    ]
    known = {pair.candidate.module: pair for pair in pairs} if confirmed else {}
    layers = [
        LayerPair(
            settings[0][pair.reference.module], settings[1][path], kinds=(pair.reference.kind, pair.candidate.kind)
        )
        for path, pair in known.items()
        if pair.reference.module in settings[0] and path in settings[1]
    ]
    wanted_arguments: dict[str, dict[str, Setting]] = {}
    for finding in compare_settings(layers, pitfalls()).findings:
        wanted_arguments.setdefault(finding.candidate, {}).update(finding.arguments)
    also = {
        id(culprit): tuple(path for path in wanted_arguments if _asks_for(wanted_arguments[path], culprit, path))
        for culprit in confirmed
    }
    return [replace(culprit, also=also.get(id(culprit), ())) for culprit in culprits]


def _asks_for(arguments: Mapping[str, Setting], culprit: Culprit, path: str) -> bool:
    return path != culprit.candidate and culprit.arguments.items() <= arguments.items()


def switched_settings(layer: LayerSettings, rules: Sequence[Pitfall]) -> Iterator[SettingFinding]:
    """Each switch of a layer of the port put to its other position; of the reference's code nothing is known."""
    for rule in rules:
        form = rule.form_of(layer.classes)
        if form is None or not form.readable(layer.values):
            continue
        value = form.read(layer.values, layer.classes)
        for other in _others(rule, value):
            if arguments := dict(form.arguments(other)):
                whole = _with_own_padding(arguments, layer, rules)
                more = "".join(f", {name}={own}" for name, own in whole.items() if name not in arguments)
                shown = "", form.show(layer.values, layer.classes), form.write(other) + more
                yield _finding(rule.id, rule.setting, shown, (None, layer), whole)


def _with_own_padding(
    arguments: Mapping[str, Setting], layer: LayerSettings, rules: Sequence[Pitfall]
) -> dict[str, Setting]:
    forms = [form for rule in rules if (form := rule.form_of(layer.classes)) and form.means == "padding"]
    for form in forms:
        arguments = with_padding(arguments, form, form.read(layer.values, layer.classes), layer.values)
    return {**arguments}


def _others(rule: Pitfall, value: Setting) -> list[Setting]:
    """The other positions of a switch, the other words that a rule knows for a setting, the axis that is usual."""
    if isinstance(value, bool):
        return [not value]
    if rule.setting == "axis":
        return [] if value == LAST else [LAST]
    words = {to for form in rule.forms for _, to, *_ in form.values if isinstance(to, str)}
    return [*sorted(words - {value})] if isinstance(value, str) else []


def other_kind(layer: LayerSettings, class_name: str) -> SettingFinding:
    """A layer of another class, of those that the layer rules know, in the place of one."""
    kinds = [known[0].kind if (known := rule_for(classes)) else "" for classes in ((class_name,), layer.classes)]
    shown = kinds[0], kinds[1], sentence("lint_change.layer_of_kind", kind=kinds[0])
    rule = LAYER_EXTRA if kinds[0] == NOTHING else "other-kind"
    return _finding(rule, sentence("lint_setting.kind_of_layer"), shown, (None, layer), {})


def count_changed_settings(before: LayerSettings, after: LayerSettings, rules: Sequence[Pitfall]) -> int:
    """How many settings that rules know are other ones after a change: an argument may bring others with it."""
    moved = 0
    for rule in rules:
        form = rule.form_of(before.classes)
        if form is not None and form.readable(before.values) and form.readable(after.values):
            values = form.read(before.values, before.classes), form.read(after.values, after.classes)
            moved += not equal_settings(*values)
    return moved


def same_named_settings(reference: LayerSettings, candidate: LayerSettings) -> Iterator[SettingFinding]:
    """Settings of one name, and of one type, that differ; those that set a size are the same in both or fail."""
    theirs = {_plain_name(name): name for name in candidate.values}
    for name, value in reference.values.items():
        other = theirs.get(_plain_name(name))
        if other is None or name == "training":
            continue
        held = candidate.values[other]
        if type(held) is type(value) and isinstance(value, (bool, int, float, str)) and not equal_settings(value, held):
            shown = f"{name}={value!r}", f"{other}={held!r}", f"{other}={value!r}"
            yield _finding(SETTING_DIFFERS, other, shown, (reference, candidate), {other: value})


def _finding(
    rule: str,
    setting: str,
    shown: tuple[str, str, str],
    pair: tuple[LayerSettings | None, LayerSettings],
    arguments: dict[str, Setting],
) -> SettingFinding:
    mine, theirs = pair
    return SettingFinding(
        rule=rule,
        severity="note",
        reference=mine.path if mine else "",
        candidate=theirs.path,
        reference_class=mine.class_name if mine else "",
        candidate_class=theirs.class_name,
        setting=setting,
        reference_setting=shown[0],
        candidate_setting=shown[1],
        effect="",
        change=shown[2],
        arguments=arguments,
    )


def _plain_name(name: str) -> str:
    """`variance_epsilon`, `eps` and `layer_norm_eps` are one setting."""
    plain = name.lower().replace("epsilon", "eps").replace("_", "")
    return "eps" if plain.endswith("eps") else plain


# The layer with which a suspected cause is tried: the candidate's own, rebuilt as the finding says.

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
        replace(module, path=module.path.removeprefix(prefix) if module.path != path else "")
        for module in whole.modules
        if module.path == path or module.path.startswith(prefix)
    ]
    parameters = [
        replace(parameter, module=parameter.module.removeprefix(prefix) if parameter.module != path else "")
        for parameter in whole.parameters
        if parameter.module == path or parameter.module.startswith(prefix)
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
    known, layer_forms = rule_for(layer.classes), _forms_of(layer.classes)
    if known is None or not layer_forms.keys() >= WINDOWS:
        return
    kind, family = known[0].kind, known[1]
    for rule in layer_rules():
        names = rule.families[family].classes if rule.kind != kind and family in rule.families else ()
        same_axes = (
            class_name
            for class_name in names
            if axes_of((class_name,)) == axes_of(layer.classes) and _forms_of((class_name,)).keys() >= WINDOWS
        )
        for name in same_axes:
            forms = _forms_of((name,))
            given = [
                (forms[window], layer_forms[window].given(layer.values, layer.classes)) for window in sorted(WINDOWS)
            ]
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
    before = {(parameter.module, parameter.attribute) for parameter in had.parameters}
    theirs = {_role(parameter, reference): parameter for parameter in reference.parameters}
    added = [parameter for parameter in layer.parameters if (parameter.module, parameter.attribute) not in before]
    sources = {parameter.name: theirs.get(_role(parameter, layer)) for parameter in added}
    known_sources = {name: source.name for name, source in sources.items() if source is not None}
    same_shape = all(
        layer.by_name[name].shape == _cut(reference.by_name[source], piece) for name, source in known_sources.items()
    )
    return known_sources if len(known_sources) == len(added) and same_shape else None


def _cut(parameter: Parameter, piece: Transform) -> Shape | None:
    """The shape of a piece of a parameter, None where it has no such piece."""
    try:
        return piece.output_shape(parameter.shape)
    except ValueError:
        return None


def _role(parameter: Parameter, side: ParameterSet) -> tuple[str, str]:
    classes = next(module.classes for module in side.modules if module.path == parameter.module)
    return parameter.module, role_of(classes, parameter.attribute) or parameter.attribute
