"""One backward pass of a MindSpore network (PYNATIVE) from a fixed mix of what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.gradients import GradientRecorder, random_weighted_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.adapter_parts.gradients import FromArray, ToArray


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
