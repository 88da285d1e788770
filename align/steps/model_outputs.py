"""What a model as a whole returned: a sink that keeps nothing else of a run, and the tensor that predictions are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.traces import Capture

PREDICTIONS = "logits"


class OutputSink:
    """A CaptureSink that copies the model's outputs, by name; "" names a lone one."""

    def __init__(self) -> None:
        self.outputs: dict[str, Array] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Keep an output of the model itself."""
        if not capture.module:
            self.outputs[capture.output] = np.array(value)


def main_output(outputs: Mapping[str, Array]) -> Array:
    """Return the output called `logits`, else the first one; raises KeyError if there is none."""
    if not outputs:
        msg = "the model returned no tensor"
        raise KeyError(msg)
    return outputs[PREDICTIONS] if PREDICTIONS in outputs else next(iter(outputs.values()))
