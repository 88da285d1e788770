"""`align forward`: both models on the same inputs, layer by layer."""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.comparisons import (
    BatchOption,
    FrameworkOption,
    SwitchOption,
    bisect_train,
    compared_folders,
    given_switches,
    named_driver,
    run_folders,
)
from align.cli.output import tell
from align.cli.shared import (
    AllLayersOption,
    BatchesOfStepsOption,
    BatchesOption,
    CandidateArgument,
    CandidateCheckpointOption,
    CandidateDeviceOption,
    CandidateDtypeOption,
    CandidateInputsOption,
    CandidateModeOption,
    CheckpointOption,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    LimitsOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    ReferenceDeviceOption,
    ReferenceDtypeOption,
    RunOption,
    SeedOption,
    ThoroughOption,
    TorchModelArgument,
    batches_source,
    file_or_function,
    finish,
    given_batches,
    given_inputs,
    given_side,
    hand_over,
    inputs_source,
    made_from,
    numbered_sources,
    progress_bar,
    read_settings,
    requested,
)
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.core.protocols import Batch, Inputs
    from align.forward.bisect_precision import Bisection, PrecisionBisection, SwitchBisection
    from align.forward.forward_result import Allowances, ForwardComparison
    from align.runs.project_file import Project, ProjectSide


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
    from align.forward.forward_result import read_limits
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


# `align bisect`: halving, to find where a port goes wrong, or which layers, or switches, a model suffers from.


def bisect_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    train: Annotated[
        str | None, typer.Option(metavar="FACTORY", help="Halve the layers of a training: what `align step` takes.")
    ] = None,
    batch: BatchesOfStepsOption = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="With --train: the updates (3).")] = None,
    implementation: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="With --train: `module:function` that makes what takes a layer's place."),
    ] = None,
    points: Annotated[Path | None, typer.Option(metavar="FILE", help="Points to splice at, as TOML.")] = None,
    point: Annotated[
        list[str] | None, typer.Option(metavar="REF=CAND", help="A point: a layer of each side; repeat.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Halve the layers of one side that run in this precision.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Halve the layers of one side that run on this device.")
    ] = None,
    switches: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Halve the switches of ascend:CHIP or gpu, emulated.")
    ] = None,
    switch: SwitchOption = None,
    framework: FrameworkOption = "mindspore",
    layers: Annotated[str, typer.Option(metavar="GLOB", help="The layers to halve.")] = "*",
    limit: Annotated[float | None, typer.Option(metavar="X", help="Relative movement that is allowed.")] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="`module:function` of the outputs; it is judged instead.")
    ] = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every point.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Put the reference's values into the port at points, and halve until every stretch that goes wrong is found.

    With --precision or --device and one side: find the smallest set of its layers that moves it above the limit there.
    With --train: find the smallest set of layers whose precision, device or implementation moves a training's loss.
    With --switches: find the switches of an Ascend chip, or of a GPU, that do, all others at their most precise value.
    """
    of_training: dict[str, Any] = {"--batch": batch, "--steps": steps, "--implementation": implementation}
    of_points: dict[str, Any] = {"--points": points, "--point": point, "--map": map_file}
    of_candidate: dict[str, Any] = {"CANDIDATE": candidate, "--candidate-checkpoint": candidate_checkpoint}
    if train is not None:
        of_models: dict[str, Any] = {
            "REFERENCE": reference,
            "--reference-checkpoint": reference_checkpoint,
            **of_candidate,
        }
        of_models |= {"--inputs": inputs, "--input": made, "--switches": switches, "--loss": loss}
        _refuse({**of_models, **of_points})
        change = {"precision": precision, "device": device, "implementation": implementation}
        return bisect_train(train, batch, steps, change, (layers, limit), (run, json))
    of_one: dict[str, Any] = {"limit": limit, "loss": loss}
    alone = precision is not None or device is not None or switches is not None
    _refuse({**of_training, **({**of_candidate, **of_points} if alone else {"--limit": limit, "--loss": loss})})
    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, "" if alone else candidate, checkpoints=checkpoints, map_file=map_file)
    source = inputs_source(inputs, made, settings)
    given = given_inputs(source, made or (), seed)
    settings = replace(settings, map=None) if alone else settings
    result: Bisection | PrecisionBisection | SwitchBisection
    if switches is not None:
        result = _of_switches(settings.reference, given, switches, (framework, switch), of_one)
    elif alone:
        of_one |= {"precision": precision, "device": device, "layers": layers}
        result = _of_layers(settings.reference, given, of_one)
    else:
        result = _of_points(settings, given, points, point)
    sources = made_from(settings, inputs=source, points=points)
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


def _of_switches(
    side: ProjectSide, given: Path | Batch, target: str, driver: tuple[str, list[str] | None], judged: dict[str, Any]
) -> SwitchBisection:
    """Halve the switches of a chip that a framework drives, with those that the user sets."""
    from align.forward.bisect_precision import bisect_switches
    from align.models.open_side import open_side

    framework, switch = driver
    with progress_bar() as progress:
        return bisect_switches(
            open_side(str(side.model), side.checkpoint),
            target=target,
            inputs=given,
            framework=named_driver(framework),
            switches=given_switches(switch),
            progress=progress,
            **judged,
        )


def _of_layers(side: ProjectSide, given: Path | Batch, changed_and_judged: dict[str, Any]) -> PrecisionBisection:
    """Halve the layers of one model that run in another precision or elsewhere."""
    from align.forward.bisect_precision import bisect_precision

    with progress_bar() as progress:
        return bisect_precision(requested(side), inputs=given, progress=progress, **changed_and_judged)


def _of_points(settings: Project, given: Path | Batch, file: Path | None, point: list[str] | None) -> Bisection:
    """Halve a port by points at which it gets the reference's values; those typed come on top of the file's."""
    from align.forward.bisect_port import bisect_port, parse_points, read_points

    named = {**(read_points(file) if file else {}), **parse_points(point or ())}
    with progress_bar() as progress:
        return bisect_port(
            requested(settings.reference),
            requested(settings.candidate),
            inputs=given,
            points=named or None,
            name_map=settings.map,
            progress=progress,
        )


def _refuse(options: dict[str, Any]) -> None:
    """Raise UsageError naming those of another bisection that are given."""
    from align.errors import UsageError

    if named := [name for name, value in options.items() if value]:
        raise UsageError.of("cli_usage.of_another_bisection", names=named)


# `align emulate`: a torch model as an Ascend chip is expected to compute it, before there is a card.


def emulate_command(  # noqa: PLR0913 - one parameter an option
    model: TorchModelArgument,
    target: Annotated[
        str, typer.Option(metavar="TARGET", help="The chip: ascend:910a, 310p, 910b, 910c or 950, or gpu.")
    ],
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    framework: FrameworkOption = "mindspore",
    switch: SwitchOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every layer.")] = False,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="Look at gradients: `module:function` of the outputs and further inputs, or `sum`."
        ),
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a torch model with the roundings of a chip; name the layers most at risk and what overflows.

    Nothing is verified on hardware. Exit code 0: nothing overflows; 1: something is expected to, or no loss scale fits;
    2: it could not be run.
    """
    from align.forward.emulate_model import emulate_model
    from align.models.open_side import open_side
    from align.rules.ascend_rules import ascend_target

    driver, switches = named_driver(framework), given_switches(switch)
    ascend_target(target, driver, switches)  # refused before the model is built
    source = given_batches([file_or_function(one) for one in inputs or ()], made or (), seed)
    with progress_bar() as progress:
        result = emulate_model(
            open_side(model, checkpoint),
            target=target,
            inputs=source,
            framework=driver,
            switches=switches,
            loss=loss,
            progress=progress,
        )
    sources: dict[str, Path | str] = {"model": model, "target": target}
    sources |= {"checkpoint": checkpoint} if checkpoint else {}
    sources |= numbered_sources("inputs", [file_or_function(one) for one in inputs or ()])
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code


# `align repro`: one layer of both models alone in a folder, with a short script each.


def repro_command(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    layer: Annotated[
        str | None, typer.Option(metavar="PATH[#CALL]", help="A layer of either side; by default the first culprit.")
    ] = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> int:
    """Write one layer's inputs, weights and outputs of both sides, and two scripts that run it without mindalign."""
    from align.forward.export_repro import export_repro

    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, candidate, checkpoints=checkpoints, map_file=map_file)
    source = inputs_source(inputs, made, settings)
    with progress_bar() as progress:
        result = export_repro(
            requested(settings.reference),
            requested(settings.candidate),
            folder,
            inputs=given_inputs(source, made or (), seed),
            layer=layer,
            name_map=settings.map,
            progress=progress,
        )
    hand_over(result, made_from(settings, inputs=source), None, json)
    return 0


# `align export`: a torch model as an ONNX file, compared with it at once.


class ExporterName(str, enum.Enum):
    """Which of torch's exporters writes the file."""

    torchscript = "torchscript"
    dynamo = "dynamo"


def export_command(  # noqa: PLR0913 - one parameter an option
    side: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model: `package.module:function` or `file.py:function`.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="ONNX file to write.")],
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    exporter: Annotated[ExporterName, typer.Option(help="Which of torch's exporters.")] = ExporterName.dynamo,
    opset: Annotated[
        int | None, typer.Option(metavar="N", help="Opset to write; by default the exporter's own.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the file with the model, layer by layer.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    show_all: AllLayersOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Export a torch model as an ONNX file, whole or not at all; with --check, compare both as `align forward` does."""
    from align.errors import UsageError
    from align.forward.compare_forward import compare_forward
    from align.forward.export_repro import export_model
    from align.models.open_side import SideRequest

    if (json or run or show_all) and not check:
        raise UsageError.of("cli_usage.needs_check")
    source = file_or_function(inputs) if inputs else None
    given = given_inputs(source, made or (), seed)
    exported = export_model(
        SideRequest(side, checkpoint), out, inputs=given, exporter=exporter.value, opset=opset, overwrite=overwrite
    )
    if not json:
        tell(say("told.written", names=[out]))
    if not check:
        return 0
    result = compare_forward(exported, str(out), inputs=given)
    made_from: dict[str, Path | str] = {"reference": side, "candidate": out}
    if checkpoint:
        made_from["reference checkpoint"] = checkpoint
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)
