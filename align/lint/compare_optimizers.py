"""Two optimizers compared, group by group: settings in force, learning rates step by step, and what is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.message_words import counted, first_few
from align.lint.compare_schedules import common_steps, first_unlike_rate, is_whole, steps_a_period
from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.lint_result import ComparedPart, SettingFinding
from align.lint.pair_groups import GroupPair, are_named, pair_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.layer_settings import LearningRates, ParameterGroup
    from align.core.name_map import NameMap
    from align.rules.pitfalls import Pitfall

RATE = "optimizer-learning-rate"
GROUPED = {"optimizer-weight-decay": "weight_decay", RATE: "lr"}  # what a group of MindSpore may be given
Groups = tuple["Sequence[ParameterGroup]", "Sequence[ParameterGroup]"]


def compare_optimizers(groups: Groups, name_map: NameMap | None, rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare the groups of two optimizers by the parameters that they hold.

    Where names are not known (`name_map` is None) a setting that all groups share is compared all the same; one that
    differs among groups is an error if no group of the other side has it, else it could not be compared.
    """
    if name_map is None or not (are_named(groups[0]) and are_named(groups[1])):
        return _compare_unnamed(groups, rules)
    paired = pair_groups(*groups, name_map)
    parts = [_compare_pair(pair, rules, several=max(map(len, groups)) > 1) for pair in paired.pairs]
    findings = [finding for part in parts for finding in part.findings]
    findings += _one_sided(groups, paired.only_reference, paired.only_candidate)
    open_ones = _open_names(paired.unknown)
    return ComparedPart(
        tuple(findings),
        len(paired.pairs),
        sum(part.compared for part in parts),
        sum(part.unread for part in parts),
        (len(paired.only_reference), len(paired.only_candidate)),
        tuple(dict.fromkeys([*(one for part in parts for one in part.not_compared), *open_ones])),
        tuple(dict.fromkeys(one for part in parts for one in part.caveats)),
    )


def _compare_pair(pair: GroupPair, rules: Sequence[Pitfall], *, several: bool) -> ComparedPart:
    mine, theirs = pair.reference, pair.candidate
    scheduled = mine.rates.scheduled or theirs.rates.scheduled
    own = [rule for rule in rules if not (scheduled and rule.id == RATE)]
    compared = compare_settings([LayerPair(mine.settings, theirs.settings)], own)
    findings = [_about_group(finding, pair, several=several) for finding in compared.findings]
    known = [*mine.problems, *theirs.problems]
    unknown = [one for one in compared.missing if not any(text.replace("_", " ").startswith(one) for text in known)]
    problems = [*(f"{one} of {_place(pair)}" for one in unknown), *(f"{text} ({_place(pair)})" for text in known)]
    if not scheduled:
        return ComparedPart(tuple(findings), 1, compared.compared, compared.unread, not_compared=tuple(problems))
    rates = _compare_rates(pair)
    return ComparedPart(
        (*findings, *rates.findings), 1, compared.compared + rates.compared, compared.unread + rates.unread,
        not_compared=(*problems, *rates.not_compared), caveats=rates.caveats,
    )  # fmt: skip


def _place(pair: GroupPair) -> str:
    paths = [group.settings.path or "the optimizer" for group in (pair.reference, pair.candidate)]
    return paths[0] if paths[0] == paths[1] else f"{paths[0]} and {paths[1]}"


def _about_group(finding: SettingFinding, pair: GroupPair, *, several: bool) -> SettingFinding:
    """Say for how many parameters, and what to write in a group rather than for all."""
    count = len(pair.names)
    example = pair.names[0] if pair.names else ""
    change = finding.change
    if several and finding.rule in GROUPED and finding.arguments and count:
        value = next(iter(finding.arguments.values()))
        names = first_few(pair.names, 1)
        change = f'a group {{"params": [...], "{GROUPED[finding.rule]}": {value!r}}} with {names}'
    return replace(finding, parameters=count, example=example, change=change, part="optimizer")


def _one_sided(
    groups: Groups, only_reference: Sequence[str], only_candidate: Sequence[str]
) -> Iterator[SettingFinding]:
    for names, trained in ((only_reference, True), (only_candidate, False)):
        if names:
            places = f"{counted(len(names), 'parameter')} trained", "not in the optimizer"
            yield SettingFinding(
                rule="optimizer-parameters",
                severity="error",
                reference="",
                candidate="",
                reference_class=_class_name(groups[0]),
                candidate_class=_class_name(groups[1]),
                setting="parameters that are trained",
                reference_setting=places[0 if trained else 1],
                candidate_setting=places[1 if trained else 0],
                effect="the optimizer of one side moves parameters that the other's leaves as they are",
                change=f"the optimizer {'with' if trained else 'without'} {first_few(names)}",
                parameters=len(names),
                example=names[0],
                part="optimizer",
            )


def _class_name(groups: Sequence[ParameterGroup]) -> str:
    classes = groups[0].settings.classes if groups else ()
    return classes[0].rpartition(".")[2] if classes else ""


def _open_names(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    told = f"{counted(len(names), 'parameter')} of the optimizers ({first_few(names)})"
    return [f"{told} without a known counterpart: `align map` with both models tells, --map takes its file"]


# Learning rates that change.


def _compare_rates(pair: GroupPair) -> ComparedPart:
    mine, theirs = pair.reference.rates, pair.candidate.rates
    problems = tuple(f"learning rate of {_place(pair)}: {one.problem}" for one in (mine, theirs) if one.problem)
    if problems:
        return ComparedPart(unread=1, not_compared=problems)
    steps = common_steps(mine, theirs)
    caveats = () if is_whole(mine, theirs) else (f"learning rates after step {steps:,}",)
    unlike = first_unlike_rate(mine, theirs)
    if unlike is None:
        return ComparedPart(compared=1, caveats=caveats)
    period = steps_a_period(mine, theirs)
    places = _shown(mine, unlike.step), _shown(theirs, unlike.step)
    words = f"differs from step {unlike.step} on, at {unlike.differing:,} of {unlike.steps:,} steps"
    if unlike.behind:
        words += f", behind the {unlike.behind:,} that one side is made for (--steps {unlike.behind} leaves them out)"
    change = f"a schedule that gives {unlike.rates[0]:.6g} at step {unlike.step}"
    if period:
        words = f"is equal if the scheduler that changes at each step is stepped every {period} steps"
        change = "nothing, if that is so"
    finding = SettingFinding(
        rule="learning-rate-schedule",
        severity="note" if period else "error",
        reference=pair.reference.settings.path,
        candidate=pair.candidate.settings.path,
        reference_class=_class_name([pair.reference]),
        candidate_class=_class_name([pair.candidate]),
        setting="learning rate",
        reference_setting=places[0],
        candidate_setting=places[1],
        effect=f"the learning rate {words}",
        change=change,
        parameters=len(pair.names),
        example=pair.names[0] if pair.names else "",
        part="optimizer",
    )
    return ComparedPart((finding,), compared=1, caveats=caveats)


def _shown(rates: LearningRates, step: int) -> str:
    by = f" by {rates.by}" if rates.by else ", constant"
    return f"learning rate={rates.at(step):.6g} at step {step}{by}"


# Names that are not known.


@dataclass(frozen=True, slots=True)
class _Held:
    """Whether each group of the one side agrees with each of the other in one setting."""

    findings: dict[tuple[int, int], tuple[SettingFinding, ...]]
    rows: int
    columns: int

    def alone(self) -> tuple[int, int] | None:
        """A pair of which one group agrees with none of the other side; the same numbers first."""
        rows = [a for a in range(self.rows) if all(self.findings[a, b] for b in range(self.columns))]
        columns = [b for b in range(self.columns) if all(self.findings[a, b] for a in range(self.rows))]
        pairs = [(a, min(a, self.columns - 1)) for a in rows] + [(min(b, self.rows - 1), b) for b in columns]
        return pairs[0] if pairs else None


def _compare_unnamed(groups: Groups, rules: Sequence[Pitfall]) -> ComparedPart:
    """Each setting on its own: equal in all groups, in none, or not to be told."""
    pairs = [[GroupPair(one, other, ()) for other in groups[1]] for one in groups[0]]
    findings: list[SettingFinding] = []
    problems: list[str] = []
    compared = unread = 0
    caveats: list[str] = []
    for rule in (*rules, None):
        parts = {(a, b): _compare_rule(pair, rule) for a, row in enumerate(pairs) for b, pair in enumerate(row)}
        known = [part for part in parts.values() if part.compared or part.not_compared]
        problems += [one for part in known for one in part.not_compared]
        unread += any(part.unread for part in known)
        caveats += [one for part in known for one in part.caveats]
        if not any(part.compared for part in known):
            continue
        held = _Held({place: part.findings for place, part in parts.items()}, len(pairs), len(pairs[0]))
        if place := held.alone():
            findings += _counted(parts[place].findings, groups[0][place[0]].count)
        elif any(part.findings for part in known):
            unread += 1
            problems.append(_unpaired(rule))
            continue
        compared += 1
    return ComparedPart(
        tuple(findings), max(map(len, groups)), compared, unread, not_compared=tuple(dict.fromkeys(problems)),
        caveats=tuple(dict.fromkeys(caveats)),
    )  # fmt: skip


def _compare_rule(pair: GroupPair, rule: Pitfall | None) -> ComparedPart:
    """Compare one setting, or with None the learning rates that change."""
    scheduled = pair.reference.rates.scheduled or pair.candidate.rates.scheduled
    if rule is None:
        problems = tuple(f"{one} ({_place(pair)})" for one in (*pair.reference.problems, *pair.candidate.problems))
        rates = _compare_rates(pair) if scheduled else ComparedPart()
        return replace(rates, not_compared=(*rates.not_compared, *problems))
    if scheduled and rule.id == RATE:
        return ComparedPart()
    found = compare_settings([LayerPair(pair.reference.settings, pair.candidate.settings)], [rule])
    missing = tuple(f"{setting} of {_place(pair)}" for setting in found.missing)
    return ComparedPart(found.findings, 1, found.compared, found.unread, not_compared=missing)


def _counted(findings: Sequence[SettingFinding], count: int) -> list[SettingFinding]:
    return [replace(finding, parameters=count, part="optimizer") for finding in findings]


def _unpaired(rule: Pitfall | None) -> str:
    setting = rule.setting if rule else "learning rate"
    form = rule.forms[0].attributes[0] if rule and rule.forms[0].attributes else ""
    named = f"{setting} ({form})" if form and form != setting else setting
    return f"{named} differs among the groups, and no model tells which parameters they hold: return (model, optimizer)"
