"""The settings of paired layers held against the known pitfalls; layers pair as in a run that calls each once.

A pair that rests on its place alone may be a wrong one: what it finds is a note, unless no layer of the other side has
that setting as the layers of this side have it, so that every pairing would find the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal

from align.core.traces import Capture
from align.core.verdicts import Finding, ShownResult
from align.models.rebuild_from_settings import is_padded_by_code
from align.rules.layer_rules import rule_for
from align.rules.pitfalls import equal_settings, with_padding
from align.traces.module_calls import CalledModules
from align.traces.pair_traces import pair_calls
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.parameters import Module, ParameterSet
    from align.core.protocols import LayerSettings, Model, Setting
    from align.core.verdicts import Severity, Verdict
    from align.rules.pitfalls import Form, Pitfall
    from align.traces.module_calls import CallPair


BORDERS = "conv-padding-mode"
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class LayerPair:
    """Two layers that correspond; `kinds` are those that the layer rules know, "" if none does.

    `padded` says that a layer or a function that pads stands before one of them alone, `reshaped` that the map gives a
    weight of the one another number of axes in the other: a matrix product may be written as a convolution.
    """

    reference: LayerSettings
    candidate: LayerSettings
    certain: bool = True
    kinds: tuple[str, str] = ("", "")
    padded: bool = False
    reshaped: bool = False


@dataclass(frozen=True, slots=True)
class ComparedSettings:
    """Findings, and how many settings were compared and how many could not be read: `missing` names each."""

    findings: tuple[SettingFinding, ...]
    compared: int
    unread: int
    missing: tuple[str, ...] = ()


def compare_settings(pairs: Sequence[LayerPair], rules: Sequence[Pitfall]) -> ComparedSettings:
    """Compare every setting that a rule knows of both layers of a pair; findings come gravest first."""
    findings = [finding for pair in pairs if (finding := _other_kind(pair))]
    checks = [check for rule in rules for check in _checks(rule, pairs)]
    readable = [check for check in checks if check.readable]
    for _, group in groupby(readable, key=lambda check: id(check.rule)):
        own = list(group)
        apart = _apart(own)
        findings += [_with_padding(check.finding(apart), check.pair, readable) for check in own if check.unlike]
    places = {pair.reference.path: number for number, pair in enumerate(pairs)}
    findings.sort(key=lambda finding: (SEVERITY_ORDER.index(finding.severity), places[finding.reference]))
    missing = dict.fromkeys(check.rule.setting for check in checks if not check.readable)
    return ComparedSettings(tuple(findings), len(readable), len(checks) - len(readable), tuple(missing))


def _with_padding(finding: SettingFinding, pair: LayerPair, checks: Iterable[_Check]) -> SettingFinding:
    """Say how much to pad as well, where a change makes padding explicit that a layer computed itself."""
    arguments = finding.arguments
    for one in checks:
        if arguments and one.pair is pair and one.forms[1].means == "padding":
            arguments = with_padding(arguments, one.forms[1], one.values[0], pair.candidate.values)
    words = "".join(f", {name}={value}" for name, value in arguments.items() if name not in finding.arguments)
    change = finding.change.removesuffix(")") + words + ")" if words else finding.change
    return replace(finding, change=change, arguments=arguments)


@dataclass(frozen=True, slots=True)
class _Check:
    rule: Pitfall
    pair: LayerPair
    forms: tuple[Form, Form]

    @property
    def readable(self) -> bool:
        sides = (self.pair.reference, self.pair.candidate)
        return all(form.readable(side.values) for form, side in zip(self.forms, sides, strict=True))

    @property
    def values(self) -> tuple[Setting, Setting]:
        reference, candidate = self.pair.reference, self.pair.candidate
        left, right = self.forms
        return left.read(reference.values, reference.classes), right.read(candidate.values, candidate.classes)

    @property
    def unlike(self) -> bool:
        return not equal_settings(*self.values)

    def finding(self, apart: bool) -> SettingFinding:
        """State what is unlike; `apart` says that any other pairing of such layers would find it too."""
        rule, (left, right) = self.rule, self.forms
        certain = self.pair.certain or apart
        # Padding that a layer lacks, and what borders are filled with, may be in the layer before.
        padded_before = self.pair.padded and (left.means == "padding" or rule.id == BORDERS)
        known = certain and not (_may_be_one_axis(self) or padded_before)
        mine, _ = self.values
        return SettingFinding(
            rule=rule.id,
            severity=rule.severity if known else "note",
            reference=self.pair.reference.path,
            candidate=self.pair.candidate.path,
            reference_class=self.pair.reference.class_name,
            candidate_class=self.pair.candidate.class_name,
            setting=rule.setting,
            reference_setting=left.show(self.pair.reference.values, self.pair.reference.classes),
            candidate_setting=right.show(self.pair.candidate.values, self.pair.candidate.classes),
            effect=rule.effect,
            change=right.alternative(mine) or f"{_known_class(self.pair.candidate, right)}(..., {right.write(mine)})",
            certain=certain,
            arguments=dict(right.arguments(mine)),
        )


def _checks(rule: Pitfall, pairs: Iterable[LayerPair]) -> Iterator[_Check]:
    for pair in pairs:
        sides = pair.reference, pair.candidate
        left, right = (rule.form_of(side.classes) for side in sides)
        idle = (any(_holds(side.values.get(name), value) for name, value in rule.idle.items()) for side in sides)
        if left and right and not all(idle):
            yield _Check(rule, pair, (left, right))


def _holds(found: Setting, value: Setting) -> bool:
    return all(map(_holds, found, [value] * len(found))) if isinstance(found, tuple) else equal_settings(found, value)


def _apart(checks: Sequence[_Check]) -> bool:
    """Tell whether no layer of the reference is set as any of the candidate's."""
    mine, theirs = (set(values) for values in zip(*(check.values for check in checks), strict=True))
    return not any(equal_settings(one, other) for one in mine for other in theirs)


def _may_be_one_axis(check: _Check) -> bool:
    """-1 and 1 are one axis of a matrix; None is chosen by the number of axes."""
    if not all(form.means in ("axis", "first_axis") for form in check.forms):
        return False
    signs = [value < 0 if isinstance(value, int) else None for value in check.values]
    return None in signs or signs[0] != signs[1]


def _other_kind(pair: LayerPair) -> SettingFinding | None:
    """Two layers of unlike kinds where both sides have one layer; what may compute the same only a run tells."""
    mine, theirs = pair.kinds
    if not pair.certain or not mine or not theirs or mine == theirs:
        return None
    return SettingFinding(
        rule="other-kind",
        severity="note" if pair.reshaped else "warning",
        reference=pair.reference.path,
        candidate=pair.candidate.path,
        reference_class=pair.reference.class_name,
        candidate_class=pair.candidate.class_name,
        setting=sentence("lint_setting.kind_of_layer"),
        reference_setting=mine,
        candidate_setting=theirs,
        effect=sentence("lint_effect.reshaped_layer" if pair.reshaped else "lint_effect.other_layer"),
        change=sentence("lint_change.layer_of_kind", kind=mine),
    )


def _known_class(layer: LayerSettings, form: Form) -> str:
    name = next(name for name in layer.classes if name in form.classes)
    return name.partition(".")[2]


PADS = "mindspore.nn.Pad"  # the only padding layer that no layer rule knows: it has no counterpart in torch


def pair_layers(
    sides: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
    settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]],
) -> tuple[list[LayerPair], tuple[list[LayerSettings], list[LayerSettings]]]:
    """Return the pairs in the reference's order and, of each side, the layers without a counterpart.

    `settings` are by path. Modules around others are certain where they hold the same parameters and are of one kind.
    """
    left = CalledModules(_calls_in_tree_order(sides[0]), sides[0], name_map, "source")
    right = CalledModules(_calls_in_tree_order(sides[1]), sides[1], name_map, "target")
    calls = pair_calls(left, right)
    padded = _behind_padding(left, settings[0]), _behind_padding(right, settings[1])
    reshaped = _reshaped(sides, name_map)

    def layers(pair: CallPair) -> LayerPair:
        mine, theirs = pair.reference, pair.candidate
        certain = pair.certain or bool(left.holds(mine) and mine.kind and mine.kind == theirs.kind)
        behind = (mine.module in padded[0]) != (theirs.module in padded[1])
        both = settings[0][mine.module], settings[1][theirs.module]
        shared = left.owned[mine.module] & right.owned[theirs.module]
        return LayerPair(*both, certain, (mine.kind, theirs.kind), behind, bool(shared & reshaped))

    alone = (
        [settings[0][one.module] for one in calls.unpaired if one.side == "reference"],
        [settings[1][one.module] for one in calls.unpaired if one.side == "candidate"],
    )
    return [layers(pair) for pair in calls.pairs], alone


def _reshaped(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> set[int]:
    """Numbers of the pairs whose tensors have unlike numbers of axes."""
    mine, theirs = (side.by_name for side in sides)
    return {
        number
        for number, one in enumerate(name_map.pairings)
        if one.source in mine and one.target in theirs
        if len(mine[one.source].shape) != len(theirs[one.target].shape)
    }


def mark_padded_in_code(pair: LayerPair, models: tuple[Model, Model]) -> LayerPair:
    """Mark a pair of which one layer alone is given what the user's code pads by a function."""
    layers = pair.reference, pair.candidate
    mine, theirs = (is_padded_by_code(model, layer.path) for model, layer in zip(models, layers, strict=True))
    return replace(pair, padded=True) if mine != theirs else pair


def _behind_padding(side: CalledModules, settings: Mapping[str, LayerSettings]) -> set[str]:
    """Paths of the layers that stand right behind one that pads."""

    def pads(layer: LayerSettings) -> bool:
        rule = rule_for(layer.classes)
        return PADS in layer.classes or (rule is not None and rule[0].kind.endswith("_pad"))

    return {after.module for before, after in pairwise(side.leaves) if pads(settings[before.module])}


def _calls_in_tree_order(side: ParameterSet) -> list[Capture]:
    """Return a capture of unknown output for each module; it comes after all modules inside, as it returns later."""
    return [Capture(order, one.path, 0, "", one.class_name, (), "") for order, one in enumerate(_returned(side))]


def _returned(side: ParameterSet) -> Iterator[Module]:
    around: list[Module] = []
    for module in side.modules:
        while around and around[-1].path and not module.path.startswith(f"{around[-1].path}."):
            yield around.pop()
        around.append(module)
    yield from reversed(around)


# What the settings of two models tell before any run.

Part = Literal["layer", "parameters", "optimizer", "loss"]


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """Two paired layers of which one setting is unlike; `rule` is the pitfall's id.

    Paths are "" for the model itself. The settings are given as the user would write them on each side (`eps=1e-05`),
    `change` is what to write in the candidate, `arguments` the same as arguments of its layer's constructor, none where
    it takes another layer. A pair that is not `certain` is paired by its place alone. A finding about groups of an
    optimizer counts the `parameters` that it concerns, of which `example` is one. `part` is what it is about. `line` is
    where the candidate makes it (`port.py:12`), "" where no source shows it.
    """

    rule: str
    severity: Severity
    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    setting: str
    reference_setting: str
    candidate_setting: str
    effect: str
    change: str
    certain: bool = True
    arguments: dict[str, Setting] = field(default_factory=dict)
    parameters: int = 0
    example: str = ""
    part: Part = "layer"
    line: str = ""


@dataclass(frozen=True, slots=True)
class LintResult(ShownResult):
    """Findings, the gravest first, then in the reference's order; of the `rules`, `unrun` were never tried on a CPU.

    `not_compared` says what of optimizers and losses could not be compared, each with the reason. `fused` are pitfalls
    of the fused operators that the sources call.
    """

    result_kind = "lint"
    reference: str
    candidate: str
    findings: tuple[SettingFinding, ...]
    layers: int
    rules: int
    unrun: int
    verdict: Verdict
    not_compared: tuple[str, ...] = ()
    fused: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """What comparing one part of both sides gave: the layers, the optimizers, or the losses.

    `alone` counts what has no counterpart on either side, `not_compared` names what must not be passed over,
    `caveats` are what the comparison does not rest on.
    """

    findings: tuple[SettingFinding, ...] = ()
    pairs: int = 0
    compared: int = 0
    unread: int = 0
    alone: tuple[int, int] = (0, 0)
    not_compared: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def joined_parts(parts: Sequence[ComparedPart]) -> ComparedPart:
    """Several parts as one."""
    left, right = (sum(part.alone[side] for part in parts) for side in (0, 1))
    return ComparedPart(
        tuple(finding for part in parts for finding in part.findings),
        sum(part.pairs for part in parts),
        sum(part.compared for part in parts),
        sum(part.unread for part in parts),
        (left, right),
        tuple(one for part in parts for one in part.not_compared),
        tuple(dict.fromkeys(one for part in parts for one in part.caveats)),
    )
