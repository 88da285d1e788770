"""What is at fault, one suspect for each module and part, and what is known of its cause: never more than was seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.forward.forward_result import Culprit
from align.models.call_lines import called_at
from align.models.source_lines import made_at
from align.words.catalogue import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.protocols import Model
    from align.forward.isolation.isolated_calls import IsolatedCall
    from align.forward.isolation.locate_faults import Fault, ProducerLayer
    from align.forward.relations.relation import Relation
    from align.lint.lint_result import SettingFinding
    from align.traces.module_calls import CallKey

WEIGHTS = "weights-differ"


@dataclass(frozen=True, slots=True)
class Suspect:
    """Faults of one module and part, those of its repeated calls, and what is known of their cause."""

    faults: tuple[Fault, ...]
    culprit: Culprit

    @property
    def fault(self) -> Fault:
        """The one that shows first."""
        return self.faults[0]

    @property
    def key(self) -> tuple[str, str]:
        """Path and part of the module of the port."""
        return self.fault.pair.candidate.module, self.fault.part

    @property
    def is_explained(self) -> bool:
        """Tell whether a cause is known."""
        return bool(self.culprit.cause)

    def is_mended(self, calls: Mapping[CallKey, IsolatedCall]) -> bool:
        """Tell whether all calls of the module that were off are right in another run."""
        return all(fault.key in calls and _is_right(fault, calls[fault.key]) for fault in self.faults)


def suspects_of(faults: Sequence[Fault]) -> tuple[Suspect, ...]:
    """Put faults of one module and part together, in the order in which the first one shows."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.pair.candidate.module, fault.part), []).append(fault)
    return tuple(Suspect(tuple(group), culprit_of(group)) for group in groups.values())


def _is_right(fault: Fault, call: IsolatedCall) -> bool:
    """Tell whether the tensor that was off was compared again, and nothing beside it is off."""
    tensors = call.inputs if fault.part == "inputs" else call.outputs
    return fault.tensor.reference.key in tensors and all(one.factor <= 1.0 for one in tensors.values())


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
    """Name a relation between the data as the cause, which nobody has tried; one that only says where is a hint."""
    if not found.explains:
        return replace(culprit, facts={**culprit.facts, "hint": found.id, **found.facts})
    return replace(culprit, cause=found.id, sureness="suspected", facts={**culprit.facts, **found.facts})


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


def with_lines(culprits: Sequence[Culprit], model: Model) -> list[Culprit]:
    """Say where to look: the line of the user's code that makes a layer, or the one that hands it what is wrong."""
    return [one if one.line else replace(one, line=_line(one, model)) for one in culprits]


def _line(culprit: Culprit, model: Model) -> str:
    calls = culprit.part == "inputs" and called_at(model, culprit.candidate)
    return calls or made_at(model, culprit.candidate)
