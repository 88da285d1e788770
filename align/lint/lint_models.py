"""The settings of two models, optimizers or losses compared part by part, before any run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.load_code import require_file
from align.core.name_map import NameMap
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import NothingInCommonError, SharedModelError, UsageError
from align.lint.compare_optimizers import USUAL_STEPS, compare_optimizers, steps_to_sample, wanted_decays
from align.lint.compare_settings import (
    SEVERITY_ORDER,
    ComparedPart,
    LintResult,
    SettingFinding,
    compare_settings,
    joined_parts,
    mark_padded_in_code,
    pair_layers,
)
from align.lint.lint_sides import compare_losses, open_lint_side, settings_reader, uncovered_settings, written_epsilons
from align.models.fused_calls import calls_in_model
from align.models.open_side import refuse_one_object
from align.models.source_lines import made_at, made_in
from align.names.map_file import read_map
from align.names.map_parameters import match_sides
from align.names.map_result import freezing, frozen_apart
from align.names.user_rules import NameRules, check_shapes
from align.rules.pitfalls import pitfalls
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import ParameterSet
    from align.core.protocols import Model, ParameterGroup
    from align.core.verdicts import Finding
    from align.lint.compare_settings import ComparedSettings, LayerPair
    from align.lint.lint_sides import LintSide, OptimizerSide
    from align.models.open_side import Side

Given = NameMap | Path | str | None
_PARTS = {"a model": "lint_place.model", "an optimizer": "lint_place.an_optimizer", "a loss": "lint_place.loss"}
TOPIC, KIND = "optimizers", "optimizer-method"


def lint_models(
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    name_map: NameMap | Path | str | None = None,
    steps: int | None = None,
) -> LintResult:
    """Compare the settings of all paired layers of two models, of two optimizers or two losses; no model is run.

    A side is a live model, optimizer or loss, a tuple of them with the schedulers of the optimizer, or
    `module:function` that makes one. Layers with parameters, and the groups of optimizers, are paired by `name_map`
    (made from the names if None), other layers by their place in the tree. Learning rates are compared over `steps`
    steps, if None over all that the schedules are made for; where one has no end, over 1000 or more. Raises
    NothingInCommonError if nothing pairs.

    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(name, **settings):
    ...     return ArrayModel((ArrayLayer("act", name, abs, {}, settings),))
    >>> reference = model("torch.nn.LeakyReLU", negative_slope=0.01)
    >>> lint_models(reference, model("mindspore.nn.LeakyReLU", alpha=0.2)).findings[0].change
    'nn.LeakyReLU(..., alpha=0.01)'
    """
    for side in (reference, candidate):
        if isinstance(side, str):
            require_file(side)
    if steps is not None and steps < 1:
        raise UsageError.of("lint_usage.no_steps", steps=steps)
    sides = open_lint_side(reference), open_lint_side(candidate)
    compared = joined_parts(list(_parts(sides, name_map, steps)))
    if not compared.pairs and not compared.findings and not compared.not_compared:
        raise NothingInCommonError(sides[0].label, sides[1].label, "layer")
    findings = tuple(sorted(compared.findings, key=lambda finding: SEVERITY_ORDER.index(finding.severity)))
    rules = pitfalls()
    unrun = sum(rule.unrun for rule in rules)
    labels = sides[0].label, sides[1].label
    fused, verdict = tuple(_fused(sides)), _verdict(compared)
    return LintResult(*labels, findings, compared.pairs, len(rules), unrun, verdict, compared.not_compared, fused)


def _fused(sides: tuple[LintSide, LintSide]) -> Iterator[Finding]:
    """What to look at in calls of fused operators, which are no layers."""
    for side in sides:
        for call in calls_in_model(side.model.model) if side.model else ():
            yield from call.findings()


def _parts(sides: tuple[LintSide, LintSide], given: Given, steps: int | None) -> Iterator[ComparedPart]:
    left, right = sides
    if left.parts.keys().isdisjoint(right.parts):
        _refuse_unlike(left, right)
    models = _models(left, right)
    if models:
        yield _layers(models, given)
    if left.optimizer and right.optimizer:
        owners = [optimizer.model for optimizer in (left.optimizer, right.optimizer) if optimizer.model]
        names = _name_map(given, *map(_parameters, owners)) if len(owners) == 2 else None
        compared = _lint_optimizers((left.optimizer, right.optimizer), names, steps)
        line = made_in(right.factory, type(right.optimizer.optimizer).__name__)
        yield replace(compared, findings=tuple(replace(one, line=line) for one in compared.findings))
    if left.loss and right.loss:
        refuse_one_object((left.loss, right.loss))
        yield compare_losses((left.loss, right.loss), pitfalls())
    for name in sorted((left.parts.keys() ^ right.parts.keys()) - ({"a model"} if models else set())):
        label, other = (left.label, right.label) if name in left.parts else (right.label, left.label)
        part = sentence(_PARTS[name])
        yield ComparedPart(not_compared=(sentence("lint_note.part_of_one_side", side=label, part=part, other=other),))


def _models(left: LintSide, right: LintSide) -> tuple[Side, Side] | None:
    """The models that are given; where one is, the other may be the one that the optimizer's parameters belong to."""
    if not left.model and not right.model:
        return None
    sides = [one.model or (one.optimizer.model if one.optimizer else None) for one in (left, right)]
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def _refuse_unlike(left: LintSide, right: LintSide) -> None:
    for name in ("an optimizer", "a loss"):
        for has, lacks in ((left, right), (right, left)):
            if name in has.parts:
                kind = name.partition(" ")[2]
                raise UsageError.of("lint_usage.other_kind", label=lacks.label, kind=kind)


def _layers(sides: tuple[Side, Side], given: Given) -> ComparedPart:
    """Layers of two models; of those that stay alone, count the ones that a rule knows."""
    refuse_one_object(sides)  # nothing is filled or run, so what else they share does no harm
    settings = [settings_reader(side).read_settings(side.model) for side in sides]
    left, right = map(_parameters, sides)
    by_path = [{layer.path: layer for layer in layers} for layers in settings]
    names = _name_map(given, left, right)
    pairs, alone = pair_layers((left, right), names, (by_path[0], by_path[1]))
    known = {name for rule in pitfalls() for form in rule.forms for name in form.classes}
    counts = [sum(not known.isdisjoint(layer.classes) for layer in layers) for layers in alone]
    compared = _compare_layers(pairs, sides)
    with_lines = (replace(finding, line=made_at(sides[1].model, finding.candidate)) for finding in compared.findings)
    findings = (*with_lines, *_frozen_findings((left, right), names))
    bare = not (left.parameters or right.parameters)  # of a loss that users wrote nothing else is to be seen
    unknown = [
        layer for layers in settings if len(layers) == 1 for layer in layers if bare and known.isdisjoint(layer.classes)
    ]
    names_of_unknown = () if compared.compared or findings else dict.fromkeys(layer.classes[0] for layer in unknown)
    problems = tuple(sentence("lint_note.unknown_class", name=class_name) for class_name in names_of_unknown)
    alone_and_known = counts[0], counts[1]
    return ComparedPart(findings, len(pairs), compared.compared, compared.unread, alone_and_known, problems)


def _compare_layers(pairs: list[LayerPair], sides: tuple[Side, Side]) -> ComparedSettings:
    """Compare the settings; where padding is unlike, the code around the layers is read."""
    rules = (*pitfalls(), *written_epsilons(pairs))
    compared = compare_settings(pairs, rules)
    unlike = {finding.reference for finding in compared.findings if "padding" in finding.rule}
    if not unlike:
        return compared
    models = sides[0].model, sides[1].model
    return compare_settings(
        [mark_padded_in_code(one, models) if one.reference.path in unlike else one for one in pairs], rules
    )


def _parameters(side: Side) -> ParameterSet:
    return side.reader.read_parameters(side.model, side.label)


def _name_map(given: Given, source: ParameterSet, target: ParameterSet) -> NameMap:
    if isinstance(given, NameMap):
        return given
    if given is not None:
        name_map = read_map(Path(given), source.names, target.names)
        check_shapes(name_map, source, target)
        return name_map
    if not source.parameters and not target.parameters:
        return NameMap(source.label, target.label)
    return match_sides(source, target, NameRules())


def _verdict(compared: ComparedPart) -> Verdict:
    coverage = Coverage("settings", compared.compared, compared.unread, *compared.alone)
    grave = [finding for finding in compared.findings if finding.severity != "note"]
    if grave:
        layers = len({finding.candidate for finding in grave})
        reason = sentence("lint_verdict.outputs_may_differ", count=len(grave), layers=layers)
        if all(finding.part != "layer" for finding in grave):
            reason = sentence("lint_verdict.training_may_differ", count=len(grave))
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, compared.caveats)
    if compared.not_compared:
        problems = compared.not_compared
        reason = sentence("lint_verdict.not_compared", count=len(problems), problems=problems)
        return Verdict(Outcome.NOT_COMPARED, reason, coverage, compared.caveats)
    if not compared.compared:
        return Verdict(Outcome.NOT_COMPARED, sentence("lint_verdict.nothing_known"), coverage)
    reason = sentence("lint_verdict.settings_equal", count=compared.compared)
    return Verdict(Outcome.ALIGNED, reason, coverage, compared.caveats)


def _frozen_findings(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> Iterator[SettingFinding]:
    """One finding for each side that freezes what the other trains; the outputs are equal, what is learned is not."""
    frozen = frozen_apart(name_map, *sides)
    classes = [next((module.class_name for module in side.modules), "") for side in sides]
    apart = (frozen.frozen_in_source, "reference"), (frozen.frozen_in_target, "candidate")
    for pairs, side in apart:
        if pairs:
            yield SettingFinding(
                rule="frozen-on-one-side",
                severity="error",
                reference="",
                candidate="",
                reference_class=classes[0],
                candidate_class=classes[1],
                setting=sentence("lint_setting.trainable_parameters"),
                reference_setting=sentence("lint_setting.trainable", count=frozen.trainable[0]),
                candidate_setting=sentence("lint_setting.trainable", count=frozen.trainable[1]),
                effect=sentence("lint_effect.frozen", count=len(pairs), side=side),
                change=freezing([pairing.target for pairing in pairs], frozen=side == "reference"),
                parameters=len(pairs),
                example=pairs[0].source,
                part="parameters",
            )


def decays_to_set(reference: str, candidate: str, name_map: Given = None) -> tuple[LintSide, dict[str, float]] | None:
    """The candidate's side, and by parameter the weight decay that its optimizer lacks for the reference's updates.

    None where the optimizers do not say, or a model is not known.
    """
    sides = open_lint_side(reference), open_lint_side(candidate)
    owners = [side.optimizer.model for side in sides if side.optimizer and side.optimizer.model]
    left, right = sides[0].optimizer, sides[1].optimizer
    if left is None or right is None or len(owners) < len(sides):
        return None
    names = _name_map(name_map, *map(_parameters, owners))
    decays = wanted_decays(_read_both((left, right), 1), names, pitfalls())
    return (sides[1], decays) if decays else None


def _lint_optimizers(
    sides: tuple[OptimizerSide, OptimizerSide], name_map: NameMap | None, steps: int | None
) -> ComparedPart:
    """Compare two optimizers; a method that no rule knows on both sides could not be compared."""
    if sides[0].optimizer is sides[1].optimizer:
        labels = tuple(type(side.optimizer).__name__ for side in sides)
        raise SharedModelError((labels[0], labels[1]), say("lint_usage.one_object"))
    groups = _read_both(sides, steps)
    rules = [rule for rule in pitfalls() if rule.topic == TOPIC]
    first = groups[0][0].settings, groups[1][0].settings
    makers = type(sides[0].optimizer), type(sides[1].optimizer)
    unknown = [side.classes[0] for side in first if _method(side.classes) is None]
    problems = [sentence("lint_note.unknown_class", name=name) for name in dict.fromkeys(unknown)]
    if not unknown and _method(first[0].classes) is _method(first[1].classes):
        pairs = [(left.settings, right.settings) for left in groups[0] for right in groups[1]]
        missed = [one for pair in pairs for one in uncovered_settings(makers, pair, rules)]
        problems += [sentence("lint_note.not_covered", what=one) for one in dict.fromkeys(missed)]
    own = ComparedPart(not_compared=tuple(problems))
    return joined_parts([compare_optimizers(groups, name_map, rules), own])


def _read_both(
    sides: tuple[OptimizerSide, OptimizerSide], steps: int | None
) -> tuple[list[ParameterGroup], list[ParameterGroup]]:
    """The groups with their rates, over the given number of steps or over those that tell the schedules apart."""
    left, right = (_read(side, steps or USUAL_STEPS) for side in sides)
    if steps is not None:
        return _over_all(left), _over_all(right)
    wanted = steps_to_sample(group.rates for group in (*left, *right))
    return (left, right) if wanted == USUAL_STEPS else (_read(sides[0], wanted), _read(sides[1], wanted))


def _over_all(groups: list[ParameterGroup]) -> list[ParameterGroup]:
    """The groups with no end before the last step that was asked for."""
    rates = [group.rates for group in groups]
    ends = [own.steps and max(own.steps, len(own.values)) for own in rates]
    return [replace(group, rates=replace(own, steps=end)) for group, own, end in zip(groups, rates, ends, strict=True)]


def _read(side: OptimizerSide, steps: int) -> list[ParameterGroup]:
    model = side.model.model if side.model else None
    return side.reader.read_groups(side.optimizer, model, side.schedulers, steps)


def _method(classes: tuple[str, ...]) -> object:
    rule = next(rule for rule in pitfalls() if rule.id == KIND)
    return rule.form_of(classes)
