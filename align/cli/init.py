"""`align init`: the project file of the current folder, from what lies in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli.parts.output import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.runs.write_project import Key


_TRACE = "A folder of `align capture`, of an original whose framework is not here."


def init_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str | None, typer.Option(metavar="SIDE", help="The original: `file.py:function`.")] = None,
    candidate: Annotated[str | None, typer.Option(metavar="SIDE", help="The port: `file.py:function`.")] = None,
    reference_checkpoint: Annotated[str | None, typer.Option(metavar="FILE", help="Fills the original.")] = None,
    candidate_checkpoint: Annotated[str | None, typer.Option(metavar="FILE", help="Fills the port.")] = None,
    reference_trace: Annotated[str | None, typer.Option(metavar="DIR", help=_TRACE)] = None,
    candidate_trace: Annotated[str | None, typer.Option(metavar="DIR", help="The same of the port.")] = None,
    reference_training: Annotated[str | None, typer.Option(metavar="SIDE", help="Model, loss, optimizer.")] = None,
    candidate_training: Annotated[str | None, typer.Option(metavar="SIDE", help="The same of the port.")] = None,
    reference_log: Annotated[str | None, typer.Option(metavar="FILE", help="What its training printed.")] = None,
    candidate_log: Annotated[str | None, typer.Option(metavar="FILE", help="The same of the port.")] = None,
    inputs: Annotated[str | None, typer.Option(metavar="FILE", help="Arrays by name, or `file.py:function`.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="FILE", help="Inputs and labels of one training step.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace align.toml.")] = False,
) -> int:
    """Write align.toml: what the folder holds is found, what is unclear is asked on a terminal, options win.

    No code is run. Exit code 0: the file is written; 2: it is not.
    """
    from align.runs.write_project import write_project
    from align.words.catalogue import say

    given = {
        "reference model": reference,
        "reference checkpoint": reference_checkpoint,
        "reference trace": reference_trace,
        "reference training": reference_training,
        "reference log": reference_log,
        "candidate model": candidate,
        "candidate checkpoint": candidate_checkpoint,
        "candidate trace": candidate_trace,
        "candidate training": candidate_training,
        "candidate log": candidate_log,
        "forward inputs": inputs,
        "training batch": batch,
    }
    ask = _ask if sys.stdin.isatty() and sys.stdout.isatty() else None
    known = {name: value for name, value in given.items() if value}
    written = write_project(Path(), known, ask, overwrite=overwrite)
    for name, value in written.chosen.items():
        tell(f"{name:<21} {value}")
    for one in written.left_out:
        facts = {"table": one.key.table, "name": one.key.name, "option": one.key.option}
        tell(say("project_key.left_out", names=one.choices, **facts))
    for side in written.sides:
        facts = {"text": side.text, "call": side.recipe.call, "origin": side.recipe.origin}
        key = "project_key.open_side" if side.line else "project_key.written_side"
        tell(say(key, line=side.line, missing=side.recipe.missing, **facts))
    for file in written.unfit:
        tell(say("project_key.unfit", file=file))
    files = dict.fromkeys(["align.toml", *(side.text.rpartition(":")[0] for side in written.sides)])
    tell(f"Written: {', '.join(files)}")
    places = [f"{side.text.rpartition(':')[0]}:{side.line}" for side in written.sides if side.line]
    tell(say("project_key.next_fill", places=places) if places else "Next: align run")
    return 0


def _ask(key: Key, fits: Sequence[str]) -> str:
    """Let the user choose by number or type another; nothing leaves the key out."""
    from align.words.catalogue import say

    for number, one in enumerate(fits, 1):
        tell(f"  {number}  {one}")
    while True:
        answer = str(typer.prompt(f"[{key.table}] {key.name} ({key.about})", default="", show_default=False)).strip()
        if not answer.isdecimal():
            return answer
        if 1 <= int(answer) <= len(fits):
            return fits[int(answer) - 1]
        tell(say("project_key.no_such_number", number=answer, count=len(fits)))
