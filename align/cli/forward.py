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
from align.cli.given import tell
from align.cli.shared import (
    LINES,
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
    FormOption,
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
    finish,
    hand_over,
    progress_bar,
    require_form,
)
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.cli.shared import Sources
    from align.core.memory import Needs
    from align.core.protocols import Batch
    from align.forward.bisect_precision import Bisection, PrecisionBisection, SwitchBisection
    from align.forward.forward_result import Allowances
    from align.runs.project_file import Project, ProjectSide


def forward_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: BatchesOption = None,
    input_specs: InputSpecsOption = None,
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
        typer.Option(
            "--require-dtype", metavar="DTYPE", help="A port that computes in a coarser dtype is not aligned."
        ),
    ] = None,
    no_power: Annotated[bool, typer.Option("--no-power", help="Do not measure what the inputs can show.")] = False,
    functions: Annotated[
        bool, typer.Option("--functions", help="Compare every functional call too; searches as far as --thorough.")
    ] = False,
    thorough: ThoroughOption = False,
    any_memory: Annotated[
        bool, typer.Option("--any-memory", help="Go on where memory seems to be too small for the models.")
    ] = False,
    witness: Annotated[
        str | None,
        typer.Option(metavar="SIDE", help="A third side, such as model.onnx, to say which of the three deviates."),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(metavar="ascend:CHIP", help="Use the deviation that is expected of this chip as the limit."),
    ] = None,
    switch: SwitchOption = None,
    as_batch: BatchOption = False,
    against_formula: Annotated[
        Path | None,
        typer.Option(
            metavar="DUMP", help="Judge the calls of fused operators in a dump of msprobe by their formula instead."
        ),
    ] = None,
    show_all: AllLayersOption = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="For trace folders: compare what there is of a trace that was cut short.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    form: FormOption = "table",
    json: JsonOption = False,
) -> int:
    """Run both models on the same fixed inputs; name the layers that are at fault, why, and what to change.

    Several --inputs are batches: both models run on them one after another, without a reset between them. In a run
    folder the inputs are kept as inputs.npz, and used again when none are given.
    """
    from align.runs.read_settings import AskedInputs, batches_source, compare_models, read_settings

    require_form(form)
    show: dict[str, Any] = {"show_all": show_all, "as_lines": form == LINES}
    of_sides: dict[str, Any] = {
        "reference_checkpoint": reference_checkpoint,
        "candidate_checkpoint": candidate_checkpoint,
    }
    of_sides |= {"reference_device": reference_device, "candidate_device": candidate_device}
    of_sides |= {"reference_dtype": reference_dtype, "candidate_dtype": candidate_dtype}
    of_sides |= {"candidate_mode": candidate_mode}
    if against_formula is not None:
        unfit: dict[str, object] = {"models": reference, "--inputs": inputs, "--input": input_specs, "--map": map_file}
        unfit |= {"--batch": as_batch, "--emulate": emulate, "--witness": witness, "--limit": limit, **of_sides}
        return _judge_by_formula(against_formula, [name for name, value in unfit.items() if value], run, json, show)
    if as_batch:
        given = {"map": map_file and str(map_file), "limit": limit, "partial": partial}
        unfit = {
            "--inputs": inputs,
            "--input": input_specs,
            "--require-dtype": require_dtype,
            "--functions": functions,
            "--thorough": thorough,
            "--any-memory": any_memory,
        }
        unfit |= {"--witness": witness, "--emulate": emulate, "--switch": switch, "--no-power": no_power}
        unfit |= {"--seed": seed, "--candidate-inputs": candidate_inputs, "--project": project}
        unfit |= {f"--{name.replace('_', '-')}": value for name, value in of_sides.items()}
        both = reference, candidate
        return run_folders("forward", both, given, unfit, run, json=json, show_all=show_all)
    settings = read_settings(project, reference, candidate, map_file, **of_sides)
    looks: dict[str, Any] = {"functions": functions, "thorough": thorough, "witness": witness, "emulate": emulate}
    switches, allowances = given_switches(switch), _allowances(settings, limit, require_dtype)
    needless = (inputs, input_specs, candidate_inputs, *looks.values(), *of_sides.values())
    models = str(settings.reference.model), str(settings.candidate.model)
    if folders := compared_folders(models, settings.map, allowances, partial=partial, needless=needless):
        return finish(*folders, run, json, **show)
    looks |= {"memory_check": not any_memory, "announce": _tell_needs}
    asked = AskedInputs(batches_source(inputs, input_specs, settings), input_specs or (), seed, candidate_inputs or ())
    with progress_bar() as progress:
        how = {**looks, "power": not no_power, "switches": switches, "allowances": allowances, "progress": progress}
        result, sources = compare_models(settings, asked, run, **how)
    return finish(result, sources, run, json, **show)


def _judge_by_formula(dump: Path, unfit: list[str], run: Path | None, json: bool, show: dict[str, Any]) -> int:
    from align.errors import MissingFileError, UsageError
    from align.forward.judge_formulas import compare_with_formulas

    if unfit:
        raise UsageError.of("formula_usage.with_models", names=unfit)
    if not dump.exists():
        raise MissingFileError(dump, "dump")
    with progress_bar() as progress:
        result = compare_with_formulas(dump, progress=progress)
    return finish(result, {"candidate": dump}, run, json, **show)


def _tell_needs(needs: Needs) -> None:
    """Say what a long comparison takes, where nobody reads it as a result."""
    from align.core.memory import in_gigabytes

    tell(say("forward.needs", memory=in_gigabytes(needs.memory), minutes=f"{needs.seconds / 60:.2g}"), err=True)


def _allowances(settings: Project, limit: list[str] | None, require_dtype: str | None) -> Allowances:
    """Those of the project file, with what is given here in front."""
    from align.forward.forward_result import read_limits
    from align.models.open_side import check_dtype

    check_dtype(require_dtype)
    allowed = settings.allowances
    return replace(allowed, limits=(*read_limits(limit or ()), *allowed.limits), coarsest=require_dtype or "")


# `align bisect`: halving, to find where a port goes wrong, or which layers, or switches, a model suffers from.


def bisect_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    train: Annotated[
        str | None,
        typer.Option(metavar="FACTORY", help="Bisect the layers of a training; a factory, as for `align step`."),
    ] = None,
    batch: BatchesOfStepsOption = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="With --train: number of updates; 3 by default.")
    ] = None,
    implementation: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="With --train: `module:function` that returns the replacement of a layer."
        ),
    ] = None,
    points: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Points where values are exchanged, as a TOML file.")
    ] = None,
    point: Annotated[
        list[str] | None, typer.Option(metavar="REF=CAND", help="A point: one layer of each side; repeat.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Run layers of one side in this precision, and bisect them.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Run layers of one side on this device, and bisect them.")
    ] = None,
    switches: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Bisect the switches of ascend:CHIP or gpu, emulated.")
    ] = None,
    switch: SwitchOption = None,
    framework: FrameworkOption = "mindspore",
    layers: Annotated[str, typer.Option(metavar="GLOB", help="The layers to bisect.")] = "*",
    limit: Annotated[float | None, typer.Option(metavar="X", help="Relative change that is allowed.")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="`module:function` of the outputs: its result is judged instead of them."
        ),
    ] = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every point.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Put the reference's values into the port at several points, and bisect until every faulty part is found.

    With --precision or --device and one side: find the smallest set of its layers that makes it exceed the limit there.
    With --train: find the smallest set of layers whose precision, device or implementation changes a training's loss.
    With --switches: find the switches of an Ascend chip, or of a GPU, that make it exceed the limit; all others have
    their most precise value.
    """
    from align.runs.read_settings import given_inputs, inputs_source, made_from, read_settings

    of_training: dict[str, Any] = {"--batch": batch, "--steps": steps, "--implementation": implementation}
    of_points: dict[str, Any] = {"--points": points, "--point": point, "--map": map_file}
    of_candidate: dict[str, Any] = {"CANDIDATE": candidate, "--candidate-checkpoint": candidate_checkpoint}
    if train is not None:
        of_models: dict[str, Any] = {
            "REFERENCE": reference,
            "--reference-checkpoint": reference_checkpoint,
            **of_candidate,
        }
        of_models |= {"--inputs": inputs, "--input": input_specs, "--switches": switches, "--loss": loss}
        _refuse({**of_models, **of_points})
        change = {"precision": precision, "device": device, "implementation": implementation}
        return bisect_train(train, batch, steps, change, (layers, limit), (run, json))
    of_one: dict[str, Any] = {"limit": limit, "loss": loss}
    alone = precision is not None or device is not None or switches is not None
    _refuse({**of_training, **({**of_candidate, **of_points} if alone else {"--limit": limit, "--loss": loss})})
    filled = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    settings = read_settings(project, reference, "" if alone else candidate, map_file, **filled)
    source = inputs_source(inputs, input_specs, settings)
    given = given_inputs(source, input_specs or (), seed)
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
    return finish(result, sources, run, json, show_all=show_all)


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
    from align.runs.read_settings import requested

    with progress_bar() as progress:
        return bisect_precision(requested(side), inputs=given, progress=progress, **changed_and_judged)


def _of_points(settings: Project, given: Path | Batch, file: Path | None, point: list[str] | None) -> Bisection:
    """Halve a port by points at which it gets the reference's values; those typed come on top of the file's."""
    from align.forward.bisect_port import bisect_port, parse_points, read_points
    from align.runs.read_settings import requested

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
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    framework: FrameworkOption = "mindspore",
    switch: SwitchOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every layer.")] = False,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="Examine gradients of a loss: `module:function` of the outputs and further inputs, or `sum`.",
        ),
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a torch model with the rounding of a chip; name the layers most at risk and what overflows.

    Nothing is verified on hardware. Exit code 0: no overflow is expected; 1: an overflow is expected, or no loss scale
    fits; 2: it could not be run.
    """
    from align.forward.emulate_model import emulate_model
    from align.models.open_side import open_side
    from align.rules.ascend_rules import ascend_target
    from align.runs.read_settings import file_or_function, given_batches, numbered_sources

    driver, switches = named_driver(framework), given_switches(switch)
    ascend_target(target, driver, switches)  # refused before the model is built
    source = given_batches([file_or_function(text) for text in inputs or ()], input_specs or (), seed)
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
    named = numbered_sources("inputs", [file_or_function(text) for text in inputs or ()])
    sources = {"model": model, "target": target, "checkpoint": checkpoint, **named}
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code


# `align repro`: one layer of both models alone in a folder, with a short script each.


def repro_command(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    layer: Annotated[
        str | None,
        typer.Option(metavar="PATH[#CALL]", help="A layer of either side; by default the first that is at fault."),
    ] = None,
    inputs: InputsOption = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> int:
    """Write one layer's inputs, weights and outputs of both sides, and two scripts that run it without mindalign."""
    from align.forward.export_repro import export_repro
    from align.runs.read_settings import given_inputs, inputs_source, made_from, read_settings, requested

    filled = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    settings = read_settings(project, reference, candidate, map_file, **filled)
    source = inputs_source(inputs, input_specs, settings)
    with progress_bar() as progress:
        result = export_repro(
            requested(settings.reference),
            requested(settings.candidate),
            folder,
            inputs=given_inputs(source, input_specs or (), seed),
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
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    exporter: Annotated[ExporterName, typer.Option(help="The exporter of torch to use.")] = ExporterName.dynamo,
    opset: Annotated[
        int | None, typer.Option(metavar="N", help="Opset to write; by default the exporter's own.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the file with the model, layer by layer.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    show_all: AllLayersOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Export a torch model as an ONNX file, whole or not at all; with --check, compare both as `align forward` does."""
    from align.errors import UsageError
    from align.forward.compare_forward import compare_forward
    from align.forward.export_repro import export_model
    from align.models.open_side import SideRequest
    from align.runs.read_settings import file_or_function, given_inputs

    if (json or run or show_all) and not check:
        raise UsageError.of("cli_usage.needs_check")
    source = file_or_function(inputs) if inputs else None
    given = given_inputs(source, input_specs or (), seed)
    exported = export_model(
        SideRequest(side, checkpoint), out, inputs=given, exporter=exporter.value, opset=opset, overwrite=overwrite
    )
    if not json:
        tell(say("told.written", names=[out]))
    if not check:
        return 0
    result = compare_forward(exported, str(out), inputs=given)
    sources: Sources = {"reference": side, "candidate": out, "reference checkpoint": checkpoint}
    return finish(result, sources, run, json, show_all=show_all)
