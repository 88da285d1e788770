"""Gradients of a MindSpore network (PYNATIVE): one pass back from a fixed mix of what it returns, and all on their way.

On their way back they are watched, and others take their place; see GradientForms. A cell with a `bprop` of its own
sees what arrives and says what goes on.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.mindspore.arrays import launched, to_array, to_tensor
from align.models.adapter_parts.step_calls import GradientRecorder, random_weighted_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.adapter_parts.step_calls import ToArray
    from align.models.record_calls import FromArray


class MindSporeGradients:
    """The forms of one step; `anchor` is a trained parameter, by which a place on the way back is always reached."""

    def __init__(self, anchor: Any) -> None:
        self._anchor = anchor

    def to_array(self, value: Any) -> Array | None:
        """Copy out a tensor."""
        return to_array(value) if isinstance(value, launched().Tensor) else None

    def has_gradient(self, value: Any) -> bool:
        """Tell whether a tensor is floating; MindSpore does not tell more."""
        return bool(value.is_floating_point())

    def awaits(self, tensor: Any) -> bool:  # noqa: ARG002
        """Tell nothing: tensors do not know."""
        return False

    def watched(self, tensor: Any, arrived: Callable[[Array], None]) -> Any:
        """Pass the tensor through a cell."""
        return _watched()(arrived)(tensor)

    def copy_back(self, tensor: Any, given: Any, returned: Any) -> None:
        """Nothing: layers write into no tensor that they are given."""

    def cut(self, tensor: Any, value: Array, arrived: Callable[[Array], None]) -> Any:
        """Return another tensor from a cell."""
        return _cut()(to_tensor(value).astype(tensor.dtype), arrived)(tensor, self._anchor)

    def tied(self, tensor: Any, given: Callable[[], Array | None]) -> Any:
        """Return a scalar 0 from a cell."""
        return _tied()(given)(tensor)

    def joined(self, tensor: Any, ties: Sequence[Any]) -> Any:
        """Add zeros in the dtype of the tensor."""
        for tie in ties:
            tensor = tensor + tie.astype(tensor.dtype)
        return tensor


@cache
def _watched() -> Any:
    """The class of the cell, which can be had only where MindSpore is imported."""
    from mindspore import nn

    class Watched(nn.Cell):  # type: ignore[misc]
        def __init__(self, arrived: Any) -> None:
            super().__init__()
            self.arrived = arrived

        def construct(self, tensor: Any) -> Any:
            return tensor * 1

        def bprop(self, _tensor: Any, _out: Any, gradient: Any) -> Any:
            self.arrived(to_array(gradient))
            return (gradient,)

    return Watched


@cache
def _cut() -> Any:
    """The class of the cell."""
    from mindspore import nn, ops

    class Cut(nn.Cell):  # type: ignore[misc]
        def __init__(self, value: Any, arrived: Any) -> None:
            super().__init__()
            self.value, self.arrived = value, arrived

        def construct(self, _tensor: Any, _anchor: Any) -> Any:
            return self.value * 1

        def bprop(self, tensor: Any, anchor: Any, _out: Any, gradient: Any) -> Any:
            self.arrived(to_array(gradient))
            return ops.zeros_like(tensor), ops.zeros_like(anchor)

    return Cut


@cache
def _tied() -> Any:
    """The class of the cell."""
    from mindspore import nn, ops

    class Tied(nn.Cell):  # type: ignore[misc]
        def __init__(self, given: Any) -> None:
            super().__init__()
            self.given = given

        def construct(self, tensor: Any) -> Any:
            return launched().Tensor(0.0, tensor.dtype)

        def bprop(self, tensor: Any, _out: Any, _gradient: Any) -> Any:
            value = self.given()
            if value is None:
                return (ops.zeros_like(tensor),)
            return (to_tensor(value).astype(tensor.dtype).reshape(tensor.shape),)

    return Tied


def differentiate(
    model: Model,
    call: Callable[[Mapping[str, Any]], Any],
    inputs: Mapping[str, Any],
    sink: CaptureSink,
    forms: tuple[ToArray, FromArray],
) -> None:
    """Run `call` on the inputs, then back to the parameters and to the floating inputs."""
    import mindspore

    def has_gradient(value: Any) -> bool:
        return isinstance(value, mindspore.Tensor) and value.is_floating_point()

    to_array, from_array = forms
    floating = [name for name, value in inputs.items() if value.is_floating_point()]

    def mix(*given: Any) -> Any:
        return random_weighted_sum(
            call({**inputs, **dict(zip(floating, given, strict=True))}), has_gradient, from_array
        )

    recorder = GradientRecorder(sink, to_array, has_gradient)
    places = tuple(range(len(floating))) or None
    parameters = model.trainable_params() or None
    with recorder.watching(model.cells_and_names()):
        if places or parameters:
            mindspore.value_and_grad(mix, places, parameters)(*(inputs[name] for name in floating))
