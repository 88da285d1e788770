"""Two optimizers compared, group by group: settings in force, learning rates step by step, and what is trained."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from align.core.thresholds import FLOAT32_ROUNDING, LONGEST_SCHEDULE
from align.lint.compare_settings import ComparedPart, LayerPair, SettingFinding, compare_settings, joined_parts
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.name_map import NameMap
    from align.core.protocols import LearningRates, ParameterGroup
    from align.rules.pitfalls import Pitfall

RATE_TOLERANCE: Final = 1e-4
"""Two learning rates are equal up to this share of the larger one.
Measured: MindSpore computes schedules in float32 from the number of the step, and is off by up to 3e-5 in 1000
steps."""
USUAL_STEPS: Final = 1000
"""Learning rates are compared over this many steps where a schedule has no end and names no larger number.
Choice: fewer steps would not reach the end of a usual warm-up, more would take longer and show the same."""
PERIODS_COMPARED: Final = 2
"""Of a schedule with periods, at least this many of the longest are compared.
Choice: in one period, a change at its end, and what follows on it, would not be seen; more would show the same
again."""

RATE, DECAY = "optimizer-learning-rate", "optimizer-weight-decay"
GROUPED = {DECAY: "weight_decay", RATE: "lr"}  # what a group of MindSpore may be given
Groups = tuple["Sequence[ParameterGroup]", "Sequence[ParameterGroup]"]


def compare_optimizers(groups: Groups, name_map: NameMap | None, rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare the groups of two optimizers by the parameters that they hold.

    Where names are not known (`name_map` is None) a setting that all groups share is compared all the same; one that
    differs among groups is an error if no group of the other side has it, else it could not be compared.
    """
    if name_map is None or any(group.names is None for side in groups for group in side):
        return _compare_unnamed(groups, rules)
    paired = _pair_groups(*groups, name_map)
    parts = [_compare_pair(pair, rules, several=max(map(len, groups)) > 1) for pair in paired.pairs]
    joined, unknown = joined_parts(parts), paired.unknown
    open_names = [sentence("lint_note.open_names", count=len(unknown), names=unknown)] if unknown else []
    return replace(
        joined,
        findings=(*joined.findings, *_one_sided(groups, paired.only_reference, paired.only_candidate)),
        alone=(len(paired.only_reference), len(paired.only_candidate)),
        not_compared=tuple(dict.fromkeys([*joined.not_compared, *open_names])),
    )


def wanted_decays(groups: Groups, name_map: NameMap, rules: Sequence[Pitfall]) -> dict[str, float] | None:
    """The weight decay that each parameter of the candidate's optimizer has to have for the reference's updates.

    None where parameters lie in one optimizer alone or are not paired, and where a decay is no plain number.
    """
    if any(group.names is None for side in groups for group in side):
        return None
    paired = _pair_groups(*groups, name_map)
    if paired.unknown or paired.only_reference or paired.only_candidate:
        return None
    own = [rule for rule in rules if rule.id == DECAY]
    decays: dict[str, float] = {}
    for pair in paired.pairs:
        unlike = compare_settings([LayerPair(pair.reference.settings, pair.candidate.settings)], own).findings
        has = pair.candidate.settings.values.get(GROUPED[DECAY])
        value = next(iter(unlike[0].arguments.values()), None) if unlike else has
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        names = {one.target for one in name_map.pairings if one.source in pair.names}
        decays |= dict.fromkeys(names.intersection(pair.candidate.names or ()), float(value))
    return decays


def _compare_pair(pair: _GroupPair, rules: Sequence[Pitfall], *, several: bool) -> ComparedPart:
    mine, theirs = pair.reference, pair.candidate
    scheduled = mine.rates.scheduled or theirs.rates.scheduled
    own = [rule for rule in rules if not (scheduled and rule.id == RATE)]
    compared = compare_settings([LayerPair(mine.settings, theirs.settings)], own)
    findings = [_about_group(finding, pair, several=several) for finding in compared.findings]
    known = [*mine.problems, *theirs.problems]
    unknown = [one for one in compared.missing if not any(text.replace("_", " ").startswith(one) for text in known)]
    problems = [*_unread_settings(unknown, pair), *_unread_rates(known, pair)]
    settings = ComparedPart(tuple(findings), 1, compared.compared, compared.unread, not_compared=tuple(problems))
    return joined_parts([settings, _compare_rates(pair)]) if scheduled else settings


def _unread_settings(settings: Iterable[str], pair: _GroupPair) -> list[str]:
    return [sentence("lint_note.setting_of_group", setting=one, group=_place(pair)) for one in settings]


def _unread_rates(problems: Iterable[str], pair: _GroupPair) -> list[str]:
    return [sentence("lint_note.problem_of_group", problem=one, group=_place(pair)) for one in problems]


def _place(pair: _GroupPair) -> str:
    paths = [group.settings.path for group in (pair.reference, pair.candidate)]
    mine, theirs = (path or sentence("lint_place.optimizer") for path in paths)
    return mine if mine == theirs else sentence("lint_place.both_groups", reference=mine, candidate=theirs)


def _about_group(finding: SettingFinding, pair: _GroupPair, *, several: bool) -> SettingFinding:
    """Say for how many parameters, and what to write in a group rather than for all."""
    count = len(pair.names)
    example = pair.names[0] if pair.names else ""
    change = finding.change
    if several and finding.rule in GROUPED and finding.arguments and count:
        value = next(iter(finding.arguments.values()))
        change = sentence(
            "lint_change.group", argument=GROUPED[finding.rule], value=repr(value), name=pair.names[0], more=count > 1
        )
    return replace(finding, parameters=count, example=example, change=change, part="optimizer")


def _one_sided(
    groups: Groups, only_reference: Sequence[str], only_candidate: Sequence[str]
) -> Iterator[SettingFinding]:
    for names, trained in ((only_reference, True), (only_candidate, False)):
        if names:
            change = sentence("lint_change.train" if trained else "lint_change.leave_out", names=names)
            places = sentence("lint_setting.trained", count=len(names)), sentence("lint_setting.not_in_optimizer")
            yield SettingFinding(
                rule="optimizer-parameters",
                severity="error",
                reference="",
                candidate="",
                reference_class=_class_name(groups[0]),
                candidate_class=_class_name(groups[1]),
                setting=sentence("lint_setting.trained_parameters"),
                reference_setting=places[0 if trained else 1],
                candidate_setting=places[1 if trained else 0],
                effect=sentence("lint_effect.trained_on_one_side"),
                change=change,
                parameters=len(names),
                example=names[0],
                part="optimizer",
            )


def _class_name(groups: Sequence[ParameterGroup]) -> str:
    classes = groups[0].settings.classes if groups else ()
    return classes[0].rpartition(".")[2] if classes else ""


# Learning rates that change.


def _compare_rates(pair: _GroupPair) -> ComparedPart:
    mine, theirs = pair.reference.rates, pair.candidate.rates
    problems = [rates.problem for rates in (mine, theirs) if rates.problem]
    if problems:
        notes = (sentence("lint_note.rate_of_group", group=_place(pair), problem=problem) for problem in problems)
        return ComparedPart(unread=1, not_compared=tuple(notes))
    steps = common_steps(mine, theirs)
    caveats = () if is_whole(mine, theirs) else (sentence("lint_caveat.rates_after_step", step=steps),)
    unlike = first_unlike_rate(mine, theirs)
    if unlike is None:
        return ComparedPart(compared=1, caveats=caveats)
    period = steps_a_period(mine, theirs)
    places = _shown(mine, unlike.step), _shown(theirs, unlike.step)
    counts = {"step": unlike.step, "count": unlike.differing, "total": unlike.steps, "behind": unlike.behind}
    effect = sentence("lint_effect.rates_differ", **counts)
    change = sentence("lint_change.schedule", rate=unlike.rates[0], step=unlike.step)
    if period:
        effect = sentence("lint_effect.rates_equal_if_stepped", period=period)
        change = sentence("lint_change.nothing_if_so")
    finding = SettingFinding(
        rule="learning-rate-schedule",
        severity="note" if period else "error",
        reference=pair.reference.settings.path,
        candidate=pair.candidate.settings.path,
        reference_class=_class_name([pair.reference]),
        candidate_class=_class_name([pair.candidate]),
        setting=sentence("lint_setting.learning_rate"),
        reference_setting=places[0],
        candidate_setting=places[1],
        effect=effect,
        change=change,
        parameters=len(pair.names),
        example=pair.names[0] if pair.names else "",
        part="optimizer",
    )
    return ComparedPart((finding,), compared=1, caveats=caveats)


def _shown(rates: LearningRates, step: int) -> str:
    if not rates.by:
        return sentence("lint_setting.constant_rate", rate=rates.at(step), step=step)
    return sentence("lint_setting.rate_by", rate=rates.at(step), step=step, scheduler=rates.by)


# Names that are not known.


def _compare_unnamed(groups: Groups, rules: Sequence[Pitfall]) -> ComparedPart:
    """Each setting on its own: equal in all groups, in none, or not known."""
    pairs = [[_GroupPair(group, other, ()) for other in groups[1]] for group in groups[0]]
    findings: list[SettingFinding] = []
    problems: list[str] = []
    compared = unread = 0
    caveats: list[str] = []
    for rule in (*rules, None):
        parts = {(a, b): _compare_rule(pair, rule) for a, row in enumerate(pairs) for b, pair in enumerate(row)}
        known = [part for part in parts.values() if part.compared or part.not_compared]
        problems += [problem for part in known for problem in part.not_compared]
        unread += any(part.unread for part in known)
        caveats += [caveat for part in known for caveat in part.caveats]
        if not any(part.compared for part in known):
            continue
        if place := _unlike_group(parts, len(pairs), len(pairs[0])):
            count = groups[0][place[0]].count
            findings += [replace(finding, parameters=count, part="optimizer") for finding in parts[place].findings]
        elif any(part.findings for part in known):
            unread += 1
            problems.append(_unpaired(rule))
            continue
        compared += 1
    return ComparedPart(
        tuple(findings), max(map(len, groups)), compared, unread, not_compared=tuple(dict.fromkeys(problems)),
        caveats=tuple(dict.fromkeys(caveats)),
    )  # fmt: skip


def _unlike_group(parts: dict[tuple[int, int], ComparedPart], rows: int, columns: int) -> tuple[int, int] | None:
    """A pair of which one group agrees with none of the other side; the same numbers first."""
    alone = [(a, min(a, columns - 1)) for a in range(rows) if all(parts[a, b].findings for b in range(columns))]
    alone += [(min(b, rows - 1), b) for b in range(columns) if all(parts[a, b].findings for a in range(rows))]
    return alone[0] if alone else None


def _compare_rule(pair: _GroupPair, rule: Pitfall | None) -> ComparedPart:
    """Compare one setting, or with None the learning rates that change."""
    scheduled = pair.reference.rates.scheduled or pair.candidate.rates.scheduled
    if rule is None:
        problems = _unread_rates((*pair.reference.problems, *pair.candidate.problems), pair)
        rates = _compare_rates(pair) if scheduled else ComparedPart()
        return replace(rates, not_compared=(*rates.not_compared, *problems))
    if scheduled and rule.id == RATE:
        return ComparedPart()
    found = compare_settings([LayerPair(pair.reference.settings, pair.candidate.settings)], [rule])
    missing = _unread_settings(found.missing, pair)
    return ComparedPart(found.findings, 1, found.compared, found.unread, not_compared=tuple(missing))


def _unpaired(rule: Pitfall | None) -> str:
    setting = rule.setting if rule else sentence("lint_setting.learning_rate")
    attribute = rule.forms[0].attributes[0] if rule and rule.forms[0].attributes else setting
    if attribute == setting:
        return sentence("lint_note.differs_among_groups", setting=setting)
    return sentence("lint_note.attribute_differs_among_groups", setting=setting, attribute=attribute)


@dataclass(frozen=True, slots=True)
class _GroupPair:
    """Two groups and the parameters, by the reference's names, that the one and the other treat."""

    reference: ParameterGroup
    candidate: ParameterGroup
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _PairedGroups:
    """Pairs, the parameters that only one side's optimizer moves, and those whose counterpart is not known."""

    pairs: tuple[_GroupPair, ...]
    only_reference: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def _pair_groups(
    reference: Sequence[ParameterGroup], candidate: Sequence[ParameterGroup], name_map: NameMap
) -> _PairedGroups:
    """Pair the groups of two optimizers of models that `name_map` is about; all names must be known."""
    mine, theirs = _places(reference), _places(candidate)
    targets, sources = defaultdict(list), defaultdict(list)
    for pairing in name_map.pairings:
        targets[pairing.source].append(pairing.target)
        sources[pairing.target].append(pairing.source)
    shared_names: dict[tuple[int, int], list[str]] = defaultdict(list)
    for source, place in mine.items():
        for other in sorted({theirs[target] for target in targets[source] if target in theirs}):
            shared_names[place, other].append(source)
    open_sources, open_targets = _names_without_counterpart(name_map, mine, theirs, shared_names)
    pairs = tuple(
        _GroupPair(reference[a], candidate[b], tuple(names)) for (a, b), names in sorted(shared_names.items())
    )
    return _PairedGroups(
        pairs,
        tuple(name for name in mine if targets[name] and not any(target in theirs for target in targets[name])),
        tuple(name for name in theirs if sources[name] and not any(source in mine for source in sources[name])),
        (*open_sources, *open_targets),
    )


def _places(groups: Sequence[ParameterGroup]) -> dict[str, int]:
    return {name: number for number, group in enumerate(groups) for name in group.names or ()}


def _names_without_counterpart(
    name_map: NameMap, mine: dict[str, int], theirs: dict[str, int], shared_names: dict[tuple[int, int], list[str]]
) -> tuple[list[str], list[str]]:
    """Names of either side without a known counterpart; which one it is does not matter where all lie in one group."""
    paired = {pairing.source for pairing in name_map.pairings}, {pairing.target for pairing in name_map.pairings}
    open_names = [name for name in mine if name not in paired[0]], [name for name in theirs if name not in paired[1]]
    decided: set[str] = set()
    for group in name_map.ambiguous:
        places = {mine.get(name) for name in group.sources}, {theirs.get(name) for name in group.targets}
        if len(places[0]) == len(places[1]) == 1 and None not in places[0] | places[1]:
            shared_names[places[0].pop() or 0, places[1].pop() or 0] += group.sources
            decided |= {*group.sources, *group.targets}
    return [name for name in open_names[0] if name not in decided], [
        name for name in open_names[1] if name not in decided
    ]


# Learning rates of two groups held against each other, step by step.


@dataclass(frozen=True, slots=True)
class RatesDiffer:
    """The first step, counted from 0, at which two schedules differ, both rates there, and in how many of the steps.

    `behind` is the end of the schedule that is made for fewer steps than that, None if none is.
    """

    step: int
    rates: tuple[float, float]
    differing: int
    steps: int
    behind: int | None = None


def first_unlike_rate(mine: LearningRates, theirs: LearningRates) -> RatesDiffer | None:
    """Compare over all steps that both have, a rate that stays over all of the other's."""
    steps = common_steps(mine, theirs)
    # Below, near the end of a cosine, cancellation is all that is left of a float32.
    floor = FLOAT32_ROUNDING * max(map(abs, (*mine.values, *theirs.values)))
    unlike = [step for step in range(steps) if not _close(mine.at(step), theirs.at(step), floor)]
    if not unlike:
        return None
    first = unlike[0]
    behind = next((one.steps for one in (mine, theirs) if one.steps and one.steps <= first), None)
    return RatesDiffer(first, (mine.at(first), theirs.at(first)), len(unlike), steps, behind)


def steps_to_sample(rates: Iterable[LearningRates]) -> int:
    """The steps that tell schedules apart: up to the last end if all have one, else some periods of the longest.

    One that has no end goes on where the other's has come: only behind it a restart differs from what stays.
    """
    changing = [schedule for schedule in rates if schedule.scheduled and not schedule.problem]
    ends = [schedule.steps for schedule in changing]
    if changing and all(ends):
        return min(max(end or 0 for end in ends), LONGEST_SCHEDULE)
    longest = max((max(schedule.reach, schedule.steps or 0) for schedule in changing), default=0)
    return min(max(USUAL_STEPS, PERIODS_COMPARED * longest + 1), LONGEST_SCHEDULE)


def common_steps(mine: LearningRates, theirs: LearningRates) -> int:
    """The number of steps whose rates both sides have, not behind the later end if all that change have one."""
    length = min((len(one.values) for one in (mine, theirs) if len(one.values) > 1), default=1)
    ends = _ends(mine, theirs)
    return min(length, max(one or 0 for one in ends)) if ends and all(ends) else length


def is_whole(mine: LearningRates, theirs: LearningRates) -> bool:
    """Tell whether no step was left out: all that change have come to an end, or one has no rates behind it."""
    ends, steps = _ends(mine, theirs), common_steps(mine, theirs)
    stopped = any(one.steps == len(one.values) == steps for one in (mine, theirs))
    return stopped or (all(ends) and max((one or 0 for one in ends), default=0) <= steps)


def _ends(mine: LearningRates, theirs: LearningRates) -> list[int | None]:
    return [one.steps for one in (mine, theirs) if one.scheduled]


def stretched_by(mine: LearningRates, theirs: LearningRates) -> int | None:
    """The number of steps of the one side that are one of the other's, if all rates that both have then agree.

    So a scheduler that is stepped once an epoch, whatever it does in these, stands against one that is stepped always.
    """
    first, other = _first_change(mine), _first_change(theirs)
    if first is None or other is None:
        return None
    quick, slow = (mine, theirs) if first < other else (theirs, mine)
    length, left = divmod(max(first, other), min(first, other))
    if length < 2 or left:
        return None
    floor = FLOAT32_ROUNDING * max(map(abs, slow.values))
    steps = min(len(slow.values), length * len(quick.values))
    agree = all(_close(quick.at(step // length), slow.at(step), floor) for step in range(steps))
    return length if agree else None


def _first_change(rates: LearningRates) -> int | None:
    return next((step for step, value in enumerate(rates.values) if value != rates.values[0]), None)


def steps_a_period(mine: LearningRates, theirs: LearningRates) -> int | None:
    """The number of steps for which one side keeps a rate that the other changes at each, if that explains all.

    So a scheduler that is stepped once an epoch stands against a list with a rate for each step.
    """
    return _period(mine, theirs) or _period(theirs, mine)


def _period(quick: LearningRates, slow: LearningRates) -> int | None:
    values = slow.values
    length = _first_change(slow) or len(values)
    needed = -(-len(values) // length) if length else 0
    if length < 2 or needed < 2 or len(quick.values) < needed:
        return None
    floor = FLOAT32_ROUNDING * max(map(abs, values))
    agree = all(_close(quick.at(step // length), value, floor) for step, value in enumerate(values))
    return length if agree else None


def _close(one: float, other: float, floor: float) -> bool:
    return abs(one - other) <= max(RATE_TOLERANCE * max(abs(one), abs(other)), floor)
