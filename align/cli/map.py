"""`align map`: which parameter of the one side is which of the other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from align.cli.convert import Family  # noqa: TC001 - typer reads the annotations
from align.cli.parts.output import tell
from align.cli.parts.shared import (
    CandidateCheckpointOption,
    InputSpecsOption,
    JsonOption,
    ProjectOption,
    RunOption,
    SeedOption,
    given_inputs,
    hand_over,
    progress_bar,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.models.open_side import SideRequest
    from align.names.map_file import KeptLines
    from align.names.map_result import MapCheck, MapResult

    Requests = tuple[str | SideRequest, str | SideRequest]

_WHY = {
    "--target": "cli_usage.beside_target",
    "--check": "cli_usage.beside_check",
    "CANDIDATE": "cli_usage.beside_candidate",
}
_MODEL_OR_CHECKPOINT = (
    "A model (`package.module:function` or `file.py:function`) or a checkpoint (file, index or folder); "
    "by default the model of the project file."
)


def map_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str | None, typer.Argument(help=_MODEL_OR_CHECKPOINT, metavar="REFERENCE")] = None,
    candidate: Annotated[str | None, typer.Argument(help=_MODEL_OR_CHECKPOINT, metavar="CANDIDATE")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Map file with names and patterns that are never overruled.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Run both models on these inputs: the order of execution becomes evidence."),
    ] = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    trial: Annotated[
        bool, typer.Option("--trial", help="Decide what is ambiguous by what values do on --inputs; takes longer.")
    ] = False,
    trial_if_open: Annotated[
        bool,
        typer.Option(
            "--trial-if-open", help="As --trial, but only where names leave something open, and if both models can run."
        ),
    ] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="NAME", help="Say what the pair of this parameter, of either side, rests on.")
    ] = None,
    reference_checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fills the reference: equal values decide what is ambiguous.")
    ] = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ready map of a model family; auto: the one that knows all names."),
    ] = None,
    target: Annotated[
        Family | None, typer.Option(help="Map REFERENCE alone, to the names that such layers give its parameters.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN=KIND", help="With --target: what a layer is that a checkpoint leaves open."),
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
    """Map the parameters of two models or checkpoints, or with --target of one, and write the map as a file to edit.

    Exit code 0: every parameter is surely paired, or dropped with a reason; 1: some are not. With --check, 1: the map
    has faults.
    """
    from align.names.map_export import is_editable
    from align.names.map_one_side import map_one_side
    from align.names.map_parameters import map_parameters
    from align.names.read_map_rules import read_map_rules, require_used

    checkpoints = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    _check_options(
        {"CANDIDATE": candidate, "--rules": rules, "--inputs": inputs, "--trial": trial, "--family": family}
        | {"--trial-if-open": trial_if_open, "--explain": explain}
        | {"--input": made}
        | {"--target": target, "--layer": layer, "--out": out, "--check": check}
        | {f"--{name.replace('_', '-')}": path for name, path in checkpoints.items()}
    )
    names = _sides(project, reference, candidate, one=target is not None)
    sources = {"rules": rules, "inputs": Path(inputs) if inputs and ":" not in inputs else inputs, "map": check}
    made_from = _made_from(names, {**sources, **checkpoints})
    if check is not None:
        judged = _judge(_requested(names, checkpoints), check)
        hand_over(judged, made_from, run, json, show_all=show_all)
        return judged.verdict.exit_code
    files = _files(out, run)
    asked = read_map_rules(rules, next(filter(is_editable, files), None))
    with progress_bar() as progress:
        if target is not None:
            result = map_one_side(names[0], target.value, family=family, layers=layer or (), rules=asked.rules)
        else:
            sides = _requested(names, checkpoints)
            given = given_inputs(inputs, made or (), seed) if inputs or made else None
            how: bool | Literal["open"] = trial or ("open" if trial_if_open else False)
            result = map_parameters(*sides, rules=asked, inputs=given, trial=how, family=family, progress=progress)
    if rules is not None and not asked.rules.all_rules:
        warning = f"{rules} holds no rule of yours: what align found is found again (docs/map.md)"
        result = dataclasses.replace(result, warnings=(*result.warnings, warning))
    if strict_rules:
        require_used(result.name_map.unused_rules, asked.rules)
    if target is not None and not result.name_map.complete:
        files = []
    _write(files, result, asked.kept, run, expand)
    if explain is None or json:
        hand_over(result, made_from, run, json, show_all=show_all)
    else:
        _explain(result, made_from, run, explain)
    if not json:
        for path in files:
            tell(f"Map file: {path}")
    return result.verdict.exit_code


def _explain(result: MapResult, made_from: Mapping[str, Path | str], run: Path | None, name: str) -> None:
    """Print what is known of one parameter, in the place of the whole map."""
    from align.report.explain_name import explained_name
    from align.runs.run_folder import RunFolder, as_document

    for line in explained_name(as_document(result, made_from, hashed=False), name):
        tell(line)
    if run is not None:
        RunFolder.create(run).write(result, made_from)


def _sides(project: Path | None, reference: str | None, candidate: str | None, *, one: bool) -> tuple[str, ...]:
    """What names the sides; with `one` the reference alone."""
    from align.errors import UsageError

    if one:
        return (str(read_settings(project, reference, "").reference.model),)
    try:
        settings = read_settings(project, reference, candidate)
    except UsageError as error:
        error.hint += "; or map one side alone with --target nn, mint or torch"
        raise
    return str(settings.reference.model), str(settings.candidate.model)


def _made_from(sides: Sequence[str], given: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    named = zip(("reference", "candidate"), sides, strict=False)
    paths = {role: Path(side) if Path(side).exists() else side for role, side in named}
    return paths | {role: source for role, source in given.items() if source is not None}


def _check_options(given: Mapping[str, object]) -> None:
    """Refuse options that do not go together, and a map that cannot be written, before any work is done."""
    from align.errors import UsageError
    from align.names.map_export import check_suffix

    alone = "--inputs", "--input", "--trial", "--trial-if-open", "--check"
    runs = "--rules", "--inputs", "--input", "--trial", "--trial-if-open", "--family", "--out", "--explain"
    filled = "--reference-checkpoint", "--candidate-checkpoint"
    for beside, refused in (
        ("--target", ("CANDIDATE", *alone, *filled)),
        ("--check", runs),
        ("CANDIDATE", ("--layer",)),
    ):
        if given[beside] and (used := [name for name in refused if given[name]]):
            raise UsageError.of(_WHY[beside], used=used)
    if isinstance(out := given["--out"], Path):
        check_suffix(out)


def _files(out: Path | None, run: Path | None) -> list[Path]:
    """Where the map goes; what the user wrote into the first of them is kept."""
    return [*([out] if out is not None else []), *([run / "map.toml"] if run is not None else [])]


def _requested(sides: Sequence[str], checkpoints: Mapping[str, Path | None]) -> Requests:
    """What is asked of both sides: to be filled where there is a checkpoint for one."""
    from align.models.open_side import SideRequest

    left, right = (
        side if checkpoint is None else SideRequest(side, checkpoint)
        for side, checkpoint in zip(sides, checkpoints.values(), strict=True)
    )
    return left, right


def _judge(sides: Requests, name_map: Path) -> MapCheck:
    from align.names.check_name_map import check_name_map

    return check_name_map(*sides, name_map)


def _write(files: Sequence[Path], result: MapResult, kept: KeptLines | None, run: Path | None, expand: bool) -> None:
    from align.names.map_export import write_map_file
    from align.runs.run_folder import RunFolder

    for path in files:
        if run is not None and path.parent == run:
            RunFolder.create(run)
        write_map_file(path, result, kept, expand=expand)
