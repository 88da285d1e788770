"""Could a comparison have seen a fault at all? What was measured of that on the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from align.core.verdicts import ShownResult

OutputState = Literal["", "constant", "saturated"]
ParameterState = Literal["seen", "partly blind", "weakly seen", "blind", "unknown"]


@dataclass(frozen=True, slots=True)
class OutputPower:
    """One compared tensor of the reference.

    `factor` is the multiple of its limit by which it moves if an input is replaced by an unrelated one: up to 1 it
    does not move (None: no input could be replaced, or the layer was not called then). A `constant` output has all
    elements equal within its limit; in a `saturated` one nearly all lie at its lower or upper end.
    """

    module: str
    call: int
    output: str
    class_name: str
    factor: float | None
    state: OutputState = ""


@dataclass(frozen=True, slots=True)
class ParameterPower:
    """One parameter of the reference, judged by all compared tensors.

    `shows_at` is the relative change, of all its elements at random, from which some compared tensor is above its
    limit at the latest (None: not known). `blind` of its `elements` change nothing even if changed by their own size.
    A parameter is "weakly seen" if a change of 1 % need not show.
    """

    name: str
    elements: int
    blind: int
    shows_at: float | None
    state: ParameterState


@dataclass(frozen=True, slots=True)
class Power(ShownResult):
    """What the given inputs can show of the reference.

    `inputs` maps the inputs that were replaced, together where joined by commas, to the multiple of its limit by which
    an output of the model moved. `unmeasured` maps what could not be had (an input's name, "parameters") to the reason.
    """

    result_kind = "power"
    outputs: tuple[OutputPower, ...]
    parameters: tuple[ParameterPower, ...] = ()
    inputs: dict[str, float] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
