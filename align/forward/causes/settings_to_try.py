"""What the settings of both sides suggest for a layer at fault: what rules compare, switches, and equal names.

Where no rule compares two settings (a layer without counterpart, layers of a user's own classes), nothing is known of
them but what they are called; so they are only tried, never reported unless they mend a layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.forward.causes.rebuild_layer import NOTHING
from align.forward.thresholds import MOST_MODULES_AROUND
from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.lint_result import SettingFinding
from align.rules.layer_rules import rule_for
from align.rules.pitfalls import pitfalls
from align.rules.setting_forms import equal_settings, with_padding
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.layer_settings import LayerSettings, Setting
    from align.forward.forward_result import Culprit
    from align.forward.isolation.locate_faults import Fault
    from align.rules.pitfalls import Pitfall
    from align.traces.module_calls import CallPair

    BothSettings = tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]]

SETTING_DIFFERS = "setting-differs"
LAYER_EXTRA = "layer-extra"
LAST = -1  # no limit: axis


def findings_of(
    faults: Sequence[Fault],
    settings: BothSettings,
    rules: Sequence[Pitfall],
    owners: Mapping[str, str],
) -> dict[str, tuple[SettingFinding, ...]]:
    """What the settings of the layers at fault say, by the candidate's path, the gravest first.

    `owners` are the layers of the reference that hold the parameters of a layer of the port.
    """
    pairs = {fault.path: pair for fault in faults if (pair := _settings_of(fault, settings))}
    found: dict[str, tuple[SettingFinding, ...]] = {}
    for finding in compare_settings(list(pairs.values()), rules).findings:
        found[finding.candidate] = (*found.get(finding.candidate, ()), finding)
    for path, pair in pairs.items():
        found.setdefault(
            path, (*same_named_settings(pair.reference, pair.candidate), *switched_settings(pair.candidate, rules))
        )
        if len(set(pair.kinds)) > 1:  # a dense layer in the place of a convolution: their settings do not compare
            found[path] = (*findings_of_unpaired((pair.reference.path, path), settings, rules), *found[path])
    for path in (fault.path for fault in faults if fault.path in settings[1] and fault.path not in found):
        found[path] = findings_of_unpaired((owners.get(path, ""), path), settings, rules)
    return found


def findings_of_unpaired(
    paths: tuple[str, str],
    settings: BothSettings,
    rules: Sequence[Pitfall],
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
    by_setting = {one.setting: one for one in findings}
    dilation = by_setting.get("dilation")
    if dilation is None or "padding" not in by_setting:
        return None
    forms = {one.setting: form for one in pitfalls() if (form := one.form_of(layer.classes))}
    before, padding = (forms[name].read(layer.values, layer.classes) for name in ("dilation", "padding"))
    after, kernel = (one.get(name) for one, name in ((dilation.arguments, "dilation"), (layer.values, "kernel_size")))
    values = [_by_axis(one, kernel) for one in (before, after, padding, kernel)]
    if None in values:
        return None
    more = [(new - old) * (size - 1) / 2 for old, new, _, size in zip(*filter(None, values), strict=True)]
    wanted = [own + one for own, one in zip(values[2] or (), more, strict=True)]
    if any(one < 0 or one % 1 for one in wanted):
        return None
    whole = tuple(int(one) for one in wanted)
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
    confirmed = [one for one in culprits if one.arguments and not one.layer and one.sureness == "confirmed"]
    known = {one.candidate.module: one for one in pairs} if confirmed else {}
    layers = [
        LayerPair(settings[0][one.reference.module], settings[1][path], kinds=(one.reference.kind, one.candidate.kind))
        for path, one in known.items()
        if one.reference.module in settings[0] and path in settings[1]
    ]
    asked: dict[str, dict[str, Setting]] = {}
    for finding in compare_settings(layers, pitfalls()).findings:
        asked.setdefault(finding.candidate, {}).update(finding.arguments)
    found = {id(one): tuple(path for path in asked if _asks_for(asked[path], one, path)) for one in confirmed}
    return [replace(one, also=found.get(id(one), ())) for one in culprits]


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
        reference_class=_class_name(mine) if mine else "",
        candidate_class=_class_name(theirs),
        setting=setting,
        reference_setting=shown[0],
        candidate_setting=shown[1],
        effect="",
        change=shown[2],
        arguments=arguments,
    )


def _class_name(layer: LayerSettings) -> str:
    return layer.classes[0].rpartition(".")[2] if layer.classes else ""


def _plain_name(name: str) -> str:
    """`variance_epsilon`, `eps` and `layer_norm_eps` are one setting."""
    plain = name.lower().replace("epsilon", "eps").replace("_", "")
    return "eps" if plain.endswith("eps") else plain
