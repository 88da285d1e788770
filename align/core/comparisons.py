"""Results of the workflows as values; `align.core.plain` gives their JSON form, which reports read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.traces import capture_key

if TYPE_CHECKING:
    from align.core.checkpoints import Entry
    from align.core.culprits import Culprit, IsolatedComparison
    from align.core.findings import Finding
    from align.core.measurements import Limit, Measurement
    from align.core.names import NameMap
    from align.core.parameters import Parameter, ParameterSummary, Shape
    from align.core.power import Power
    from align.core.verdicts import Verdict

LayerOutcome = Literal["aligned", "not aligned", "not comparable", "accepted"]
TensorOutcome = Literal["equal", "values differ", "dtypes differ", "shapes differ"]


@dataclass(frozen=True, slots=True)
class MapResult:
    """The name map of two sides, the counts of both and all their parameters with shape, dtype and ties.

    `warnings` say what the map rests on, or what stands against it.
    """

    result_kind = "map"
    name_map: NameMap
    source: ParameterSummary
    target: ParameterSummary
    verdict: Verdict
    source_parameters: tuple[Parameter, ...] = ()
    target_parameters: tuple[Parameter, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MapCheck:
    """A given map judged against two sides: its faults, and the rules of it that matched nothing."""

    result_kind = "check"
    map: str
    reference: str
    candidate: str
    faults: tuple[Finding, ...]
    unused_rules: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """One tensor as written: its source, what was done, and the SHA-256 of its bytes where it was read back.

    `source` is "" for a tensor that the source lacks and the target needs.
    """

    source: str
    target: str
    shape: Shape
    dtype: str
    transform: dict[str, object]
    sha256: str | None
    source_shape: Shape
    source_dtype: str


@dataclass(frozen=True, slots=True)
class DroppedValue:
    """The value of a small tensor that was left out: its bytes (little-endian, C order) as hexadecimal digits."""

    dtype: str
    shape: Shape
    data: str


@dataclass(frozen=True, slots=True)
class ConversionRecord:
    """What a conversion did. `verified` says whether what was written was read back and compared bit for bit.

    `files` are the files written, none in a dry run; `key` is the entry that was taken of a nested file. `names` says
    where the map comes from, `framework` whose names the target has. `content_sha256` covers names, dtypes, shapes and
    values of all tensors, not how a file holds them; it is None without verification. `left_out` names what
    the source holds beside its tensors, and what it is. `source_framework` is whose names the source has, None where
    nothing says so. `dropped_target` are those of `dropped` that only the target has.
    """

    result_kind = "convert"
    source: str
    destination: str
    files: tuple[str, ...]
    source_format: str
    destination_format: str
    key: str
    names: str
    framework: Literal["torch", "mindspore"]
    content_sha256: str | None
    tensors: tuple[ConvertedTensor, ...]
    dropped: dict[str, str]
    dropped_values: dict[str, DroppedValue]
    ties: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]
    verified: bool
    versions: dict[str, str]
    verdict: Verdict
    left_out: dict[str, str] = field(default_factory=dict)
    source_framework: Literal["torch", "mindspore"] | None = None
    dropped_target: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor of a checkpoint as its header tells it.

    `contiguous` says whether its bytes lie in the file as they are in memory: in C order, not compressed.
    """

    name: str
    shape: Shape
    dtype: str
    nbytes: int
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a checkpoint, told by its headers alone; it decides nothing, so there is no verdict.

    `naming` is whose parameter names the file has: None where it does not say. `files` maps each
    file to its size. `entries` are those that a key can choose and `key` is the one that was taken; with several and
    none chosen, `tensors` is empty and `key` None. `overlaps` pairs names whose bytes overlap without being tied.
    `other` names what is no tensor or has no plain form, and what it is; `notes` are what must be told beside that.
    """

    result_kind = "inspect"
    path: str
    format: str
    naming: Literal["torch", "mindspore"] | None
    files: dict[str, int]
    metadata: dict[str, str]
    key: str | None
    entries: tuple[Entry, ...]
    tensors: tuple[TensorFacts, ...]
    ties: tuple[tuple[str, ...], ...]
    overlaps: tuple[tuple[str, str], ...]
    other: dict[str, str]
    crc_unchecked: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One tensor of two checkpoints: what it differs by. Shape and dtype of the reference are those after the map.

    `outcome` names the gravest difference; `identical` says whether all bits are equal, which -0.0 against 0.0 are not,
    though equal. `measurement` is None where the shapes differ; `note` says why no shape could be had.
    """

    reference: str
    candidate: str
    reference_shape: Shape
    candidate_shape: Shape
    reference_dtype: str
    candidate_dtype: str
    outcome: TensorOutcome
    identical: bool
    measurement: Measurement | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """Two checkpoints compared tensor by tensor, in the reference's order.

    `missing` and `extra` map names without a counterpart in the candidate and in the reference to dtype and shape.
    `dropped` were left out by the map, with its reasons. `unchanged` lists what is equal bit for bit, None where that
    was not asked for. `strip` are prefixes that were taken off the names.
    """

    result_kind = "diff"
    reference: str
    candidate: str
    reference_format: str
    candidate_format: str
    tensors: tuple[TensorDifference, ...]
    missing: dict[str, str]
    extra: dict[str, str]
    dropped: dict[str, str]
    warnings: tuple[str, ...]
    verdict: Verdict
    unchanged: tuple[str, ...] | None = None
    strip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """One tensor of one paired call: what it differs by, what it may differ by.

    `factor` is the multiple of the limit at which the layer would pass (<= 1: it passes). `measurement` and `limit`
    are None where no figures can be had, `note` says why. `order` is the place in the reference's run. A
    pair that is not `certain` was made by its place or by what is inside: it may end at another place of the model.
    `isolated` is the candidate's layer given the reference's inputs, None if it was not run so. `amplification` is the
    relative error (L2) of the output over that of the inputs, when both models run on their own; None if one is 0.
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

    @property
    def key(self) -> str:
        """The key of the reference's capture."""
        return capture_key(self.reference, self.call, self.output)


@dataclass(frozen=True, slots=True)
class UnpairedLayer:
    """A call of a module that has no counterpart on the other side, and why."""

    side: Literal["reference", "candidate"]
    module: str
    class_name: str
    call: int
    reason: str


@dataclass(frozen=True, slots=True)
class AcceptedLayers:
    """A deviation that the user accepts: the glob, why, the candidate's layers that deviate, the worst factor."""

    layers: str
    reason: str
    candidates: tuple[str, ...]
    factor: float | None


@dataclass(frozen=True, slots=True)
class ForwardComparison:
    """Both models on the same inputs: paired layers in execution order and the first divergent one.

    `first_divergent` is an index into `layers`, None if all agree. `last_aligned` is the index of the last aligned
    layer before it. `inputs` maps each input's name to its shape, dtype and SHA-256. `culprits` are all that is at
    fault by itself, in the order in which it shows, but for what is `accepted`.
    `power` is what the inputs could have shown, None if that was not measured.
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
