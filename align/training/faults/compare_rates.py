"""Learning rates over the whole of both schedules: they may part long after the steps that are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.lint.compare_schedules import first_unlike_rate, stretched_by
from align.training.step_result import StepCulprit
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.core.layer_settings import LearningRates
    from align.lint.compare_schedules import RatesDiffer
    from align.training.steps.both_steps import SeenSteps

LATER = "schedule-later"


def rate_culprits(seen: SeenSteps, faulty: Iterable[str]) -> Iterator[StepCulprit]:
    """Name schedules of both sides that part after the steps taken, but of parameters that are `faulty` already."""
    for unlike, rates, names in _unlike(seen, {*faulty}):
        if all(one.scheduled for one in rates) and not stretched_by(*rates):
            yield StepCulprit(
                "update", "optimizer", "", "", "", "", 0.0, LATER, {**_facts(unlike)}, names, sureness="confirmed"
            )


def rate_findings(seen: SeenSteps, faulty: Iterable[str]) -> Iterator[Finding]:
    """Warn of schedules that may agree: the other side's may stand where nobody sees it, or be stepped more rarely."""
    for unlike, rates, names in _unlike(seen, {*faulty}):
        has = seen.sides[0 if rates[0].scheduled else 1]
        if not all(one.scheduled for one in rates):
            message = sentence("rates_finding.on_one_side", step=unlike.step + 1, names=names)
            yield Finding("schedule-on-one-side", "warning", has.label, message, {**_facts(unlike)})
        elif steps := stretched_by(*rates):
            message = sentence("rates_finding.stretched", steps=steps, names=names)
            yield Finding("schedule-stretched", "warning", has.label, message, {"steps": steps})


def _unlike(
    seen: SeenSteps, faulty: set[str]
) -> Iterator[tuple[RatesDiffer, tuple[LearningRates, LearningRates], tuple[str, ...]]]:
    """Rates of paired groups that part behind the steps that were taken, with the candidate's parameters."""
    paired: dict[tuple[int, int], list[str]] = {}
    groups = seen.sides[0].groups, seen.sides[1].groups
    for one in seen.names.pairings:
        if one.source in groups[0] and one.target in groups[1]:
            paired.setdefault((id(groups[0][one.source]), id(groups[1][one.target])), []).append(one.target)
    known = {id(group): group.rates for own in groups for group in own.values()}
    taken = len(seen.traces[0].losses)
    for (mine, theirs), names in paired.items():
        rates = known[mine], known[theirs]
        if faulty & {*names} or any(one.problem or not one.values for one in rates):
            continue
        unlike = first_unlike_rate(*rates)
        if unlike is not None and unlike.step >= taken:
            yield unlike, rates, tuple(names)


def _facts(unlike: RatesDiffer) -> dict[str, float | int | str]:
    return {"from step": unlike.step + 1, "learning rate": f"{unlike.rates[0]:.6g} vs {unlike.rates[1]:.6g}"}
