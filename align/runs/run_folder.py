"""The run folder: results as JSON with a schema version, and the hashes of what each was made from.

Commands write into it; reports read nothing else. One file a result (`map.json`, `convert.json`, `forward.json`,
`loss.json`), so that each step can be run again alone; the newest replaces the older whole.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shlex
import shutil
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from align.core.about import __version__
from align.core.atomic_files import remove_dead_parts, sha256_of, with_urls, write_text
from align.core.documents import TEXT, WHOLE, DocumentFault, Form, json_text, parse_json, read_json, table, to_json_data
from align.core.operating_system import LOCK, folder_lock, this_process
from align.core.protocols import collector_paused
from align.errors import DestinationError, RunFolderError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType


# Since version 2 sentences stand beside their keys and facts; documents of the version before lack these.
SCHEMA_VERSION = 2  # format: the version of a document
FURTHER_VERSIONS = {"convert": 3, "loss": 3, "log": 3, "report": 3}  # of kinds whose form had changed before
LADDER = ("map", "convert", "forward", "step", "loss")
# In the order in which a report shows them; those that are no rung of the ladder only where there is a result.
BEFORE_STEP = ("ranks", "params", "initial", "determinism", "nonfinite", "memory")
OF_FORWARD = ("bisect", "precision", "switches", "emulate")
KINDS = (
    "map",
    "convert",
    "diff",
    "batch",
    "lint",
    "forward",
    *OF_FORWARD,
    "formula",
    "data",
    "validate",
    "generate",
    "tokens",
    *BEFORE_STEP,
    "step",
    "samples",
    "watch",
    "loss",
    "advise",
)
COMMANDS = {  # of kinds whose command bears another name, or needs an option
    "determinism": "check-determinism",
    "formula": "forward --against-formula",
    "precision": "bisect --precision DTYPE",
    "samples": "step --samples",
    "switches": "bisect --switches TARGET",
}


class Result(Protocol):
    """A value that a run folder can hold."""

    @property
    def result_kind(self) -> str:
        """Stem of its file."""
        ...


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that holds the results of one alignment."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make the folder if needed; raises DestinationError if it cannot be made."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DestinationError.of("run_usage.no_folder", path=path, reason=error.strerror) from error
        return cls(path)

    @staticmethod
    def check(path: Path) -> None:
        """Raise DestinationError if the folder could not be made or written to; nothing is made yet."""
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            is_folder = there.is_dir()
            key = "run_usage.unwritable_folder" if is_folder else "run_usage.no_folder_there"
            raise DestinationError.of(key, path=path, there=there)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a folder with at least one result; raises RunFolderError otherwise."""
        folder = cls(path)
        if not path.is_dir():
            raise RunFolderError.of("run_usage.folder_not_found", path=path)
        if not any(folder.file(kind).is_file() for kind in (*KINDS, "ladder")):
            *most, last = (f"`{COMMANDS.get(kind, kind)} --run DIR`" for kind in KINDS)
            raise RunFolderError.of("run_usage.empty_folder", path=path, most=most, last=last)
        return folder

    def file(self, kind: str) -> Path:
        """Path of a result's JSON file."""
        return self.path / f"{kind}.json"

    def written(self, kind: str) -> tuple[int, int] | None:
        """What every result that is written of a kind has anew, whatever the clock says; None where there is none."""
        path = self.file(kind)
        state = path.stat() if path.is_file() else None
        return state and (state.st_ino, state.st_mtime_ns)

    def write(self, result: Result, made_from: Mapping[str, Path | str]) -> Path:
        """Write a result whole or not at all; `made_from` maps a role to the file (or text) it was made from."""
        return self.keep(result.result_kind, as_document(result, made_from))

    def keep(self, kind: str, document: Mapping[str, Any]) -> Path:
        """Write the document of a result, as `write` does."""
        write_text(self.file(kind), json_text(document) + "\n")
        clear_mark(self.path, kind)
        return self.file(kind)

    def unfinished(self, kind: str) -> UnfinishedRun | None:
        """Return the run that has begun since the result of a kind was written, None if there is none."""
        return read_unfinished(self.path, kind)

    def read(self, kind: str) -> dict[str, Any] | None:
        """Read a result back, None if it was never written; raises RunFolderError for another schema or damage."""
        path = self.file(kind)
        return read_document(path, kind) if path.is_file() else None


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Read the document of a result of this kind; raises RunFolderError for another schema or damage."""
    typed = shlex.quote(str(path))
    try:
        document = read_json(path)
    except DocumentFault as fault:
        raise RunFolderError.of("run_usage.not_json", path=path, typed=typed, error=fault) from fault
    if not isinstance(document, dict):
        raise RunFolderError.of("run_usage.no_result", path=path, typed=typed)
    schema, expected = document.get("schema"), schema_of(kind)
    if schema not in readable_schemas(kind):
        raise RunFolderError.of(
            "run_usage.other_schema", path=path, typed=typed, schema=repr(schema), expected=repr(expected)
        )
    try:
        form_of(kind, is_own=document.get("mindalign") == __version__ and schema == expected).require(document)
        _require_columns(document)
    except DocumentFault as fault:
        raise RunFolderError.of("run_usage.other_form", path=path, typed=typed, fault=fault) from fault
    return document


@cache
def form_of(kind: str, *, is_own: bool) -> Form:
    """The form of a document that this version wrote, or another, which may have more fields and lack some."""
    schema = parse_json((Path(__file__).parent / "schemas" / f"{kind}.schema.json").read_bytes())
    return Form(schema if is_own else _loosened(schema, ("required", "const")))


def _require_columns(document: dict[str, Any]) -> None:
    """The points of curves stand in columns, which have one length."""
    points = document.get("points")
    columns = [one for one in points.values() if isinstance(one, list)] if isinstance(points, dict) else []
    if len({*map(len, columns)}) > 1:
        raise DocumentFault(say("document_fault.columns", field="points"))


def _loosened(schema: Any, left_out: Sequence[str]) -> Any:
    if isinstance(schema, list):
        return [_loosened(part, left_out) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if name not in left_out or isinstance(part, dict)}
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]
    return {name: _loosened(part, left_out) for name, part in kept.items()}


def schema_of(kind: str) -> str:
    """Return the schema of a kind of result, with its version."""
    return readable_schemas(kind)[0]


def readable_schemas(kind: str) -> tuple[str, str]:
    """The schema of a kind, and the one before, whose fields mean the same."""
    version = FURTHER_VERSIONS.get(kind, SCHEMA_VERSION)
    return f"mindalign.{kind}/{version}", f"mindalign.{kind}/{version - 1}"


@collector_paused()
def as_document(result: Result, made_from: Mapping[str, Path | str], *, hashed: bool = True) -> dict[str, Any]:
    """Return a result as a JSON document: schema, time, version, what it was made from (`hashed` or not), fields."""
    document = {
        "schema": schema_of(result.result_kind),
        "created": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "mindalign": __version__,
        "made_from": {role: _provenance(source, hashed) for role, source in made_from.items()},
        **to_json_data(result),
    }
    return with_urls(document)


def _provenance(source: Path | str, hashed: bool) -> dict[str, str]:
    if isinstance(source, str):
        place = Path(source.rpartition(":")[0])  # of `file.py:function`
        return {"text": source} | (_provenance(place, hashed) if place.suffix == ".py" and place.is_file() else {})
    if hashed and source.is_file():
        return {"path": str(source), "sha256": sha256_of(source)}
    return {"path": str(source)}


# A run folder for one command at a time, from its first step to its result.

# What a run that dies leaves beside its result, by kind; a new result makes it worthless.
PARTS = {"forward": ("traces.part",)}


@contextlib.contextmanager
def claim_run_folder(path: Path, kind: str) -> Iterator[None]:
    """Hold a run folder while the block makes the result of one kind.

    A block that raises leaves an older result as it is, marked as made before this run. What dead runs left is removed;
    folders that were made for this and stay empty go. Raises FolderInUseError if another process works in it, and
    DestinationError if it cannot be made.
    """
    new_folders = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    RunFolder.create(path)
    try:
        with folder_lock(path / LOCK, path, "run"):
            remove_dead_parts(path)
            with _Marked(path, kind) if kind in KINDS else contextlib.nullcontext():
                yield
            _remove_parts(path, kind)
    finally:
        with contextlib.suppress(OSError):  # it holds something
            for folder in new_folders:
                folder.rmdir()


class _Marked:
    """The mark of a run that is going on; it goes with one that fails in a folder where nothing else is."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind

    def __enter__(self) -> None:
        self._is_first = not any(found.name != LOCK for found in self._path.iterdir())
        self._run = mark_begun(self._path, self._kind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None or self._is_first:
            clear_mark(self._path, self._kind)
        elif isinstance(error, KeyboardInterrupt):
            mark_ended(self._path, self._kind, replace(self._run, ended="interrupted"))
        else:
            reason = str(error).strip().partition("\n")[0]
            mark_ended(
                self._path, self._kind, replace(self._run, ended="failed", reason=reason or type(error).__name__)
            )


def _remove_parts(path: Path, kind: str) -> None:
    if read_unfinished(path, kind) is None:
        for name in PARTS.get(kind, ()):
            shutil.rmtree(path / name, ignore_errors=True)


# What a run folder keeps of a run that has begun and not come to its end: the result that is there is an older one.
#
# A run leaves a mark beside the result that it is about to replace, and the new result takes the mark away. So a run
# that failed, was interrupted or was killed is distinguished from one that ended, and nothing is lost.

SCHEMA = "mindalign.begun/1"
_SUFFIX = ".begun.json"
_FORM = Form(table({"pid": WHOLE, **dict.fromkeys(("host", "since", "ended", "reason"), TEXT)}))


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run of one rung: when it began (UTC, ISO 8601), in which process of which host, and how it ended.

    `ended` is "failed" or "interrupted", with `reason` in one line; "" for one that was killed or still runs.
    """

    pid: int
    host: str
    since: str
    ended: str = ""
    reason: str = ""


def mark_begun(folder: Path, kind: str) -> UnfinishedRun:
    """Note that a run begins which is to replace the result of this kind."""
    run = UnfinishedRun(*this_process())
    _write(folder, kind, run)
    return run


def mark_ended(folder: Path, kind: str, run: UnfinishedRun) -> None:
    """Note how a run ended that left no result; nothing is noted if it did."""
    if _mark(folder, kind).is_file():
        _write(folder, kind, run)


def clear_mark(folder: Path, kind: str) -> None:
    """Take the mark away: there is a new result, or nothing to distinguish."""
    _mark(folder, kind).unlink(missing_ok=True)


def read_unfinished(folder: Path, kind: str) -> UnfinishedRun | None:
    """Return the run that has begun and left no result; None if the last one ended."""
    try:
        document = _FORM.require(read_json(_mark(folder, kind)))
        fields = {name: document[name] for name in UnfinishedRun.__slots__}
    except FileNotFoundError:
        return None
    except DocumentFault:
        return UnfinishedRun(0, "", "")
    return UnfinishedRun(**fields)


def _mark(folder: Path, kind: str) -> Path:
    return folder / f"{kind}{_SUFFIX}"


def _write(folder: Path, kind: str, run: UnfinishedRun) -> None:
    write_text(_mark(folder, kind), json.dumps({"schema": SCHEMA, **asdict(run)}, ensure_ascii=False) + "\n")
