"""MindSpore's functions of single elements on arrays: some kernels are off by far more than rounding.

On the CPU, MindSpore 2.10's tanh is off by up to 1e-4 (where |x| reaches 5), its exp by 25 units in the last place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array

NAMES = ("erf", "exp", "log", "sigmoid", "tanh")


def elementwise_functions() -> Mapping[str, Callable[[Array], Array]]:
    """Its own functions by name."""
    return {name: partial(_apply, name) for name in NAMES}


def _apply(name: str, values: Array) -> Array:
    """Run one; what is not float32 or float16 is computed in float32, as most kernels do."""
    import mindspore
    import numpy as np

    own = values if values.dtype.name in ("float16", "float32", "float64") else values.astype(np.float32)
    answer: Array = getattr(mindspore.ops, name)(mindspore.Tensor(own)).asnumpy()
    return answer.astype(values.dtype)
