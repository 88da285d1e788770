"""`align diff`: what two checkpoints differ by."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli._shared import JsonOption, RunOption, hand_over, progress_bar


def diff_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[Path, typer.Argument(metavar="A", help="Checkpoint, index or folder: the reference.")],
    candidate: Annotated[Path, typer.Argument(metavar="B", help="Checkpoint, index or folder: the candidate.")],
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Name map between A and B, or the convert.json of a conversion."),
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
    show_all: Annotated[bool, typer.Option("--all", help="List every tensor, unfolded.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two checkpoints of any formats: names, shapes, dtypes and all values, worst first.

    Exit code 0: all values are equal; 1: something differs or is missing; 2: nothing could be compared.
    """
    from align.checkpoints.open_checkpoint import require_checkpoint
    from align.convert.diff_checkpoints import diff_checkpoints

    for side in (reference, candidate):
        require_checkpoint(side)
    with progress_bar() as progress:
        result = diff_checkpoints(
            reference,
            candidate,
            name_map=map_file,
            reference_key=key_a,
            candidate_key=key_b,
            strip=strip or (),
            trust_pickle=trust_pickle,
            unchanged=unchanged,
            progress=progress,
        )
    # Hashes of whole files would cost more time than the comparison: only a result that is kept has them.
    sides = {"reference": reference, "candidate": candidate} | ({"map": map_file} if map_file else {})
    made_from: dict[str, Path | str] = {role: path if run else str(path) for role, path in sides.items()}
    hand_over(result, made_from, run, json, show_all=show_all)
    return result.verdict.exit_code
