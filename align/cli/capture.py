"""`align capture`: one model run on fixed inputs, written into a trace folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, Any

import typer

from align.cli.parts.own_options import own_hints
from align.cli.parts.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    BatchesOption,
    CheckpointOption,
    InputSpecsOption,
    JsonOption,
    SeedOption,
    file_or_function,
    given_batches,
    hand_over,
    progress_bar,
)
from align.cli.parts.sides import DeviceOption, DtypeOption, ModeOption, numbered_sources
from align.errors import UsageError


def capture_command(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Trace folder to write.")],
    side: Annotated[
        str | None, typer.Argument(help="A model: `package.module:function` or `file.py:function`.")
    ] = None,
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
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
    step: Annotated[
        str | None, typer.Option(metavar="FACTORY", help=f"Capture training steps instead. {TRAINING_SIDE}")
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="How many training steps.")] = 3,
    batch: BatchesOfStepsOption = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="Returns the loader or dataset of the training: its lengths are kept."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace training steps that DIR holds; a trace always is.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Run a model on fixed inputs and write what every module returned into a folder; its framework is enough.

    `align forward DIR DIR` compares two such folders where neither framework is installed, and `align step DIR DIR`
    two of training steps.
    """
    if step is not None:
        others: dict[str, object] = {
            "SIDE": side,
            "--inputs": inputs,
            "--input": made,
            "--checkpoint": checkpoint,
            "--device": device,
        }
        others |= {"--dtype": dtype, "--mode": mode, "--tensors": tensors, "--functions": functions}
        others |= {"--layer-inputs": layer_inputs, "--backward": backward}
        others |= {"--no-noise": not noise, "--no-values": not values}
        if strange := [name for name, given in others.items() if given]:
            raise UsageError.of("cli_usage.of_a_forward_run", name=strange[0])
        with own_hints((), others):
            return _capture_steps(step, folder, batch, steps, json, overwrite=overwrite, data=data)
    if batch:
        raise UsageError.of("cli_usage.of_training_steps")
    if side is None:
        raise UsageError.of("cli_usage.no_model_to_capture")
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
            data=_loaded(data),
            progress=progress,
        )
    if not json:
        from align.report.thresholds import CALL_DEPTH_SHOWN

        shown = tuple(call for call in result.calls if call.depth <= CALL_DEPTH_SHOWN)
        result = dataclasses.replace(result, calls=shown)
    made_from: dict[str, Path | str] = {"model": side, **({"checkpoint": checkpoint} if checkpoint else {})}
    hand_over(result, made_from, None, json)
    return 0


def _loaded(data: str | None) -> Any:
    """What the function of `--data` returns."""
    from align.models.user_code import load_function

    return None if data is None else load_function(data, "data file")()


def _capture_steps(  # noqa: PLR0913 - the options of one command
    factory: str, folder: Path, batch: list[str] | None, steps: int, json: bool, *, overwrite: bool, data: str | None
) -> int:
    """Capture training steps; raises UsageError where no batch is given."""
    from align.training.capture_training_step import capture_training_step

    if not batch:
        raise UsageError.of("cli_usage.no_batch")
    with progress_bar() as progress:
        result = capture_training_step(
            factory, folder, batch=batch, steps=steps, overwrite=overwrite, data=_loaded(data), progress=progress
        )
    hand_over(result, {"step": factory, **numbered_sources("batch", batch)}, None, json)
    return 0
