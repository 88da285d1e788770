"""`align capture`: one model run on fixed inputs, written into a trace folder."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from align.cli.given import own_hints
from align.cli.output import tell
from align.cli.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    BatchesOption,
    CheckpointOption,
    DeviceOption,
    DtypeOption,
    InputSpecsOption,
    JsonOption,
    ModeOption,
    SeedOption,
    file_or_function,
    given_batches,
    hand_over,
    numbered_sources,
    progress_bar,
)
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


# `align trace show`: a trace folder as a tree; `changes`: two iterations of a training; `export`: for another tool.


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
    from align.traces.export_trace import show_dump
    from align.traces.open_trace import show_trace

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
    from align.watch.dump import compare_iterations, refuse_one_iteration

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
