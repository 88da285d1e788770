"""`align trace show`: a trace folder as a tree; `changes`: two iterations of a training; `export`: for another tool."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.output import tell
from align.cli.parts.shared import JsonOption, hand_over


class Action(str, enum.Enum):
    """What to do with a trace folder."""

    SHOW = "show"
    CHANGES = "changes"
    EXPORT = "export"


class Form(str, enum.Enum):
    """What to write."""

    NPY = "npy"
    MSPROBE = "msprobe"
    POLYGRAPHY = "polygraphy"


def trace_command(  # noqa: PLR0913 - one parameter an option
    action: Annotated[
        Action,
        typer.Argument(
            help="What to do: show the trace, export it, or say what changed since.", metavar="show|changes|export"
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="A folder that `align capture` wrote, or a dump of another tool.", metavar="DIR")
    ],
    later: Annotated[
        Path | None, typer.Argument(help="changes: a later iteration of the same run.", metavar="LATER")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Show calls down to this depth; 0 is the model.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show dtypes and the lines that called, too.")] = False,
    to: Annotated[Form | None, typer.Option(help="export: the tool that is to read it.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="export: where to write; must not exist.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Print a trace as the tree of its calls, say what changed between two, or write it in the form of another tool.

    The tree shows classes, shapes, figures, and where it ends if it was cut short.
    """
    from align.traces.dumped_side import is_trace_folder
    from align.traces.open_trace import show_trace
    from align.traces.show_dump import show_dump

    if action is Action.EXPORT:
        return _export(folder, to, out)
    if action is Action.CHANGES:
        return _changes(folder, later, json=json, show_all=show_all)
    known = is_trace_folder(folder) or not folder.exists()
    result = show_trace(folder) if known else show_dump(folder)
    if depth is not None:
        calls = tuple(call for call in result.calls if call.depth <= depth)
        result = dataclasses.replace(result, calls=calls)
    hand_over(result, {"trace": folder}, None, json, show_all=show_all)
    return 0


def _changes(folder: Path, later: Path | None, *, json: bool, show_all: bool) -> int:
    from align.watch.compare_iterations import compare_iterations, refuse_one_iteration

    if later is None:
        refuse_one_iteration(folder)
    result = compare_iterations(folder, later)
    hand_over(result, {"before": folder, "after": later}, None, json, show_all=show_all)
    return 0


def _export(folder: Path, to: Form | None, out: Path | None) -> int:
    from align.errors import UsageError
    from align.traces.export_trace import export_trace
    from align.words.catalogue import say

    if to is None:
        raise UsageError.of("cli_usage.export_to")
    destination = out or folder.with_name(f"{folder.name}-{to.value}{'.json' if to is Form.POLYGRAPHY else ''}")
    done = export_trace(folder, to.value, destination)
    tell(say("trace.exported", count=done.written, path=done.path, left_out=done.left_out))
    return 0
