"""Commands of trainings: `align step` with what of a port's step is wrong by itself, and `align loss` among them."""

from __future__ import annotations

import enum
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from align.cli.given import print_json, tell
from align.cli.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    BatchOption,
    JsonOption,
    MapOption,
    PortOfTrainingArgument,
    ProjectOption,
    RunOption,
    ThoroughOption,
    finish,
    hand_over,
    progress_bar,
)
from align.errors import UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.curves.compare_losses import LogReading
    from align.curves.presets import Preset
    from align.training.compare_samples import SampleComparison
    from align.training.step_result import StepComparison

FOLDER = "Or a folder of captured steps."


def step_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=f"{TRAINING_SIDE} {FOLDER}")],
    candidate: PortOfTrainingArgument,
    batch: BatchesOfStepsOption = None,
    map_file: MapOption = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of steps (3 by default), at least one per batch; folders have their own."
        ),
    ] = None,
    thorough: ThoroughOption = False,
    samples: Annotated[
        bool,
        typer.Option(
            "--samples",
            help="Compare the gradient of each sample of the batch by itself, and name the samples that differ.",
        ),
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB", help="With --samples: compare parameters with such names only; repeat for several."
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List all layers and gradients, or all samples.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take training steps on both sides from the reference's state; name what is wrong by itself.

    Exit code: 0 if losses, gradients, updates and statistics agree, 1 if not, 2 if they cannot be compared.
    """
    from align.runs.read_settings import numbered_sources
    from align.training.compare_samples import compare_samples
    from align.training.compare_training_step import compare_training_step

    result: SampleComparison | StepComparison
    if samples:
        given = _batch_of_samples(batch, {"--steps": steps, "--thorough": thorough})
        with progress_bar() as progress:
            result = compare_samples(
                reference, candidate, batch=given, name_map=map_file, parameters=parameters or (), progress=progress
            )
    elif parameters:
        raise UsageError.of("samples_error.without")
    else:
        with progress_bar() as progress:
            result = compare_training_step(
                reference, candidate, batch=batch, name_map=map_file, steps=steps, thorough=thorough, progress=progress
            )
    sides = {"reference": reference, "candidate": candidate}
    sources = {**sides, "map": map_file, **numbered_sources("batch", batch or [])}
    return finish(result, sources, run, json, show_all=show_all)


def _batch_of_samples(batch: list[str] | None, needless: dict[str, object]) -> str:
    """The one batch; raises UsageError for none or several, and for options that steps alone take."""
    if used := [name for name, value in needless.items() if value]:
        raise UsageError.of("samples_error.needless", used=used)
    if not batch:
        raise UsageError.of("training_error.no_batch")
    if len(batch) > 1:
        raise UsageError.of("samples_error.several", count=len(batch))
    return batch[0]


# `align params`: which parameters one training step trains, and why others stay.


def params_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=TRAINING_SIDE)],
    batch: BatchOption,
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[CANDIDATE]", help="The same for the port; without it, one side is checked."),
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
            reference, candidate, batch=batch, name_map=map_file, ddp_indices=_numbers(ddp_indices), progress=progress
        )
    sources = {"reference": reference, "candidate": candidate, "map": map_file, "batch": batch}
    return finish(result, sources, run, json, show_all=show_all)


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
        typer.Option(metavar="N", help="Number of seeds to build each side from; by default as many as needed."),
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
    return finish(result, sources, run, json, show_all=show_all)


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
    return finish(result, sources, run, json)


# `align nonfinite`: the first NaN, Inf or explosion of a training, where it begins and why.


def nonfinite_command(  # noqa: PLR0913 - one parameter an option
    factory: Annotated[str, typer.Argument(metavar="FACTORY", help=TRAINING_SIDE)],
    batch: BatchesOfStepsOption = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Number of steps, repeating the batches; 20 by default.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Number of steps of which figures are shown; 5 by default.")
    ] = None,
    factor: Annotated[
        float | None, typer.Option(help="A tensor explodes above so many times its running median; 1000 by default.")
    ] = None,
    loss_scale: Annotated[float, typer.Option(metavar="SCALE", help="Factor of the loss in the backward pass.")] = 1.0,
    steps_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File that gets a line per step, and stays if the process is killed."),
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take steps until a value is not finite or explodes; show step, layer, pass, line of code, reason and remedy.

    Exit code 0: no such value; 1: one was found; 2: it could not be run. In your own loop: align.watch_nonfinite().
    """
    from align.loops.locate_nonfinite import locate_nonfinite
    from align.loops.thresholds import EXPLOSION_FACTOR, KEPT_STEPS, STEPS

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
    return finish(result, made_from, run, json)


# `align memory`: what a step takes of memory, by phase and layer, and whether it grows from step to step.


def memory_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[
        str,
        typer.Argument(
            metavar="FACTORY|LOG", help=f"{TRAINING_SIDE} Or a loss log, or a folder of align.watch, with memory."
        ),
    ],
    candidate: Annotated[
        str | None, typer.Argument(metavar="[CANDIDATE]", help="The same for the port; without it, one side.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Inputs and labels by name (.npz), or `module:function`: one batch."),
    ] = None,
    map_file: MapOption = None,
    fits: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Tell the largest batch that fits, for example 16GB.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Take so many steps too, and tell what grows from one to the next.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List all layers.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Measure what a training step takes of memory, by phase and layer, and what would lower it.

    Exit code 0: it was measured; 1: it does not fit into --fits, or memory grows from step to step; 2: it could not be
    run, or a growth cannot be told.
    """
    from align.cli.comparisons import size_in_bytes
    from align.memory.measure_memory import follow_logged_memory, measure_memory

    limit = size_in_bytes(fits, "memory_usage.no_size")
    sources = {"reference": reference, "candidate": candidate, "map": map_file, "batch": batch}
    if Path(reference).exists():
        of_steps = {"CANDIDATE": candidate, "--batch": batch, "--map": map_file, "--fits": fits, "--steps": steps}
        if needless := [name for name, value in of_steps.items() if value is not None]:
            raise UsageError.of("memory_usage.of_log", path=reference, options=needless)
        return finish(follow_logged_memory(reference), {"log": reference}, run, json)
    if batch is None:
        raise UsageError.of("memory_usage.no_batch")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its allocator warns of memory that was there before
    with progress_bar() as progress:
        result = measure_memory(
            reference, candidate, batch=batch, name_map=map_file, fits=limit, steps=steps, progress=progress
        )
    return finish(result, sources, run, json, show_all=show_all)


# `align hyperparameters`: what two trainings are set to, compared by meaning.

_SETTINGS_SIDE = (
    "A configuration, a shell script, a log with printed arguments, or a trace folder; commas between several files."
)


def hyperparameters_command(
    first: Annotated[str, typer.Argument(metavar="A", help=_SETTINGS_SIDE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The same for the port's training.")],
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
    return finish(result, files, run, json, show_all=show_all)


# `align ranks`: the captured steps of several ranks of one training.


def ranks_command(
    folders: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="A folder of `align capture --step` for each rank.")
    ],
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the ranks of one training: equal initial values, distinct samples, the mean of the gradients.

    Capture a step on each rank first: align capture --step FACTORY --batch FUNCTION --out rank0.
    """
    from align.training.compare_ranks import compare_ranks

    result = compare_ranks(folders)
    sources: dict[str, Path | str] = {f"rank {number}": folder for number, folder in enumerate(folders)}
    return finish(result, sources, run, json)


# `align watch`: records of whole trainings, shown and compared.


class Shown(str, enum.Enum):
    """What to do with records."""

    SHOW = "show"
    COMPARE = "compare"


def watch_command(  # noqa: PLR0913 - one parameter an option
    action: Annotated[Shown, typer.Argument(metavar="show|compare", help="Show one record, or compare two.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `align.watch` wrote.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="CANDIDATE", help="compare: the record of the other training.")
    ] = None,
    map_file: MapOption = None,
    repeat: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="compare: two records of one training run twice, whose noise is the limit."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="The rank to read; the first one by default.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="show: write the record as event files of TensorBoard, too.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List all departures, or all layers and parameters.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Name the first step and layer at which two whole trainings depart for good, and in which quantity.

    Record each training first, in your loop: with align.watch(model, optimizer, "record") as watch: ... and at the end
    of each iteration watch.step(loss, batch).
    """
    from align.loops.compare_watched import compare_watched
    from align.loops.watched_folder import export_tensorboard, show_watched
    from align.runs.read_settings import numbered_sources

    of_other: dict[str, object] = {"--tensorboard": tensorboard}
    if action is Shown.SHOW:
        if other is not None:
            raise UsageError.of("watched_error.two_records", first=folder, second=other)
        of_other = {"--map": map_file, "--run": run, "--repeat": repeat}
    if idle := [option for option, value in of_other.items() if value]:
        raise UsageError.of("watched_error.other_action", options=idle, action=action.value)
    if action is Shown.SHOW:
        result = show_watched(folder, rank=rank)
        if tensorboard is not None:
            export_tensorboard(folder, tensorboard, rank=rank)
        hand_over(result, {"record": folder}, None, json, show_all=show_all)
        return 0
    if other is None:
        raise UsageError.of("watched_error.one_record")
    if repeat is not None and len(repeat) != 2:
        raise UsageError.of("watched_error.three_repeats", count=len(repeat))
    repeats = None if repeat is None else (repeat[0], repeat[1])
    compared = compare_watched(folder, other, name_map=map_file, repeat=repeats, rank=rank)
    sources: dict[str, Path | str] = {
        "reference": folder,
        "candidate": other,
        **numbered_sources("repeat", repeat or []),
        **({} if map_file is None else {"map": map_file}),
    }
    return finish(compared, sources, run, json, show_all=show_all)


# `align loss REFERENCE [CANDIDATE]`: two loss logs on one axis, judged; or what is understood of one.

KNOWN = "What a log does not say by itself"
LogArgument = Annotated[Path, typer.Argument(help="Loss log of the reference, in any known format, or a folder.")]
CandidateArgument = Annotated[
    Path | None, typer.Argument(help="Loss log of the candidate. Without it, what is understood of REFERENCE is shown.")
]
MetricOption = Annotated[str, typer.Option("--metric", help="Metric to compare; `loss` is each log's training loss.")]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="NAME", help="Criteria by name: guide (by default), exact ..., or those of align.toml."
    ),
]
ReferenceRunsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference-runs",
        metavar="LOG...",
        help="Further runs of the reference: the candidate may differ as much as they do.",
    ),
]
StepsPerOption = Annotated[
    str | None,
    typer.Option(
        "--steps-per", metavar="R:C", help="Steps of both sides that see the same number of samples, such as 2:1."
    ),
]
LastOption = Annotated[
    int | None, typer.Option("--last-step", metavar="N", help="Compare only up to this global step.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the curves and their difference.")
]


def _of_a_side(name: str, metavar: str, text: str, side: str) -> typer.models.OptionInfo:
    """Make `--reference-NAME` or `--candidate-NAME`; `--NAME` alone is the reference's, which may be the only log."""
    names = [f"--{side}-{name}", *([f"--{name}"] if side == "reference" else [])]
    option: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=KNOWN)
    return option


_FORMAT = ("format", "NAME", "Its format, see `align plugins`; `lines` for any that repeat.")
_PATTERN = ("pattern", "REGEX", "Regular expression of its lines, with groups (?P<step>...), (?P<loss>...).")
_RANK = ("rank", "N", "The process whose lines are read.")
_JOB = ("job", "N", "Which run to read if it holds several, counted from 1.")
_LENGTH = ("steps-per-epoch", "N", "Needed if the log lacks it; 125.125 if the log counts fractions of epochs.")
_BASE = ("base", "0|1", "Number of its first step.")
_WINDOW = ("window", "TEXT", "What its losses are: 'mean of last 10', 'since last print', 'epoch so far' ...")
FormatR = Annotated[str | None, _of_a_side(*_FORMAT, "reference")]
FormatC = Annotated[str | None, _of_a_side(*_FORMAT, "candidate")]
PatternR = Annotated[str | None, _of_a_side(*_PATTERN, "reference")]
PatternC = Annotated[str | None, _of_a_side(*_PATTERN, "candidate")]
RankR = Annotated[int | None, _of_a_side(*_RANK, "reference")]
RankC = Annotated[int | None, _of_a_side(*_RANK, "candidate")]
JobR = Annotated[int | None, _of_a_side(*_JOB, "reference")]
JobC = Annotated[int | None, _of_a_side(*_JOB, "candidate")]
LengthR = Annotated[float | None, _of_a_side(*_LENGTH, "reference")]
LengthC = Annotated[float | None, _of_a_side(*_LENGTH, "candidate")]
BaseR = Annotated[int | None, _of_a_side(*_BASE, "reference")]
BaseC = Annotated[int | None, _of_a_side(*_BASE, "candidate")]
WindowR = Annotated[str | None, _of_a_side(*_WINDOW, "reference")]
WindowC = Annotated[str | None, _of_a_side(*_WINDOW, "candidate")]


def loss_command(  # noqa: PLR0913 - one argument for each option of the command
    reference: LogArgument,
    candidate: CandidateArgument = None,
    metric: MetricOption = "loss",
    preset: PresetOption = None,
    reference_runs: ReferenceRunsOption = None,
    steps_per: StepsPerOption = None,
    last_step: LastOption = None,
    plot: PlotOption = None,
    reference_format: FormatR = None,
    candidate_format: FormatC = None,
    reference_pattern: PatternR = None,
    candidate_pattern: PatternC = None,
    reference_rank: RankR = None,
    candidate_rank: RankC = None,
    reference_job: JobR = None,
    candidate_job: JobC = None,
    reference_steps_per_epoch: LengthR = None,
    candidate_steps_per_epoch: LengthC = None,
    reference_base: BaseR = None,
    candidate_base: BaseC = None,
    reference_window: WindowR = None,
    candidate_window: WindowC = None,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two loss logs on the true global step, or show what is understood of one."""
    from align.curves.compare_losses import LogReading, refuse_one_log
    from align.runs.read_settings import find_settings

    settings = find_settings(project)
    of_reference = (reference_format, reference_pattern, reference_rank, reference_job)
    of_candidate = (candidate_format, candidate_pattern, candidate_rank, candidate_job)
    log_readings = (
        LogReading(*of_reference, reference_steps_per_epoch, reference_base, reference_window),
        LogReading(*of_candidate, candidate_steps_per_epoch, candidate_base, candidate_window),
    )
    readings = (
        _or_pattern(log_readings[0], settings.loss_patterns[0]),
        _or_pattern(log_readings[1], settings.loss_patterns[1]),
    )
    if candidate is None:
        of_two = {"--preset": preset, "--last-step": last_step, "--plot": plot, "--reference-runs": reference_runs}
        of_other = None if log_readings[1] == LogReading() else log_readings[1]
        _refuse_lone({**of_two, "--steps-per": steps_per, "--candidate-...": of_other})
        return _describe(reference, metric, readings[0], run, json)
    if run is not None:
        refuse_one_log((reference, candidate), log_readings)
    if preset and reference_runs:
        _refuse_two_judges()
    ratio = _ratio(steps_per or "1:1")
    asked = _Asked(metric, preset or "guide", settings.loss_presets, reference_runs or [], ratio, last_step)
    return _compare((reference, candidate), readings, asked, plot, run, json)


def _or_pattern(reading: LogReading, of_project: str) -> LogReading:
    """The project file's pattern is for a log whose format nobody names."""
    return reading if reading.format or reading.pattern else replace(reading, pattern=of_project or None)


class _Asked(NamedTuple):
    """How two logs are to be compared."""

    metric: str
    preset: str
    presets: dict[str, Preset]
    reference_runs: list[Path]
    steps_per: tuple[int, int]
    last_step: int | None


def _compare(
    logs: tuple[Path, Path],
    readings: tuple[LogReading, LogReading],
    request: _Asked,
    plot: Path | None,
    run: Path | None,
    json: bool,
) -> int:
    from align.core.atomic_files import hash_meanwhile
    from align.curves.compare_losses import compare_readings

    if json or run is not None:
        hash_meanwhile([log for log in (*logs, *request.reference_runs) if log.is_file()])
    comparison = compare_readings(logs, readings, **request._asdict())
    if plot is not None:
        from align.report.draw_plot import font_note, save_plot

        save_plot("loss_curves", comparison, plot)
        if note := font_note():
            tell(note, err=True)
    runs = {f"reference run {number}": log for number, log in enumerate(request.reference_runs, start=2)}
    made_from = {"reference": logs[0], "candidate": logs[1], **runs}
    return finish(comparison, made_from, run, json)


def _refuse_lone(given: Mapping[str, object]) -> None:
    """Refuse options that make no sense with one log."""
    names = [name for name, value in given.items() if value not in (None, [])]
    if names:
        raise UsageError.of("cli_usage.of_two_logs", name=names[0])


def _refuse_two_judges() -> None:
    raise UsageError.of("cli_usage.two_judges")


def _ratio(text: str) -> tuple[int, int]:
    left, _, right = text.partition(":")
    if not (left.isdecimal() and right.isdecimal()):
        raise UsageError.of("cli_usage.no_ratio", text=text)
    return int(left), int(right)


def _describe(log: Path, metric: str, reading: LogReading, run: Path | None, json: bool) -> int:
    """Show one log; nothing is judged, so the exit code is 0 unless it cannot be read."""
    from align.core.documents import json_text
    from align.curves.compare_losses import describe_log
    from align.report.show_result import print_result
    from align.runs.run_folder import RunFolder, as_document

    summary = describe_log(log, metric=metric, reading=reading)
    document = as_document(summary, {"log": log})
    written = RunFolder.create(run).write(summary, {"log": log}) if run is not None else None
    if json:
        print_json(json_text(document))
        return 0
    print_result(document)
    if written is not None:
        tell(say("told.written", names=[written]))
    return 0
