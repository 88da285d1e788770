"""A loss scale watched in a loop of the user's own: what it skipped, and whether that is its own doing.

An iteration in which no optimizer was called was dropped. Layers are looked into in the first iteration, in one that
follows an overflow, and in each where nothing drops an update, for then it would be too late afterwards.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Finding
from align.errors import CannotRunError, UsageError
from align.models.loop_hooks import LoopHooks
from align.models.loop_watcher import LossScaleReader
from align.models.open_side import build_side
from align.watch.judge_loss_scale import judge_loss_scale
from align.watch.loss_scale_result import LossScaleResult, ScaleStep
from align.watch.overflow_sink import HALF, OverflowSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from align.core.protocols import Model
    from align.models.loop_watcher import ScaleFlow
    from align.models.open_side import Side
    from align.watch.loss_scale_result import OverflowPlace


def watch_loss_scale(model: Model, scaler: Any = None) -> LossScaleWatch:
    """Watch the loss scale of a training loop: what overflowed, what was skipped, and whether the scale is to blame.

    Call `step(output)` at the end of each iteration with what it returned: the loss, or what
    `TrainOneStepWithLossScaleCell` returns; `callback()` does so in `Model.train` and in Hugging Face's Trainer.
    `scaler` is torch's GradScaler, a loss scale manager, `amp.DynamicLossScaler` or `StaticLossScaler`, or the cell
    that trains; None where the loss is not scaled. The cell runs on the processor too while it is watched: `faked`
    says how. `result()` tells what was seen so far. Raises UsageError for a scaler that is none of the framework's.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> watch_loss_scale(ArrayModel(()))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: no loop can be watched of a arrays model
    """
    side = build_side(model)
    reader = side.reader
    if not isinstance(reader, LossScaleReader):
        raise CannotRunError.of("loop_dump_error.no_loops", framework=reader.name)
    flow = reader.scale_flow(scaler)
    if flow is None:
        raise UsageError.of("loop_dump_error.no_scaler", kind=type(scaler).__name__, framework=reader.name)
    return LossScaleWatch(side, reader, scaler, flow)


class LossScaleWatch:
    """A loop whose loss scale is watched, in a `with` block or until `close()`."""

    def __init__(self, side: Side, reader: LossScaleReader, scaler: Any, flow: ScaleFlow) -> None:
        self._side, self._reader, self._scaler, self.flow = side, reader, scaler, flow
        self._held, self._current = ExitStack(), ExitStack()
        self._steps: list[ScaleStep] = []
        self._findings: dict[str, Finding] = {}
        self._place: OverflowPlace | None = None
        self._sink: OverflowSink | None = None
        self._finite: list[bool] = []
        self._held.enter_context(reader.kernels_faked(scaler))
        self._held.enter_context(reader.optimizer_calls(self._update, lambda _: None))
        self._begin(looks=True)

    def step(self, output: Any = None) -> None:
        """End an iteration, with the loss or what the step returned."""
        self._current.close()
        loss, dtype, flag = self._reader.read_step(output)
        if dtype in HALF:
            self._note_half("", dtype)
        updated = bool(self._finite)
        overflow = (not updated or bool(flag)) if self.flow.drops else not all(self._finite)
        self._steps.append(ScaleStep(len(self._steps), self._scale, loss, overflow, updated))
        lost = loss is not None and not isfinite(loss)
        self._look_back(overflow=overflow or lost)
        self._begin(looks=overflow or lost or not self.flow.drops)

    def callback(self) -> Any:
        """Return a callback of Hugging Face's Trainer, or of `Model.train`, that calls `step` and `close`."""
        return self._reader.step_callback(self.step, self.close)

    def result(self) -> LossScaleResult:
        """What was seen so far."""
        trouble, says = judge_loss_scale(self._steps, self.flow, self._place)
        return LossScaleResult(
            model=self._side.label,
            framework=self._reader.name,
            flow=self.flow.name,
            dynamic=self.flow.dynamic,
            drops=self.flow.drops,
            faked=self.flow.faked,
            steps=tuple(self._steps),
            overflows=sum(one.overflow for one in self._steps),
            skipped=sum(not one.updated for one in self._steps),
            trouble=trouble,
            says=says,
            place=self._place if trouble != "none" else None,
            findings=tuple(self._findings.values()),
        )

    def close(self) -> None:
        """Take all hooks off."""
        self._current.close()
        self._held.close()

    def _begin(self, *, looks: bool) -> None:
        self._scale, self._finite, self._sink = self._reader.loss_scale(self._scaler), [], None
        self._current = ExitStack()
        if looks:
            forms, model = self._reader.loop_forms, self._side.model
            self._sink = OverflowSink(forms, len(self._steps))
            hooks = LoopHooks(self._sink, forms)
            self._current.enter_context(hooks.on_modules(self._reader.loop_modules(model)))

    def _update(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """An optimizer is called: look at what it gets."""
        forms = self._reader.loop_forms
        norms = [forms.norm(one) for one in gradients if one is not None and forms.is_floating(one)]
        self._finite.append(all(map(isfinite, forms.norms(norms))))
        own = self._reader.scale_by_which(optimizer)
        if not self.flow.drops and self._scaler is not None and own != self._scale:
            message = sentence("scale_finding.other_scale", flow=self.flow.name, scale=self._scale, own=own)
            self._findings["other"] = Finding("optimizer-loss-scale", "warning", self._side.label, message)

    def _look_back(self, *, overflow: bool) -> None:
        if self._sink is None:
            return
        for path, dtype in self._sink.half_losses.items():
            self._note_half(path, dtype)
        if overflow and (self.flow.drops or self._place is None):
            place = self._sink.place()
            self._place = replace(place, parameters=self._lost_parameters()) if place.layer is None else place

    def _lost_parameters(self) -> tuple[str, ...]:
        forms, kept = self._reader.loop_forms, self._reader.kept_gradients(self._side.model)
        norms = forms.norms([forms.norm(one) for _, one in kept])
        return tuple(name for (name, _), norm in zip(kept, norms, strict=True) if not isfinite(norm))

    def _note_half(self, path: str, dtype: str) -> None:
        layer = path or sentence("scale_finding.outside")
        torch = self._reader.name == "torch"
        key = "scale_finding.half_loss_torch" if torch else "scale_finding.half_loss_mindspore"
        message = sentence(key, layer=layer, dtype=dtype)
        self._findings.setdefault("half", Finding("loss-in-half", "warning", self._side.label, message))

    def __enter__(self) -> LossScaleWatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
