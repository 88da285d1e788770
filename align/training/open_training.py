"""A side that can be trained: a model with its loss and optimizer, and the adapter that takes a step of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from align.core.training import StepTaker, Trainer, Training
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, SideError
from align.models.open_side import Side, build_side, refuse_shared
from align.models.user_code import load_function
from align.training.put_back_kept import StepsFromStart
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from align.core.protocols import Batch


_PARTS = tuple(field.name for field in fields(Training))


@dataclass(frozen=True, slots=True)
class TrainingSide:
    """A model opened as a side, with what trains it."""

    side: Side
    training: Training
    trainer: StepTaker

    @property
    def label(self) -> str:
        """What the user calls it."""
        return self.side.label


def open_training(given: str | Training, *, from_start: bool = True) -> TrainingSide:
    """Take what trains a model, or build it by `module:function`.

    Each taking of steps begins `from_start`: what a step of the user's own keeps between its calls is put back.
    Raises SideError for a function that returns something else, CannotRunError for a framework that cannot train.
    """
    made = load_function(given)() if isinstance(given, str) else given
    label = given if isinstance(given, str) else type(getattr(made, "model", made)).__name__
    training = _training(label, made)
    side = build_side(training.model)
    if not isinstance(side.reader, Trainer):
        raise CannotRunError.of("training_error.not_trained", framework=side.reader.name)
    for optimizer in training.optimizers:
        if not side.reader.is_optimizer(optimizer):
            facts = {"kind": type(optimizer).__name__, "framework": side.reader.name}
            raise SideError(label, say("training_reason.foreign_optimizer", **facts))
    trainer = StepsFromStart(side.reader) if from_start else side.reader
    return TrainingSide(Side(label, side.model, side.reader), training, trainer)


def open_trainings(reference: str | Training, candidate: str | Training) -> tuple[TrainingSide, TrainingSide]:
    """Open both sides; raises SharedModelError too, where a step of the one would move the other."""
    sides = open_training(reference), open_training(candidate)
    refuse_shared((sides[0].side, sides[1].side))
    return sides


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


def _training(label: str, made: Any) -> Training:
    if isinstance(made, Training):
        return made
    if isinstance(made, dict) and "model" in made and made.keys() <= set(_PARTS):
        return Training(**made)
    if isinstance(made, tuple) and 1 < len(made) <= len(_PARTS):
        return Training(*made)
    error = SideError(label, say("training_reason.no_training", kind=type(made).__name__))
    error.hint = say("training_reason.what_to_return")
    raise error
