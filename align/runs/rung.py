"""What a rung of the ladder offers: the commands that it runs on a project, and what their result says.

A rung is a module of `align/runs/rungs/` with one `PLUGIN`. It judges nothing itself: a command does, and a rung runs
the commands that a user could type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from align.core.json_data import kept_sentence
from align.core.registry import file_models, load_plugins
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.runs.project_file import Project, ProjectSide
    from align.words.message_words import Sentence


RUNGS = "align.runs.rungs"
Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of a rung, one after another, without the word `align`, and by role the files that they read.

    The last command leaves a result of this `kind` in the run folder. `made_from` has files, and texts such as
    `file.py:function`. `outputs` are the files that the commands leave in the run folder for rungs above. `explaining`
    prints a document that knows more of what failed.
    """

    kind: str
    commands: tuple[Command, ...]
    made_from: Mapping[str, Path | str]
    outputs: tuple[Path, ...] = ()
    explaining: Command = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a rung is not available: a sentence, and the lines of the project file that would make it so.

    Each line begins with its table: `[reference] log = "train.log"`. `made_from` are the files that it would read and
    that are named.
    """

    reason: str
    settle: str = ""
    made_from: Mapping[str, Path | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing at fault: the module or name, its cause, the line of source, what to write there; "" where unknown."""

    place: str
    cause: str = ""
    line: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a result says for one rung."""

    outcome: Outcome
    reason: str
    culprits: tuple[Culprit, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: what it is called, where it stands, what it runs on a project, and what it reads from the result.

    Rungs are climbed by ascending `order`. `needs` names rungs without whose success this one can say nothing. An
    `optional` rung is run only where the project file lists it, or `--only` names it. `plan` opens no file of
    the project; `judge` reads results of these `kinds`; `explain` tells what is at fault by a further document.
    """

    name: str
    order: int
    summary: str
    plan: Callable[[Project, Path], Plan | Missing]
    judge: Callable[[Mapping[str, Any]], Judgement]
    kinds: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    optional: bool = False
    requires: tuple[str, ...] = ()
    explain: Callable[[tuple[Culprit, ...], Mapping[str, Any]], tuple[Culprit, ...]] = lambda culprits, _document: (
        culprits
    )


def rungs() -> tuple[Rung, ...]:
    """All rungs from the lowest to the highest.

    >>> [rung.name for rung in rungs()][:2]
    ['environment', 'determinism']
    """
    found: Mapping[str, Any] = load_plugins(RUNGS)
    return tuple(sorted(found.values(), key=lambda rung: rung.order))


def judged_by_verdict(document: Mapping[str, Any], culprits: tuple[Culprit, ...] = ()) -> Judgement:
    """Return the verdict of a document as it stands there, with what its rung found at fault."""
    verdict = document["verdict"]
    reason = kept_sentence(verdict, "reason")
    return Judgement(Outcome(verdict["outcome"]), reason, culprits, verdict["coverage"])


def setting_culprit(finding: Mapping[str, Any]) -> Culprit:
    """A setting of a layer that `align lint` finds at fault."""
    cause = sentence("ladder.setting", candidate=finding["candidate_setting"], reference=finding["reference_setting"])
    return Culprit(finding["candidate"] or finding["reference"], cause, finding.get("line", ""), finding["change"])


def shown(path: Path | str) -> str:
    """A path as one would type it from here: relative where it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def shown_side(side: str) -> str:
    """`file.py:function` with the file as one would type it; `package.module:function` as it is."""
    place, separator, name = side.rpartition(":")
    return f"{shown(place)}{separator}{name}" if place.endswith(".py") else side


# What a climb leaves: the state of every rung with its evidence, and the whole.

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
        culprits = tuple(
            Culprit(**{key: one[key] for key in Culprit.__slots__} | {"cause": kept_sentence(one, "cause")})
            for one in document["culprits"]
        )
        reason = kept_sentence(document, "reason")
        return cls(**{**own, "reason": reason, "commands": tuple(document["commands"]), "culprits": culprits})


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


# What the commands of several rungs are given: sides, checkpoints, the map, as one would type them.
#
# Where the project file names no map, the rung `parameters` makes one in the run folder; where it names no checkpoint
# of a side, the rung `weights` makes one there. The later rungs read these.

CAPTURED = "reference"  # the folder of the run folder that keeps the reference's own values
EXAMPLES = {
    "model": '"file.py:function"',
    "training": '"file.py:function"',
    "checkpoint": '"weights.pth"',
    "log": '"train.log"',
    "inputs": '"inputs.npz"',
    "batch": '"file.py:function"',
    "data": '"file.py:function"',
}


def first_missing(project: Project, *keys: str) -> Missing | None:
    """Return what is said of those of these keys, such as `reference model`, that the project file lacks."""
    sides: dict[str, ProjectSide] = {"reference": project.reference, "candidate": project.candidate}
    of_sides = ("model", "checkpoint", "training", "log")
    given = {f"{name} {key}": getattr(side, key) for name, side in sides.items() for key in of_sides}
    given |= {"forward inputs": project.inputs, "metric data": project.metric.data, "training batch": project.batches}
    lacking = [tuple(key.split()) for key in keys if not given[key]]
    if not lacking:
        return None
    named = {role: value for key in keys for role, value in _by_role(key, given[key])}
    for table, name in lacking:
        if name in ("model", "training") and sides[table].trace:
            return Missing(sentence("ladder.side_is_trace", side=table), made_from=named)
    reason = sentence("ladder.no_key", names=[f"[{table}] {name}" for table, name in lacking])
    settle = "\n".join(f"[{table}] {name} = {EXAMPLES[name]}" for table, name in lacking)
    return Missing(reason, settle, named)


def _by_role(key: str, value: Path | str | tuple[Path | str, ...] | None) -> Iterator[tuple[str, Path | str]]:
    """What the project file gives for a key, by the role that it has where a rung reads it."""
    if isinstance(value, tuple):
        yield from ((f"batch {number}", one) for number, one in enumerate(value, 1))
    elif value:
        table, _, name = key.partition(" ")
        role = name if table not in ("reference", "candidate") else key
        yield role.removesuffix(" model").removesuffix(" training"), value


def exported_sides(project: Project) -> list[str]:
    """The sides that are files with a model in them, such as ONNX: they hold their own weights, and no live layers."""
    sides = {"reference": project.reference, "candidate": project.candidate}
    return [name for name, side in sides.items() if file_models(side.model) is not None]


def map_file(project: Project, run: Path) -> Path:
    """The map that the rungs above `parameters` go by."""
    return project.map or run / "map.toml"


def checkpoints(project: Project, run: Path) -> tuple[Path | None, Path | None]:
    """What fills both sides, so that they start from equal weights.

    Where the project file names no checkpoint of the reference, it is the values that its factory gives it, captured
    once; where it names none of the candidate, what the reference's is converted into. (None, None) where there is
    neither a checkpoint nor anything to capture on. A candidate that is an exported file is filled from nothing.
    """
    reference, candidate = project.reference.checkpoint, project.candidate.checkpoint
    if "candidate" in exported_sides(project):
        return reference, None
    if reference is None and project.inputs and project.reference.model:
        reference = run / CAPTURED / "values.safetensors"
    if reference is None or candidate is not None:
        return reference, candidate
    return reference, run / ("candidate.pth" if reference.suffix == ".ckpt" else "candidate.ckpt")


def checkpoint_arguments(project: Project, run: Path) -> list[str]:
    """`--reference-checkpoint` and `--candidate-checkpoint`, as far as there are any."""
    found = zip(("reference", "candidate"), checkpoints(project, run), strict=True)
    return [part for side, path in found if path for part in (f"--{side}-checkpoint", shown(path))]


def place_arguments(project: Project) -> list[str]:
    """Devices, precisions and the mode of both sides, as the project file says."""
    return [*own_place(project.reference, "reference-"), *own_place(project.candidate, "candidate-")]


def own_place(side: ProjectSide, prefix: str = "") -> list[str]:
    """Device, precision and mode of one side as options; no command has an option for the mode of a reference."""
    places = {what: getattr(side, what) for what in ("device", "dtype", "mode")}
    given = {f"--{prefix}{what}": value for what, value in places.items() if value}
    return [part for option, value in given.items() if option != "--reference-mode" for part in (option, value)]


def has_place(project: Project) -> bool:
    """Tell whether the project file says where, or in which precision or mode, a side computes."""
    return any(own_place(side) for side in (project.reference, project.candidate))


def project_argument(project: Project, *, is_needed: bool) -> tuple[list[str], dict[str, Path | str]]:
    """`--project` and what it reads, where a command is to take something of it that no option of its own gives."""
    if not is_needed or project.file is None:
        return [], {}
    return ["--project", shown(project.file)], {"project": project.file}


def models(project: Project) -> list[str]:
    """Both models as one would type them."""
    return [shown_side(str(side.model)) for side in (project.reference, project.candidate)]


def trainings(project: Project) -> list[str]:
    """Both training factories as one would type them."""
    return [shown_side(str(side.training)) for side in (project.reference, project.candidate)]


def source(value: Path | str) -> str:
    """A file or `file.py:function` as one would type it."""
    return shown_side(value) if isinstance(value, str) else shown(value)


def read_files(project: Project, run: Path, others: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    """What rungs that run both models read, by role: models, checkpoints, the map, and others that are given."""
    filling = checkpoints(project, run)
    found = {
        "reference": project.reference.model,
        "candidate": project.candidate.model,
        "reference checkpoint": filling[0],
        "candidate checkpoint": filling[1],
        "map": map_file(project, run),
        **others,
    }
    return {role: value for role, value in found.items() if value}


# What three rungs share: one `align step` compares losses, gradients and updates, and each rung reads its part.

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
        return Judgement(Outcome.NOT_COMPARED, kept_sentence(verdict, "reason"), (), coverage)
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
