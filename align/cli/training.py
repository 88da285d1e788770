"""`align step`: training steps of both sides, and what of the port's is wrong by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align.cli.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    BatchOption,
    JsonOption,
    MapOption,
    PortOfTrainingArgument,
    RunOption,
    ThoroughOption,
    finish,
    numbered_sources,
    progress_bar,
)
from align.errors import UsageError

FOLDER = "Or a folder of captured steps."


def step_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=f"{TRAINING_SIDE} {FOLDER}")],
    candidate: PortOfTrainingArgument,
    batch: BatchesOfStepsOption = None,
    map_file: MapOption = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many steps (3), at least one a batch; folders bring theirs."),
    ] = None,
    thorough: ThoroughOption = False,
    show_all: Annotated[bool, typer.Option("--all", help="List all layers and gradients.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take training steps on both sides from the reference's state; name what is wrong by itself.

    Exit code: 0 if losses, gradients, updates and statistics agree, 1 if not, 2 if they cannot be compared.
    """
    from align.training.compare_training_step import compare_training_step

    with progress_bar() as progress:
        result = compare_training_step(
            reference, candidate, batch=batch, name_map=map_file, steps=steps, thorough=thorough, progress=progress
        )
    sources = {
        "reference": reference,
        "candidate": candidate,
        "map": map_file,
        **numbered_sources("batch", batch or []),
    }
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)


# `align params`: which parameters one training step trains, and why others stay.


def params_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=TRAINING_SIDE)],
    batch: BatchOption,
    candidate: Annotated[
        str | None, typer.Argument(metavar="[CANDIDATE]", help="The same of the port; left out, one side is checked.")
    ] = None,
    map_file: MapOption = None,
    ddp_indices: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Name the parameters that torch's DistributedDataParallel gives by number."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List trained parameters and buffers too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take one training step; list the parameters that it does not train, each with the reason.

    Exit code of one side: 0 if all trainable parameters are trained, else 1. Of two: 0 if both train the same.
    """
    from align.training.check_parameters import check_parameters

    with progress_bar() as progress:
        result = check_parameters(
            reference,
            candidate,
            batch=batch,
            name_map=map_file,
            ddp_indices=_numbers(ddp_indices),
            progress=progress,
        )
    sources = {"reference": reference, "candidate": candidate, "map": map_file, "batch": batch}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)


def _numbers(text: str | None) -> list[int]:
    parts = [part for part in (text or "").replace(",", " ").split() if part]
    if strange := [part for part in parts if not part.isdecimal()]:
        raise UsageError.of("cli_usage.no_index", text=repr(strange[0]))
    return [int(part) for part in parts]


# `align initial`: whether a port draws its initial values as the original does.

_FRESH_SIDE = "`module:function` or `file.py:function` that builds a model, sets no seed and loads no weights."


def initial_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=_FRESH_SIDE)],
    candidate: PortOfTrainingArgument,
    map_file: MapOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Build each side from so many seeds; as many as it takes if left out."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List parameters that are drawn alike too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare how both sides draw their initial values: family, scale, and what the scale follows from.

    Exit code 0: all paired parameters are drawn alike; 1: some are not; 2: they could not be compared.
    """
    from align.training.compare_initial_values import compare_initial_values

    with progress_bar() as progress:
        result = compare_initial_values(reference, candidate, name_map=map_file, seeds=seeds, progress=progress)
    sources = {"reference": reference, "candidate": candidate, "map": map_file}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)


# `align check-determinism`: whether a training step gives the same twice.


def check_determinism_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="SIDE", help=TRAINING_SIDE)],
    batch: BatchOption,
    candidate: Annotated[
        str | None, typer.Argument(metavar="[SIDE2]", help="Another side, checked in the same way by itself.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Threads of kernels and data pipelines.")] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Build each side twice, take its training step twice, and name the first tensor that differs.

    Exit code 0: the same twice, bit for bit; 1: not the same; 2: it could not be run.
    """
    from align.training.check_determinism import check_determinism

    with progress_bar() as progress:
        result = check_determinism(reference, candidate, batch=batch, seed=seed, threads=threads, progress=progress)
    sources = {"reference": reference, "candidate": candidate, "batch": batch}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json)


# `align nonfinite`: the first NaN, Inf or explosion of a training, where it begins and why.


def nonfinite_command(  # noqa: PLR0913 - one parameter an option
    factory: Annotated[str, typer.Argument(metavar="FACTORY", help=TRAINING_SIDE)],
    batch: BatchesOfStepsOption = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Steps to take, the batches over and over; 20 by default.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Steps of which figures are shown; 5 by default.")
    ] = None,
    factor: Annotated[
        float | None, typer.Option(help="A tensor explodes above so many times its running median; 1000 by default.")
    ] = None,
    loss_scale: Annotated[
        float, typer.Option(metavar="SCALE", help="What the loss is multiplied by on the way back.")
    ] = 1.0,
    steps_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that gets a line a step, and outlives a killed process.")
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take steps until a value is not finite or explodes: step, layer, way, line of code, reason and remedy.

    Exit code 0: nothing was found; 1: found; 2: it could not be run. In a loop of your own: align.watch_nonfinite().
    """
    from align.watch.locate_nonfinite import locate_nonfinite
    from align.watch.thresholds import EXPLOSION_FACTOR, KEPT_STEPS, STEPS

    with progress_bar() as progress:
        result = locate_nonfinite(
            factory,
            batches=batch or [],
            steps=STEPS if steps is None else steps,
            keep=KEPT_STEPS if keep is None else keep,
            factor=EXPLOSION_FACTOR if factor is None else factor,
            loss_scale=loss_scale,
            steps_file=steps_file,
            progress=progress,
        )
    made_from = {"training": factory, **{f"batch {number}": one for number, one in enumerate(batch or [])}}
    return finish(result, result.verdict, made_from, run, json)


# `align hyperparameters`: what two trainings are set to, compared by meaning.

_SETTINGS_SIDE = (
    "A configuration, a shell script, a log with printed arguments, or a trace folder; commas between several files."
)


def hyperparameters_command(
    first: Annotated[str, typer.Argument(metavar="A", help=_SETTINGS_SIDE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The same of the port's training.")],
    show_all: Annotated[
        bool, typer.Option("--all", help="Show equal settings too, unknown names, and what changes no loss.")
    ] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the hyperparameters of two trainings by meaning: names, units and defaults of their trainers.

    Exit code 0: all that is known of both is equal; 1: some differ; 2: they could not be read or compared.
    """
    from align.hyperparameters.compare_hyperparameters import compare_hyperparameters
    from align.hyperparameters.settings_format import settings_files

    result = compare_hyperparameters(first, second)
    files = {
        f"{side}{'' if len(found) == 1 else number}": path
        for side, given in (("reference", first), ("candidate", second))
        for found in [[one for one in settings_files(given) if one.is_file()]]
        for number, path in enumerate(found, 1)
    }
    return finish(result, result.verdict, files, run, json, show_all=show_all)
