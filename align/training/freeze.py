"""BatchNorm held at its running statistics and dropout switched off, in training mode too."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align.core.training import ModelFreezer
from align.core.verdicts import Finding
from align.errors import CannotRunError
from align.models.open_side import build_side
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from types import TracebackType

    from align.core.protocols import Model
    from align.training.open_training import TrainingSide

    Held = tuple[str, Model, dict[str, Any]]

_MISSING = object()


@dataclass
class Frozen:
    """What was frozen; as a context manager it is undone at the end.

    `batchnorm` and `dropout` are the paths of the layers, "" for the model itself.
    """

    batchnorm: tuple[str, ...]
    dropout: tuple[str, ...]
    _before: list[tuple[Any, str, Any]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Give all layers back what they had."""
        while self._before:
            module, name, value = self._before.pop()
            if value is _MISSING:
                delattr(module, name)
            else:
                setattr(module, name, value)

    def __enter__(self) -> Frozen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def freeze(model: Model, *, batchnorm: bool = True, dropout: bool = True) -> Frozen:
    """Hold BatchNorm at its running statistics, which stay as they are, and switch dropout off, in place.

    It lasts through `model.train()` and `set_train()`, until `undo()` or the end of a `with` block. Scales and shifts
    of BatchNorm are trained as before. Dropout that code calls with a share of its own, without an attribute of the
    module, is not reached: `Frozen.dropout` lists the layers that were. Raises CannotRunError for a model of a
    framework that has no such layers.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> freeze(ArrayModel(()))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models have no layers to freeze
    """
    reader = _freezer(model)
    norms = [*reader.batch_norms(model)] if batchnorm else []
    drops = [*reader.dropouts(model)] if dropout else []
    return _held(norms, drops)


def hold_dropout(model: Model, *, but: Collection[str] = ()) -> Frozen:
    """Switch dropout off as `freeze` does, but in the layers at these paths."""
    return _held([], [one for one in _freezer(model).dropouts(model) if one[0] not in but])


def _freezer(model: Model) -> ModelFreezer:
    reader = build_side(model).reader
    if not isinstance(reader, ModelFreezer):
        raise CannotRunError.of("training_error.no_layers_to_freeze", framework=reader.name)
    return reader


def _held(norms: Sequence[Held], drops: Sequence[Held]) -> Frozen:
    frozen = Frozen(tuple(path for path, _, _ in norms), tuple(path for path, _, _ in drops))
    for _, module, attributes in (*norms, *drops):
        for name, value in attributes.items():
            frozen._before.append((module, name, vars(module).get(name, _MISSING)))  # noqa: SLF001 - its own
            setattr(module, name, value)
    return frozen


@contextmanager
def without_dropout(opened: TrainingSide) -> Iterator[tuple[Finding, ...]]:
    """Switch dropout off in the model of a side while the block runs; a finding says of how many layers."""
    with hold_dropout(opened.training.model) as held:
        message = sentence("dropout_finding.off", count=len(held.dropout))
        yield (Finding("dropout-off", "note", opened.label, message),) if held.dropout else ()
