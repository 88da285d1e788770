"""One task, where it is run: its paths are opened, and what is found is told in plain and small figures.

Figures of every action: `outcome` and `reason` of the verdict, `rows` [name, outcome, value] in execution or file
order, where value is the relative difference or the multiple of the limit, and `prints`, one [name, reference,
candidate] a tensor: fingerprints of the values, None for what a side lacks.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from align.batch.actions.check_file import check_file
from align.batch.actions.compare_files import compare_checkpoints, compare_dumped
from align.core.verdicts import Outcome
from align.remote.remote_files import local_copy, local_destination

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.batch.task import Task

FUNCTION = "align.batch.actions.run_task:run_task"


def run_task(task: Task) -> dict[str, Any]:
    """Run one task; raises what its action raises."""
    with ExitStack() as stack:
        if task.action == "convert":
            source = stack.enter_context(local_copy(task.paths[0]))
            replace = bool(task.options.get("overwrite", False))
            destination = stack.enter_context(local_destination(task.paths[1], replace=replace))
            return _convert(source, destination, task.options)
        paths = [stack.enter_context(local_copy(path)) for path in task.paths]
        options = dict(task.options)
        if "map" in options:
            options["map"] = stack.enter_context(local_copy(options["map"]))
        return _ACTIONS[task.action](paths, options)


def _convert(source: Path, destination: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    from align.convert.convert_checkpoint import convert_checkpoint

    named = {"map": "name_map", "layer": "layers"}
    given = {named.get(key, key): value for key, value in options.items()}
    destination.parent.mkdir(parents=True, exist_ok=True)
    record = convert_checkpoint(source, destination, **given)
    verdict = record.verdict
    unread = given.get("verify") is False  # as asked for: what was written is done, as the command alone says by exit 0
    return {
        "outcome": (Outcome.ALIGNED if unread else verdict.outcome).value,
        "reason": str(verdict.reason),
        "compared": verdict.coverage.compared,
        "rows": [],
        "prints": [],
        "content_sha256": record.content_sha256,
    }


_ACTIONS = {"diff": compare_checkpoints, "forward": compare_dumped, "check": check_file}
