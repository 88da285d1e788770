"""The rungs of a run folder and the verdict over them, which all reports share: terminal, page, notebook and exports.

They are as the last climb left them, and behind them the results that no rung of the climb left; where nobody climbed
each result is one. A rung is not taken for what it was where its result, or a file that it was made from, has changed
since, or where a later run did not come to its end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from align.core.documents import in_words, kept_sentence, own_fields, to_json_data
from align.core.traces import capture_key
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import RunFolderError
from align.report.blocks import format_number, format_ranges
from align.runs.baseline import JUDGED_STATES, read_last_run
from align.runs.climb_ladder import PACKAGES, TEXTS, changed_file, read_files_of
from align.runs.run_folder import COMMANDS, KINDS, LADDER, RunFolder
from align.runs.rung import (
    FORESEEN,
    JUDGED,
    OF_NO_PORT,
    Culprit,
    LadderResult,
    RungResult,
    RungState,
    judge_ladder,
    rungs,
    shown,
)
from align.words.catalogue import ENGLISH, in_language, listed, say, sentence, spoken, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.runs.run_folder import UnfinishedRun
    from align.words.catalogue import Sentence


SHOWN = (*JUDGED.values(), "stale", "foreseen")  # states in which a rung has a result of its own
Documents = dict[str, dict[str, Any]]
Reader = Callable[[str], "dict[str, Any] | None"]


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run folder, its rungs with the verdict over them, and when the newest of what they rest on was written.

    `documents` are the results that are there, by kind; `climb` is what the last climb left, {} where nobody climbed.
    """

    folder: RunFolder
    rungs: tuple[RungResult, ...]
    verdict: Verdict
    created: dt.datetime
    documents: Mapping[str, dict[str, Any]]
    climb: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.path.resolve().name

    @property
    def ladder(self) -> LadderResult:
        """The rungs and the verdict as one result."""
        return LadderResult(self.name, self.rungs, self.verdict)

    def document(self, rung: RungResult) -> dict[str, Any] | None:
        """The result that a rung was judged by; None where it has none, or left none when it was run."""
        has_own = rung.state in SHOWN and not _left_none(rung)
        return self.documents.get(rung.kind) if has_own else None


def judged_run(path: Path | str, read: Reader | None = None) -> JudgedRun:
    """Return the rungs of a run folder; raises RunFolderError if it is none, is empty or holds a damaged result.

    `read` is by what results are read, for whoever asks for one run in several languages.
    """
    folder = RunFolder.open(Path(path))
    read = read or folder.read
    try:
        climb = in_words(read("ladder") or {}, spoken())
        climbed = list(_climbed(climb))
        kinds = dict.fromkeys([*KINDS, *(rung.kind for rung in climbed if rung.kind)])
        documents = {kind: in_words(document, spoken()) for kind in kinds if (document := read(kind)) is not None}
        found = _Results(folder, documents, str(climb.get("created", "")))
        states = (*map(found.as_it_is_now, climbed), *found.beside(climbed))
        newest = max(str(document["created"]) for document in (*documents.values(), *([climb] if climb else [])))
        created = dt.datetime.fromisoformat(newest).astimezone(dt.timezone.utc)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError.of("report_usage.damaged", folder=folder.path, error=repr(error)) from error
    verdict = judge_ladder([replace(rung, name=rung_title(rung)) for rung in states])
    if spoken() != ENGLISH:
        states = tuple(map(_told, states))
        caveats = tuple(in_language(caveat, spoken()) for caveat in verdict.caveats)
        verdict = replace(verdict, reason=in_language(verdict.reason, spoken()), caveats=caveats)
    return JudgedRun(folder, states, verdict, created, documents, climb)


def _told(rung: RungResult) -> RungResult:
    """The rung with its sentences in the language that is spoken now."""
    culprits = tuple(replace(one, cause=in_language(one.cause, spoken())) for one in rung.culprits)
    return replace(rung, reason=in_language(rung.reason, spoken()), culprits=culprits)


def rung_title(rung: RungResult) -> str:
    """What a rung is called wherever it is shown: its name, as one types it; of a result that is none, its kind."""
    is_rung = any(one.name == rung.name and rung.kind in ("", *one.kinds) for one in rungs())
    return rung.name if is_rung else word("rung", rung.name)


def unfinished_text(run: UnfinishedRun) -> str:
    """Say of a run that did not come to its end when it began, and what is known of its end."""
    return say(f"rung.{run.ended or 'unfinished'}", since=run.since, reason=run.reason)


def _climbed(climb: Mapping[str, Any]) -> Iterator[RungResult]:
    for rung in map(RungResult.read, climb["rungs"] if climb else ()):
        if rung.state not in get_args(RungState):
            msg = f"no rung is {rung.state}"
            raise ValueError(msg)
        yield rung


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of a run folder by kind, and when the ladder was last written, "" where there is none."""

    folder: RunFolder
    documents: Documents
    climbed: str

    def as_it_is_now(self, rung: RungResult) -> RungResult:
        """Return a rung of the climb, with another state where its result is not the one that it was judged by."""
        if rung.state in JUDGED.values():
            run = self.folder.unfinished(rung.kind)
            if run is not None and not (_left_none(rung) and run.since <= self.climbed):  # that one was judged
                return _unfinished(rung, run, word("rung_state", rung.state))
            reason = self._why_stale(rung)
            return replace(rung, state="stale", reason=reason) if reason else rung
        if rung.state == "not run" and self._is_newer(rung.kind):
            return replace(rung, state="stale", reason=sentence("ladder.unjudged"))
        return rung

    def beside(self, climbed: list[RungResult]) -> Iterator[RungResult]:
        """The results that no rung of the climb left; without a climb those of the main commands that lack, too.

        What an earlier climb left of a rung that went another way since, as a comparison of two checkpoints where one
        is converted now, is no result of this port any more.
        """
        climbed_kinds = {rung.kind for rung in climbed}
        names = {rung.name for rung in climbed if rung.kind}
        former = {kind for rung in rungs() if rung.name in names for kind in rung.kinds} - climbed_kinds
        for kind in KINDS:
            if kind in climbed_kinds or (kind in former and not self._is_newer(kind)):
                continue
            result = self._of_kind(kind)
            if result.state != "not run" or (not climbed and kind in LADDER):
                yield result

    def _why_stale(self, rung: RungResult) -> Sentence | None:
        """What of a rung's result, or of what it was made from, is not as it was."""
        result, state = self.folder.file(rung.kind).name, rung.state
        if result not in rung.evidence and not _left_none(rung) and self._is_newer(rung.kind):
            return sentence("ladder.replaced", state=state)
        left = {name: facts for name, facts in rung.evidence.items() if not name.startswith(f"{TEXTS}/")}
        for known, base in ((left, self.folder.path), (read_files_of(rung.made_from), None), (rung.sources, None)):
            if found := changed_file(known, base):
                key = "ladder.gone" if found[1] else "ladder.replaced" if found[0] == result else "ladder.changed"
                return sentence(key, state=state, file=shown(found[0]))
        return None

    def _is_newer(self, kind: str) -> bool:
        """Tell whether a result was written after the ladder."""
        return kind in self.documents and str(self.documents[kind]["created"]) > self.climbed

    def _of_kind(self, kind: str) -> RungResult:
        """Take a result for a rung, as its own verdict says."""
        run, document = self.folder.unfinished(kind), self.documents.get(kind)
        if document is not None:
            result = _of_document(self.folder, kind, document)
            return _unfinished(result, run, _stated(kind, document)) if run else result
        if run is not None:
            reason = f"{unfinished_text(run)}; {say('rung.no_result')}"
            return RungResult(kind, JUDGED[Outcome.NOT_COMPARED], reason, kind=kind)
        hint = say("rung.how_to_run", command=COMMANDS.get(kind, kind), folder=self.folder.path.name)
        return RungResult(kind, "not run", hint, asked=False, kind=kind)


def _left_none(rung: RungResult) -> bool:
    """Tell whether the commands of a rung were run and left no result."""
    return bool(rung.evidence) and f"{rung.kind}.json" not in rung.evidence


def _unfinished(rung: RungResult, run: UnfinishedRun, state: str) -> RungResult:
    """A rung whose result is older than a run that did not come to its end."""
    earlier = say("rung.earlier", outcome=state, reason=rung.reason)
    reason = f"{unfinished_text(run)}; {earlier}"
    return replace(rung, state=JUDGED[Outcome.NOT_COMPARED], reason=reason, culprits=())


def _stated(kind: str, document: dict[str, Any]) -> str:
    """What a result says, in a word."""
    return word("rung_state", "foreseen") if kind in FORESEEN else word("outcome", document["verdict"]["outcome"])


def _of_document(folder: RunFolder, kind: str, document: dict[str, Any]) -> RungResult:
    try:
        if kind in FORESEEN:
            reason = emulated_reason(document) if kind == "emulate" else kept_sentence(document["verdict"], "reason")
            return RungResult(kind, "foreseen", reason, asked=False, kind=kind)
        verdict = document["verdict"]
        is_asked = kind == "determinism" or kind not in OF_NO_PORT
        state = JUDGED[Outcome(verdict["outcome"])]
        found: dict[str, Any] = {"culprits": culprits_of(kind, document)}
        if kind == "batch":
            found = {"culprits": batch_culprits(document), "commands": tuple(document["next_commands"])}
        return RungResult(kind, state, kept_sentence(verdict, "reason"), asked=is_asked, kind=kind, **found)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError.of("report_usage.no_verdict", file=folder.file(kind), error=repr(error)) from error


def culprits_of(kind: str, document: dict[str, Any]) -> tuple[Culprit, ...]:
    """What the rungs that read such a result find at fault in it."""
    return tuple(one for rung in rungs() if kind in rung.kinds for one in rung.judge(document).culprits)


# What a job of many tasks finds at fault, for the summary and the exports: ranks, tensors, tasks not done.

FAILED = ("failed", "missing", "could not compare")


def batch_culprits(document: dict[str, Any]) -> tuple[Culprit, ...]:
    """The culprits of a `mindalign.batch` document, ranks that depart first."""
    return (*_departing(document), *map(_unequal, document["unequal"]), *_undone(document["tasks"]))


def _departing(document: dict[str, Any]) -> Iterator[Culprit]:
    """Groups of ranks that depart; without groups the task that departs first."""
    groups, first = [one for one in document["groups"] if one["layer"]], document["first"]
    for one in groups:
        where = say("batch.on_ranks", layer=one["layer"], count=len(one["ranks"]), ranks=format_ranges(one["ranks"]))
        yield Culprit(where, kept_sentence(one, "reason"))
    if first and not groups:
        yield Culprit(first["layer"] or first["task"])


def _unequal(one: dict[str, Any]) -> Culprit:
    step = "" if one["step"] is None else str(one["step"])
    facts = {"ranks": format_ranges(one["ranks"]), "count": len(one["ranks"]), "step": step}
    return Culprit(one["name"], say("batch.unequal_cause", side=one["side"], equal=one["equal"], **facts))


def _undone(tasks: list[dict[str, Any]]) -> Iterator[Culprit]:
    return (Culprit(one["id"], one["error"] or one["reason"]) for one in tasks if one["state"] in FAILED)


# What an emulated chip is expected to do, in a sentence, and how much of the model was emulated.


def emulated_reason(document: dict[str, Any]) -> str:
    """Say what a `mindalign.emulate` document foresees."""
    overflows, target = document["overflows"], document["target"]
    if overflows:
        first = overflows[0]["module"] or say("emulation.output")
        return say("emulation.overflows", count=len(overflows), target=target, first=first)
    by_key = {capture_key(one["module"], one["call"], one["output"]): one for one in document["layers"]}
    worst = next((by_key[key] for key in document["at_risk"] if key in by_key), None)
    layer = (worst["module"] or say("emulation.output")) if worst else ""
    return say(
        "emulation.sound", target=target, layer=layer, error=relative_error(worst["accumulated"] if worst else None)
    )


def relative_error(figures: dict[str, Any] | None) -> str:
    """The relative error; what is NaN or Inf on one side alone has none."""
    if figures is None:
        return ""
    return "inf" if figures["non_finite_mismatch"] else format_number(figures["relative_l2"])


def emulated_coverage(document: dict[str, Any]) -> Mapping[str, Any]:
    """How many calls of layers were looked at."""
    calls = {(one["module"], one["call"]) for one in document["layers"]}
    return own_fields(to_json_data(Coverage("layers", len(calls))))


def rung_coverage(rung: RungResult, document: dict[str, Any]) -> Mapping[str, Any]:
    """How much of the two sides a rung rests on: of a result that several read, its own part."""
    if rung.kind == "emulate":
        return emulated_coverage(document)
    own: Mapping[str, Any] = document["verdict"]["coverage"]
    readers = (one for one in rungs() if one.name == rung.name and rung.kind in one.kinds)
    return next((one.judge(document).coverage for one in readers), own)


# What a run rests on, as the head of its page has it: the commit, weights, devices, versions, coverage and allowances.

WEIGHTS = (".ckpt", ".pth", ".pt", ".bin", ".safetensors", ".npz", ".onnx", ".mindir", ".pdparams", ".h5")
SHOWN_OF_HASH = 12  # format: characters of a hash, which tell the files and commits of one port apart
DIRTY = "-dirty"


def head_facts(run: JudgedRun) -> dict[str, str]:
    """What a run rests on by the name of the fact, in words; what the folder does not hold is left out."""
    record = (read_last_run(run.folder) or {}).get("record") or {}
    facts = {
        "date": f"{run.created:%Y-%m-%d %H:%M} UTC",
        "commit": _commit(record.get("commit", "")),
        "weights": listed([f"{name} {mark[:SHOWN_OF_HASH]}" for name, mark in _weights(run, record).items()]),
        "devices": listed(
            [f"{name} {value}" for name, value in run_environment(run).items() if "mindalign" not in name]
        ),
        "versions": listed([f"{name} {value}" for name, value in _versions(run, record).items()]),
        "coverage": listed([*_coverages(run)], "; "),
        "accepted": listed([*_accepted(record)], "; "),
    }
    if record and not facts["accepted"]:
        facts["accepted"] = say("card.none")
    return {name: text for name, text in facts.items() if text}


def _commit(commit: str) -> str:
    short = commit.removesuffix(DIRTY)[:SHOWN_OF_HASH]
    return say("page.edited", commit=short) if commit.endswith(DIRTY) else short


def _weights(run: JudgedRun, record: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of all weights by file: those that the run was given and made, or else those that results name."""
    if record:
        return given_weights(run, record["files"]) | dict(made_weights(run))
    sources = [one for document in run.documents.values() for one in document["made_from"].values()]
    hashed = {Path(one["path"]).name: one["sha256"] for one in sources if "path" in one and "sha256" in one}
    return {name: mark for name, mark in hashed.items() if Path(name).suffix in WEIGHTS}


def given_weights(run: JudgedRun, files: Mapping[str, str]) -> dict[str, str]:
    """Which of the files that a run read are weights; arrays of NumPy are where a rung took them for a checkpoint."""
    read = [
        (role, str(facts["path"])) for rung in run.rungs for role, facts in rung.made_from.items() if "path" in facts
    ]
    checkpoints = {Path(path).name for role, path in read if "checkpoint" in role}
    weights = {name: mark for name, mark in files.items() if Path(name).suffix in WEIGHTS}
    return {
        name: mark for name, mark in weights.items() if Path(name).suffix != ".npz" or Path(name).name in checkpoints
    }


def made_weights(run: JudgedRun) -> Iterator[tuple[str, str]]:
    """The weights that the run took from a model, or converted, each with its hash."""
    for rung in run.rungs:
        for name, facts in rung.evidence.items():
            if Path(name).suffix in WEIGHTS and "sha256" in facts:
                yield name, str(facts["sha256"])


def run_environment(run: JudgedRun) -> dict[str, str]:
    """The machine and devices of both sides, without versions of packages that compute."""
    known = result_of_models(run).get("environment") or {}
    facts = [(side, name, value) for side, facts in known.items() for name, value in facts.items()]
    return {f"{side}: {name}": str(value) for side, name, value in facts if name not in PACKAGES}


def _versions(run: JudgedRun, record: Mapping[str, Any]) -> dict[str, str]:
    known = result_of_models(run).get("environment") or {}
    measured = {name: str(value) for facts in known.values() for name, value in facts.items() if name in PACKAGES}
    return measured | dict(record.get("versions", {}))


def result_of_models(run: JudgedRun) -> Mapping[str, Any]:
    """The result of a rung that ran both models, and was judged by it; {} where there is none."""
    judged = {rung.kind for rung in run.rungs if rung.state in JUDGED_STATES}
    return next((run.documents[kind] for kind in ("forward", "step") if kind in judged & run.documents.keys()), {})


def _coverages(run: JudgedRun) -> Iterator[str]:
    for rung in run.rungs:
        document = run.document(rung) if rung.state in JUDGED_STATES else None
        if document is not None:
            coverage = rung_coverage(rung, document)
            facts = {"count": coverage["compared"], "unit": word("unit", str(coverage["unit"]))}
            yield say("page.covered", name=rung_title(rung), **facts)


def _accepted(record: Mapping[str, Any]) -> Iterator[str]:
    for name, value in record.get("allowances", {}).items():
        if name.startswith("accepted."):
            yield say("page.allowed", layers=name.removeprefix("accepted."), reason=value)
