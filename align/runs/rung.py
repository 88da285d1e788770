"""What a rung of the ladder offers: what it calls on a project, and what the result says.

A rung stands in a module of `align/runs/rungs/`, among its `PLUGINS`. It judges nothing itself: a capability does,
which it calls with the arguments of a command that a user could type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from align.core.align_sequences import grouped
from align.core.documents import kept_sentence
from align.core.load_code import RUNGS, file_models, load_plugins
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.runs.read_settings import SIDES, file_or_function, given_batches, numbered_sources
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.runs.project_file import Project, ProjectSide
    from align.runs.run_folder import Result
    from align.words.catalogue import Sentence


class Made(NamedTuple):
    """A result; by role what it may be made from, of which counts what is given; and what is said behind it."""

    result: Result
    made_from: Mapping[str, Any]
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A capability that is called, and the command that a user types for the same: one table has the arguments of both.

    `arguments` are the values of the command's parameters by their names, in the order in which they are typed; one
    that is None or empty is not given. `make` is called with those that are. The result is kept in the folder `run`.
    """

    command: str
    make: Callable[..., Made]
    arguments: Mapping[str, Any]
    run: Path | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that are given."""
        return {name: value for name, value in self.arguments.items() if value not in (None, "", [])}

    @property
    def line(self) -> tuple[str, ...]:
        """What is typed for it, without the word `align`.

        >>> Call("lint", print, {"reference": "a.py:f", "candidate": "b.py:g", "map_file": Path("map.toml")}).line
        ('lint', 'a.py:f', 'b.py:g', '--map', 'map.toml')
        """
        given = [value for name, value in self.given.items() if name in UNNAMED]
        unnamed = (str(word) for value in given for word in (value if isinstance(value, list) else [value]))
        return (self.command, *unnamed, *_typed_options(self.given | ({"run": self.run} if self.run else {})))


# Parameters of commands whose values are typed without a name, and those whose name is not that of their option.
UNNAMED = ("reference", "candidate", "source", "destination", "side")
OPTIONS = {"map_file": "map", "folder": "out"}


def _typed_options(given: Mapping[str, Any]) -> Iterator[str]:
    """The options of a line: a name before each value, and the name alone of what is switched on or off."""
    for name, value in given.items():
        option = f"--{OPTIONS.get(name, name).replace('_', '-')}"
        if name in UNNAMED:
            continue
        if isinstance(value, bool):
            yield option if value else option.replace("--", "--no-")
        else:
            yield from (word for one in (value if isinstance(value, list) else [value]) for word in (option, str(one)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rung calls, one after another, and by role the files that this reads.

    The last call leaves a result of this `kind` in the run folder. `made_from` has files, and texts such as
    `file.py:function`. `outputs` are the files that the calls leave in the run folder for rungs above. The result of
    `explaining` knows more of what failed.
    """

    kind: str
    calls: tuple[Call, ...]
    made_from: Mapping[str, Path | str]
    outputs: tuple[Path, ...] = ()
    explaining: Call | None = None

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The commands that do the same, as `Call.line`."""
        return tuple(call.line for call in self.calls)


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
    """One rung: what it is called, where it stands, what it calls on a project, and what it reads from the result.

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


def lacks_groups(culprit: Culprit) -> bool:
    """Tell whether the optimizer of a port decays other parameters than the reference's, since its groups are lacking.

    >>> lacks_groups(Culprit("optimizer", "weight-decay", "port.py:3", '[dict(params=..., weight_decay=...)]'))
    True
    """
    return culprit.cause == "weight-decay" and "params" in culprit.change


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
OF_NO_PORT = ("doctor", "determinism", "precision", "advise", *FORESEEN)  # kinds that hold no side against the other
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
        fields = {name: document[name] for name in cls.__slots__ if name in document}
        culprits = tuple(
            Culprit(**{key: one[key] for key in Culprit.__slots__} | {"cause": kept_sentence(one, "cause")})
            for one in document["culprits"]
        )
        said = {name: kept_sentence(document, name) for name in ("reason", "hint") if name in document}
        return cls(**{**fields, **said, "commands": tuple(document["commands"]), "culprits": culprits})


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
    wanted = [rung for rung in rungs if rung.asked]
    passed = [rung for rung in wanted if rung.state == "passed"]
    failed = [rung for rung in wanted if rung.state == "failed"]
    lacking = [rung.name for rung in rungs if rung.state == "not available" and not rung.asked]
    compared = [rung for rung in (*passed, *failed) if rung.kind not in OF_NO_PORT]
    coverage = Coverage("rungs", len(compared), len(lacking))
    caveats = _caveats(rungs, lacking)
    if failed:
        return Verdict(Outcome.NOT_ALIGNED, _failures(failed), coverage, caveats)
    if not wanted and (alone := [rung.name for rung in rungs if rung.kind in OF_NO_PORT and rung.state != "not run"]):
        return Verdict(Outcome.NOT_COMPARED, sentence("ladder.one_model", names=alone), coverage, caveats)
    if not passed or len(passed) < len(wanted):
        left = [rung for rung in wanted if rung.state != "passed"]
        names = [sentence("ladder.in_state", name=rung.name, state=rung.state) for rung in left]
        return Verdict(Outcome.NOT_COMPARED, sentence("ladder.incomplete", names=names), coverage, caveats)
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


# What several rungs give to what they call: sides, checkpoints, the map, as one would type them.
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
    of_sides = ("model", "checkpoint", "training", "data", "log")
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


def sides(project: Project, key: str = "model") -> dict[str, Any]:
    """What both sides have for a key of the project file, as arguments."""
    return {name: typed(getattr(getattr(project, name), key)) for name in SIDES}


def checkpoint_arguments(project: Project, run: Path) -> dict[str, Any]:
    """What fills both sides, as arguments."""
    return {f"{name}_checkpoint": typed(path) for name, path in zip(SIDES, checkpoints(project, run), strict=True)}


def places(side: ProjectSide, prefix: str = "") -> dict[str, Any]:
    """Device, precision and mode of one side as arguments; no command has an option for the mode of a reference."""
    given = {f"{prefix}{what}": getattr(side, what) for what in ("device", "dtype", "mode")}
    return {name: value for name, value in given.items() if name != "reference_mode"}


def project_argument(project: Project, *, is_needed: bool) -> tuple[dict[str, Any], dict[str, Path | str]]:
    """The project file as an argument and as what is read, where a call takes something of it that no other gives."""
    if not is_needed or project.file is None:
        return {}, {}
    return {"project": typed(project.file)}, {"project": project.file}


def has_place(project: Project) -> bool:
    """Tell whether the project file says where, or in which precision or mode, a side computes."""
    return any(place for side in (project.reference, project.candidate) for place in places(side).values())


def typed(given: Any) -> Any:
    """A path, or `file.py:function`, as one would type it from here; other texts, and None, as they are."""
    if isinstance(given, Path):
        return Path(shown(given))
    return shown_side(given) if isinstance(given, str) else given


def source(given: Path | str) -> str:
    """Inputs, which are a file or the name of a function, as one would type them."""
    return str(typed(given))


def capture_call(side: ProjectSide, inputs: Path | str, folder: Path, **options: Any) -> Call:
    """Capture one side on these inputs, into a trace folder."""
    given = {"side": typed(side.model), "inputs": [source(inputs)], "checkpoint": typed(side.checkpoint), **options}
    return Call("capture", _capture, {**given, "folder": typed(folder)})


def _capture(side: str, inputs: list[str], folder: Path, *, noise: bool = True, **how: Any) -> Made:
    from align.models.open_side import open_side
    from align.traces.capture_trace import capture_trace

    opened = open_side(side, **how)
    result = capture_trace(opened, folder, inputs=given_batches([*map(file_or_function, inputs)], (), 0), noise=noise)
    return Made(result.with_upper_calls(), {"model": side, "checkpoint": how.get("checkpoint")})


def lint_call(of_sides: Mapping[str, Any], map_file: Path, run: Path | None) -> Call:
    """Compare the settings of both sides: models or trainings."""
    return Call("lint", _lint, {**of_sides, "map_file": typed(map_file)}, typed(run))


def _lint(reference: str, candidate: str, map_file: Path) -> Made:
    from align.lint.lint_models import lint_models

    made_from = {"reference": reference, "candidate": candidate, "map": map_file}
    return Made(lint_models(reference, candidate, name_map=map_file), made_from)


def read_files(project: Project, run: Path, others: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    """What rungs that run both models read, by role: models, checkpoints, the map, and others that are given."""
    filling = checkpoints(project, run)
    files = {
        "reference": project.reference.model,
        "candidate": project.candidate.model,
        "reference checkpoint": filling[0],
        "candidate checkpoint": filling[1],
        "map": map_file(project, run),
        **others,
    }
    return {role: value for role, value in files.items() if value}


# What three rungs share: one `align step` compares losses, gradients and updates, and each rung reads its part.

CAUSES = " + "  # format: between the causes of one culprit


def plan_steps(project: Project, run: Path) -> Plan | Missing:
    """Take training steps of both sides."""
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    both, chosen = sides(project, "training"), map_file(project, run)
    given = {**both, "batch": [*map(source, project.batches)], "map_file": typed(chosen), "steps": project.steps}
    read: dict[str, Path | str] = {f"batch {number}": batch for number, batch in enumerate(project.batches, 1)}
    read |= {"reference": str(project.reference.training), "candidate": str(project.candidate.training), "map": chosen}
    return Plan("step", (Call("step", _step, given, typed(run)),), read, explaining=lint_call(both, chosen, None))


def _step(reference: str, candidate: str, batch: list[str], map_file: Path, steps: int | None = None) -> Made:
    from align.training.compare_training_step import compare_training_step

    result = compare_training_step(reference, candidate, batch=batch, name_map=map_file, steps=steps)
    made_from = {"reference": reference, "candidate": candidate, "map": map_file}
    return Made(result, {**made_from, **numbered_sources("batch", batch)})


def judge_steps(document: Mapping[str, Any], kinds: tuple[str, ...], compared: str) -> Judgement:
    """Return what training steps say of one part: the faults of these kinds.

    Where another part alone is at fault this one is aligned. It is not where nothing of it was compared: `compared` is
    the field of the document that lists what was.
    """
    verdict = document["verdict"]
    faults = [fault for fault in document["culprits"] if fault["kind"] in kinds]
    coverage = _coverage(document, compared)
    if verdict["outcome"] == Outcome.NOT_COMPARED.value:
        return Judgement(Outcome.NOT_COMPARED, kept_sentence(verdict, "reason"), (), coverage)
    if not faults and not document[compared]:
        return Judgement(Outcome.NOT_COMPARED, sentence("ladder.part_not_compared"), (), coverage)
    if not faults:
        return Judgement(Outcome.ALIGNED, sentence("ladder.part_agrees"), (), coverage)
    culprits = _one_a_line(Culprit(_place(fault), fault["cause"], fault["line"], fault["change"]) for fault in faults)
    reason = sentence("step_verdict.faults", count=len(culprits), place=culprits[0].place, kind="")
    return Judgement(Outcome.NOT_ALIGNED, reason, culprits, coverage)


def _coverage(document: Mapping[str, Any], compared: str) -> Mapping[str, Any]:
    """How much of one part was compared: the coverage of the verdict is that of the gradients."""
    own: Mapping[str, Any] = document["verdict"]["coverage"]
    if compared == "gradients":
        return own
    return {**own, "unit": word("ladder_unit", compared), "compared": len(document[compared]), "excluded": 0}


def _one_a_line(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """One culprit for all that one change of one line would mend: an optimizer errs by several causes at once."""
    groups = grouped(((one.place, one.line), one) for one in culprits)
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
    for finding in findings:
        if finding["part"] == "optimizer" and finding["reference_setting"].partition("=")[0] in codes:
            return replace(culprit, change=finding["change"])
        if finding["part"] == "layer" and finding["candidate"] == culprit.place:
            known = setting_culprit(finding)
            cause = CAUSES.join(filter(None, (culprit.cause, known.cause)))
            return replace(known, cause=cause, line=culprit.line or known.line)
    return culprit


def _place(one: Mapping[str, Any]) -> str:
    return str(one["candidate"] or one["part"])
