"""Two optimizers compared, group by group: settings in force, learning rates step by step, and what is trained."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.lint.compare_schedules import common_steps, first_unlike_rate, is_whole, steps_a_period
from align.lint.compare_settings import ComparedPart, LayerPair, SettingFinding, compare_settings
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.name_map import NameMap
    from align.core.protocols import LearningRates, ParameterGroup
    from align.rules.pitfalls import Pitfall

RATE = "optimizer-learning-rate"
GROUPED = {"optimizer-weight-decay": "weight_decay", RATE: "lr"}  # what a group of MindSpore may be given
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
    findings = [finding for part in parts for finding in part.findings]
    findings += _one_sided(groups, paired.only_reference, paired.only_candidate)
    unknown = paired.unknown
    open_ones = [sentence("lint_note.open_names", count=len(unknown), names=unknown)] if unknown else []
    return ComparedPart(
        tuple(findings),
        len(paired.pairs),
        sum(part.compared for part in parts),
        sum(part.unread for part in parts),
        (len(paired.only_reference), len(paired.only_candidate)),
        tuple(dict.fromkeys([*(one for part in parts for one in part.not_compared), *open_ones])),
        tuple(dict.fromkeys(one for part in parts for one in part.caveats)),
    )


def _compare_pair(pair: _GroupPair, rules: Sequence[Pitfall], *, several: bool) -> ComparedPart:
    mine, theirs = pair.reference, pair.candidate
    scheduled = mine.rates.scheduled or theirs.rates.scheduled
    own = [rule for rule in rules if not (scheduled and rule.id == RATE)]
    compared = compare_settings([LayerPair(mine.settings, theirs.settings)], own)
    findings = [_about_group(finding, pair, several=several) for finding in compared.findings]
    known = [*mine.problems, *theirs.problems]
    unknown = [one for one in compared.missing if not any(text.replace("_", " ").startswith(one) for text in known)]
    problems = [*_unread_settings(unknown, pair), *_unread_rates(known, pair)]
    if not scheduled:
        return ComparedPart(tuple(findings), 1, compared.compared, compared.unread, not_compared=tuple(problems))
    rates = _compare_rates(pair)
    return ComparedPart(
        (*findings, *rates.findings), 1, compared.compared + rates.compared, compared.unread + rates.unread,
        not_compared=(*problems, *rates.not_compared), caveats=rates.caveats,
    )  # fmt: skip


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
    problems = tuple(
        sentence("lint_note.rate_of_group", group=_place(pair), problem=one.problem)
        for one in (mine, theirs)
        if one.problem
    )
    if problems:
        return ComparedPart(unread=1, not_compared=problems)
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
    """Each setting on its own: equal in all groups, in none, or not known."""
    pairs = [[_GroupPair(one, other, ()) for other in groups[1]] for one in groups[0]]
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
            count = groups[0][place[0]].count
            findings += [replace(one, parameters=count, part="optimizer") for one in parts[place].findings]
        elif any(part.findings for part in known):
            unread += 1
            problems.append(_unpaired(rule))
            continue
        compared += 1
    return ComparedPart(
        tuple(findings), max(map(len, groups)), compared, unread, not_compared=tuple(dict.fromkeys(problems)),
        caveats=tuple(dict.fromkeys(caveats)),
    )  # fmt: skip


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
    held: dict[tuple[int, int], list[str]] = defaultdict(list)
    for source, place in mine.items():
        for other in sorted({theirs[target] for target in targets[source] if target in theirs}):
            held[place, other].append(source)
    open_sources, open_targets = _names_without_counterpart(name_map, mine, theirs, held)
    pairs = tuple(_GroupPair(reference[a], candidate[b], tuple(names)) for (a, b), names in sorted(held.items()))
    return _PairedGroups(
        pairs,
        tuple(one for one in mine if targets[one] and not any(target in theirs for target in targets[one])),
        tuple(one for one in theirs if sources[one] and not any(source in mine for source in sources[one])),
        (*open_sources, *open_targets),
    )


def _places(groups: Sequence[ParameterGroup]) -> dict[str, int]:
    return {name: number for number, group in enumerate(groups) for name in group.names or ()}


def _names_without_counterpart(
    name_map: NameMap, mine: dict[str, int], theirs: dict[str, int], held: dict[tuple[int, int], list[str]]
) -> tuple[list[str], list[str]]:
    """Names of either side without a known counterpart; which one it is does not matter where all lie in one group."""
    paired = {one.source for one in name_map.pairings}, {one.target for one in name_map.pairings}
    open_names = [one for one in mine if one not in paired[0]], [one for one in theirs if one not in paired[1]]
    decided: set[str] = set()
    for group in name_map.ambiguous:
        places = {mine.get(one) for one in group.sources}, {theirs.get(one) for one in group.targets}
        if len(places[0]) == len(places[1]) == 1 and None not in places[0] | places[1]:
            held[places[0].pop() or 0, places[1].pop() or 0] += group.sources
            decided |= {*group.sources, *group.targets}
    return [one for one in open_names[0] if one not in decided], [one for one in open_names[1] if one not in decided]
