"""`align batch`, and `--batch` of other commands: a job run where its options say."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from align.cli.output import tell
from align.cli.shared import finish, numbered_sources, progress_bar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from align.batch.job import Job
    from align.forward.forward_result import Allowances, ForwardComparison
    from align.rules.ascend_rules import Driver


WorkersOption = Annotated[int | None, typer.Option(metavar="N", help="Processes to start; one a core by default.")]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory that each process may take, such as 4GB.")
]
DaskOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Use the Dask cluster of this scheduler, such as tcp://node1:8786."),
]
BatchOption = Annotated[
    bool, typer.Option("--batch", help="Two folders of ranks and steps: a job, as align batch runs it.")
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
    workers = open_pool(count, _bytes(memory)) if address is None else open_dask(address)
    try:
        with progress_bar() as progress:
            result = run_batch(job, workers, run=run, progress=progress)
    except KeyboardInterrupt:
        _say_how_to_go_on(run)
        raise
    sources: dict[str, Path | str] = {"job": job.file if job.file is not None else job.label}
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


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

    from align.batch.job_files import pair_folders
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


def _bytes(size: str | None) -> int | None:
    """A size such as 4GB or 512MiB in bytes; raises UsageError for what is none."""
    import re

    from align.errors import UsageError

    if size is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)(i?)B?", size)
    if found is None:
        raise UsageError.of("batch_usage.memory", size=size)
    power = "kMGT".index(found[2]) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


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
    from align.core.registry import file_models
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
    from align.core.registry import file_models

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
    from align.training.bisect_training import bisect_training
    from align.training.thresholds import STEPS_OF_ONE_BATCH

    if not batch:
        raise UsageError.of("cli_usage.no_batch")
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
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, shown[0], shown[1])


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
