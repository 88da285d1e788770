"""One place for one line of code: like layers with one fault, and all that one optimizer does otherwise, are one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.models.function_source import own_classes
from align.models.source_lines import layer_at
from align.rules.training_rules import update_rule_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps

METHOD, LATER = "method", "schedule-later"
SETTLED = ("in-no-optimizer", LATER, "moved-without-gradient")  # what is no part of an optimizer's rule


def folded_culprits(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Put culprits together that one line of code explains; the places of the others stand in `also`."""
    groups: dict[object, list[StepCulprit]] = {}
    for number, one in enumerate(culprits):
        groups.setdefault(_origin(one, seen) or number, []).append(one)
    return [_folded(own, seen) for own in groups.values()]


def _origin(one: StepCulprit, seen: SeenSteps) -> object:
    """What several culprits have in common that are one fault; None where nothing says so."""
    figures = () if one.sureness == "suspected" else sorted(one.facts.items())  # those of a hint are each layer's own
    what = one.kind, one.part, one.cause, *figures
    if one.part == "optimizer":
        if one.cause == LATER:
            return one.part, LATER, one.facts.get("from step")
        return METHOD if one.kind == "update" and one.cause not in SETTLED and _methods(one.parameters, seen) else None
    if one.part not in ("layer", "code"):
        return None
    path = one.candidate if one.part == "layer" or one.candidate else ""
    own = own_classes(layer_at(seen.live.training.model, path)) if seen.live is not None and path else []
    if own:
        return *what, own[0]
    return (*what, one.candidate_class, one.line) if one.line and one.part == "layer" else None


def _methods(names: Sequence[str], seen: SeenSteps) -> str:
    """The classes of both sides' optimizers of these parameters, if their rules are not of one kind; else ""."""
    pairs = [one for one in seen.names.pairings if one.target in names]
    used = [
        [group for one in pairs if (group := seen.sides[side].groups.get((one.source, one.target)[side])) is not None]
        for side in (0, 1)
    ]
    classes = [sorted({group.settings.classes[0] for group in own}) for own in used]
    kinds = [{form.kind for name in own if (form := update_rule_form([name])) is not None} for own in classes]
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return " vs ".join(" and ".join(own) for own in classes)


def _folded(group: Sequence[StepCulprit], seen: SeenSteps) -> StepCulprit:
    first = max(group, key=lambda one: one.factor) if group[0].part == "optimizer" else group[0]
    if len(group) == 1:
        return first
    names = tuple(dict.fromkeys(name for one in group for name in one.parameters))
    also = tuple(dict.fromkeys(one.candidate for one in group if one.candidate != first.candidate))
    found = replace(first, parameters=names, also=also, factor=max(one.factor for one in group))
    if first.part != "optimizer" or first.cause == LATER:
        return found
    change = next((one.change for one in group if one.change), "")
    return replace(found, cause=METHOD, facts={"optimizer": _methods(names, seen)}, change=change, sureness="confirmed")
