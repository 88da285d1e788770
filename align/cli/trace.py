"""`align trace show`: a trace folder as a tree."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import JsonOption, hand_over


class Action(str, enum.Enum):
    """What to do with a trace folder."""

    SHOW = "show"


def trace_command(
    action: Annotated[Action, typer.Argument(help="What to do: show the trace.", metavar="show")],  # noqa: ARG001
    folder: Annotated[
        Path, typer.Argument(help="A folder that `align capture` wrote, or a dump of another tool.", metavar="DIR")
    ],
    depth: Annotated[int | None, typer.Option(min=0, help="Show calls down to this depth; 0 is the model.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show dtypes and the lines that called, too.")] = False,
    json: JsonOption = False,
) -> int:
    """Print a trace as the tree of its calls: classes, shapes, figures, and where it ends if it was cut short."""
    from align.traces.dumped_side import is_trace_folder
    from align.traces.open_trace import show_trace
    from align.traces.show_dump import show_dump

    known = is_trace_folder(folder) or not folder.exists()
    result = show_trace(folder) if known else show_dump(folder)
    if depth is not None:
        calls = tuple(call for call in result.calls if call.depth <= depth)
        result = dataclasses.replace(result, calls=calls)
    hand_over(result, {"trace": folder}, None, json, show_all=show_all)
    return 0
