"""Faults put into words of data: one culprit for each module and part, with what is known of its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.forward.causes.settings_without_rules import same_named_settings, switched_settings
from align.forward.culprit_result import Culprit
from align.lint.compare_settings import LayerPair, compare_settings
from align.words.catalogue import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.layer_settings import LayerSettings
    from align.forward.isolation.isolated_calls import IsolatedCall
    from align.forward.isolation.locate_faults import Fault, ProducerLayer
    from align.forward.relations.relation import Relation
    from align.lint.lint_result import SettingFinding
    from align.rules.pitfalls import Pitfall
    from align.traces.pair_inputs import CallKey

WEIGHTS = "weights-differ"
MOST_AROUND = 3  # modules


def culprit_of(faults: Sequence[Fault]) -> Culprit:
    """State the faults of one module and part, those of its repeated calls, of which no cause is known yet."""
    mine, theirs = faults[0].pair.reference, faults[0].pair.candidate
    culprit = Culprit(
        reference=mine.module,
        candidate=theirs.module,
        reference_class=mine.class_name,
        candidate_class=theirs.class_name,
        call=mine.call,
        part=faults[0].part,
        factor=max(fault.tensor.factor for fault in faults),
        facts={"calls": len(faults)} if len(faults) > 1 else {},
    )
    if begins := faults[0].begins:
        return replace(
            culprit,
            reference=begins.reference.module,
            candidate=begins.candidate.module,
            reference_class=begins.reference.class_name,
            candidate_class=begins.candidate.class_name,
            call=begins.reference.call,
            facts={**culprit.facts, "shows_at": theirs.module},
        )
    maker = faults[0].made_by
    if maker and maker.counterpart:
        culprit = replace(culprit, reference=maker.counterpart.module, reference_class=maker.counterpart.class_name)
    return at_layer(culprit, maker) if maker else culprit


def at_layer(culprit: Culprit, maker: ProducerLayer) -> Culprit:
    """Name a layer that has no counterpart in the place of what shows that it is at fault."""
    facts = {**culprit.facts, "shows_at": culprit.candidate}
    return replace(culprit, candidate=maker.module, candidate_class=maker.class_name, part="layer", facts=facts)


def with_weights(culprit: Culprit, owner: ProducerLayer | None, causes: Mapping[str, Relation]) -> Culprit:
    """Name the values of the parameters as the cause: with the reference's the module is right.

    The `owner` of the parameters, where it is not the module itself, has no counterpart, but is at fault.
    """
    culprit = at_layer(culprit, owner) if owner else culprit
    found = causes.get(culprit.candidate)
    relation = {"relation": found.id, **found.facts} if found else {}
    return replace(culprit, cause=WEIGHTS, sureness="confirmed", facts={**culprit.facts, **relation})


def with_relation(culprit: Culprit, found: Relation) -> Culprit:
    """Name a relation between the data as the cause, which nobody has tried; one that only tells where is a hint."""
    if not found.explains:
        return replace(culprit, facts={**culprit.facts, "hint": found.id, **found.facts})
    return replace(culprit, cause=found.id, sureness="suspected", facts={**culprit.facts, **found.facts})


def by_module(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Faults of one module and part together, in the order in which the first one shows."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.pair.candidate.module, fault.part), []).append(fault)
    return list(groups.values())


def findings_of(
    faults: Sequence[Fault],
    settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]],
    rules: Sequence[Pitfall],
    owners: Mapping[str, str],
) -> dict[str, tuple[SettingFinding, ...]]:
    """What the settings of the layers at fault tell, by the candidate's path, the gravest first.

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
    for path in (fault.path for fault in faults if fault.path in settings[1] and fault.path not in found):
        found[path] = findings_of_unpaired((owners.get(path, ""), path), settings, rules)
    return found


def findings_of_unpaired(
    paths: tuple[str, str],
    settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]],
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


def _settings_of(
    fault: Fault, settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]]
) -> LayerPair | None:
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


def findings_around(
    fault: Fault, settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]]
) -> tuple[SettingFinding, ...]:
    """Settings of one name that differ in the modules that run the code in front of a call, the innermost first."""
    mine, theirs = fault.pair.reference.module, fault.pair.candidate.module
    around = [(mine, theirs)] if fault.part == "code" else []
    while mine and theirs:
        mine, theirs = mine.rpartition(".")[0], theirs.rpartition(".")[0]
        around.append((mine, theirs))
    pairs = [(settings[0][a], settings[1][b]) for a, b in around[:MOST_AROUND] if a in settings[0] and b in settings[1]]
    return tuple(finding for pair in pairs for finding in same_named_settings(*pair))


def is_mended(faults: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall]) -> bool:
    """Tell whether all calls of a module that were off are right in another run."""
    return all(fault.key in calls and _is_right(fault, calls[fault.key]) for fault in faults)


def _is_right(fault: Fault, call: IsolatedCall) -> bool:
    """Tell whether the tensor that was off was compared again, and nothing beside it is off."""
    tensors = call.inputs if fault.part == "inputs" else call.outputs
    return fault.tensor.reference.key in tensors and all(one.factor <= 1.0 for one in tensors.values())


def with_findings(culprit: Culprit, findings: Sequence[SettingFinding], *, confirmed: bool) -> Culprit:
    """Name settings as the cause."""
    return replace(
        culprit,
        cause=" + ".join(finding.rule for finding in findings),
        sureness="confirmed" if confirmed else "suspected",
        change=joined("; ", [finding.change for finding in findings]),
        facts={
            **culprit.facts,
            "reference": joined(", ", [finding.reference_setting for finding in findings]),
            "candidate": joined(", ", [finding.candidate_setting for finding in findings]),
        },
    )
