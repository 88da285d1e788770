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

    folders = [Path(side) for side in sides if Path(side).is_dir()]
    if missing := [
        side for side in sides if ":" not in side and Path(side) not in folders and file_models(side) is None
    ]:
        raise UsageError.of("cli_usage.no_trace_folder", missing=missing)
    if not folders:
        if partial:
            raise UsageError.of("cli_usage.partial_models")
        return None
    if len(folders) == 1:
        model = next(side for side in sides if not Path(side).is_dir())
        inputs = folders[0] / "inputs.npz"
        raise UsageError.of("cli_usage.one_trace_folder", folder=folders[0], model=model, inputs=inputs)
    if any(needless):
        raise UsageError.of("cli_usage.needless_for_traces")
    result = compare_trace_folders(*folders, name_map=map_file, partial=partial, allowances=allowances)
    return result, {"reference": folders[0], "candidate": folders[1], **({"map": map_file} if map_file else {})}
