"""What halving the layers of a training found: those whose precision, device or implementation moves its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding, Verdict
    from align.forward.bisect_result import SensitiveLayer


@dataclass(frozen=True, slots=True)
class TrainingBisection(ShownResult):
    """The layers that move a training's loss after `steps` updates where they compute otherwise.

    Otherwise is in another `precision`, on another `device` or by another `implementation`; two of them are "". `loss`
    is that of the training as it is, `all_loss` with all `tried` layers otherwise. `noise` is the largest share by
    which the loss moved in `equal_runs`: one from the same values, the others from values rounded at random. `limit`
    is the share that is allowed, `all_factor` and `rest_factor` multiples of it: with all layers, and with all but
    those in the list. `not_run` are layers that cannot run so, and why. `complete` is False if there may be more sets.
    """

    result_kind = "training"
    model: str
    steps: int
    precision: str
    device: str
    implementation: str
    tried: int
    loss: float
    all_loss: float
    noise: float
    equal_runs: int
    limit: float
    all_moved: float
    all_factor: float
    layers: tuple[SensitiveLayer, ...]
    rest_moved: float
    rest_factor: float
    complete: bool
    not_run: dict[str, str]
    runs: int
    findings: tuple[Finding, ...]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
