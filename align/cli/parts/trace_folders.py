"""`align forward DIR DIR`: trace folders in the place of models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from align.forward.allowances import Allowances
    from align.forward.forward_result import ForwardComparison


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
