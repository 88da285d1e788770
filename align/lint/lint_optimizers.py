"""Two optimizers read over as many steps as matter, then compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import SharedModelError
from align.lint.compare_optimizers import compare_optimizers
from align.lint.compare_schedules import STEPS, steps_to_sample
from align.lint.lint_result import ComparedPart, joined_parts
from align.lint.uncovered_settings import uncovered_settings
from align.rules.pitfalls import pitfalls
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.layer_settings import ParameterGroup
    from align.core.name_map import NameMap
    from align.lint.lint_sides import OptimizerSide

TOPIC, KIND = "optimizers", "optimizer-method"


def lint_optimizers(
    sides: tuple[OptimizerSide, OptimizerSide], name_map: NameMap | None, steps: int | None
) -> ComparedPart:
    """Compare two optimizers; a method that no rule knows on both sides could not be compared."""
    if sides[0].optimizer is sides[1].optimizer:
        labels = tuple(type(side.optimizer).__name__ for side in sides)
        raise SharedModelError((labels[0], labels[1]), "are one object: there is nothing to compare")
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
    left, right = (_read(side, steps or STEPS) for side in sides)
    if steps is not None:
        return _over_all(left), _over_all(right)
    wanted = steps_to_sample(group.rates for group in (*left, *right))
    return (left, right) if wanted == STEPS else (_read(sides[0], wanted), _read(sides[1], wanted))


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
