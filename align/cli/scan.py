"""`align scan`: what of a torch model MindSpore has, call by call, before a line of the port is written."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.output import tell
from align.cli.parts.shared import (
    BatchesOption,
    InputSpecsOption,
    JsonOption,
    RunOption,
    SeedOption,
    TorchModelArgument,
    file_or_function,
    given_batches,
    hand_over,
    progress_bar,
)
from align.cli.parts.sides import numbered_sources


def scan_command(  # noqa: PLR0913 - one parameter an option
    model: TorchModelArgument,
    target: Annotated[
        str, typer.Option(metavar="NAME", help="What the port is to run on: cpu, gpu or ascend:CHIP.")
    ] = "cpu",
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    show_all: Annotated[bool, typer.Option("--all", help="Show also what is the same in MindSpore.")] = False,
    skeleton: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the port's layers in MindSpore into a file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it is there.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """List what a torch model calls that MindSpore has not, or has otherwise, and what to write instead.

    Exit code 0: all has a counterpart; 1: something has none, no kernel on the target, or is not known; 2: it could
    not be run or read.
    """
    from align.rules.api_table import scan_target
    from align.scan.scan_model import scan_model
    from align.words.catalogue import say

    scan_target(target)  # refused before the model is built
    if skeleton is not None:
        from align.scan.write_skeleton import write_skeleton

        write_skeleton(model, skeleton, force=force)
        tell(say("skeleton.written", path=skeleton), err=json)
    given = [file_or_function(one) for one in inputs or ()]
    source = given_batches(given, made or (), seed) if given or made else None
    with progress_bar() as progress:
        result = scan_model(model, inputs=source, target=target, progress=progress)
    sources: dict[str, Path | str] = {"model": model, "target": target, **numbered_sources("inputs", given)}
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code
