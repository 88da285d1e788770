"""`align convert`: a torch checkpoint becomes one that MindSpore loads."""

from __future__ import annotations

import enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli._shared import JsonOption, RunOption, finish, progress_bar


class Family(str, enum.Enum):
    """Whose parameter names the target has."""

    nn = "nn"
    mint = "mint"


def convert_command(  # noqa: PLR0913 - one parameter an option
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Checkpoint to read; its content tells its format.")],
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="File to write; its suffix tells the format: .ckpt ...")
    ],
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE", help="Name map, from `align map`.")] = None,
    target: Annotated[
        Family | None, typer.Option(help="Layers of the port, where no map is given; nn by default.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN=KIND", help="Say what a layer is that the file leaves open; may be repeated."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the destination if it exists.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Convert a checkpoint, read the result back and compare it bit for bit; neither framework is needed."""
    from align.workflows.convert_checkpoint import convert_checkpoint

    made_from = {"source": source} | ({"map": map_file} if map_file else {})
    with progress_bar() as progress:
        record = convert_checkpoint(
            source,
            destination,
            name_map=map_file,
            target_family=target.value if target else None,
            layers=layer or (),
            overwrite=overwrite,
            progress=progress,
        )
    return finish(record, record.verdict, made_from, run, json)
