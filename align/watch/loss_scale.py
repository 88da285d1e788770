"""A loss scale watched in a loop of the user's own: what it skipped, and whether that is its own doing.

An iteration in which no optimizer was called was dropped. Layers are looked into in the first iteration, in one that
follows an overflow, and in each where nothing drops an update, for then it would be too late afterwards.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from align.core.verdicts import Finding, ShownResult
from align.errors import CannotRunError, UsageError
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, LossScaleReader
from align.models.open_side import build_side
from align.watch.thresholds import PERSISTENT_OVERFLOWS, SMALLEST_USEFUL_SCALE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from align.core.protocols import Model
    from align.models.loop_watcher import LoopCall, LoopForms, ScaleFlow
    from align.models.open_side import Side


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


# From what a loss scale did to what it means: coming down, overflowing on and on, or a loss that is no number.


def judge_loss_scale(
    steps: Sequence[ScaleStep], flow: ScaleFlow, place: OverflowPlace | None
) -> tuple[ScaleTrouble, str]:
    """The trouble, and what is said of it with what to do."""
    trouble = _trouble(steps)
    overflowed = [one for one in steps if one.overflow]
    first = overflowed[0] if overflowed else next((one for one in steps if _lost(one)), None)
    facts = {
        "flow": flow.name,
        "count": len(overflowed),
        "total": len(steps),
        "run": _last_run(steps),
        "first": first.iteration if first else 0,
        "scale": steps[-1].scale if steps else 1.0,
        "first_scale": first.scale if first else 1.0,
        "where": _where(place),
    }
    key = trouble
    if trouble == "persistent":
        key = "persistent_at_floor" if steps[-1].scale <= SMALLEST_USEFUL_SCALE else trouble  # type: ignore[assignment]
        key = key if flow.dynamic or steps[-1].scale <= SMALLEST_USEFUL_SCALE else "persistent_fixed"  # type: ignore[assignment]
    return trouble, sentence(f"scale_trouble.{key}", **facts)


def _trouble(steps: Sequence[ScaleStep]) -> ScaleTrouble:
    overflowed = [one for one in steps if one.overflow]
    if any(_lost(one) for one in steps) and (not overflowed or _lost(overflowed[0])):
        return "diverged"
    if not overflowed:
        return "none"
    if any(one.updated for one in overflowed):
        return "applied"
    if _last_run(steps) >= PERSISTENT_OVERFLOWS:
        return "diverged" if _lost(steps[-1]) else "persistent"
    leading = next((number for number, one in enumerate(steps) if not one.overflow), len(steps))
    return "settling" if leading == len(overflowed) else "occasional"


def _lost(one: ScaleStep) -> bool:
    return one.loss is not None and not isfinite(one.loss)


def _last_run(steps: Sequence[ScaleStep]) -> int:
    """How many iterations overflowed one after another at the end."""
    return next((number for number, one in enumerate(reversed(steps)) if not one.overflow), len(steps))


def _where(place: OverflowPlace | None) -> str:
    if place is None:
        return ""
    if place.layer is None:
        return sentence("scale_trouble.in_parameters", names=[*place.parameters])
    layer = place.layer or sentence("model_part.model_itself")
    facts = {"layer": layer, "class_name": place.class_name, "before": place.before}
    return sentence(f"scale_trouble.in_{place.direction}", **facts)


# What a loss scale did in a training, and whether what overflowed is its fault.

ScaleTrouble = Literal["none", "settling", "occasional", "persistent", "applied", "diverged"]


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """One iteration: the scale that it had, its loss (None if not told), whether it overflowed and was an update."""

    iteration: int
    scale: float
    loss: float | None
    overflow: bool
    updated: bool


@dataclass(frozen=True, slots=True)
class OverflowPlace:
    """Where an iteration overflowed first: what `layer` returned, or the gradient that came back to it.

    `before` is the layer whose gradient came last and was finite, "" forward. `layer` is None where only gradients of
    parameters overflowed: `parameters` are those that are known.
    """

    iteration: int
    layer: str | None
    class_name: str
    direction: Literal["forward", "backward"]
    before: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LossScaleResult(ShownResult):
    """What was seen of a loss scale; it decides nothing, so there is no verdict.

    `flow` is what scales the loss, `faked` what stood in for kernels that the device lacks. `trouble` is:
    `none` overflowed; `settling`, while a scale came down to what gradients bear; `occasional`, as a growing scale
    does; `persistent`, updates dropped to the end; `applied`, no number went into the weights; `diverged`, the loss
    itself is no number, which no scale helps. `says` tells it in words, with what to do. `place` is None where no
    iteration that overflowed was looked into.
    """

    result_kind = "scale"
    model: str
    framework: str
    flow: str
    dynamic: bool
    drops: bool
    faked: str
    steps: tuple[ScaleStep, ...]
    overflows: int
    skipped: int
    trouble: ScaleTrouble
    says: str
    place: OverflowPlace | None
    findings: tuple[Finding, ...]


# The first tensor of an iteration that is no number, and the loss that is computed in half precision.

HALF = frozenset({"float16", "bfloat16"})


class OverflowSink:
    """A LoopSink that looks at what modules return, and at the gradients that come back to it."""

    def __init__(self, forms: LoopForms, iteration: int) -> None:
        self._forms, self._iteration = forms, iteration
        self._forward: OverflowPlace | None = None
        self._backward: OverflowPlace | None = None
        self._last = ""
        self.half_losses: dict[str, str] = {}

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Look at what a call returned."""
        for _, leaf in leaves(output):
            if not self._forms.is_floating(leaf):
                continue
            if tuple(leaf.shape) in ((), (1,)) and (dtype := self._forms.dtype_of(leaf)) in HALF:
                self.half_losses.setdefault(call.path, dtype)
            if self._forward is None and not self._finite(leaf):
                self._forward = OverflowPlace(self._iteration, call.path, call.class_name, "forward")

    def arrived(self, call: LoopCall, _name: str, gradient: Any) -> None:
        """Look at a gradient."""
        if self._backward is not None:
            return
        if self._finite(gradient):
            self._last = call.path
        else:
            self._backward = OverflowPlace(self._iteration, call.path, call.class_name, "backward", self._last)

    def place(self) -> OverflowPlace:
        """Where the iteration, which overflowed, did so first."""
        return self._forward or self._backward or OverflowPlace(self._iteration, None, "", "backward", self._last)

    def _finite(self, tensor: Any) -> bool:
        return isfinite(self._forms.norms([self._forms.norm(tensor)])[0])
