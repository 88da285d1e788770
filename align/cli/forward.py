"""`align forward`: both models on the same inputs, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli._shared import JsonOption, ProjectOption, RunOption, SideArgument, finish, progress_bar, read_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array


def forward_command(  # noqa: PLR0913 - one parameter an option
    reference: SideArgument = None,
    candidate: SideArgument = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="FILE", help="Arrays by name (.npz), or `module:function` that returns them.")
    ] = None,
    made: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SPEC", help="Draw an input from the seed: x=float32[2,3,224,224]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of --input.")] = 0,
    reference_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
    ] = None,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run both models on the same fixed inputs; name the first layer that differs.

    In a run folder the inputs are kept as inputs.npz, and used again when none are given.
    """
    from align.errors import UsageError
    from align.workflows.compare_forward import compare_forward
    from align.workflows.sides import open_side

    settings = read_settings(project, reference, candidate)
    if inputs and made:
        raise UsageError("both --inputs and --input are given", "give the file, or draw all inputs from the seed")
    source = _keep_inputs(inputs or (None if made else settings.inputs), made or (), seed, run)
    map_file = map_file or settings.map
    checkpoints = (
        reference_checkpoint or settings.reference.checkpoint,
        candidate_checkpoint or settings.candidate.checkpoint,
    )
    models = str(settings.reference.model), str(settings.candidate.model)
    with progress_bar() as progress:
        result = compare_forward(
            open_side(models[0], checkpoints[0]),
            open_side(models[1], checkpoints[1]),
            inputs=source,
            name_map=map_file,
            traces=run / "traces" if run is not None else None,
            progress=progress,
        )
    parts = {"inputs": source if isinstance(source, Path) else None, "map": map_file}
    parts |= {"reference checkpoint": checkpoints[0], "candidate checkpoint": checkpoints[1]}
    made_from: dict[str, Path | str] = {"reference": models[0], "candidate": models[1]}
    made_from |= {role: path for role, path in parts.items() if path is not None}
    return finish(result, result.verdict, made_from, run, json)


def _keep_inputs(
    inputs: Path | str | None, specs: Sequence[str], seed: int, run: Path | None
) -> Path | dict[str, Array]:
    """Return the inputs to use; with a run folder they are saved there first, so that every later run uses the same."""
    from align.errors import InputsError
    from align.runs.folder import RunFolder
    from align.workflows.inputs import SPEC_HELP, make_inputs, read_inputs, save_inputs

    kept = run / "inputs.npz" if run is not None else None
    if inputs is None and not specs:
        if kept is not None and kept.is_file():
            return kept
        raise InputsError("no inputs are given", f"give --inputs FILE.npz, or --input {SPEC_HELP}")
    arrays = make_inputs(specs, seed) if specs else read_inputs(inputs or "")
    if kept is None or run is None:
        return arrays
    RunFolder.create(run)
    save_inputs(kept, arrays)
    return kept
