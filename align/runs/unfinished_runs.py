"""What a run folder keeps of a run that has begun and not come to its end: the result that is there is an older one.

A run leaves a mark beside the result that it is about to replace, and the new result takes the mark away. So a run that
failed, was interrupted or was killed is distinguished from one that ended, and nothing is lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.core.documents import TEXT, WHOLE, DocumentFault, Form, read_json, table
from align.traces.folder_lock import this_process

if TYPE_CHECKING:
    from pathlib import Path

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
        own = {name: document[name] for name in UnfinishedRun.__slots__}
    except FileNotFoundError:
        return None
    except DocumentFault:
        return UnfinishedRun(0, "", "")
    return UnfinishedRun(**own)


def _mark(folder: Path, kind: str) -> Path:
    return folder / f"{kind}{_SUFFIX}"


def _write(folder: Path, kind: str, run: UnfinishedRun) -> None:
    write_text(_mark(folder, kind), json.dumps({"schema": SCHEMA, **asdict(run)}, ensure_ascii=False) + "\n")
