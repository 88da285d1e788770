"""A metric by name or as a function, called on what a model returned for one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.errors import InputsError, UserCodeError
from align.evaluation.validation.metrics import METRICS
from align.models.inputs import as_array
from align.models.open_side import find_function
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.evaluation.validation.dataset_batches import Batch
    from align.evaluation.validation.metrics import Metric


class NamedMetric:
    """One of METRICS, `module:function`, or a function; raises what finding it raises."""

    def __init__(self, metric: str | Metric) -> None:
        if isinstance(metric, str):
            self.label = metric
            self._function = METRICS[metric] if metric in METRICS else _found(metric)
        else:
            self.label = getattr(metric, "__name__", type(metric).__name__)
            self._function = metric

    def scores(self, outputs: Mapping[str, Array], batch: Batch) -> Array:
        """One score a sample, (size,), or one number of the whole batch, (); the function may change what it gets."""
        copies = {name: value.copy() for name, value in outputs.items()}
        given = copies[""] if set(copies) == {""} else copies
        labels = batch.labels.copy() if isinstance(batch.labels, np.ndarray) else batch.labels

        def failed(error: BaseException) -> UserCodeError:
            return UserCodeError(f"the metric {self.label}", error)

        found = as_array(run_user_code(lambda: self._function(given, labels), failed))
        if found.dtype.kind not in "fiub" or found.shape not in ((), (batch.size,)):
            got = f"{found.dtype.name}{list(found.shape)}"
            hint = "return an array of one score a sample, or one number"
            raise InputsError(f"the metric {self.label} returned {got} for {batch.size} samples", hint)
        return found.astype(np.float64)


def _found(metric: str) -> Metric:
    if ":" not in metric:
        raise InputsError(f"no metric is called {metric!r}", f"give `module:function`, or one of: {', '.join(METRICS)}")
    return find_function(metric, "metric file")
