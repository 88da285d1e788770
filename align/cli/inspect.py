"""`align inspect`: what is in a checkpoint."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import AllTensorsOption, JsonOption, RunOption, TrustPickleOption, hand_over


def inspect_command(  # noqa: PLR0913 - one parameter an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, sharded index or folder of any format.")],
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Entry of a nested file, as the table of entries names it.")
    ] = None,
    trust_pickle: TrustPickleOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read all of which the file carries a crc, and hold it against that.")
    ] = False,
    show_all: AllTensorsOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Show what is in a checkpoint: tensors, dtypes, sizes, ties, metadata; only headers are read.

    Exit code 0 if it can be read and, with --check, is not damaged; else 2.
    """
    from align.checkpoints.inspect_checkpoint import inspect_checkpoint

    # The file is named by its path alone: its hash would need all of it.
    found = inspect_checkpoint(file, key, trust_pickle=trust_pickle, check=check)
    hand_over(found, {"file": str(file)}, run, json, show_all=show_all)
    return 0
