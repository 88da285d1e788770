"""Labels that are no class of the outputs, found before a loss takes them.

Nobody can rely on a framework there: torch raises on a CPU and ends all later work on a GPU, MindSpore raises, takes
another class, leaves the label out, returns infinity or ends the process, depending on the operator. So what takes
labels as indices of classes is looked at first; whatever else raises over an index is explained afterwards.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import InputsError
from align.models.nested_values import leaves
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.errors import AlignError

    Shape = tuple[int, ...]

# What frameworks say of an index that there is not.
_OF_AN_INDEX = re.compile(r"out of (bounds|range)|must be in|does not index|must be smaller than|device-side assert")


@dataclass(frozen=True)
class LabelCheck:
    """Looks at labels that a step makes of the arrays of a batch that are not the model's own."""

    targets: Batch

    def look(self, classes: int, labels: Array, ignored: int | None = None) -> None:
        """Raise InputsError for labels that are none of so many classes, and not the one that is ignored."""
        if labels.dtype.kind in "iu" and (fault := self._fault(classes, labels, ignored)):
            raise fault

    def look_from_one(self, classes: int, labels: Array) -> None:
        """Raise InputsError for labels of the batch that begin with 1, and end with the number of classes.

        For what makes nothing of other labels on purpose, as one-hot rows are made.
        """
        from_one = labels.size and labels.dtype.kind in "iu" and labels.min() >= 1 and labels.max() == classes
        if from_one and self._named(labels):
            self.look(classes, labels)

    def failed(
        self, output_shapes: Sequence[Shape], otherwise: Callable[[BaseException], AlignError], error: BaseException
    ) -> AlignError:
        """The error of a step that raised: of labels, if it is one of an index, and labels of the batch explain it."""
        whole = (one for one in self.targets.values() if isinstance(one, np.ndarray) and one.dtype.kind in "iu")
        pairs = product(whole, output_shapes) if _OF_AN_INDEX.search(str(error)) else ()  # lists hold no row a sample
        found = ((labels, _class_count(shape, labels)) for labels, shape in pairs)
        faults = (self._fault(classes, labels, None) for labels, classes in found if classes)
        return next((one for one in faults if one), None) or otherwise(error)

    def _fault(self, classes: int, labels: Array, ignored: int | None) -> InputsError | None:
        counted = labels if ignored is None else labels[labels != ignored]
        least, most = (int(counted.min()), int(counted.max())) if counted.size else (0, 0)
        if least >= 0 and most < classes:
            return None
        name = self._named(labels) or say("batch_fault.labels_made")
        ends = {"least": least, "most": most}
        return InputsError.of("batch_fault.labels_beyond", name=name, last=classes - 1, classes=classes, **ends)

    def _named(self, labels: Array) -> str:
        """The name of the array of the batch that holds these labels, in whatever shape; "" if there is none."""
        flat = labels.ravel()
        same = (name for name, value in _integers(self.targets) if np.array_equal(value.ravel(), flat))
        return next(same, "")


def _integers(targets: Batch) -> list[tuple[str, Array]]:
    return [(name, one) for name, one in leaves(targets) if isinstance(one, np.ndarray) and one.dtype.kind in "iu"]


def _class_count(outputs: Shape, labels: Array) -> int:
    """How many classes outputs have of which there is a row for each label; 0 if there is none."""
    if len(outputs) < 2 or not labels.size:
        return 0
    for axis in dict.fromkeys((1, len(outputs) - 1)):
        rows = outputs[:axis] + outputs[axis + 1 :]
        if labels.shape in (rows, (*rows, 1), (int(np.prod(rows)),)):
            return outputs[axis]
    return 0


@contextmanager
def replaced(places: Iterable[tuple[Any, str, Callable[[Any], Any]]]) -> Iterator[None]:
    """Let what is made of attributes of modules or classes stand for these for a while.

    Those that there are not are passed over: frameworks keep some of these names to themselves, and may rename them.
    """
    with ExitStack() as stack:
        for owner, name, make in places:
            if (before := getattr(owner, name, None)) is not None:
                own = name in vars(owner)  # else a class has it from the class that it is derived from
                stack.callback(*((setattr, owner, name, before) if own else (delattr, owner, name)))
                setattr(owner, name, make(before))
        yield


def looked_at(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls `look` with its arguments first."""

    def passed_on_to_framework(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return function(*args, **kwargs)

    return passed_on_to_framework


def class_count(shape: Sequence[int]) -> int:
    """How many classes outputs of this shape have, as losses take them: along axis 1, of a lone row along axis 0."""
    return shape[1] if len(shape) > 1 else shape[0] if shape else 0
