"""A forward comparison as a value; `align.core.json_data` gives its JSON form, which reports read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.traces import capture_key
from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Limit, Measurement
    from align.core.name_map import SideOf
    from align.core.parameters import Shape
    from align.core.verdicts import Finding, LayerOutcome, Verdict
    from align.forward.culprit_result import Culprit, IsolatedComparison
    from align.forward.power_result import Power
    from align.models.call_model import InputBinding
    from align.traces.module_calls import UnpairedLayer

UnseenState = Literal["bypassed", "never called", "not seen"]


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """One tensor of one paired call: what it differs by, what it may differ by.

    `factor` is the multiple of the limit at which the layer would pass (<= 1: it passes). `measurement` and `limit`
    are None where no figures can be had, `note` says why. `order` is the place in the reference's run. A
    pair that is not `certain` was made by its place or by what is inside: it may end at another place of the model.
    `isolated` is the candidate's layer given the reference's inputs, None if it was not run so. `amplification` is the
    relative error (L2) of the output over that of the inputs, when both models run on their own; None if one is 0.
    `batch` of `batches` is the one in which it was called, counted from 1; None where there was one only.
    """

    order: int
    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    call: int
    output: str
    reference_shape: Shape
    candidate_shape: Shape
    reference_dtype: str
    candidate_dtype: str
    outcome: LayerOutcome
    measurement: Measurement | None
    limit: Limit | None
    factor: float | None
    depth: int = 0
    certain: bool = True
    note: str = ""
    isolated: IsolatedComparison | None = None
    amplification: float | None = None
    batch: int | None = None
    batches: int = 1

    @property
    def key(self) -> str:
        """The key of the reference's capture."""
        return capture_key(self.reference, self.call, self.output)


@dataclass(frozen=True, slots=True)
class AcceptedLayers:
    """A deviation that the user accepts: the glob, why, the candidate's layers that deviate, the worst factor."""

    layers: str
    reason: str
    candidates: tuple[str, ...]
    factor: float | None


@dataclass(frozen=True, slots=True)
class ForwardComparison(ShownResult):
    """Both models on the same inputs: paired layers in execution order and the first divergent one.

    `first_divergent` is an index into `layers`, None if all agree. `last_aligned` is the index of the last aligned
    layer before it. `inputs` maps each input's name to its shape, dtype and SHA-256. `culprits` are all that is at
    fault by itself, in the order in which it shows, but for what is `accepted`. `unseen` are modules with parameters of
    which no call was seen. `power` is what the inputs could have shown, None if that was not measured. `bindings`
    say which parameter of either side each input went to, `candidate_inputs` what the candidate alone was given, {} if
    it was given the same. `failure` is what ended the candidate's run: only what ran before was compared.
    """

    result_kind = "forward"
    reference: str
    candidate: str
    layers: tuple[LayerComparison, ...]
    first_divergent: int | None
    last_aligned: int | None
    unpaired: tuple[UnpairedLayer, ...]
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
    culprits: tuple[Culprit, ...] = ()
    accepted: tuple[AcceptedLayers, ...] = ()
    power: Power | None = None
    unseen: tuple[UnseenModule, ...] = ()
    bindings: tuple[InputBinding, ...] = ()
    candidate_inputs: dict[str, dict[str, object]] = field(default_factory=dict)
    failure: PortFailure | None = None


@dataclass(frozen=True, slots=True)
class PortFailure:
    """Where the candidate raised: the innermost layer ("" in the model's own code), its class, `file:line`; and what.

    `after` is the layer that returned last, `kind` what sort of failure it is, `hint` what to do about it.
    """

    layer: str
    class_name: str
    after: str
    line: str
    kind: str
    raised: str
    hint: str


@dataclass(frozen=True, slots=True)
class UnseenModule:
    """A module with parameters of its own, `elements` of them, no call of which was seen.

    It is "bypassed" if the outputs change with its parameters, "never called" if they do not, else "not seen".
    """

    side: SideOf
    module: str
    class_name: str
    elements: int
    state: UnseenState = "not seen"
