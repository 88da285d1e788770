"""Comparisons of many samples or tasks: `align generate`, `validate`, `data`, `batch`, and `--batch` of others."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from align.cli.given import tell
from align.cli.shared import (
    CandidateArgument,
    CandidateCheckpointOption,
    DataBatchesOption,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    MapOption,
    PortOfTrainingArgument,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    RunOption,
    SeedOption,
    finish,
    progress_bar,
)
from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from align.batch.job import Job
    from align.forward.forward_result import Allowances, ForwardComparison
    from align.rules.ascend_rules import Driver

WorkersOption = Annotated[int | None, typer.Option(metavar="N", help="Number of processes; by default one per core.")]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory that each process may take, such as 4GB.")
]
DaskOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Use the Dask cluster of this scheduler, such as tcp://node1:8786."),
]
BatchOption = Annotated[
    bool,
    typer.Option("--batch", help="Convert or compare two folders of ranks and steps as one job, as align batch does."),
]
Place = tuple[int | None, str | None, str | None]  # --workers, --memory, --dask


def run_job(job: Job, place: Place, run: Path | None, json: bool, *, show_all: bool = False) -> int:
    """Run a job and hand over its result; an interrupt says how to go on."""
    from align.batch.open_workers import open_dask, open_pool
    from align.batch.run_batch import run_batch
    from align.errors import UsageError

    count, memory, address = place
    if address is not None and (count is not None or memory is not None):
        raise UsageError.of("batch_usage.dask_and_pool")
    workers = open_pool(count, size_in_bytes(memory)) if address is None else open_dask(address)
    try:
        with progress_bar() as progress:
            result = run_batch(job, workers, run=run, progress=progress)
    except KeyboardInterrupt:
        _say_how_to_go_on(run)
        raise
    sources: dict[str, Path | str] = {"job": job.file if job.file is not None else job.label}
    return finish(result, sources, run, json, show_all=show_all)


def run_folders(  # noqa: PLR0913 - what three commands hand on
    action: str,
    folders: tuple[Path | str | None, Path | str | None],
    options: Mapping[str, Any],
    needless: Mapping[str, object],
    run: Path | None,
    *,
    json: bool,
    show_all: bool,
) -> int:
    """Run a job of two folders (`--batch`); raises UsageError for `needless` options, and without folders."""
    from pathlib import Path

    from align.batch.job import pair_folders
    from align.errors import UsageError

    first, second = folders
    if not first or not second:
        raise UsageError.of("batch_usage.two_folders", action=action)
    if used := [name for name, value in needless.items() if value]:
        raise UsageError.of("batch_usage.not_with_batch", used=used)
    given = {name: value for name, value in options.items() if value not in (None, [], ())}  # False is a choice
    job = pair_folders(action, Path(first), Path(second), given)
    return run_job(job, (None, None, None), run, json, show_all=show_all)


def _say_how_to_go_on(run: Path | None) -> None:
    from align.words.catalogue import say

    key = "batch_resume.go_on" if run is not None else "batch_resume.nothing_kept"
    tell(say(key, command=shlex.join(["align", *sys.argv[1:]])), err=True)


def size_in_bytes(size: str | None, error: str = "batch_usage.memory") -> int | None:
    """A size such as 4GB or 512MiB in bytes; raises UsageError, worded by `error`, for what is none."""
    import re

    from align.errors import UsageError

    if size is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)(i?)B?", size)
    if match is None:
        raise UsageError.of(error, size=size)
    power = "kMGT".index(match[2]) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


# `align forward DIR DIR`: trace folders in the place of models.


def compared_folders(
    sides: tuple[str, str],
    map_file: Path | None,
    allowances: Allowances,
    *,
    partial: bool,
    needless: Collection[object],
) -> tuple[ForwardComparison, dict[str, Path | str]] | None:
    """Compare the two sides if they are trace folders, and say what the result is made from; None for two models.

    Raises UsageError for a path where there is no folder, for a folder and a model, and for options (`needless` ones
    that are not empty) that only a run of models needs.
    """
    from align.core.load_code import file_models
    from align.errors import UsageError
    from align.forward.compare_trace_folders import compare_trace_folders

    folders = [Path(side) for side in sides if _may_be_dump(Path(side))]
    if missing := [side for side in sides if not (":" in side or Path(side) in folders or file_models(side))]:
        raise UsageError.of("cli_usage.no_trace_folder", missing=missing)
    if not folders:
        if partial:
            raise UsageError.of("cli_usage.partial_models")
        return None
    if len(folders) == 1:
        model = next(side for side in sides if not _may_be_dump(Path(side)))
        inputs = folders[0] / "inputs.npz"
        key = "cli_usage.one_trace_folder" if inputs.is_file() else "cli_usage.one_dump"
        raise UsageError.of(key, folder=folders[0], model=model, inputs=inputs)
    if any(needless):
        raise UsageError.of("cli_usage.needless_for_traces")
    result = compare_trace_folders(*folders, name_map=map_file, partial=partial, allowances=allowances)
    return result, {"reference": folders[0], "candidate": folders[1], **({"map": map_file} if map_file else {})}


def _may_be_dump(path: Path) -> bool:
    """Tell whether it is a folder, or a file that is no model and no code: a model needs a function behind it."""
    from align.core.load_code import file_models

    return path.is_dir() or (path.is_file() and path.suffix != ".py" and file_models(str(path)) is None)


# `align bisect --train`: the layers whose precision, device or implementation moves a training.


def bisect_train(
    factory: str,
    batch: Sequence[str] | None,
    steps: int | None,
    change: Mapping[str, str | None],
    judged: tuple[str, float | None],
    shown: tuple[Path | None, bool],
) -> int:
    """Bisect the training that a factory returns, show it and return the exit code.

    `judged` are the glob of the layers and the limit, `shown` are the run folder and whether JSON is wanted.
    """
    from align.errors import UsageError
    from align.runs.read_settings import numbered_sources
    from align.training.compare_ranks import bisect_training
    from align.training.thresholds import STEPS_OF_ONE_BATCH

    if not batch:
        raise UsageError.of("training_error.no_batch")
    with progress_bar() as progress:
        result = bisect_training(
            factory,
            batch=batch,
            steps=STEPS_OF_ONE_BATCH if steps is None else steps,
            layers=judged[0],
            limit=judged[1],
            progress=progress,
            **change,
        )
    sources = {"side": factory, "implementation": change["implementation"], **numbered_sources("batch", batch)}
    return finish(result, sources, shown[0], shown[1])


# What the commands that foresee an Ascend chip share: its switches, and the framework that drives it.

SwitchOption = Annotated[
    list[str] | None,
    typer.Option("--switch", metavar="NAME=VALUE", help="A switch of the chip, such as precision_mode=VALUE; repeat."),
]
FrameworkOption = Annotated[
    str,
    typer.Option(
        "--framework", metavar="NAME", help="What will drive the chip: mindspore, torch_npu, or torch on a GPU."
    ),
]


def given_switches(texts: Sequence[str] | None) -> dict[str, str]:
    """Values of switches by name; raises UsageError for a text that is no assignment."""
    from align.errors import UsageError

    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError.of("ascend_usage.no_assignment", text=f"{name}{equals}{value}")
    return {name: value for name, _, value in pairs}


def named_driver(name: str) -> Driver:
    """The framework of this name; raises UsageError for any other."""
    from align.errors import UsageError
    from align.rules.ascend_rules import Driver

    for driver in get_args(Driver):
        if name == driver:
            return driver  # type: ignore[no-any-return]
    raise UsageError.of("ascend_usage.unknown_framework", name=name, known=[*get_args(Driver)])


# `align generate`: logits of each token, caches and greedy decoding of two language models.


StepOption = Annotated[
    str | None,
    typer.Option(metavar="FUNCTION", help="`module:function(model)` that returns step(ids, cache) -> (logits, cache)."),
]


def generate_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    tokens: Annotated[int, typer.Option(metavar="N", help="Number of new tokens.")] = 16,
    reference_step: StepOption = None,
    candidate_step: StepOption = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every position in a row of its own.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two language models on prompts of token ids, and on the tokens that the reference generates from them.

    This compares the logits of each token, the results with and without a cache, and names the first new token that
    differs.
    """
    from align.evaluation.compare_generation import compare_generation
    from align.runs.read_settings import given_inputs, inputs_source, made_from, read_settings, requested

    filled = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    settings = read_settings(project, reference, candidate, map_file, **filled)
    source = inputs_source(inputs, input_specs, settings)
    prompts = given_inputs(source, input_specs or (), seed)
    with progress_bar() as progress:
        result = compare_generation(
            requested(settings.reference),
            requested(settings.candidate),
            inputs=prompts,
            tokens=tokens,
            reference_step=reference_step,
            candidate_step=candidate_step,
            name_map=settings.map,
            progress=progress,
        )
    sources = made_from(settings, reference_step=reference_step, candidate_step=candidate_step, inputs=source)
    return finish(result, sources, run, json, show_all=show_all)


# `align tokens`: log-probabilities that two engines or trainers give to the same tokens.

_TOKENS = "A file with log-probabilities of an engine or a trainer, or a model, as `file.py:function`"


def tokens_command(  # noqa: PLR0913 - one parameter an option
    first: Annotated[str, typer.Argument(metavar="A", help=f"{_TOKENS}.")],
    second: Annotated[str | None, typer.Argument(metavar="[B]", help="The same for the other side.")] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Token lists for a model, if the other side has none.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="DTYPE", help="Precision of both sides, for the limits: float32, bfloat16, float16.")
    ] = "bfloat16",
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List every garbled text, and the tokens that differ most.")
    ] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the log-probabilities that two engines or trainers give to the same tokens; name the cause.

    Of one side alone, tell whether its text is garbled. Exit code 0: within the limits; 1: not, or garbled; 2: it could
    not be compared.
    """
    from align.models.open_side import SideRequest
    from align.tokens.compare_tokens import compare_tokens

    checkpoints = reference_checkpoint, candidate_checkpoint
    sides = [
        SideRequest(side, checkpoint) if side is not None and checkpoint is not None else side
        for side, checkpoint in zip((first, second), checkpoints, strict=True)
    ]
    with progress_bar() as progress:
        result = compare_tokens(sides[0] or first, sides[1], inputs=inputs, dtype=dtype, progress=progress)
    sources = {"reference": first, "candidate": second, "inputs": inputs}
    made_from = {name: _file_or_text(source) for name, source in sources.items() if source is not None}
    return finish(result, made_from, run, json, show_all=show_all)


def _file_or_text(source: Path | str) -> Path | str:
    """A file as a path, so that its hash is kept."""
    return Path(source) if Path(source).is_file() else source


# `align validate`: the same dataset and metric through both models, side by side.

Function = Annotated[str | None, typer.Option(metavar="FUNCTION", help="The candidate's own, if it has one.")]


def validate_command(  # noqa: PLR0913 - one parameter an option
    data: Annotated[
        str, typer.Option(metavar="FUNCTION", help="`module:function` that returns batches (inputs, labels).")
    ],
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    metric: Annotated[
        str, typer.Option(metavar="METRIC", help="accuracy, top5, mean-squared-error, or `module:function`.")
    ] = "accuracy",
    candidate_data: Function = None,
    candidate_metric: Function = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    limit_samples: Annotated[int | None, typer.Option(metavar="N", help="Take the first N samples only.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List all kept samples whose prediction flips; the worst are always listed.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run one dataset through both models; name the samples that differ.

    If the two sides differ, exchange their data, metric and weights one at a time until the cause is found.
    """
    from align.evaluation.validate_models import validate_models
    from align.runs.read_settings import made_from, read_settings, requested

    filled = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    settings = read_settings(project, reference, candidate, map_file, **filled)
    with progress_bar() as progress:
        result = validate_models(
            requested(settings.reference),
            requested(settings.candidate),
            data=data,
            metric=metric,
            candidate_data=candidate_data,
            candidate_metric=candidate_metric,
            name_map=settings.map,
            limit_samples=limit_samples,
            progress=progress,
        )
    sources = made_from(
        settings, data=data, metric=metric, candidate_data=candidate_data, candidate_metric=candidate_metric
    )
    return finish(result, sources, run, json, show_all=show_all)


# `align data`: two data pipelines, sample by sample.


def data_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE",
            help="`module:function` that returns a loader, a dataset or batches; or a folder of captured batches.",
        ),
    ],
    candidate: PortOfTrainingArgument,
    batches: DataBatchesOption = None,
    whole: Annotated[bool, typer.Option("--whole", help="Read a whole epoch of each side.")] = False,
    raw: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="Returns the reference's pictures before any change: tells how each side resizes."
        ),
    ] = None,
    any_order: Annotated[bool, typer.Option("--any-order", help="Another order of the samples is allowed.")] = False,
    classes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of classes: labels beyond them are named.")
    ] = None,
    training: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="The reference's training, with --batch: its loss tells the classes."),
    ] = None,
    candidate_training: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="The same of the port, for its own labels.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="FILE", help="Inputs and labels by name for one step of a training.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show all samples that are kept.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two data pipelines: order, missing samples, batch sizes, and why values differ.

    Fields are paired by name, else by position. A cause is confirmed once undoing it makes the samples agree.
    """
    from align.data.thresholds import MOST_BATCHES
    from align.training.check_parameters import compare_labelled_data

    if whole and batches is not None:
        raise UsageError.of("cli_usage.whole_or_some")
    if (batch is None) != (training is None and candidate_training is None):
        raise UsageError.of("cli_usage.training_with_batch")
    if batch is not None and classes is not None:
        raise UsageError.of("cli_usage.classes_or_training")
    most = None if whole else batches if batches is not None else MOST_BATCHES
    how = {"batches": most, "raw": raw, "any_order": any_order, "classes": classes}
    with progress_bar() as progress:
        trainings = training, candidate_training
        result = compare_labelled_data(reference, candidate, trainings, batch, progress=progress, **how)
    sources = {"reference": reference, "candidate": candidate, "raw": raw, "batch": batch,
               "reference training": training, "candidate training": candidate_training}  # fmt: skip
    return finish(result, sources, run, json, show_all=show_all)


# `align batch`: many comparisons, conversions and checks as one job.


def batch_command(  # noqa: PLR0913 - one parameter an option
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file (.toml): tables of tasks by rank and step.")],
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    dask: DaskOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every task.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a job of many tasks; name the first rank and step that departs, and ranks and tensors that do not agree.

    With --run, finished tasks are kept: run the same command again to do the rest. Exit code 0: all aligned; 1:
    something departs; 2: a task could not be done, or has no file on one side.
    """
    from align.batch.read_job import read_job

    return run_job(read_job(job), (workers, memory, dask), run, json, show_all=show_all)


# `align verify`: a card of a port held against the same run, made again.


def verify_command(
    card: Annotated[Path, typer.Argument(metavar="CARD", help="A card of `align report --card`.")],
    project: Annotated[
        Path | None, typer.Option("--project", help="Project file, by default the one that the card names.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Keep the results of the run in this folder.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run what a card was made of again, and say what differs from what the card says.

    Exit code 0: the card holds, whatever it says; 1: files have another content, or something came out otherwise; 2:
    it could not be run.
    """
    import tempfile

    from align.cli.project import announce, perform
    from align.cli.shared import hand_over
    from align.core.load_code import put_first
    from align.report.card import read_card, verify_card
    from align.runs.climb_ladder import Climb, climb_ladder
    from align.runs.read_settings import find_settings

    stated = read_card(card)
    chosen = project or stated.project
    settings = find_settings(chosen)
    put_first(chosen.resolve().parent)
    with tempfile.TemporaryDirectory(prefix="mindalign-") as scratch:
        run = folder or Path(scratch)
        climb_ladder(settings, run, perform, Climb(only=stated.rungs, keep_going=True), announce)
        verification = verify_card(stated, chosen, run)
    hand_over(verification, {"card": stated.file}, None, json)
    return verification.exit_code
