"""How a side takes a batch, told before any step: refused where its names do not say it, noted where one is a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.errors import InputsError

if TYPE_CHECKING:
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide


def batch_findings(side: TrainingSide, batch: Batch) -> tuple[Finding, ...]:
    """Note an input that the model takes by position; raises InputsError for a batch that does not fit the side."""
    try:
        name = side.trainer.split_batch(side.training, batch).by_position
    except InputsError as error:
        raise InputsError(f"{side.label}: {error.message}", error.hint) from error
    message = f"the input {name} goes to the model by position, which has no parameter of that name"
    return (Finding("inputs-by-position", "note", side.label, message),) if name else ()
