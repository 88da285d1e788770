"""What `align repro` wrote: one layer of both sides, to be run alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Measurement
    from align.core.parameters import Shape

BuiltBy = Literal["constructor", "factory"]


@dataclass(frozen=True, slots=True)
class ReproSide:
    """One side's layer: what the script is called, and whether it builds the layer or takes it out of the model."""

    model: str
    layer: str
    class_name: str
    call: int
    script: str
    built_by: BuiltBy


@dataclass(frozen=True, slots=True)
class ReproOutput:
    """One tensor that the candidate's layer returned for the reference's inputs; no figures where the shapes differ."""

    name: str
    reference_shape: Shape
    candidate_shape: Shape
    measurement: Measurement | None


@dataclass(frozen=True, slots=True)
class LayerRepro(ShownResult):
    """A folder that shows one layer of both sides alone; it decides nothing, so there is no verdict.

    `own_inputs` are inputs of the candidate's layer that the reference's does not have, or has in another shape: the
    candidate's own values are kept for them.
    """

    result_kind = "repro"
    folder: str
    reference: ReproSide
    candidate: ReproSide
    outputs: tuple[ReproOutput, ...]
    own_inputs: tuple[str, ...]
    files: tuple[str, ...]
