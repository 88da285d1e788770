"""A side that can be trained: a model with its loss and optimizer, and the adapter that takes a step of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from align.core.training import StepTaker, Trainer, Training
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, SideError
from align.models.open_side import Side, build_side, refuse_shared
from align.models.user_code import load_function
from align.training.put_back_kept import StepsFromStart
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    training = replace(training, optimizer=_known_optimizers(label, training, side.reader))
    trainer = StepsFromStart(side.reader) if from_start else side.reader
    return TrainingSide(Side(label, side.model, side.reader), training, trainer)


def open_trainings(reference: str | Training, candidate: str | Training) -> tuple[TrainingSide, TrainingSide]:
    """Open both sides; raises SharedModelError too, where a step of the one would move the other."""
    sides = open_training(reference), open_training(candidate)
    refuse_shared((sides[0].side, sides[1].side))
    return sides


def batch_findings(side: TrainingSide, batch: Batch) -> tuple[Finding, ...]:
    """Tell which arrays went where that no name sends there: a note, of several inputs of the model a warning.

    Raises InputsError for a batch that does not fit the side.
    """
    try:
        parts = side.trainer.split_batch(side.training, batch)
    except InputsError as error:
        raise InputsError(f"{side.label}: {error.message}", error.hint) from error
    inputs = [_taken_as(name, parts.taken_as) for name in parts.by_position]
    targets = [_taken_as(name, parts.guessed) for name in parts.guessed]
    told = {
        ("inputs-by-position", "by_position"): inputs,
        ("targets-by-position", "loss_by_position"): targets,
        ("outputs-one-by-one", "outputs_one_by_one"): parts.outputs,
        ("array-for-both", "for_both"): parts.for_both,
    }
    return tuple(
        Finding(
            code,
            "warning" if len(inputs) > 1 and names is inputs else "note",
            side.label,
            sentence(f"batch_finding.{key}", count=len(names), names=[*names]),
        )
        for (code, key), names in told.items()
        if names
    )


def _taken_as(name: str, parameters: Mapping[str, str]) -> str:
    return say("batch_finding.as_parameter", name=name, parameter=parameters[name]) if name in parameters else name


def _known_optimizers(label: str, training: Training, reader: Trainer) -> Any:
    """The optimizers of the framework; None where a step of the user's own calls others, whose updates are compared."""
    others = [one for one in training.optimizers if not reader.is_optimizer(one)]
    if not others:
        return training.optimizer
    if training.step is None or len(others) < len(training.optimizers):
        reason = say("training_reason.foreign_optimizer", kind=type(others[0]).__name__, framework=reader.name)
        error = SideError(label, reason)
        error.hint = say("training_reason.step_of_own_optimizer")
        raise error
    return None


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
