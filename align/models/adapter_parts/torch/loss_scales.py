"""torch's loss scale: that of GradScaler, on any device."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.batch_and_loss import loss_of_step
from align.models.adapter_parts.torch.arrays import dtype_name, to_array
from align.models.loop_watcher import ScaleFlow

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from align.core.protocols import Model


class TorchLossScales:
    """See LossScaleReader."""

    def scale_flow(self, scaler: Any) -> ScaleFlow | None:
        """None given is a scale of 1, which drops nothing; so does a scaler that is not enabled."""
        from torch.amp import GradScaler

        if scaler is None:
            return ScaleFlow("unscaled", dynamic=False, drops=False)
        if not isinstance(scaler, GradScaler):
            return None
        enabled = bool(scaler.is_enabled())
        return ScaleFlow("GradScaler" if enabled else "GradScaler(enabled=False)", dynamic=enabled, drops=enabled)

    def loss_scale(self, scaler: Any) -> float:
        """It waits for the device."""
        return 1.0 if scaler is None else float(scaler.get_scale())

    def scale_by_which(self, _optimizer: Any) -> float:
        """GradScaler divides, not the optimizer."""
        return 1.0

    def read_step(self, output: Any) -> tuple[float | None, str, bool | None]:
        """A loss, alone or first of several."""
        import torch

        loss = output[0] if isinstance(output, (tuple, list)) and output else output
        if not torch.is_tensor(loss):
            return loss_of_step(output, lambda value: value), "", None
        return float(to_array(loss.detach().float()).sum()), dtype_name(loss), None

    def kept_gradients(self, model: Model) -> list[tuple[str, Any]]:
        """Until the user sets them to zero."""
        return [(name, one.grad) for name, one in model.named_parameters() if one.grad is not None]

    def kernels_faked(self, _scaler: Any) -> AbstractContextManager[None]:
        """None is missing."""
        return nullcontext()
