"""What a chip is expected to do to a model: each layer's error, what overflows, and the rules that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.traces import capture_key
from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Measurement
    from align.core.parameters import Shape
    from align.core.verdicts import Finding


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule of `mappings/ascend/` that met operators of the model, `calls` times in all.

    `computes` is the format that inputs are rounded to, `result` that of what is returned. `switch` is what changes it
    ("" for nothing does), `write` the line that keeps float32. `operator_class`, `cann`, `source` and `certainty` say
    what is known, of which release of CANN, from where, and how surely.
    """

    entry: str
    operators: tuple[str, ...]
    operator_class: str
    computes: str
    result: str
    calls: int
    switch: str
    write: str
    cann: str
    source: str
    certainty: str


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """One tensor that one call of a layer returned: what the chip is expected to make of it, against plain float32.

    `accumulated` is with all layers before it on the chip too, `alone` with right inputs; None where it could not be
    had. `operators` are those inside of the layer itself that compute in a coarser format, none if it only carries the
    errors of others.
    """

    order: int
    module: str
    class_name: str
    call: int
    output: str
    dtype: str
    shape: Shape
    depth: int
    operators: tuple[str, ...]
    accumulated: Measurement | None
    alone: Measurement | None

    @property
    def key(self) -> str:
        """The key of the capture."""
        return capture_key(self.module, self.call, self.output)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers inside of a module that are beyond float16: so many `elements`, the largest of them, in an operator.

    `scale` is the power of two that brings them in; `write` the line that keeps the operator in float32, "" where the
    chip has none.
    """

    module: str
    operator: str
    entry: str
    largest: float
    elements: int
    scale: float
    write: str


@dataclass(frozen=True, slots=True)
class GradientLayer:
    """Gradients of a module that become float16: how large they are, how many are not zero, how many are flushed.

    `smallest` is a power of two; `flushed` is the share that becomes zero at the highest loss scale.
    """

    module: str
    operator: str
    entry: str
    largest: float
    smallest: float
    elements: int
    flushed: float


@dataclass(frozen=True, slots=True)
class LossScales:
    """The powers of two that fit as a loss scale, from `lowest` to `highest`: no gradient overflows.

    At the highest a share of `flushed` becomes zero, without a scale `flushed_unscaled`. Where that is too many at any
    scale, `keep` are the modules to keep in float32. `loss` says what was differentiated.
    """

    loss: str
    highest: float
    lowest: float
    flushed: float
    flushed_unscaled: float
    overflows_unscaled: bool
    keep: tuple[str, ...]
    layers: tuple[GradientLayer, ...]


@dataclass(frozen=True, slots=True)
class EmulationResult(ShownResult):
    """A model as it is expected to compute on a chip: nothing of it is verified on hardware.

    `framework` drives the chip, `switches` are in force. `at_risk` are the keys of the layers that compute in a coarser
    format, the largest expected error first. `headroom` is the factor by which the largest number that becomes float16
    is below the end of that range; None where nothing becomes float16. `scales` are the loss scales that fit; None
    where no loss was given, or no gradient becomes float16.
    """

    result_kind = "emulate"
    model: str
    target: str
    product: str
    framework: str
    switches: dict[str, str]
    rules: tuple[AppliedRule, ...]
    layers: tuple[ExpectedError, ...]
    at_risk: tuple[str, ...]
    overflows: tuple[Overflow, ...]
    headroom: float | None
    scales: LossScales | None
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]

    @property
    def exit_code(self) -> int:
        """1 if something is expected to overflow, or no loss scale fits."""
        return int(bool(self.overflows) or any(one.code == "no-loss-scale" for one in self.findings))
