"""A forward comparison as a value: rows, what stands at fault, and whether a fault could have been seen at all.

`align.core.verdicts` gives its JSON form, which reports read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from align.core.traces import Limit, capture_key
from align.core.verdicts import ShownResult
from align.errors import UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from align.core.name_map import SideOf
    from align.core.parameters import Shape
    from align.core.protocols import Setting
    from align.core.traces import Measurement, TensorPart
    from align.core.verdicts import Finding, LayerOutcome, Verdict
    from align.models.call_model import InputBinding
    from align.models.function_source import CodeChange
    from align.traces.module_calls import UnpairedLayer


UnseenState = Literal["bypassed", "never called", "not seen"]
IsolatedOutcome = Literal["aligned", "not aligned", "not comparable"]
Part = Literal["layer", "inputs", "code"]
FunctionDifference = Literal[
    "result",
    "result or before",
    "scaled input",
    "other table",
    "other input",
    "missing step",
    "missing behind",
    "extra step",
    "dropped result",
]
FunctionOutcome = Literal["same", "scaled", "other result", "other input", "no counterpart", "constant"]
Sureness = Literal["confirmed", "suspected", "unknown"]
OutputState = Literal["", "constant", "saturated", "whole"]
Deviates = Literal["none", "reference", "candidate", "witness", "all", "unclear"]
ParameterState = Literal["seen", "partly blind", "weakly seen", "blind", "unknown", "neutral"]
FurtherKind = Literal["neutral values", "other inputs", "other lengths"]
FurtherOutcome = Literal["aligned", "not aligned", "could not compare"]


# What of a tensor is not judged with the rest: elements that a trace did not keep, NaN and Inf that are alike, a part
# that is judged by itself, what stands at padding.
LeftOut = Literal["elements", "non-finite", "part", "padding"]


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """One tensor of one paired call: what it differs by, what it may differ by.

    `factor` is the multiple of the limit at which the layer would pass (<= 1: it passes). `measurement` and `limit`
    are None where no figures can be had, `note` says why. `order` is the place in the reference's run. A
    pair that is not `certain` was made by its place or by what is inside: it may end at another place of the model.
    `isolated` is the candidate's layer given the reference's inputs, None if it was not run so. `amplification` is the
    relative error (L2) of the output over that of the inputs, when both models run on their own; None if one is 0.
    `batch` of `batches` is the one in which it was called, counted from 1; None where there was one only. `part` is
    what the tensor is to the call: in comparisons of dumps also what it was given, its parameters, and gradients.
    `outside` counts the elements that are beyond the limit, NaN on one side only among them, and `samples` are the
    places along the first axis that have such: both where the row is not aligned and judged as a whole, else None, ().
    `left_out` says what keeps the row from being judged as a whole; the note words it.
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
    part: TensorPart = "output"
    outside: int | None = None
    samples: tuple[int, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

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
    it was given the same. `failure` is what ended the candidate's run: only what ran before was compared. `functions`
    are the functional calls of the candidate, where they were asked for. `witness` is what a third side says, None
    where there was none. `prediction` is the chip whose expected errors are the limits, None where the reference's own
    noise is. `further` are comparisons in other states, where the given one cannot tell: if one is not aligned, all
    else is of that one.
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
    functions: tuple[FunctionComparison, ...] = ()
    witness: WitnessComparison | None = None
    prediction: Prediction | None = None
    further: tuple[FurtherRun, ...] = ()


@dataclass(frozen=True, slots=True)
class FurtherRun:
    """One more comparison, in a state that tells what the given one hides, one of the `subjects` each, in words.

    "neutral values" of parameters are moved alike on both sides, "other inputs" are unlike where the given ones are
    alike, "other lengths" have another number of tokens. `reason` says what differs, or why it could not be compared.
    """

    kind: FurtherKind
    subjects: tuple[str, ...]
    outcome: FurtherOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WitnessedLayer:
    """One tensor that all three sides have, by the paths of its layer in each.

    The factors are differences as multiples of the limit between reference and candidate: of reference and candidate,
    of reference and witness, and of candidate and witness. `deviates` is the side that the other two leave alone,
    "none" if all agree, "all" if no two do, "unclear" if one pair alone is off.
    """

    reference: str
    candidate: str
    witness: str
    call: int
    output: str
    deviates: Deviates
    candidate_factor: float
    witness_factor: float
    between_factor: float


@dataclass(frozen=True, slots=True)
class WitnessComparison:
    """Three sides on the same inputs: `first` is the place in `layers` of the first at which one surely deviates.

    `without_witness` counts judged layers that the witness has not, `conclusion` says who deviates first, and where.
    """

    witness: str
    layers: tuple[WitnessedLayer, ...]
    first: int | None
    without_witness: int
    conclusion: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """The chip whose expected errors are the limits: `target` as `ascend:910b`, its series, what drives it, switches.

    Nothing of it is verified on hardware.
    """

    target: str
    product: str
    framework: str
    switches: dict[str, str]


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


@dataclass(frozen=True, slots=True)
class IsolatedComparison:
    """One tensor of the port's layer that was given the reference's inputs, against the reference's output.

    `measurement`, `limit` and `factor` are as in LayerComparison. `inputs_factor` is that of what the port itself
    made of the right outputs of all layers before, the worst of its inputs: above 1 the code in front of the layer is
    at fault; None where no input could be paired.
    """

    outcome: IsolatedOutcome
    measurement: Measurement | None = None
    limit: Limit | None = None
    factor: float | None = None
    inputs_factor: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FunctionFault:
    """The functional call inside of wrong code that first makes something wrong.

    `function` is the name that the framework gives it, `lines` the files and numbers of the lines that call it. It is
    `confirmed` if all was right once it returned what a function of the reference does. Where the `difference` is a
    missing step, `reference_function` is the function that is missing, else the one in its place; "" if neither is
    known. `factor` is what its input is multiplied by.
    """

    function: str
    lines: tuple[str, ...]
    reference_function: str = ""
    reference_line: str = ""
    difference: FunctionDifference | Literal[""] = ""
    factor: float = 1.0
    sureness: Sureness = "suspected"


@dataclass(frozen=True, slots=True)
class FunctionComparison:
    """One functional call of the candidate, all layers around it returning what the reference's do.

    `candidate` is the module whose code calls it at `line`, `call` counts the calls of that function there from 0. Its
    result is the "same" as that of a call of the reference, in any order of axes, or that times `factor` ("scaled"); it
    is an "other result" than a call of that function on the same tensor has; it was given an "other input", which the
    reference has nowhere; no counterpart is known; or it is a "constant", which shows nothing. `relative_l2` is the
    norm of the differences by that of the reference, None without a counterpart of its layout.
    """

    candidate: str
    function: str
    line: str
    call: int
    outcome: FunctionOutcome
    factor: float = 1.0
    reference: str = ""
    reference_function: str = ""
    reference_line: str = ""
    relative_l2: float | None = None


@dataclass(frozen=True, slots=True)
class Culprit:
    """Something in the port that computes what the reference does not, though all before it was right.

    `part` is the layer itself, the `inputs` that the code in front makes for it, or the `code` of the module, which
    makes wrong use of what its layers returned. Paths are "" for the model itself. `factor` is the multiple of the
    limit at which it would pass. `cause` is the id of a rule or relation, "" where none is known; it is `confirmed`
    if the change was tried and removes the difference, `suspected` if it would explain it. `change` is what to write,
    `arguments` the same as arguments of the layer's constructor; where it takes another layer, `layer` is the full name
    of its class, and these are its arguments. `code` is the same for one expression of the port's code. `line` says
    where: file and number of the line that makes the layer, or that calls it. `inside` is the functional call at fault,
    where one was found. `also` are other layers of the port whose settings are to change alike, though it does not
    show.
    """

    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    call: int
    part: Part
    factor: float
    cause: str = ""
    sureness: Sureness = "unknown"
    facts: dict[str, float | int | str] = field(default_factory=dict)
    change: str = ""
    line: str = ""
    inside: FunctionFault | None = None
    arguments: dict[str, Setting] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    code: CodeChange | None = None
    layer: str = ""


@dataclass(frozen=True, slots=True)
class OutputPower:
    """One compared tensor of the reference.

    `factor` is the multiple of its limit by which it moves if an input is replaced by an unrelated one: up to 1 it
    does not move (None: no input could be replaced, or the layer was not called then). A `constant` output has all
    elements equal within its limit; in a `saturated` one nearly all lie at its lower or upper end; a `whole` one holds
    whole numbers only.
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
    A parameter is "weakly seen" if a change of 1 % need not show, and "neutral" if its value hides what a port makes of
    it, as zeros of a bias do.
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
    `neutral` says by name why a parameter is neutral. `stored`: the candidate returns the same for other inputs.
    """

    result_kind = "power"
    outputs: tuple[OutputPower, ...]
    parameters: tuple[ParameterPower, ...] = ()
    inputs: dict[str, float] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    neutral: dict[str, str] = field(default_factory=dict)
    stored: bool = False


# What the user allows single layers, and how it is read: own limits, and deviations accepted for a reason.

BOUNDS = {"max_abs", "rmse"}


@dataclass(frozen=True, slots=True)
class LayerLimit:
    """Limit of the layers of which a path fits the glob `layers`: a multiple, or absolute bounds in their own units.

    `factor` multiplies the limit that was measured; without it `max_abs` and `rmse` bound the largest and the
    root-mean-square difference, which is never above the largest.
    """

    layers: str
    factor: float | None = None
    max_abs: float = inf
    rmse: float = inf

    def in_place_of(self, limit: Limit) -> Limit:
        """The limit in force where `limit` was measured."""
        if self.factor is not None:
            return Limit(self.factor * limit.max_abs, self.factor * limit.rmse, "user")
        return Limit(self.max_abs, min(self.rmse, self.max_abs), "user")


@dataclass(frozen=True, slots=True)
class AcceptedDeviation:
    """Layers, by a glob that fits a path, that may deviate without limit, and why."""

    layers: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allowances:
    """All that the user allows. Globs are matched against the reference's and the candidate's path; the first wins.

    `coarsest` is the coarsest dtype that the candidate may compute in, "" for any.
    """

    limits: tuple[LayerLimit, ...] = ()
    accepted: tuple[AcceptedDeviation, ...] = ()
    coarsest: str = ""

    def limit(self, limit: Limit, *paths: str) -> Limit:
        """The limit in force for a layer of these paths, for which `limit` was measured."""
        own = next((one for one in self.limits if matches_glob(one.layers, *paths)), None)
        return limit if own is None else own.in_place_of(limit)

    def unused(self, paths: Collection[str]) -> Iterator[str]:
        """Globs that fit none of the paths."""
        globs = [one.layers for one in self.limits] + [one.layers for one in self.accepted]
        yield from (glob for glob in globs if not matches_glob(glob, *paths))


NO_ALLOWANCES = Allowances()


def matches_glob(glob: str, *paths: str) -> bool:
    """Tell whether a glob fits one of the paths; "" is that of the model itself."""
    return any(fnmatchcase(path, glob) for path in paths)


def read_allowances(document: dict[str, Any]) -> Allowances:
    """Return the tables `limits` and `accepted` of a document without faults."""
    limits = tuple(
        LayerLimit(glob, **value) if isinstance(value, dict) else LayerLimit(glob, factor=float(value))
        for glob, value in document.get("limits", {}).items()
    )
    return Allowances(limits, tuple(AcceptedDeviation(one["layer"], one["reason"]) for one in _accepted(document)))


def allowance_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield all that is wrong with the tables."""
    limits = document.get("limits", {})
    if not isinstance(limits, dict):
        yield say("allowance_fault.no_table")
    else:
        for glob, value in limits.items():
            yield from (say("allowance_fault.limit", layers=glob, fault=fault) for fault in _limit_faults(value))
    for number, table in enumerate(_accepted(document), 1):
        if not isinstance(table, dict) or set(table) != {"layer", "reason"}:
            yield say("allowance_fault.accepted", number=number)
            continue
        if not isinstance(table["layer"], str):
            yield say("allowance_fault.layer", number=number, layer=repr(table["layer"]))
        if not isinstance(table["reason"], str) or not table["reason"].strip():
            yield say("allowance_fault.reason", number=number, reason=repr(table["reason"]))


def read_limits(texts: Sequence[str]) -> tuple[LayerLimit, ...]:
    """Read `GLOB=VALUE`, a multiple of the measured limit each; raises UsageError listing those that are none."""
    if wrong := [repr(text) for text in texts if not _is_bound(_multiple(text))]:
        raise UsageError.of("forward_error.no_limit", texts=wrong)
    return tuple(LayerLimit(text.rpartition("=")[0], factor=_multiple(text)) for text in texts)


def _multiple(text: str) -> float | None:
    _, separator, value = text.rpartition("=")
    try:
        return float(value) if separator else None
    except ValueError:
        return None


def _limit_faults(value: object) -> Iterator[str]:
    if not isinstance(value, dict):
        if not _is_bound(value):
            yield say("allowance_fault.multiple", value=repr(value))
    elif not value or set(value) - BOUNDS:
        yield say("allowance_fault.keys", keys=[*value] or ["nothing"])
    else:
        wrong = {key: repr(one) for key, one in value.items() if not _is_bound(one)}
        yield from (say("allowance_fault.bound", name=key, value=one) for key, one in wrong.items())


def _is_bound(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 < value < inf


def _accepted(document: dict[str, Any]) -> list[Any]:
    tables = document.get("accepted", [])
    return tables if isinstance(tables, list) else [tables]
