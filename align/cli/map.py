"""`align map`: which parameter of the one side is which of the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli._shared import (
    JsonOption,
    ProjectOption,
    RunOption,
    hand_over,
    progress_bar,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.workflows.sides import Side

_SIDE = (
    "A model (`package.module:function` or `file.py:function`) or a checkpoint (file, index or folder); "
    "by default the model of the project file."
)


def map_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str | None, typer.Argument(help=_SIDE, metavar="REFERENCE")] = None,
    candidate: Annotated[str | None, typer.Argument(help=_SIDE, metavar="CANDIDATE")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Map file with names and patterns that are never overruled.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Run both models on these inputs: the order of execution becomes evidence."),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Settle what is ambiguous by what values do on --inputs; takes longer.")
    ] = False,
    reference_checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fills the reference: equal values settle what is ambiguous.")
    ] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ready map of a model family; auto: the one that knows all names."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Map to write (.toml, .csv, .json); your lines in a .toml file are kept."),
    ] = None,
    expand: Annotated[bool, typer.Option("--expand", help="Write one line a pair, no runs such as {0..11}.")] = False,
    strict_rules: Annotated[bool, typer.Option("--strict-rules", help="Refuse rules that match nothing.")] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make no map, but judge this one against both sides.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all pairs, and the parameters of both sides, in runs.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Map the parameters of two models or checkpoints and write the map as a file to edit.

    Exit code 0: every parameter is paired, or dropped with a reason; 1: some are not. With --check, 1: the map has
    faults.
    """
    from align.runs.folder import RunFolder
    from align.runs.map_export import check_suffix, is_editable, write_map_file
    from align.workflows.check_map import check_name_map
    from align.workflows.map_parameters import map_parameters
    from align.workflows.map_rules import read_map_rules, require_used

    settings = read_settings(project, reference, candidate)
    names = str(settings.reference.model), str(settings.candidate.model)
    given = {
        "rules": rules,
        "inputs": Path(inputs) if inputs and ":" not in inputs else inputs,
        "map": check,
        "reference_checkpoint": reference_checkpoint,
        "candidate_checkpoint": candidate_checkpoint,
    }
    made_from = _made_from(names, given)
    files = _files(out, run) if check is None else []
    if check is not None:
        _refuse_with_check({"--rules": rules, "--inputs": inputs, "--trial": trial, "--family": family, "--out": out})
    elif out is not None:
        check_suffix(out)
    asked = read_map_rules(rules, next(filter(is_editable, files), None))
    sides = _filled(names[0], reference_checkpoint), _filled(names[1], candidate_checkpoint)
    if check is not None:
        judged = check_name_map(*sides, check)
        hand_over(judged, made_from, run, json, show_all=show_all)
        return judged.verdict.exit_code
    with progress_bar() as progress:
        result = map_parameters(*sides, rules=asked.rules, inputs=inputs, trial=trial, family=family, progress=progress)
    if strict_rules:
        require_used(result.name_map.unused_rules, asked.rules)
    for path in files:
        if run is not None and path.parent == run:
            RunFolder.create(run)
        write_map_file(path, result, asked.kept, expand=expand)
    hand_over(result, made_from, run, json, show_all=show_all)
    if not json:
        for path in files:
            typer.echo(f"Map file: {path}")
    return result.verdict.exit_code


def _made_from(sides: tuple[str, str], given: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    reference, candidate = (Path(side) if Path(side).exists() else side for side in sides)
    sources = {role: source for role, source in given.items() if source is not None}
    return {"reference": reference, "candidate": candidate, **sources}


def _refuse_with_check(options: Mapping[str, object]) -> None:
    from align.errors import UsageError

    if used := [name for name, value in options.items() if value]:
        raise UsageError(f"{' and '.join(used)} cannot be given with --check, which makes no map", "leave one out")


def _files(out: Path | None, run: Path | None) -> list[Path]:
    """Where the map goes; what the user wrote into the first of them is kept."""
    return [*([out] if out is not None else []), *([run / "map.toml"] if run is not None else [])]


def _filled(side: str, checkpoint: Path | None) -> str | Side:
    """The side, built and filled if there is a checkpoint for it."""
    from align.workflows.sides import open_side

    return side if checkpoint is None else open_side(side, checkpoint)
