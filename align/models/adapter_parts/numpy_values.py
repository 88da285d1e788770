"""What adapters share whose models take and return NumPy arrays, and keep nothing from run to run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from align.models.record_calls import CallRecorder
from align.models.restore_state import fixed_seed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink


class NumpyValues:
    """A base of adapters: half of a ModelCaller."""

    def is_optimizer(self, model: Model) -> bool:  # noqa: ARG002
        """Return False: there are no optimizers of NumPy arrays."""
        return False

    def evaluating(self, model: Model, *, restores: bool = True) -> AbstractContextManager[None]:  # noqa: ARG002
        """Draw the same random numbers; see ModelCaller."""
        return fixed_seed()

    def restoring(self, model: Model) -> AbstractContextManager[None]:  # noqa: ARG002
        """Put nothing back, as nothing is kept; see ModelCaller."""
        return nullcontext()

    def as_tensor(self, value: Array, model: Model) -> Array:  # noqa: ARG002
        """Return the array itself."""
        return value

    def as_array(self, value: Any) -> Array | None:
        """Return an array, None for anything else."""
        return value if isinstance(value, np.ndarray) else None

    def recorder(self, sink: CaptureSink) -> CallRecorder:
        """Records calls on arrays; values from elsewhere get the dtype of those that they stand for."""
        return CallRecorder(sink, self.as_array, lambda value, like: value.astype(like.dtype))
