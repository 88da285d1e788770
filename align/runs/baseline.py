"""A run held against one that was accepted: what is new in it, and what is mended.

The baseline is one JSON file that is kept beside the code. What is at fault is known again by what it is (rung, place,
cause, what to write), never by its line or by a measured number: code moves, and numbers differ between machines.
Whoever allows more than the baseline did, or compares less, has something new too.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from align.core.about import CHECKOUT, PACKAGE, __version__
from align.core.atomic_files import write_text
from align.core.documents import json_text, kept_sentence, to_json_data
from align.core.verdicts import Coverage, ShownResult
from align.errors import RunFolderError, UsageError
from align.runs.climb_ladder import read_files_of
from align.runs.run_folder import as_document, read_document
from align.runs.rung import Culprit, RungResult, RungState
from align.words.catalogue import Sentence, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from align.core.verdicts import Verdict
    from align.runs.project_file import Project
    from align.runs.run_folder import RunFolder
    from align.runs.rung import LadderResult

PLACE = re.compile(r"(?P<file>\S.*?\.py):(?P<line>[1-9]\d*)")  # of a line in a file of Python
LONGEST_LINE = 300  # format: of a line of code that is shown, in characters
MARK_LENGTH = 16  # format: characters of a hash, which tell what one port has at fault apart
NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?", re.IGNORECASE)
JUDGED_STATES = ("passed", "failed")
Difference = Literal["rung", "finding", "coverage", "limit"]


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """One thing at fault: where, why, its line then, what to write, and the mark by which it is known again."""

    place: str
    cause: str
    line: str
    change: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RecordedRung:
    """One rung as it ended: its commands, how much its result compared of which unit, and what was at fault."""

    name: str
    state: RungState
    reason: str
    commands: tuple[str, ...]
    compared: int
    unit: str
    findings: tuple[RecordedFinding, ...]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run came to, without what differs between machines.

    `allowances` are the limits and accepted deviations of the project file, by the names they have there. `files` are
    the SHA-256 of all that was read and lies outside of the run folder, by path from the project file; `versions` those
    of packages. `commit` is that of git, with `-dirty` behind it where tracked files were edited since, "" without git.
    `sources` are lines of code that findings name, each with those around it, by place; only the last run has them.
    """

    rungs: tuple[RecordedRung, ...]
    allowances: Mapping[str, Any]
    files: Mapping[str, str]
    versions: Mapping[str, str]
    commit: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Baseline(ShownResult):
    """A run that was accepted, as the file of `align run --baseline` holds it, with the verdict that it had."""

    result_kind = "baseline"
    record: RunRecord
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RunDifference:
    """One difference to the baseline: what kind of thing, of which rung ("" for an allowance), in a sentence."""

    kind: Difference
    rung: str
    text: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class BaselineComparison(ShownResult):
    """A run beside its baseline `file`, or the run before of its folder: what is `new` and what is `mended`.

    `since` is when that run before was, "" for a baseline; `known` counts what is at fault in both, `changed` are files
    and packages that are not as they were, and `verdict` is that of the run by itself.
    """

    result_kind = "against"
    file: str
    since: str
    new: tuple[RunDifference, ...]
    mended: tuple[RunDifference, ...]
    known: int
    changed: tuple[str, ...]
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """1 if anything is new, 2 if the run judged nothing, else 0, whatever the run by itself came to."""
        if self.new:
            return 1
        return self.verdict.exit_code if not self.verdict.coverage.compared else 0


def record_run(ladder: LadderResult, folder: RunFolder, project: Project, commit: str = "") -> RunRecord:
    """What a climb left, as a baseline and a card keep it; its sentences are in the language in which they are said."""
    base = _base(project)
    facts = [*(read_files_of(rung.made_from) for rung in ladder.rungs), *(rung.sources for rung in ladder.rungs)]
    files = {path: str(known["sha256"]) for each in facts for path, known in each.items() if "sha256" in known}
    outside = {_named(path, base): mark for path, mark in files.items() if _is_the_users(path, folder.path)}
    versions = {name: known["version"] for each in facts for name, known in each.items() if "version" in known}
    read = cache(folder.read)  # several rungs read one result
    rungs = tuple(_recorded(rung, read) for rung in ladder.rungs if rung.asked or rung.state in JUDGED_STATES)
    return RunRecord(rungs, _allowances(project), dict(sorted(outside.items())), dict(sorted(versions.items())), commit)


def _base(project: Project) -> Path:
    return project.file.resolve().parent if project.file else Path.cwd()


def _recorded(rung: RungResult, read: Callable[[str], Mapping[str, Any] | None]) -> RecordedRung:
    document = (read(rung.kind) if rung.kind and rung.evidence else None) or {}
    coverage = (document.get("verdict") or {}).get("coverage") or asdict(Coverage("", 0))
    culprits = rung.culprits or ((Culprit("", rung.reason),) if rung.state == "failed" else ())
    findings = tuple(
        RecordedFinding(one.place, one.cause, one.line, one.change, fingerprint(rung.name, one)) for one in culprits
    )
    compared, unit = coverage["compared"], coverage["unit"]
    return RecordedRung(rung.name, rung.state, rung.reason, rung.commands, compared, unit, findings)


def cause_id(cause: str) -> str:
    """What names a cause: the id of a rule, or the key of a sentence."""
    return cause.key if isinstance(cause, Sentence) else cause


def fingerprint(rung: str, culprit: Culprit) -> str:
    """The mark by which something at fault is known again, whatever its line and its measured numbers.

    >>> fingerprint("forward", Culprit("head", "norm-eps", "port.py:7")) == fingerprint(
    ...     "forward", Culprit("head", "norm-eps", "port.py:9")
    ... )
    True
    """
    whole = "\0".join((rung, culprit.place, *_kept_words(culprit.cause), culprit.change))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:MARK_LENGTH]


def _kept_words(fact: object) -> Iterator[str]:
    """What a cause is made of, without numbers: they are measured, also where they stand as text."""
    if isinstance(fact, Sentence):
        fact = {"key": fact.key, "facts": fact.facts}  # as a document keeps it
    if isinstance(fact, dict):
        for name, value in sorted(fact.items()):
            yield name
            yield from _kept_words(value)
    elif isinstance(fact, (list, tuple)):
        for value in fact:
            yield from _kept_words(value)
    elif isinstance(fact, str) and not NUMBER.fullmatch(fact):
        yield fact


def _is_the_users(path: str, run: Path) -> bool:
    """Tell whether a file is neither made by the run nor one of mindalign's own."""
    whole = Path(path).resolve()
    return not any(folder in whole.parents for folder in (run.resolve(), PACKAGE, CHECKOUT / "mappings"))


def _named(path: str, base: Path) -> str:
    whole = Path(path).resolve()
    return Path(os.path.relpath(whole, base)).as_posix() if base in whole.parents else whole.as_posix()


def _allowances(project: Project) -> dict[str, Any]:
    """What the project file allows, one entry a number or reason."""
    allowed: dict[str, Any] = {}
    for one in project.allowances.limits:
        bounds = {"max_abs": one.max_abs, "rmse": one.rmse}
        allowed[f"limits.{one.layers}"] = one.factor if one.factor is not None else to_json_data(bounds)
    allowed |= {f"accepted.{one.layers}": one.reason for one in project.allowances.accepted}
    allowed |= {f"loss.{name}": to_json_data(preset) for name, preset in project.loss_presets.items()}
    return allowed | ({"speed.at_most": project.speed.at_most} if project.speed.at_most else {})


# The file.


def write_baseline(path: Path, record: RunRecord, verdict: Verdict) -> None:
    """Write a run as the one that others are held against; raises DestinationError, UsageError if it judged nothing."""
    if not verdict.coverage.compared:
        raise UsageError.of("run_usage.empty_baseline", path=path)
    write_text(path, json_text(as_document(Baseline(record, verdict), {})) + "\n")


def read_baseline(path: Path) -> RunRecord:
    """Read the run that a baseline holds; raises UsageError where there is no file, RunFolderError for another one."""
    if not path.is_file():
        raise UsageError.of("run_usage.no_baseline", path=path, typed=shlex.quote(str(path)))
    return read_record(read_document(path, "baseline")["record"])


def read_record(data: Mapping[str, Any]) -> RunRecord:
    """A run as a document keeps it."""
    rungs = tuple(map(_read_rung, data["rungs"]))
    further = data.get("commit", ""), data.get("sources", {})
    return RunRecord(rungs, data["allowances"], data["files"], data["versions"], *further)


def _read_rung(data: Mapping[str, Any]) -> RecordedRung:
    known = {name: data[name] for name in (one.name for one in fields(RecordedRung))}
    known["findings"] = tuple(
        RecordedFinding(**{one.name: finding[one.name] for one in fields(RecordedFinding)} | _said(finding, "cause"))
        for finding in data["findings"]
    )
    return RecordedRung(**known | _said(data, "reason") | {"commands": tuple(data["commands"])})


def _said(data: Mapping[str, Any], name: str) -> dict[str, str]:
    return {name: kept_sentence(data, name)}


# Two runs beside each other.


def compare_with_baseline(
    file: Path | str, before: RunRecord, now: RunRecord, verdict: Verdict, since: str = ""
) -> BaselineComparison:
    """Say what of a run is new, and what is mended, beside an earlier one."""
    allowed = _each_number(before.allowances), _each_number(now.allowances)
    new, mended = [*_loosened(*allowed)], [*_tightened(*allowed)]
    earlier = {rung.name: rung for rung in before.rungs}
    rungs = {rung.name: rung for rung in now.rungs}
    for name in {**earlier, **rungs}:
        new += _worse(earlier.get(name), rungs.get(name))
        mended += _better(earlier.get(name), rungs.get(name))
    marks = {mark for rung in before.rungs for mark in _marks(rung)}
    known = sum(mark in marks for rung in now.rungs for mark in _marks(rung))
    changed = [*_changed(before.files, now.files), *_changed(before.versions, now.versions)]
    return BaselineComparison(str(file), since, tuple(new), tuple(mended), known, tuple(changed), verdict)


def _worse(was: RecordedRung | None, now: RecordedRung | None) -> Iterator[RunDifference]:
    """What of a rung is new: its state, findings that were not there, and less that is compared."""
    if now is None or (now.state not in JUDGED_STATES and was is not None and was.state in JUDGED_STATES):
        state = now.state if now else "not run"
        if was is not None and was.state in JUDGED_STATES:
            facts = {"name": was.name, "was": was.state, "state": state, "reason": now.reason if now else ""}
            yield RunDifference("rung", was.name, sentence("baseline.state", **facts))
        return
    if now.state == "failed" and (was is None or was.state != "failed"):
        facts = {"name": now.name, "was": was.state if was else "not run", "state": now.state, "reason": now.reason}
        yield RunDifference("rung", now.name, sentence("baseline.state", **facts))
    marks, is_told = (_marks(was), was.state != "failed") if was else ({}, True)
    yield from (
        _told(now, one) for mark, one in _marks(now).items() if mark not in marks and (one.place or not is_told)
    )
    if was and now.unit == was.unit and now.compared < was.compared and now.state in JUDGED_STATES:
        counts = {"was": was.compared, "compared": now.compared}
        text = sentence("baseline.compares_less", name=now.name, unit=now.unit, **counts)
        yield RunDifference("coverage", now.name, text)


def _better(was: RecordedRung | None, now: RecordedRung | None) -> Iterator[RunDifference]:
    """What of a rung is mended; of one that could not be judged nothing is."""
    if was is None or now is None or now.state not in JUDGED_STATES:
        return
    marks = _marks(now)
    yield from (_told(was, one) for mark, one in _marks(was).items() if mark not in marks and one.place)
    if now.state == "passed" and was.state != "passed":
        facts = {"name": now.name, "was": was.state, "state": now.state, "reason": now.reason}
        yield RunDifference("rung", now.name, sentence("baseline.state", **facts))


def _marks(rung: RecordedRung) -> dict[str, RecordedFinding]:
    return {one.fingerprint: one for one in rung.findings}


def _told(rung: RecordedRung, finding: RecordedFinding) -> RunDifference:
    facts = {"name": rung.name, "place": finding.place, "cause": finding.cause, "change": finding.change}
    return RunDifference("finding", rung.name, sentence("baseline.finding", **facts), finding.line)


def _each_number(allowed: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Allowances one by one, those of a table by the table's name; a bound that is not set is none."""
    flat: dict[str, Any] = {}
    for name, value in allowed.items():
        if isinstance(value, Mapping):
            flat |= _each_number(value, f"{before}{name}.")
        elif value is not None:
            flat[f"{before}{name}"] = value
    return flat


def _loosened(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[RunDifference]:
    """What the project file allows now and did not before; of two numbers the larger one allows more."""
    for name, value in now.items():
        was = before.get(name)
        if was == value or (_is_number(was) and _is_number(value) and value < was):
            continue
        facts = {"name": name, "value": _shown(value), "was": _shown(was)}
        yield RunDifference(
            "limit", "", sentence("baseline.allowed" if was is None else "baseline.allows_more", **facts)
        )


def _tightened(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[RunDifference]:
    """What the project file allowed and does not now."""
    for name, value in before.items():
        less = now.get(name)
        if less is None or (_is_number(value) and _is_number(less) and less < value):
            yield RunDifference("limit", "", sentence("baseline.allows_less", name=name, was=_shown(value)))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json_text(to_json_data(value)).replace("\n", "")


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


# The last run of a folder, which the next one is held against: kept as a baseline is.

LAST = "last.json"
WAITING = ("blocked", "stale", "not run", "not available")  # of a rung that was not tried: nothing of it is new


def keep_last_run(ladder: LadderResult, folder: RunFolder, project: Project) -> BaselineComparison | None:
    """Keep what a climb came to, and what is new and mended since the one before; return that, None without one before.

    A run that judged nothing is not kept, and of a rung that it did not judge what an earlier one came to is.
    """
    record = record_run(ladder, folder, project, commit_of(_base(project)))
    last = read_last_run(folder)
    before = read_record(last["record"]) if last else None
    if ladder.verdict.coverage.compared:
        kept = replace(record, rungs=_last_judged(before, record)) if before else record
        kept = replace(kept, sources={**(before.sources if before else {}), **_source_lines(record)})
        write_text(folder.path / LAST, json_text(as_document(Baseline(kept, ladder.verdict), {})) + "\n")
    if last is None or before is None:
        folder.file("against").unlink(missing_ok=True)
        return None
    waiting = {rung.name for rung in record.rungs if rung.state in WAITING}
    was, here = (replace(one, rungs=tuple(_but(one.rungs, waiting))) for one in (before, record))
    comparison = compare_with_baseline(LAST, was, here, ladder.verdict, str(last["created"]))
    folder.write(comparison, {})
    return comparison


def _but(rungs: Sequence[RecordedRung], names: Collection[str]) -> Iterator[RecordedRung]:
    return (rung for rung in rungs if rung.name not in names)


def read_last_run(folder: RunFolder) -> dict[str, Any] | None:
    """The document of the last run of a folder that judged something; None without one that this version wrote."""
    try:
        document = read_document(folder.path / LAST, "baseline") if (folder.path / LAST).is_file() else None
    except RunFolderError:  # the next run writes it anew
        return None
    return document if document and document["mindalign"] == __version__ else None


def read_difference(folder: RunFolder) -> dict[str, Any] | None:
    """The difference to the run before in a folder; None without one that this version wrote, and after a baseline."""
    document = folder.read("against")
    return document if document and document["mindalign"] == __version__ and document["since"] else None


def _last_judged(before: RunRecord, now: RunRecord) -> tuple[RecordedRung, ...]:
    """Each rung as the last run came to that judged it, in the order of both."""
    rungs = {rung.name: rung for rung in before.rungs}
    rungs |= {rung.name: rung for rung in now.rungs if rung.name not in rungs or rung.state in JUDGED_STATES}
    return tuple(rungs.values())


def _source_lines(record: RunRecord) -> dict[str, str]:
    """Each line of code that a finding names with the ones before and behind it, as their file has them."""
    places = {one.line for rung in record.rungs for one in rung.findings}
    sources = {}
    for place in sorted(places):
        match = PLACE.match(place)
        lines = _lines_of(match["file"]) if match else []
        if match and 0 < (number := int(match["line"])) <= len(lines):
            sources[match[0]] = "\n".join(line[:LONGEST_LINE] for line in lines[max(number - 2, 0) : number + 1])
    return sources


def _lines_of(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # moved, or not readable: the page shows no code then
        return []


def commit_of(folder: Path) -> str:
    """The commit of git that a folder is at; with `-dirty` where tracked files were edited, "" where there is none."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # nothing is written into the repository
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)  # noqa: S603 - git itself
    return "" if done.returncode else done.stdout.strip()
