"""`align forward`: both models on the same inputs, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.parts.ascend import SwitchOption, given_switches
from align.cli.parts.batch_jobs import BatchOption, run_folders
from align.cli.parts.shared import (
    AllLayersOption,
    BatchesOption,
    CandidateArgument,
    CandidateCheckpointOption,
    CandidateInputsOption,
    InputSpecsOption,
    JsonOption,
    LimitsOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    RunOption,
    SeedOption,
    ThoroughOption,
    batches_source,
    file_or_function,
    finish,
    given_batches,
    progress_bar,
    read_settings,
)
from align.cli.parts.sides import (
    CandidateDeviceOption,
    CandidateDtypeOption,
    CandidateModeOption,
    ReferenceDeviceOption,
    ReferenceDtypeOption,
    given_side,
    made_from,
    numbered_sources,
    requested,
)
from align.cli.parts.trace_folders import compared_folders

if TYPE_CHECKING:
    from align.core.protocols import Inputs
    from align.forward.allowances import Allowances
    from align.forward.forward_result import ForwardComparison
    from align.runs.project_file import Project

_CANDIDATES = "candidate_inputs.npz"


def forward_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    candidate_inputs: CandidateInputsOption = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    reference_device: ReferenceDeviceOption = None,
    candidate_device: CandidateDeviceOption = None,
    reference_dtype: ReferenceDtypeOption = None,
    candidate_dtype: CandidateDtypeOption = None,
    candidate_mode: CandidateModeOption = None,
    limit: LimitsOption = None,
    require_dtype: Annotated[
        str | None,
        typer.Option("--require-dtype", metavar="DTYPE", help="A port that computes in a coarser one is not aligned."),
    ] = None,
    no_power: Annotated[bool, typer.Option("--no-power", help="Do not measure what the inputs can show.")] = False,
    functions: Annotated[
        bool,
        typer.Option("--functions", help="Compare every functional call too; looks as --thorough does."),
    ] = False,
    thorough: ThoroughOption = False,
    witness: Annotated[
        str | None,
        typer.Option(metavar="SIDE", help="A third side, such as model.onnx, to say which of the three deviates."),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(metavar="ascend:CHIP", help="What this chip is expected to do to the reference is the limit."),
    ] = None,
    switch: SwitchOption = None,
    as_batch: BatchOption = False,
    show_all: AllLayersOption = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Of trace folders: compare what a trace that was cut short has.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run both models on the same fixed inputs; name the layers that are at fault, why, and what to change.

    Several --inputs are batches that both models are run on one after another, without a reset between. In a run folder
    the inputs are kept as inputs.npz, and used again when none are given.
    """
    if as_batch:
        given = {"map": map_file and str(map_file), "limit": limit, "partial": partial}
        unfit: dict[str, object] = {
            "--inputs": inputs,
            "--input": made,
            "--require-dtype": require_dtype,
            "--functions": functions,
            "--thorough": thorough,
        }
        unfit |= {"--witness": witness, "--emulate": emulate, "--switch": switch, "--no-power": no_power}
        unfit |= {"--seed": seed, "--candidate-inputs": candidate_inputs, "--project": project}
        unfit |= {"--reference-checkpoint": reference_checkpoint, "--candidate-checkpoint": candidate_checkpoint}
        unfit |= {"--reference-device": reference_device, "--candidate-device": candidate_device}
        unfit |= {"--reference-dtype": reference_dtype, "--candidate-dtype": candidate_dtype}
        unfit |= {"--candidate-mode": candidate_mode}
        both = reference, candidate
        return run_folders("forward", both, given, unfit, run, json=json, show_all=show_all)
    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, candidate, checkpoints=checkpoints, map_file=map_file)
    of_first = {"device": reference_device, "dtype": reference_dtype}
    of_second = {"device": candidate_device, "dtype": candidate_dtype, "mode": candidate_mode}
    first, second = given_side(settings.reference, **of_first), given_side(settings.candidate, **of_second)
    settings = replace(settings, reference=first, candidate=second)
    looks: dict[str, Any] = {"functions": functions, "thorough": thorough, "witness": witness, "emulate": emulate}
    switches, allowances = given_switches(switch), _allowances(settings, limit, require_dtype)
    placed = (*checkpoints, *of_first.values(), *of_second.values())
    needless = (inputs, made, candidate_inputs, *looks.values(), *placed)
    models = str(first.model), str(second.model)
    if folders := compared_folders(models, settings.map, allowances, partial=partial, needless=needless):
        result, sources = folders
        return finish(result, result.verdict, sources, run, json, show_all=show_all)
    kept = run / "inputs.npz" if run is not None else None
    chosen = batches_source(inputs, made, settings)
    source = given_batches(chosen, made or (), seed, kept)
    own = _candidates_batches(candidate_inputs, run, kept=source is kept)
    looks |= {"power": not no_power, "switches": switches, "traces": None if run is None else run / "traces"}
    result = _compared(settings, source, own, allowances, looks)
    written = _keep_inputs(source, kept)
    named = numbered_sources("inputs", [written] if written else chosen)
    _keep_candidates_inputs(own, run)
    named |= numbered_sources("candidate inputs", [file_or_function(one) for one in candidate_inputs or ()])
    sources = made_from(settings, **named, witness=witness)
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


def _allowances(settings: Project, limit: list[str] | None, require_dtype: str | None) -> Allowances:
    """Those of the project file, with what is given here in front."""
    from align.forward.allowances import read_limits
    from align.models.open_side import check_dtype

    check_dtype(require_dtype)
    allowed = settings.allowances
    return replace(allowed, limits=(*read_limits(limit or ()), *allowed.limits), coarsest=require_dtype or "")


def _compared(
    settings: Project,
    source: Path | Inputs,
    own: Path | Inputs | None,
    allowances: Allowances,
    looks: dict[str, Any],
) -> ForwardComparison:
    """Run both models; `looks` says what is looked at beside the layers' outputs."""
    from align.forward.compare_forward import compare_forward

    with progress_bar() as progress:
        return compare_forward(
            requested(settings.reference),
            requested(settings.candidate),
            inputs=source,
            candidate_inputs=own,
            name_map=settings.map,
            allowances=allowances,
            progress=progress,
            **looks,
        )


def _candidates_batches(given: list[str] | None, run: Path | None, *, kept: bool) -> Path | Inputs | None:
    """What the candidate alone is given: as named, or as a run folder keeps it beside inputs that are `kept` there."""
    if given:
        return given_batches([file_or_function(one) for one in given], (), 0)
    path = None if run is None else run / _CANDIDATES
    return path if kept and path is not None and path.is_file() else None


def _keep_candidates_inputs(source: Path | Inputs | None, run: Path | None) -> None:
    """Save them in the run folder, so that a later run can use the same; those of an earlier one go."""
    kept = None if run is None else run / _CANDIDATES
    if source is not None:
        _keep_inputs(source, kept)
    elif kept is not None:
        kept.unlink(missing_ok=True)


def _keep_inputs(source: Path | Inputs, kept: Path | None) -> Path | None:
    """Save the inputs of a run that came to its end, so that every later run can use the same."""
    from align.models.inputs import save_inputs
    from align.runs.run_folder import RunFolder

    if kept is not None and not isinstance(source, Path):
        RunFolder.create(kept.parent)
        save_inputs(kept, source)
    return kept
