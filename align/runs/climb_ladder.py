"""The rungs of a project from the lowest to the highest, each kept as long as what it rests on is as it was.

A rung calls capabilities, and keeps their results and what is printed. What it rests on are the commands that do the
same, the files that they read, the code that they load, the files that this opens, the result that they leave, and the
files that they make for rungs above.
A rung that failed is run again each time: it is what the user is working on.
"""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from align.core.about import __version__
from align.core.atomic_files import sha256_of
from align.core.load_code import note_opened_files, opened_files, state_when_run, user_files
from align.core.operating_system import folder_lock
from align.errors import ProjectFileError, RunFolderError, UsageError
from align.runs.project_file import NAME
from align.runs.run_folder import RunFolder
from align.runs.rung import (
    JUDGED,
    Call,
    Culprit,
    LadderResult,
    Missing,
    Plan,
    Rung,
    RungResult,
    judge_ladder,
    rungs,
    shown,
)
from align.words.catalogue import as_sentence, say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.errors import AlignError
    from align.runs.project_file import Project

    Lines = tuple[tuple[str, ...], ...]

MOST_OPENED_FILES: Final = 1000
"""So many files that the user's code has opened are part of what a rung rests on, those that were opened first.
Choice: weights and configurations are few, and are opened before the images of a data set, which may be very many."""

LOCK = ".mindalign.ladder.lock"
TEXTS = "shown"  # the folder of what each rung's commands printed
BARRING = ("failed", "could not compare", "blocked")


@dataclass(frozen=True, slots=True)
class Performed:
    """How a call ended: the document of its result, None where it failed, with its error; and what was printed."""

    document: Mapping[str, Any] | None = None
    error: AlignError | None = None
    output: str = ""
    errors: str = ""


@dataclass(frozen=True, slots=True)
class Climb:
    """Which rungs to try: all from `first` on, or `only` some; all of them even behind one that fails."""

    first: str = ""
    only: tuple[str, ...] = ()
    keep_going: bool = False


def climb_ladder(
    project: Project,
    run: Path,
    perform: Callable[[Call], Performed],
    climb: Climb | None = None,
    announce: Callable[[str, RungResult | None], None] = lambda _name, _result: None,
) -> LadderResult:
    """Run the rungs of a project that are to be run, and return the state of all.

    `perform` makes, keeps and shows the result of one call. `announce` is called with the name of a rung before it
    runs and None, and after it with its result. After each rung `ladder.json` in the run folder is written, so that a
    climb that ends in any way goes on where it was. Raises UsageError for a rung that is not there,
    ProjectFileError for files that the project names and that are not there, and FolderInUseError where another climb
    is going on.
    """
    climb = climb or Climb()
    _check_names((climb.first, *climb.only, *project.rungs))
    wanted = _wanted(project, climb)
    plans = {rung.name: rung.plan(project, run) for rung in rungs()}
    require_named_files(project, run, [plans[rung.name] for rung in wanted])
    folder = RunFolder.create(run)
    note_opened_files()
    with folder_lock(run / LOCK, run, "run"):
        return _Ladder(project, folder, perform, climb, announce, {rung.name for rung in wanted}, plans).run()


def _check_names(given: Collection[str]) -> None:
    known = [rung.name for rung in rungs()]
    if strange := sorted({name for name in given if name and name not in known}):
        raise UsageError.of("run_usage.no_rung", names=strange, known=known)


def _wanted(project: Project, climb: Climb) -> list[Rung]:
    """The rungs that a climb is to run: `only` some, or from the first on those that are asked for."""
    if climb.only:
        return [rung for rung in rungs() if rung.name in climb.only]
    asked = [rung for rung in rungs() if _is_asked(project, rung) or rung.name == climb.first]
    names = [rung.name for rung in asked]
    return asked[names.index(climb.first) if climb.first else 0 :]


def _is_asked(project: Project, rung: Rung) -> bool:
    """What the project file lists; all that are not optional where it lists nothing."""
    return rung.name in project.rungs if project.rungs else not rung.optional


@dataclass
class _Ladder:
    """One climb: what it is given, what an earlier one left, and what it has found so far."""

    project: Project
    folder: RunFolder
    perform: Callable[[Call], Performed]
    climb: Climb
    announce: Callable[[str, RungResult | None], None]
    wanted: Collection[str]
    plans: Mapping[str, Plan | Missing]
    earlier: dict[str, RungResult] = field(default_factory=dict)
    found: dict[str, RungResult] = field(default_factory=dict)
    ran: dict[Lines, tuple[RungResult, Mapping[str, Any]]] = field(default_factory=dict)
    explained: dict[Lines, Mapping[str, Any] | None] = field(default_factory=dict)
    same_sources: dict[str, bool] = field(default_factory=dict)

    def run(self) -> LadderResult:
        """Decide of each rung in turn, and write the whole after each."""
        document = self.folder.read("ladder")
        self.earlier = _read_earlier(document, self.folder) if document else {}
        is_stopped = False
        shown_rungs = [rung for rung in rungs() if self._is_shown(rung)]
        result = self._write(shown_rungs)
        for place, rung in enumerate(shown_rungs, 1):
            is_wanted = rung.name in self.wanted
            self.found[rung.name] = one = self._state(rung, is_wanted=is_wanted and not is_stopped)
            is_stopped = is_stopped or (is_wanted and one.state in BARRING and not self.climb.keep_going)
            result = self._write(shown_rungs[place:])
        return result

    def _is_shown(self, rung: Rung) -> bool:
        return rung.name in self.wanted or _is_asked(self.project, rung) or rung.name in self.earlier

    def _state(self, rung: Rung, *, is_wanted: bool) -> RungResult:
        """Return the state of a rung, which is run if it is wanted and need be.

        One whose command another rung has just run is judged too: the older result of both is gone.
        """
        plan, is_named = self.plans[rung.name], self._is_named(rung)
        is_asked = _is_asked(self.project, rung) or is_named
        if isinstance(plan, Missing):
            is_listed = is_named or (bool(self.project.rungs) and is_asked)
            return RungResult(rung.name, "not available", plan.reason, is_listed, settle=plan.settle)
        blank = RungResult(rung.name, "not run", asked=is_asked, kind=plan.kind, commands=_typed(plan, self.project))
        if barred := self._blocked(rung, blank, BARRING, "ladder.blocked"):
            return barred
        if plan.lines in self.ran and not is_wanted:
            return self._told_more(rung, plan, self._judged(rung, plan, blank))
        earlier = self.earlier.get(rung.name)
        kept = earlier if earlier and self._holds(earlier, blank, plan) else None
        if is_wanted and (is_named or kept is None or kept.state != "passed"):
            barred = self._lacking(plan, blank) or self._blocked(rung, blank, ("stale",), "ladder.blocked_by_stale")
            return barred or self._run(rung, plan, blank)
        return replace(kept or _stale(earlier) or blank, asked=is_asked)

    def _holds(self, earlier: RungResult, blank: RungResult, plan: Plan) -> bool:
        """Tell whether all that an earlier result rests on is as it was."""
        if not earlier.evidence or earlier.commands != blank.commands:
            return False
        if not same_content(read_facts(plan.made_from, earlier.made_from), earlier.made_from):
            return False
        if earlier.state == "passed" and not all(output.is_file() for output in plan.outputs):
            return False
        if earlier.name not in self.same_sources:  # there may be very many
            self.same_sources[earlier.name] = is_unchanged(earlier.sources)
        return self.same_sources[earlier.name] and is_unchanged(earlier.evidence, self.folder.path)

    def _blocked(self, rung: Rung, blank: RungResult, states: Collection[str], reason: str) -> RungResult | None:
        """The rung blocked by the first that it needs and that is in one of these states; None where none is."""
        bar = next((name for name in rung.needs if name in self.found and self.found[name].state in states), "")
        return replace(blank, state="blocked", reason=sentence(reason, name=bar), blocked_by=bar) if bar else None

    def _lacking(self, plan: Plan, blank: RungResult) -> RungResult | None:
        """The rung blocked by the one that makes a file which it reads and which is not there; None if all are."""
        for name, below in self.plans.items():
            made = below.outputs if isinstance(below, Plan) and name != blank.name else ()
            for file in made:
                if file in plan.made_from.values() and not file.is_file():
                    reason = sentence("ladder.lacks_file", file=shown(file), name=name)
                    return replace(blank, state="blocked", reason=reason, blocked_by=name)
        return None

    def _is_named(self, rung: Rung) -> bool:
        return rung.name in self.climb.only or rung.name == self.climb.first

    def _run(self, rung: Rung, plan: Plan, blank: RungResult) -> RungResult:
        """Make the calls of a rung, unless another one has just made them, and judge what they came to."""
        self.announce(rung.name, None)
        if plan.lines not in self.ran:
            self.ran[plan.lines] = self._performed(rung, plan, blank)
        judged = self._told_more(rung, plan, self._judged(rung, plan, blank))
        self.announce(rung.name, judged)
        return judged

    def _told_more(self, rung: Rung, plan: Plan, judged: RungResult) -> RungResult:
        """A rung that failed with what its explaining call knows of lines that it does not know itself."""
        if judged.state != "failed" or not plan.explaining or all(one.line and one.change for one in judged.culprits):
            return judged
        line = (plan.explaining.line,)
        if line not in self.explained:
            self.explained[line] = self.perform(plan.explaining).document
        document = self.explained[line]
        return replace(judged, culprits=rung.explain(judged.culprits, document)) if document else judged

    def _performed(self, rung: Rung, plan: Plan, blank: RungResult) -> tuple[RungResult, Mapping[str, Any]]:
        """Make the calls of a rung up to the first that fails; return it unjudged, with a document, {} if it fails."""
        begun, texts, last = time.monotonic(), [], Performed()
        made_from = read_facts(plan.made_from)
        for call in plan.calls:
            last = self.perform(call)
            texts.append(f"$ align {shlex.join(call.line)}\n{last.output}{last.errors}")
            if last.error is not None:
                break
        text = self.folder.path / TEXTS / f"{rung.name}.txt"
        text.parent.mkdir(exist_ok=True)
        text.write_text("\n".join(texts), encoding="utf-8")
        left = [self.folder.file(plan.kind), text, *plan.outputs] if last.document else [text]
        performed = replace(
            blank,
            state="not run" if last.document else "could not compare",
            reason=_first_line(last.error.message) if last.error else "",
            hint=_first_line(last.error.hint) if last.error else "",
            seconds=round(time.monotonic() - begun, 1),
            made_from=made_from,
            sources=loaded_sources(self.folder.path),
            evidence=evidence_facts(self.folder.path, left),
        )
        return performed, last.document or {}

    def _judged(self, rung: Rung, plan: Plan, blank: RungResult) -> RungResult:
        """What the calls of a plan say of a rung; they took time for the one that made them."""
        ladder_row, document = self.ran[plan.lines]
        seconds = ladder_row.seconds if ladder_row.name == rung.name else 0.0
        ladder_row = replace(ladder_row, name=rung.name, asked=blank.asked, seconds=seconds)
        if not document:
            return ladder_row
        judgement = rung.judge(document)
        culprits = tuple(map(self._explained, judgement.culprits))
        return replace(ladder_row, state=JUDGED[judgement.outcome], reason=judgement.reason, culprits=culprits)

    def _explained(self, culprit: Culprit) -> Culprit:
        """A culprit whose cause is unknown here, with what the last rung below knows of that place."""
        known = [
            one for rung in self.found.values() for one in rung.culprits if one.place == culprit.place and one.cause
        ]
        return known[-1] if known and not culprit.cause else culprit

    def _write(self, rest: Sequence[Rung]) -> LadderResult:
        """Keep what is known, and of the `rest`, which was not reached yet, what still holds of an earlier climb."""
        states = (*self.found.values(), *(self._state(rung, is_wanted=False) for rung in rest))
        result = LadderResult(shown(self.folder.path), states, judge_ladder(states))
        made_from = {"project": self.project.file} if self.project.file else {}
        self.folder.write(result, made_from)
        return result


def _read_earlier(document: dict[str, Any], folder: RunFolder) -> dict[str, RungResult]:
    """The rungs of an earlier climb by name; raises RunFolderError for a file that somebody has damaged."""
    try:
        return {one["name"]: RungResult.read(one) for one in document["rungs"]}
    except (KeyError, TypeError, ValueError) as error:
        path = folder.file("ladder")
        raise RunFolderError.of("run_usage.damaged_ladder", path=path, typed=shlex.quote(str(path))) from error


def _typed(plan: Plan, project: Project) -> tuple[str, ...]:
    """The commands as one would type them; overlays stand first on the import path."""
    overlays = [shown(side.overlay) for side in (project.candidate, project.reference) if side.overlay]
    first = f"PYTHONPATH={shlex.quote(':'.join(overlays))} " if overlays else ""
    return tuple(f"{first}align {shlex.join(line)}" for line in plan.lines)


def _stale(earlier: RungResult | None) -> RungResult | None:
    """A result that something below has changed; None where there is none."""
    if earlier is None or earlier.state not in JUDGED.values():
        return earlier if earlier is not None and earlier.state == "stale" else None
    return replace(earlier, state="stale", reason=sentence("ladder.stale", state=earlier.state))


def _first_line(text: str) -> str:
    """A text as a sentence, of several lines the first; with the next one where it ends in a colon."""
    lines = [*text.splitlines(), "", ""]
    first = lines[0]
    if first.endswith(":"):
        return f"{first} {lines[1].strip()}".rstrip(": ")
    return as_sentence(text) if first == text else first


# Files that a project names and that are not there: all of them in one message, before anything is run.


def require_named_files(project: Project, run: Path, plans: Iterable[Plan | Missing]) -> None:
    """Raise ProjectFileError for what these rungs read, or would read, and is not there.

    What a climb makes lies in its run folder.
    """
    missing: dict[Path, list[str]] = {}
    for plan in plans:
        for role, given in plan.made_from.items():
            file = file_of(given)
            if file is not None and not file.is_file() and run.absolute() not in file.absolute().parents:
                roles = missing.setdefault(file, [])
                roles += [role] if role not in roles else []
    if missing:
        faults = [say("run_usage.not_there", file=shown(file), roles=roles) for file, roles in missing.items()]
        raise ProjectFileError(project.file or NAME, faults, say("run_usage.missing_files_hint"))


# What a rung was made from, and whether that is as it was.
#
# A file whose size and time of change are as they were is not read again: checkpoints are large. The code of a side
# is every file that a rung has loaded from outside of installed packages; of those the versions count. What that code
# opens for reading, as weights that a factory loads itself, decides as much as the code.

PACKAGES = ("torch", "mindspore", "numpy")
Facts = dict[str, Any]
OF_COMPILED_CODE = (".safetensors", ".h5", ".hdf5", ".gguf")  # formats whose readers open files without Python
CONFIGURATION = "config.json"  # what stands beside the weights in a folder of a published model
_NAMED = re.compile(r"""["']([^"'\n]+\.(?:safetensors|h5|hdf5|gguf))["']""")
_HASHES: dict[Path, Facts] = {}  # of files that several rungs of one climb open


def file_facts(path: Path, known: Mapping[str, Any] | None = None) -> Facts:
    """Return `sha256`, `size`, `mtime_ns` and `ctime_ns` of a file; {} where there is none.

    `known` are facts of the same file: its hash is taken from them where size and times are the same. The time at
    which the file itself was last touched (`ctime`) no program can set: a copy with the old time is read again.
    """
    if not path.is_file():
        return {}
    state = path.stat()
    facts = {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "ctime_ns": state.st_ctime_ns}
    if known and facts == {name: known.get(name) for name in facts}:
        return {"sha256": known["sha256"], **facts}
    return {"sha256": sha256_of(path), **facts}


def read_facts(made_from: Mapping[str, Path | str], known: Mapping[str, Any] | None = None) -> dict[str, Facts]:
    """By role, the `path` or `text` of what a rung reads, with the facts of its file where it is one."""
    by_role = {}
    for role, given in made_from.items():
        file = file_of(given)
        earlier = (known or {}).get(role)
        facts = file_facts(file, earlier) if file else {}
        by_role[role] = {"path" if isinstance(given, Path) else "text": str(given), **facts}
    return by_role


def loaded_sources(run: Path) -> dict[str, Facts]:
    """The files of the user's code that this process has loaded or opened, and the versions of packages that compute.

    What lies in the run folder is left out: rungs make it, and know it as theirs.
    """
    run_folder = run.resolve()
    code, opened = user_files(), dict(islice(opened_files().items(), MOST_OPENED_FILES))
    facts = {path: _opened_facts(path, *state) for path, state in opened.items() if path.is_file()}
    facts |= {path: _facts(path) for path in _opened_by_compiled_code(code, opened)}
    read = {str(path): found for path, found in sorted(facts.items()) if run_folder not in path.resolve().parents}
    return {**read, **{str(path): _code_facts(path) for path in code}, **_versions()}


def _opened_by_compiled_code(code: Iterable[Path], opened: Iterable[Path]) -> Iterator[Path]:
    """Files that Python does not tell of: those that the code names, and those beside a configuration that it read."""
    for path in code:
        for name in _names_in(path):
            yield from (file for file in (path.parent / name, Path.cwd() / name) if file.is_file())
    for path in opened:
        if path.name == CONFIGURATION:
            yield from (file for file in path.parent.iterdir() if file.suffix in OF_COMPILED_CODE and file.is_file())


@cache  # a process loads a file once
def _names_in(code: Path) -> tuple[str, ...]:
    return tuple(found[1] for found in _NAMED.finditer(code.read_text(encoding="utf-8", errors="replace")))


def _facts(path: Path) -> Facts:
    """The facts of a file, which is hashed once a climb."""
    facts = _HASHES[path] = file_facts(path, _HASHES.get(path))
    return facts


def _code_facts(path: Path) -> Facts:
    """The facts of a module that was run; without a hash where its file has been edited since: nobody has run that."""
    state = state_when_run(path)
    return _facts(path) if state is None else _opened_facts(path, *state)


def _opened_facts(path: Path, size: int, time_of_change: int) -> Facts:
    """The facts of a file that is as it was when it was opened; without a hash, that of no file, where it is not."""
    at_first = {"size": size, "mtime_ns": time_of_change}
    facts = _facts(path)
    if {name: facts.get(name) for name in at_first} != at_first:
        return {"sha256": "", **at_first}
    return facts


def is_unchanged(known: Mapping[str, Mapping[str, Any]], base: Path | None = None) -> bool:
    """Tell whether all files (below `base`, if their paths are relative) and versions are as in these facts."""
    versions = _versions()
    for name, facts in known.items():
        if "version" in facts:
            if versions.get(name, facts) != facts:
                return False
        elif file_facts((base or Path()) / name, facts).get("sha256") != facts.get("sha256"):
            return False
    return True


def changed_file(known: Mapping[str, Mapping[str, Any]], base: Path | None = None) -> tuple[str, bool] | None:
    """The first file that is not as in these facts, and whether it is gone; versions do not count here.

    Of files below `base` all must be there. Others say nothing where they are not: a run folder may have been copied.
    """
    for name, facts in known.items():
        if "sha256" not in facts or not (base or Path(name).is_absolute()):
            continue
        path = (base or Path()) / name
        is_gone = not path.is_file()
        if is_gone and base is None:
            continue
        if file_facts(path, facts).get("sha256") != facts["sha256"]:
            return name, is_gone
    return None


def same_content(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether two sets of facts by role are about the same files with the same content."""
    return _content(one) == _content(other)


def read_files_of(made_from: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The facts of what a rung read, by the path of its file."""
    files = {file_of(Path(one["path"]) if "path" in one else one["text"]): one for one in made_from.values()}
    return {str(file): facts for file, facts in files.items() if file}


def evidence_facts(folder: Path, files: Iterable[Path]) -> dict[str, Facts]:
    """The facts of files that a rung wrote, by their paths relative to the run folder."""
    return {str(path.relative_to(folder)): file_facts(path) for path in files if path.is_file()}


def _content(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    times = ("mtime_ns", "ctime_ns")
    return {role: {key: one for key, one in each.items() if key not in times} for role, each in facts.items()}


def file_of(given: Path | str) -> Path | None:
    """The file that a rung reads: a path itself, or that of `file.py:function`; None for `package.module:function`."""
    if isinstance(given, Path):
        return given
    place = given.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else None


@cache  # what a process has loaded stays what it is
def _versions() -> dict[str, Facts]:
    installed = {package: version(package) for package in PACKAGES if find_spec(package) is not None}
    return {package: {"version": text} for package, text in {"mindalign": __version__, **installed}.items()}
