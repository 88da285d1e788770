"""Results as text in the terminal: the kind of a document, told by its schema, chooses how it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.errors import RunFolderError
from align.report.blocks import Block, Column, Row, Table
from align.report.blocks_convert import convert_blocks
from align.report.blocks_diff import diff_blocks
from align.report.blocks_forward import forward_blocks
from align.report.blocks_inspect import inspect_blocks
from align.report.blocks_loss import loss_blocks
from align.report.blocks_map import map_blocks
from align.report.blocks_report import summary_blocks
from align.report.terminal import print_blocks
from align.report.texts import say

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_result(document: dict[str, Any], *, show_all: bool = False) -> None:
    """Print the document of a result; `show_all` leaves nothing out. Raises RunFolderError for an unknown schema."""
    if _kind(document) == "log":
        from align.report.log_text import print_log

        print_log(document)
        return
    print_blocks(result_blocks(document, show_all=show_all))


def result_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Return a result as blocks; raises RunFolderError for an unknown schema."""
    match _kind(document):
        case "map":
            return map_blocks(document, show_all=show_all)
        case "convert":
            return convert_blocks(document, show_all=show_all)
        case "diff":
            return diff_blocks(document, show_all=show_all)
        case "inspect":
            return inspect_blocks(document, show_all=show_all)
        case "forward":
            return forward_blocks(document, show_all=show_all)
        case "loss":
            return loss_blocks(document, show_all=show_all)
        case "report":
            return summary_blocks(document)
    message = f"no way to show a document of schema {document.get('schema')!r}"
    raise RunFolderError(message, "it was written by another version of mindalign; write it again")


def print_plugins(rows: Sequence[dict[str, str]]) -> None:
    """Print one row a plugin: its room, name, summary and whether it can be used."""
    columns = tuple(Column(say(f"plugins.{key}")) for key in ("room", "name", "summary", "state"))
    shown = tuple(
        Row((row["room"], row["name"], row["summary"], row["state"]), "good" if row["state"] == "ready" else "open")
        for row in rows
    )
    print_blocks([Table(say("plugins.title"), columns, shown)])


def _kind(document: dict[str, Any]) -> str:
    return str(document.get("schema", "")).removeprefix("mindalign.").partition("/")[0]
