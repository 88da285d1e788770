"""What a run folder keeps of a job: one small file a task, `tasks/ID.json`, so that a later run does the rest.

An outcome counts as long as its task, its inputs and mindalign are as they were: size and time of each file, or what
object storage tells of an object. A failure is tried again. Nothing that is written holds a user, a password or a query
of a URL; the fingerprint is a hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.batch.jobs.remote_listing import remote_state, without_secrets
from align.batch.task import TaskOutcome
from align.core.about import __version__
from align.core.atomic_files import write_text
from align.remote.remote_files import remote_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.batch.task import Task

_FOLDER = "tasks"
_FORM = 1  # format: the version of these files
_WRITES = "convert"


class KeptOutcomes:
    """The outcomes that a run folder keeps; without a folder nothing is kept."""

    def __init__(self, run: Path | None) -> None:
        self._folder = None if run is None else run / _FOLDER

    def outcome(self, task: Task) -> TaskOutcome | None:
        """What is kept of a task, None if it is to be run: never run, failed, damaged, or made from other inputs."""
        if self._folder is None:
            return None
        try:
            document = json.loads((self._folder / f"{task.id}.json").read_text(encoding="utf-8"))
            if document["inputs"] != fingerprint(task) or document["outputs"] != _outputs(task):
                return None
            outcome = TaskOutcome(**document["outcome"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return outcome if outcome.state == "done" else None

    def keep(self, task: Task, outcome: TaskOutcome, inputs: str) -> None:
        """Write an outcome whole or not at all; `inputs` is the fingerprint from before the task was run."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "form": _FORM,
            "action": task.action,
            "paths": [without_secrets(path) for path in task.paths],
            "inputs": inputs,
            "outputs": _outputs(task),
            "outcome": asdict(outcome),
        }
        write_text(self._folder / f"{task.id}.json", json.dumps(document) + "\n")


def fingerprint(task: Task) -> str:
    """A hash of the task and the state of all that it reads; "" for what cannot be told, which never fits."""
    digest = hashlib.sha256(json.dumps([_FORM, __version__, task.action, dict(task.options)], sort_keys=True).encode())
    read = task.paths[:1] if task.action == _WRITES else task.paths
    for path in (*read, *([task.options["map"]] if "map" in task.options else [])):
        digest.update(path.encode())
        for line in _state(path):
            digest.update(line.encode())
    if task.action == _WRITES:
        digest.update(task.paths[1].encode())
    return digest.hexdigest()


def _outputs(task: Task) -> list[str]:
    """The state of what a task writes: one that is gone is written again."""
    if task.action != _WRITES:
        return []
    return [without_secrets(line) for line in _state(task.paths[1])]


def _state(path: str) -> Iterator[str]:
    """Name, size and time of a file, or of all files of a folder."""
    if (url := remote_url(path)) is not None:
        yield from remote_state(url)
        return
    place = Path(path)
    files = sorted(one for one in place.rglob("*") if one.is_file()) if place.is_dir() else [place]
    for file in files:
        if file.exists():
            found = file.stat()
            yield f"{file.relative_to(place)} {found.st_size} {found.st_mtime_ns}"
        else:
            yield f"{file} absent"
