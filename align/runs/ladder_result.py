"""What a climb leaves: the state of every rung with its evidence, and the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.runs.rung import Culprit
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.words.message_words import Sentence

FORESEEN = ("emulate", "switches")  # kinds of results that say what a chip is expected to do
OF_NO_PORT = ("doctor", "determinism", "precision", *FORESEEN)  # kinds that hold no side against the other
OF_VALUES = ("forward", "generate", "validate", "step", "loss")  # kinds that compare what the sides compute
RungState = Literal["passed", "failed", "could not compare", "blocked", "stale", "not run", "not available", "foreseen"]
JUDGED: dict[Outcome, RungState] = {
    Outcome.ALIGNED: "passed",
    Outcome.NOT_ALIGNED: "failed",
    Outcome.NOT_COMPARED: "could not compare",
    Outcome.PREDICTED: "could not compare",
}


@dataclass(frozen=True, slots=True)
class RungResult:
    """One rung: its state and why, what is at fault, and the evidence.

    `asked` tells whether the whole rests on it. `commands` are what was (or would be) run. `made_from` has by role the
    SHA-256 of each file that the commands read, `sources` that of every file of the user's code that was loaded and of
    every file that this code opened, `evidence` that of what was written, by path relative to the run folder; each as
    `sha256`, `size`, `mtime_ns`, `ctime_ns`. `settle` has the lines of the project file that would make it available,
    each with its table in front, `blocked_by` the rung that bars it, `hint` what to do about a command that could not
    run.
    """

    name: str
    state: RungState
    reason: str = ""
    asked: bool = True
    kind: str = ""
    commands: tuple[str, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    blocked_by: str = ""
    settle: str = ""
    hint: str = ""
    seconds: float | None = None
    made_from: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> RungResult:
        """Return a rung as a document of an earlier climb keeps it."""
        own = {name: document[name] for name in cls.__slots__ if name in document}
        culprits = tuple(Culprit(**{key: one[key] for key in Culprit.__slots__}) for one in document["culprits"])
        return cls(**{**own, "commands": tuple(document["commands"]), "culprits": culprits})


@dataclass(frozen=True, slots=True)
class LadderResult(ShownResult):
    """All rungs from the lowest to the highest, and the verdict over those that were asked for."""

    result_kind = "ladder"
    run_folder: str
    rungs: tuple[RungResult, ...]
    verdict: Verdict


def judge_ladder(rungs: Sequence[RungResult]) -> Verdict:
    """Not aligned if a rung that was asked for failed; not compared ("incomplete") unless all of these have passed.

    Of others that failed a caveat says so. Rungs that look at the machine or at one side alone prove nothing of a port:
    it takes another that passed. Names and settings alone prove little: unless the project file asks for no more,
    something that both compute must have passed.
    """
    asked = [rung for rung in rungs if rung.asked]
    passed = [rung for rung in asked if rung.state == "passed"]
    failed = [rung for rung in asked if rung.state == "failed"]
    lacking = [rung.name for rung in rungs if rung.state == "not available" and not rung.asked]
    compared = [rung for rung in (*passed, *failed) if rung.kind not in OF_NO_PORT]
    coverage = Coverage("rungs", len(compared), len(lacking))
    caveats = _caveats(rungs, lacking)
    if failed:
        return Verdict(Outcome.NOT_ALIGNED, _failures(failed), coverage, caveats)
    if not asked and (alone := [rung.name for rung in rungs if rung.kind in OF_NO_PORT and rung.state != "not run"]):
        return Verdict(Outcome.NOT_COMPARED, sentence("ladder.one_model", names=alone), coverage, caveats)
    if not passed or len(passed) < len(asked):
        open_rungs = [f"{rung.name} ({rung.state})" for rung in asked if rung.state != "passed"]
        return Verdict(Outcome.NOT_COMPARED, sentence("ladder.incomplete", names=open_rungs), coverage, caveats)
    if all(rung.kind in OF_NO_PORT for rung in passed):
        reason = sentence("ladder.no_port", names=[rung.name for rung in passed])
        return Verdict(Outcome.NOT_COMPARED, reason, coverage, caveats)
    if lacking and not any(rung.kind in OF_VALUES for rung in passed):
        reason = sentence("ladder.no_values", names=[rung.name for rung in passed])
        return Verdict(Outcome.NOT_COMPARED, reason, coverage, caveats)
    return Verdict(Outcome.ALIGNED, sentence("ladder.passed", count=len(passed)), coverage, caveats)


def _caveats(rungs: Sequence[RungResult], lacking: Sequence[str]) -> tuple[Sentence, ...]:
    """What failed although nobody asks for it, and what is not available."""
    beside = [rung.name for rung in rungs if rung.state == "failed" and not rung.asked]
    said = [sentence("ladder.failed_beside", names=beside)] if beside else []
    return (*said, *([sentence("ladder.not_available", names=lacking)] if lacking else []))


def _failures(failed: Sequence[RungResult]) -> Sentence:
    """All that failed, and what the first of them says."""
    first = failed[0]
    if len(failed) == 1:
        return sentence("ladder.rung_failed", name=first.name, reason=first.reason)
    names = [rung.name for rung in failed]
    return sentence("ladder.rungs_failed", names=names, first=first.name, reason=first.reason)
