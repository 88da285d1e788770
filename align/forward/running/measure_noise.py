"""The reference's own rounding noise, with all errors that came before and without: its runs in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.findings import Finding
from align.errors import UserCodeError
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.traces.rounding_noise import NoiseSink

if TYPE_CHECKING:
    from align.core.measurements import Measurement
    from align.core.protocols import Inputs, Model, ModelRunner
    from align.core.traces import CaptureSink, Trace
    from align.forward.isolation.isolated_calls import IsolatedNoise
    from align.models.open_side import Side


@dataclass(frozen=True, slots=True)
class Noise:
    """Accumulated and isolated noise by the captures' keys, as far as it could be had; findings say why no further."""

    accumulated: dict[str, Measurement] | None = None
    isolated: IsolatedNoise | None = None
    findings: tuple[Finding, ...] = ()


def measure_noise(side: Side, inputs: Inputs, trace: Trace) -> Noise:
    """Run the reference twice in float64: by itself, and each layer on the inputs of the ordinary run (`trace`).

    If it cannot run so, or not to its end, a finding says why: other limits then come from a table by dtype.
    """
    try:
        wide = side.runner.widened(side.model)
    except UserCodeError as error:
        return Noise(findings=_unmeasured(side, error.message))
    if wide is None:
        return Noise(findings=_unmeasured(side, f"{side.reader.name} models cannot run in float64"))
    together, alone = NoiseSink(trace), NoiseIsolation(trace)
    reasons = [_failure(side.runner, wide, inputs, sink) for sink in (together, alone)]
    return Noise(together.noise, alone.noise, _unmeasured(side, max(reasons)))


def _failure(runner: ModelRunner, wide: Model, inputs: Inputs, sink: CaptureSink) -> str:
    """Run a model; return what kept it from its end, "" if nothing did."""
    try:
        runner.run(wide, inputs, sink)
    except UserCodeError as error:
        return error.message
    return ""


def _unmeasured(side: Side, reason: str) -> tuple[Finding, ...]:
    message = f"limits come from a table by dtype where nothing was measured in float64: {reason}"
    return (Finding("noise-unmeasured", "note", side.label, message),) if reason else ()
