"""`align diff`: what two checkpoints differ by, or what training moved on two sides."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.parts.batch_jobs import BatchOption, run_folders
from align.cli.parts.shared import AllTensorsOption, JsonOption, RunOption, hand_over, progress_bar
from align.errors import UsageError

if TYPE_CHECKING:
    from align.core.verdicts import Verdict
    from align.runs.run_folder import Result

_UPDATES = ("A0", "A1", "B0", "B1")


def diff_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[
        Path | None, typer.Argument(metavar="A", help="Checkpoint, index or folder: the reference.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="B", help="Checkpoint, index or folder: the candidate.")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Name map between A and B, or the convert.json of a conversion."),
    ] = None,
    updates: Annotated[
        tuple[Path, Path, Path, Path] | None,
        typer.Option(metavar=" ".join(_UPDATES), help="Compare what training moved: A before and after, B likewise."),
    ] = None,
    strip: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="Take a prefix such as module. off the names; may be repeated."),
    ] = None,
    unchanged: Annotated[
        bool, typer.Option("--unchanged", help="List what is equal bit for bit: what a training step did not move.")
    ] = False,
    key_a: Annotated[str | None, typer.Option(metavar="KEY", help="Entry of A, where it is nested.")] = None,
    key_b: Annotated[str | None, typer.Option(metavar="KEY", help="Entry of B, where it is nested.")] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Let torch run the code in A or B: only for files you trust.")
    ] = False,
    as_batch: BatchOption = False,
    show_all: AllTensorsOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two checkpoints of any formats, worst first, or with --updates what training moved on two sides.

    Exit code 0: all values, or updates, are alike; 1: something differs or is missing; 2: nothing could be compared.
    """
    if as_batch:
        given = {"map": map_file and str(map_file), "strip": strip, "key_a": key_a, "key_b": key_b}
        needless = {"--updates": updates, "--unchanged": unchanged, "--trust-pickle": trust_pickle}
        return run_folders("diff", (reference, candidate), given, needless, run, json=json, show_all=show_all)
    files = _chosen((reference, candidate), updates, unchanged=unchanged)
    options: dict[str, Any] = {"name_map": map_file, "strip": strip or (), "trust_pickle": trust_pickle}
    result, verdict = (
        _updates(files, (key_a, key_b), options)
        if updates
        else _values(files, (key_a, key_b), options | {"unchanged": unchanged})
    )
    roles = ("reference before", "reference after", "candidate before", "candidate after")
    sides = dict(zip(roles if updates else ("reference", "candidate"), files, strict=True))
    sides |= {"map": map_file} if map_file else {}
    # Hashes of whole files would cost more time than the comparison: only a result that is kept has them.
    made_from: dict[str, Path | str] = {role: path if run else str(path) for role, path in sides.items()}
    hand_over(result, made_from, run, json, show_all=show_all)
    return verdict.exit_code


def _chosen(sides: tuple[Path | None, Path | None], updates: tuple[Path, ...] | None, *, unchanged: bool) -> list[Path]:
    """The files that are to be compared, all of which are there; raises UsageError if it is unclear which."""
    from align.checkpoints.open_checkpoint import require_checkpoint

    given = [side for side in sides if side is not None]
    if updates and given:
        raise UsageError.of("cli_usage.five_checkpoints", given=given[0], wanted=_UPDATES)
    if updates and unchanged:
        raise UsageError.of("cli_usage.unchanged_updates")
    if not updates and len(given) < len(sides):
        raise UsageError.of("cli_usage.one_checkpoint", wanted=_UPDATES)
    files = [*(updates or given)]
    for path in files:
        require_checkpoint(path)
    return files


def _values(files: list[Path], keys: tuple[str | None, str | None], options: dict[str, Any]) -> tuple[Result, Verdict]:
    from align.convert.diff_checkpoints import diff_checkpoints

    with progress_bar() as progress:
        result = diff_checkpoints(*files, reference_key=keys[0], candidate_key=keys[1], progress=progress, **options)
    return result, result.verdict


def _updates(files: list[Path], keys: tuple[str | None, str | None], options: dict[str, Any]) -> tuple[Result, Verdict]:
    from align.convert.diff_updates import diff_updates

    with progress_bar() as progress:
        result = diff_updates((files[0], files[1]), (files[2], files[3]), keys=keys, progress=progress, **options)
    return result, result.verdict
