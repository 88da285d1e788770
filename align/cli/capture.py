"""`align capture`: one model run on fixed inputs, written into a trace folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import (
    BatchesOption,
    InputSpecsOption,
    JsonOption,
    SeedOption,
    file_or_function,
    given_batches,
    hand_over,
    progress_bar,
)
from align.cli.parts.sides import DeviceOption, DtypeOption, ModeOption  # noqa: TC001 - typer reads the annotations

SHOWN_DEPTH = 1


def capture_command(  # noqa: PLR0913 - one parameter an option
    side: Annotated[str, typer.Argument(help="A model: `package.module:function` or `file.py:function`.")],
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Trace folder to write.")],
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the model.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    mode: ModeOption = None,
    tensors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT", help="Values to keep: all, none, first:N, sample:N, or a glob over paths; repeat."
        ),
    ] = None,
    functions: Annotated[bool, typer.Option("--functions", help="Capture functional calls too.")] = False,
    layer_inputs: Annotated[bool, typer.Option("--layer-inputs", help="Keep what every call is given, too.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Capture gradients too, in DIR/backward.")] = False,
    noise: Annotated[bool, typer.Option(help="Measure rounding noise by a second run in float64.")] = True,
    values: Annotated[bool, typer.Option(help="Keep the values of the parameters.")] = True,
    json: JsonOption = False,
) -> int:
    """Run a model on fixed inputs and write what every module returned into a folder; its framework is enough.

    `align forward DIR DIR` compares two such folders where neither framework is installed.
    """
    from align.models.open_side import open_side
    from align.traces.capture_trace import capture_trace

    source = given_batches([file_or_function(one) for one in inputs or ()], made or (), seed)
    with progress_bar() as progress:
        result = capture_trace(
            open_side(side, checkpoint, device=device, dtype=dtype, mode=mode),
            folder,
            inputs=source,
            tensors=tensors or ("all",),
            functions=functions,
            layer_inputs=layer_inputs,
            backward=backward,
            noise=noise,
            values=values,
            progress=progress,
        )
    if not json:
        result = dataclasses.replace(result, calls=tuple(call for call in result.calls if call.depth <= SHOWN_DEPTH))
    made_from: dict[str, Path | str] = {"model": side, **({"checkpoint": checkpoint} if checkpoint else {})}
    hand_over(result, made_from, None, json)
    return 0
