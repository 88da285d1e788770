"""`align bisect --train`: the layers whose precision, device or implementation moves a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.cli.parts.shared import finish, progress_bar
from align.cli.parts.sides import numbered_sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


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
