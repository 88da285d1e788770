"""Gradients of a fixed mix of a model's outputs with respect to what each module returned, in any framework.

Tensors of torch and of MindSpore take hooks alike; a hook gets the whole gradient, however often a tensor is used, and
that of the tensor as it was returned, whatever is written into it later.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.traces import Capture
from align.models.nested_values import leaves
from align.models.thresholds import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.dtypes import Array
    from align.core.traces import CaptureSink

    ToArray = Callable[[Any], Array]
    FromArray = Callable[[Array, Any], Any]


class GradientRecorder:
    """Hands the gradient of every tensor that a module returned to a sink, in the order in which they arrive."""

    def __init__(self, sink: CaptureSink, to_array: ToArray, has_gradient: Callable[[Any], bool]) -> None:
        self._sink, self._to_array, self._has_gradient = sink, to_array, has_gradient
        self._calls: Counter[str] = Counter()
        self._order = 0

    @contextlib.contextmanager
    def watching(self, modules: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """See what these modules return, given by path; hooks are taken off again."""
        with contextlib.ExitStack() as stack:
            for path, module in modules:
                hook = partial(self._returned, path, type(module).__name__)
                stack.callback(module.register_forward_hook(hook).remove)
            yield

    def _returned(self, path: str, class_name: str, _module: Any, _inputs: Any, output: Any) -> None:
        call = self._calls[path]
        self._calls[path] += 1
        for name, leaf in leaves(output):
            if self._has_gradient(leaf):
                leaf.register_hook(partial(self._arrived, path, call, name, class_name))

    def _arrived(self, path: str, call: int, name: str, class_name: str, gradient: Any) -> None:
        value = self._to_array(gradient)
        shape = tuple(value.shape)
        self._sink.add(Capture(self._order, path, call, name, class_name, shape, value.dtype.name), value)
        self._order += 1


def random_weighted_sum(output: Any, has_gradient: Callable[[Any], bool], like: FromArray) -> Any:
    """Sum of all tensors with a gradient in `output`, each element times a standard normal number.

    The numbers are the same for outputs of the same structure and shapes; `like` makes a tensor of them.
    """
    generator = np.random.default_rng(SEED)
    found = [leaf for _, leaf in leaves(output) if has_gradient(leaf)]
    return sum((leaf * like(generator.standard_normal(tuple(leaf.shape)), leaf)).sum() for leaf in found)
