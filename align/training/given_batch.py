"""How a side takes a batch, told before any step: refused where its names do not say it, noted where one is a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.errors import InputsError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide


def batch_findings(side: TrainingSide, batch: Batch) -> tuple[Finding, ...]:
    """Tell of inputs that the model takes by position: a note of one, a warning of several.

    Raises InputsError for a batch that does not fit the side.
    """
    try:
        names = side.trainer.split_batch(side.training, batch).by_position
    except InputsError as error:
        raise InputsError(f"{side.label}: {error.message}", error.hint) from error
    if not names:
        return ()
    message = sentence("batch_finding.by_position", count=len(names), names=[*names])
    return (Finding("inputs-by-position", "warning" if len(names) > 1 else "note", side.label, message),)
