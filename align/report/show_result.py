"""Results as text in the terminal: the kind of a document, which its schema names, chooses how it is shown.

The blocks of a kind are a function `KIND_blocks` in `kinds/KIND.py`; only that one is imported.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.json_data import to_json_data
from align.core.progress import collector_paused
from align.errors import RunFolderError
from align.report.rendering.blocks import Block, Column, Row, Table, verdict_block
from align.report.rendering.terminal import print_blocks
from align.runs.run_folder import schema_of
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.verdicts import Verdict


# Kinds that came later stand beside `kinds/`, whose modules are as many as one takes in.
IN_PARTS = {
    "batch": "align.report.kind_parts.batch_tasks",
    "crash": "align.report.kind_parts.crash_steps",
    "emulate": "align.report.kind_parts.emulated_chip",
    "fix": "align.report.kind_parts.fixed_port",
    "hyperparameters": "align.report.kind_parts.compared_settings",
    "iterations": "align.report.kind_parts.iteration_changes",
    "memory": "align.report.kind_parts.followed_memory",
    "nonfinite": "align.report.kind_parts.found_nonfinite",
    "scale": "align.report.kind_parts.loss_scale_steps",
    "scan": "align.report.kind_parts.scanned_calls",
    "training": "align.report.kind_parts.bisected_training",
}


@collector_paused()
def print_result(document: dict[str, Any], *, show_all: bool = False) -> None:
    """Print the document of a result; `show_all` leaves nothing out. Raises RunFolderError for an unknown schema."""
    print_blocks(result_blocks(document, show_all=show_all))


def result_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Return a result as blocks; raises RunFolderError for an unknown schema.

    So it does for a document of another version, which is held to no list of fields, that lacks one which is shown.
    """
    try:
        return _blocks(document, show_all)
    except (KeyError, TypeError) as error:
        kind = _kind(document)
        if (document.get("mindalign"), document.get("schema")) == (__version__, schema_of(kind)):
            raise  # it was held to its schema when it was read
        facts = {"kind": kind, "error": repr(error)}
        raise RunFolderError.of("report_usage.lacks_fields", **facts) from error


def _blocks(document: dict[str, Any], show_all: bool) -> list[Block]:
    kind = _kind(document)
    if kind == "report":
        from align.report.kind_parts.report_summary import summary_blocks

        return summary_blocks(document)
    if kind == "switches":
        from align.report.kind_parts.chip_switches import switches_blocks

        return switches_blocks(document)
    module_name = IN_PARTS.get(kind, f"align.report.kinds.{kind}")
    if kind.isidentifier() and find_spec(module_name) is not None:
        module = import_module(module_name)
        blocks: list[Block] = getattr(module, f"{kind}_blocks")(document, show_all=show_all)
        return blocks
    raise RunFolderError.of("report_usage.unknown_schema", schema=repr(document.get("schema")))


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict alone: outcome, reason, what it does not rest on, and what it rests on."""
    print_blocks([verdict_block(to_json_data(verdict))])


def print_plugins(rows: Sequence[dict[str, str]]) -> None:
    """Print one row a plugin: its kind, name, summary and whether it can be used."""
    columns = tuple(Column(say(f"plugins.{key}")) for key in ("room", "name", "summary", "state"))
    shown = tuple(
        Row((row["room"], row["name"], row["summary"], row["state"]), "good" if row["state"] == "ready" else "open")
        for row in rows
    )
    print_blocks([Table(say("plugins.title"), columns, shown)])


def _kind(document: dict[str, Any]) -> str:
    return str(document.get("schema", "")).removeprefix("mindalign.").partition("/")[0]
