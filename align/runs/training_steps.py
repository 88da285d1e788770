"""What three rungs share: one `align step` compares losses, gradients and updates, and each rung reads its part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome
from align.runs.rung import Culprit, Judgement, Missing, Plan, setting_culprit, shown
from align.runs.rung_arguments import first_missing, map_file, source, trainings
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from align.runs.project_file import Project


CAUSES = " + "  # format: between the causes of one culprit


def plan_steps(project: Project, run: Path) -> Plan | Missing:
    """Take training steps of both sides."""
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    chosen = map_file(project, run)
    batches = [part for batch in project.batches for part in ("--batch", source(batch))]
    steps = ["--steps", str(project.steps)] if project.steps else []
    command = ("step", *trainings(project), *batches, "--map", shown(chosen), *steps, "--run", shown(run))
    read: dict[str, Path | str] = {f"batch {number}": batch for number, batch in enumerate(project.batches, 1)}
    read |= {"reference": str(project.reference.training), "candidate": str(project.candidate.training), "map": chosen}
    explaining = ("lint", *trainings(project), "--map", shown(chosen), "--json")
    return Plan("step", (command,), read, explaining=explaining)


def judge_steps(document: Mapping[str, Any], kinds: tuple[str, ...], compared: str) -> Judgement:
    """Return what training steps say of one part: the faults of these kinds.

    Where another part alone is at fault this one is aligned. It is not where nothing of it was compared: `compared` is
    the field of the document that lists what was.
    """
    verdict = document["verdict"]
    found = [one for one in document["culprits"] if one["kind"] in kinds]
    coverage = _coverage(document, compared)
    if verdict["outcome"] == Outcome.NOT_COMPARED.value:
        return Judgement(Outcome.NOT_COMPARED, verdict["reason"], (), coverage)
    if not found and not document[compared]:
        return Judgement(Outcome.NOT_COMPARED, sentence("ladder.part_not_compared"), (), coverage)
    if not found:
        return Judgement(Outcome.ALIGNED, sentence("ladder.part_agrees"), (), coverage)
    culprits = _one_a_line(Culprit(_place(one), one["cause"], one["line"], one["change"]) for one in found)
    reason = sentence("ladder.part_faults", count=len(culprits), place=culprits[0].place)
    return Judgement(Outcome.NOT_ALIGNED, reason, culprits, coverage)


def _coverage(document: Mapping[str, Any], compared: str) -> Mapping[str, Any]:
    """How much of one part was compared: the coverage of the verdict is that of the gradients."""
    own: Mapping[str, Any] = document["verdict"]["coverage"]
    if compared == "gradients":
        return own
    return {**own, "unit": word("ladder_unit", compared), "compared": len(document[compared]), "excluded": 0}


def _one_a_line(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """One culprit for all that one change of one line would mend: an optimizer errs by several causes at once."""
    groups: dict[tuple[str, str], list[Culprit]] = {}
    for one in culprits:
        groups.setdefault((one.place, one.line), []).append(one)
    return tuple(one for group in groups.values() for one in _as_one(group))


def _as_one(group: list[Culprit]) -> list[Culprit]:
    changes = {one.change for one in group if one.change}
    if not group[0].line or len(changes) > 1:
        return group
    causes = dict.fromkeys(cause for one in group for cause in one.cause.split(CAUSES) if cause)
    return [replace(group[0], cause=CAUSES.join(causes), change=next(iter(changes), ""))]


def judge_loss(document: Mapping[str, Any]) -> Judgement:
    """Return what training steps say of the loss: one that differs has failed, wherever that comes from."""
    judged = judge_steps(document, ("loss",), "losses")
    first = document["losses"][0] if document["losses"] else {}
    mine, theirs, limit = (first.get(name) for name in ("reference", "candidate", "limit"))
    if mine is None or theirs is None or limit is None or judged.outcome is not Outcome.ALIGNED:
        return judged
    if abs(theirs - mine) <= limit:
        return judged
    alone = first.get("alone")
    is_right = alone is not None and abs(alone - mine) <= limit
    key = "ladder.loss_differs_below" if is_right else "ladder.loss_differs"
    reason = sentence(key, reference=mine, candidate=theirs, limit=limit)
    return replace(judged, outcome=Outcome.NOT_ALIGNED, reason=reason)


def explain_steps(culprits: tuple[Culprit, ...], document: Mapping[str, Any]) -> tuple[Culprit, ...]:
    """What to write where a step does not know: the setting of the same layer, or of the optimizer, that differs."""
    return tuple(one if one.change else _with_setting(one, document["findings"]) for one in culprits)


def _with_setting(culprit: Culprit, findings: Iterable[Mapping[str, Any]]) -> Culprit:
    codes = {code.replace("-", "_") for code in culprit.cause.split(CAUSES)}
    for one in findings:
        if one["part"] == "optimizer" and one["reference_setting"].partition("=")[0] in codes:
            return replace(culprit, change=one["change"])
        if one["part"] == "layer" and one["candidate"] == culprit.place:
            known = setting_culprit(one)
            cause = CAUSES.join(filter(None, (culprit.cause, known.cause)))
            return replace(known, cause=cause, line=culprit.line or known.line)
    return culprit


def _place(one: Mapping[str, Any]) -> str:
    return str(one["candidate"] or one["part"])
