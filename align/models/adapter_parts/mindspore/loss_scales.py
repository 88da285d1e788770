"""MindSpore's loss scales: managers, the cell that trains with one, and the scalers of functional training.

The processor lacks the kernels by which a chip says that it overflowed. `TrainOneStepWithLossScaleCell` runs there as
on a chip in INF/NAN mode, which looks at gradients with an operator that the processor has.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.mindspore.arrays import launched, to_array
from align.models.loop_watcher import ScaleFlow

if TYPE_CHECKING:
    from collections.abc import Iterator

# How the cell asks for an overflow: as on a chip in INF/NAN mode, by IsFinite.
AS_ON_A_CHIP = {"ascend_910b_target": True, "enable_allfinite": False}


class MindSporeLossScales:
    """See LossScaleReader."""

    def scale_flow(self, scaler: Any) -> ScaleFlow | None:
        """By its class; None given is a scale of 1, which drops nothing."""
        from mindspore import amp, nn

        if scaler is None:
            return ScaleFlow("unscaled", dynamic=False, drops=False)
        name = type(scaler).__name__
        if isinstance(scaler, nn.TrainOneStepWithLossScaleCell):
            dynamic = not isinstance(scaler.loss_scaling_manager, (nn.FixedLossScaleUpdateCell, type(None)))
            return ScaleFlow(name, dynamic, drops=True, faked=", ".join(AS_ON_A_CHIP) if _on_processor() else "")
        if isinstance(scaler, amp.FixedLossScaleManager):
            return ScaleFlow(name, dynamic=False, drops=bool(scaler.get_drop_overflow_update()))
        dynamic = isinstance(scaler, (amp.DynamicLossScaleManager, amp.DynamicLossScaler))
        return ScaleFlow(name, dynamic, drops=True) if dynamic or isinstance(scaler, amp.LossScaler) else None

    def loss_scale(self, scaler: Any) -> float:
        """Of whatever the scaler keeps it in."""
        if scaler is None:
            return 1.0
        for name in ("scale_sense", "scale_value"):
            if hasattr(scaler, name):
                value = getattr(scaler, name)
                return float(to_array(value).reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)
        return float(scaler.get_loss_scale())

    def scale_by_which(self, optimizer: Any) -> float:
        """Its own setting `loss_scale`."""
        value = getattr(optimizer, "loss_scale", 1.0)
        return float(to_array(value).reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)

    def read_step(self, output: Any) -> tuple[float | None, str, bool | None]:
        """A loss, or (loss, overflow, scale) as TrainOneStepWithLossScaleCell returns it."""
        tensor_type = launched().Tensor
        parts = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        if not parts or not isinstance(parts[0], tensor_type):
            return (float(parts[0]) if parts and isinstance(parts[0], (int, float)) else None), "", None
        flag = parts[1] if len(parts) == 3 else None
        known = isinstance(flag, tensor_type) and flag.size == 1
        loss = to_array(parts[0].astype(launched().float32)).sum()
        return float(loss), str(parts[0].dtype).lower(), bool(to_array(flag).any()) if known else None

    def kept_gradients(self, _model: Any) -> list[tuple[str, Any]]:
        """None: they are what `value_and_grad` returns."""
        return []

    @contextmanager
    def kernels_faked(self, scaler: Any) -> Iterator[None]:
        """On the processor only; see above."""
        from mindspore import nn

        if not isinstance(scaler, nn.TrainOneStepWithLossScaleCell) or not _on_processor():
            yield
            return
        before = {name: getattr(scaler, name) for name in AS_ON_A_CHIP}
        for name, value in AS_ON_A_CHIP.items():
            setattr(scaler, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(scaler, name, value)


def _on_processor() -> bool:
    return bool(launched().get_context("device_target") == "CPU")
