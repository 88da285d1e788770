"""The reference's own rounding noise, with all errors that came before and without: its runs in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.findings import Finding
from align.errors import UserCodeError
from align.steps.isolate import NoiseAlone
from align.steps.noise import NoiseSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Trace
    from align.steps.isolate import IsolatedNoise
    from align.workflows.sides import Side


@dataclass(frozen=True, slots=True)
class Noise:
    """Accumulated and isolated noise by the captures' keys; None where it could not be had, and findings say why."""

    accumulated: dict[str, Measurement] | None = None
    isolated: IsolatedNoise | None = None
    findings: tuple[Finding, ...] = ()


def measure_noise(side: Side, inputs: Mapping[str, Array], trace: Trace) -> Noise:
    """Run the reference twice in float64: by itself, and each layer on the inputs of the ordinary run (`trace`).

    If it cannot run so, a finding says why: limits then come from a table by dtype.
    """
    together, alone = NoiseSink(trace), NoiseAlone(trace)
    try:
        wide = side.runner.widened(side.model)
        if wide is not None:
            side.runner.run(wide, inputs, together)
            side.runner.run(wide, inputs, alone)
            return Noise(together.noise, alone.noise)
        reason = f"{side.reader.name} models cannot run in float64"
    except UserCodeError as error:
        reason = error.message
    message = f"limits come from a table by dtype: {reason}"
    return Noise(findings=(Finding("noise-unmeasured", "note", side.label, message),))
