"""What is kept of one pass forward and back: a figure of every tensor, and which call made it of which.

Tensors themselves are kept only of calls whose result is not finite, and of operators that may divide by zero or
overflow on their way back. Nothing waits for a device until a pass is over. Where figures are taken of many tensors at
once (LoopForms.bytes_at_once), these are kept until then, and are seen as they are then.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cache
from math import isfinite, prod, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.verdicts import ShownResult
from align.loops.thresholds import FLOAT16_LARGEST, NEAR_OVERFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.verdicts import Finding, Verdict
    from align.models.loop_watcher import LoopForms


@dataclass(slots=True, eq=False)
class Record:
    """One call, in the order of returning: what it returned, the places that it took, and what is kept of it.

    `norm` is a number, or a tensor on its device until the pass is read. `module` is the module itself, or the one that
    runs an operator. `kept` are the arguments by position, then by name, tensors among them detached. A gradient may
    come back to what is `differentiable`; what is not may be data that were made ready, or a figure that is only shown.
    `own_way_back` tells whether the user's code sends gradients back. `index` counts calls of this name in the layer,
    `turn` those of the same line too.
    """

    path: str
    call: int
    name: str
    is_module: bool
    module: Any
    line: str
    own_way_back: bool = False
    order: int = 0
    index: int = 0
    turn: int = 0
    norm: Any = 0.0
    size: int = 0
    dtype: str = ""
    inputs: list[Place] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    kept: list[Any] | None = None
    named: dict[str, Any] | None = None
    output: Any = None
    outputs: list[Place] = field(default_factory=list)
    largest: float | None = None
    differentiable: bool = True

    @property
    def key(self) -> tuple[str, int, str, int]:
        """What it is called in a step."""
        return self.path, self.call, self.name, self.index

    @property
    def origin(self) -> tuple[str, int, str, str, int]:
        """The same call of another step has the same one, also if code beside it runs in one of them only."""
        return self.path, self.call, self.name, "" if self.is_module else self.line, self.turn

    @property
    def rms(self) -> float:
        """Root mean square."""
        return float(self.norm) / sqrt(max(self.size, 1))


@dataclass(slots=True, eq=False)
class Place:
    """A tensor of the pass: the call that made it, those that took it, and the gradient that came back.

    Where the user put `hooks` on it, `changed` is what they made of that gradient.
    """

    tensor: Any
    producer: Record | None = None
    consumers: list[Record] = field(default_factory=list)
    gradient: Arrival | None = None
    changed: Arrival | None = None
    hooks: int = 0
    suspect: Record | None = None


@dataclass(slots=True, eq=False)
class Arrival:
    """A gradient that came back to a place, in the order of coming; to a parameter where that is named.

    `again` is one that was seen already, of the same tensor in another wrapper. One that was `changed` is what hooks of
    the user's made of it.
    """

    order: int
    place: Place
    norm: Any
    size: int
    dtype: str
    parameter: str = ""
    kept: Any = None
    largest: float | None = None
    again: bool = False
    changed: bool = False

    @property
    def rms(self) -> float:
        """Root mean square."""
        return float(self.norm) / sqrt(max(self.size, 1))


class RecordedPass:
    """Records one pass; `read` turns all norms into numbers.

    `handed` are the root mean squares of the gradients that optimizers were given, by parameter.
    """

    def __init__(self, forms: LoopForms) -> None:
        self.forms = forms
        self.records: list[Record] = []
        self.arrivals: list[Arrival] = []
        self.handed: dict[str, float] = {}
        self.batch: dict[str, Any] = {}
        self.batch_size: int | None = None
        self._places: dict[Any, Place] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self._suspects: dict[int, Record] = {}
        self._parameters: dict[int, Place] = {}
        self._latest: dict[int, Place] = {}
        self._at: dict[tuple[int, tuple[int, ...]], Place] = {}
        self._wrapped: list[tuple[Place, Place]] = []
        self._awaited: list[tuple[Record | Arrival, list[Any]]] = []
        self._awaited_bytes = 0

    def add_batch(self, named: Iterable[tuple[str, Any]]) -> None:
        """Note what the outermost module is given, to know it again where it is to blame."""
        for name, tensor in named:
            self.batch.setdefault(name, self.forms.kept(tensor))
            if self.batch_size is None and len(tensor.shape) > 0:
                self.batch_size = int(tensor.shape[0])

    def add(self, record: Record, given: list[Any], named: dict[str, Any], outputs: list[Any]) -> Record | None:
        """Add a call: floating tensors that it was given, and returned; None where all are known already."""
        new = [tensor for tensor in outputs if self._known(tensor) is None]
        if not new:
            return None
        inputs = [*given, *named.values()]
        tensors = [tensor for tensor in inputs if self.forms.is_floating(tensor)]
        record.parameters = [tensor for tensor in tensors if self.forms.is_parameter(tensor)]
        record.inputs = [self._given(tensor, new) for tensor in tensors if not self.forms.is_parameter(tensor)]
        record.size = sum(_size(tensor) for tensor in new)
        record.dtype = self.forms.dtype_of(new[0])
        record.differentiable = any(map(self.forms.differentiable, new))
        record.order = len(self.records)
        record.index, record.turn = self._count(record.key[:3]), self._count(record.origin[:4])
        record.kept, record.named = (
            [self._kept(tensor) for tensor in given],
            {k: self._kept(v) for k, v in named.items()},
        )
        for place in record.inputs:
            place.consumers.append(record)
            self._see_hooks(place)
        for tensor in new:
            place = self._place(tensor)
            place.producer = record
            record.outputs.append(place)
        self.records.append(record)
        self._await(record, new)
        return record

    def _count(self, what: tuple[Any, ...]) -> int:
        """How often it was counted before."""
        number = self._counts[what] = self._counts.get(what, -1) + 1
        return number

    def _given(self, tensor: Any, new: list[Any]) -> Place:
        """The place of what a call was given; what it wrote into and returned is the tensor as it was before."""
        earlier = self._latest.get(id(tensor)) if any(one is tensor for one in new) else None
        return earlier if earlier is not None and earlier.tensor() is tensor else self._place(tensor)

    def _see_hooks(self, place: Place) -> None:
        """See a gradient once more where the user put hooks on its tensor since it was met: ours is the last then."""
        tensor = place.tensor()
        hooks = 0 if tensor is None or place.producer is None else self.forms.hooks_on(tensor)
        if hooks > place.hooks and self.forms.differentiable(tensor):
            self.forms.on_gradient(tensor, _Arrived(self, place, changed=True))
            place.hooks = self.forms.hooks_on(tensor)

    def _await(self, one: Record | Arrival, tensors: list[Any]) -> None:
        """Let a figure be taken with those of others: where that waits for what runs, once for many tensors."""
        self._awaited.append((one, [self.forms.kept(tensor) for tensor in tensors]))
        self._awaited_bytes += sum(map(self.forms.bytes_of, tensors)) if self.forms.bytes_at_once else 0
        if self._awaited_bytes >= self.forms.bytes_at_once:
            self._take_figures()

    def _take_figures(self) -> None:
        """Take the figures of all that is awaited, and keep the tensors of what is not finite or may go wrong."""
        awaited, self._awaited, self._awaited_bytes = self._awaited, [], 0
        if self.forms.bytes_at_once:
            for entry, tensors in awaited:
                if isinstance(entry, Record):
                    self._meet(entry, tensors)
        for entry, tensors in awaited:
            if isinstance(entry, Record):
                self._figures_of_call(entry, tensors)
            else:
                self._figures_of_gradient(entry, tensors[0])

    def _meet(self, record: Record, new: list[Any]) -> None:
        """Know what a call was given by its memory, where each call gets a wrapper of its own; all is held still."""
        given = (operand for operand in self.floating_operands(record) if not self.forms.is_parameter(operand))
        for place, tensor in zip(record.inputs, given, strict=False):
            known_place = self._at.get(self._memory(tensor))
            if known_place is not None and place.producer is None and known_place.producer is not record:
                known_place.consumers += [
                    consumer for consumer in place.consumers if consumer not in known_place.consumers
                ]
                place.consumers, place.producer = known_place.consumers, known_place.producer
                self._wrapped.append((place, known_place))
        for tensor in new:
            known_place = self._at.get(self._memory(tensor))
            inside = known_place.producer if known_place is not None and record.is_module else None
            if known_place is not None and inside is not None and inside.path == record.path:
                record.inputs.append(known_place)  # it returns what code inside of it made, in another wrapper
        for place, tensor in zip(record.outputs, new, strict=False):
            self._at[self._memory(tensor)] = place

    def floating_operands(self, record: Record) -> list[Any]:
        """Tensors that a call was given, as far as they were kept."""
        kept = [*(record.kept or ()), *(record.named or {}).values()]
        return [one for one in kept if self.forms.is_floating(one)]

    def _memory(self, tensor: Any) -> tuple[int, tuple[int, ...]]:
        return self.forms.address(tensor), tuple(tensor.shape)

    def _figures_of_call(self, record: Record, new: list[Any]) -> None:
        record.norm = self._norm(record, new)
        known = isinstance(record.norm, float)
        bad = known and not isfinite(record.norm)
        if not bad and plain_name(record.name) not in RISKY:
            record.kept = record.named = None
        if bad:
            self._lead_back(record, new)
            record.output = new[-1]
            self._suspects = {self.forms.address(one): record for one in new} | self._suspects
        if known and not bad and record.dtype == "float16":
            record.largest = largest_of(self.forms, new[0], record.norm)

    def _lead_back(self, record: Record, new: list[Any]) -> None:
        """Note the calls whose result, not finite, a call was given or returns, by memory: objects may be others."""
        known = {id(place.producer) for place in record.inputs}
        for one in (*self.floating_operands(record), *new):
            maker = self._suspects.get(self.forms.address(one))
            if maker is not None and id(maker) not in known:
                record.inputs.append(Place(weakref.ref(one), producer=maker))

    def _figures_of_gradient(self, arrival: Arrival, gradient: Any) -> None:
        arrival.norm = self.forms.norm(gradient)
        if not isinstance(arrival.norm, float):
            return
        if not isfinite(arrival.norm):
            arrival.kept = gradient
        elif arrival.dtype == "float16":
            arrival.largest = largest_of(self.forms, gradient, arrival.norm)

    def _norm(self, record: Record, new: list[Any]) -> Any:
        if plain_name(record.name) in VIEWS and len(record.inputs) == 1 and record.inputs[0].producer is not None:
            made = record.inputs[0].producer
            if made.size == record.size:
                return made.norm
        norms = [self.forms.norm(one) for one in new]
        if len(norms) == 1:
            return norms[0]
        squares = sum(one * one for one in norms)
        return squares**0.5

    def _kept(self, value: Any) -> Any:
        return self.forms.kept(value) if self.forms.is_floating(value) else value

    def _known(self, tensor: Any) -> Record | None:
        """The call that made a tensor, by its identity; of what is not finite, which is kept, also by its memory."""
        place = self._places.get(_identity(tensor))
        made = None if place is None or place.tensor() is not tensor else place.producer
        if made is None and self._suspects and (made := self._suspects.get(self.forms.address(tensor))) is not None:
            self._place(tensor).producer = made
        return made

    def _place(self, tensor: Any) -> Place:
        """The place of a tensor, which from now on tells of its gradient."""
        key = _identity(tensor)
        place = self._places.get(key)
        if place is None or place.tensor() is not tensor:
            place = self._places[key] = self._latest[id(tensor)] = Place(weakref.ref(tensor))
            place.suspect = self._suspects.get(self.forms.address(tensor)) if self._suspects else None
            if self.forms.differentiable(tensor):
                self.forms.on_gradient(tensor, _Arrived(self, place))
            place.hooks = self.forms.hooks_on(tensor)
        return place

    def arrived(self, place: Place, gradient: Any, parameter: str = "", *, changed: bool = False) -> None:
        """Add a gradient."""
        if not self.forms.is_floating(gradient):
            return
        arrival = Arrival(len(self.arrivals), place, 0.0, _size(gradient), self.forms.dtype_of(gradient), parameter)
        arrival.changed = changed
        if changed:
            place.changed = arrival
        elif place.gradient is None:
            place.gradient = arrival
        self.arrivals.append(arrival)
        self._await(arrival, [gradient])

    def parameter_arrived(self, parameter: Any, name: str, gradient: Any) -> None:
        """Add the gradient of a parameter."""
        place = self._parameters.setdefault(id(parameter), Place(weakref.ref(parameter)))
        self.arrived(place, gradient, name)

    def came_back(self, parameter: Any) -> Arrival | None:
        """The gradient that came back to a parameter in this pass."""
        place = self._parameters.get(id(parameter))
        return None if place is None else place.gradient

    def anything_came_back(self) -> bool:
        """Tell whether gradients of parameters were seen in this pass."""
        return bool(self._parameters)

    def read(self) -> None:
        """Turn norms into numbers, waiting for a device once; overflows of the norm itself are told from real ones."""
        self._take_figures()
        for place, known_place in self._wrapped:
            first = known_place.gradient or place.gradient
            if place.gradient is not None and place.gradient is not first:
                place.gradient.again = True
            place.gradient = known_place.gradient = first
        figures: list[Record | Arrival] = [*self.records, *self.arrivals]
        for figure, norm in zip(figures, self.forms.norms([each.norm for each in figures]), strict=True):
            figure.norm = norm
            kept = figure.output if isinstance(figure, Record) else figure.kept
            if norm == float("inf") and kept is not None:
                figure.norm = self.norm_in_float64(kept)

    def maker_of(self, tensor: Any, record: Record) -> Record | None:
        """The last call before a record that returned these values, not all of them finite, in whatever shape."""
        wanted = self._bytes(tensor)
        makers = (one for one in reversed(self.records[: record.order]) if one.output is not None)
        return next((one for one in makers if self._bytes(one.output) == wanted), None)

    def batch_name(self, tensor: Any) -> str:
        """The name of the input of the outermost module that a tensor is, or has the values of; "" if it is none."""
        address, wanted = self.forms.address(tensor), self._bytes(tensor)
        names = (name for name, one in self.batch.items() if self.forms.address(one) == address)
        return next(names, next((name for name, one in self.batch.items() if self._bytes(one) == wanted), ""))

    def _bytes(self, tensor: Any) -> bytes:
        array = self.forms.as_array(tensor)
        return b"" if array is None else array.tobytes()

    def norm_in_float64(self, tensor: Any) -> float:
        """The norm where squares in float32 overflow: infinite only if a value is, or is not known."""
        array = self.forms.as_array(tensor)
        return float("inf") if array is None else float(np.linalg.norm(array.astype(np.float64).ravel()))


class _Arrived:
    """Told of a gradient; a class, for a hook that holds no more than it must."""

    __slots__ = ("_changed", "_pass", "_place")

    def __init__(self, recorded: RecordedPass, place: Place, *, changed: bool = False) -> None:
        self._pass, self._place, self._changed = recorded, place, changed

    def __call__(self, gradient: Any) -> None:
        self._pass.arrived(self._place, gradient, changed=self._changed)


def largest_of(forms: LoopForms, tensor: Any, norm: float) -> float | None:
    """The largest absolute value where it may be near the end of float16: it is at most the norm."""
    if norm < NEAR_OVERFLOW * FLOAT16_LARGEST:
        return None
    array = forms.as_array(tensor)
    return None if array is None else float(np.abs(array).max(initial=0.0))


def _size(tensor: Any) -> int:
    return prod(map(int, tensor.shape))


def _identity(tensor: Any) -> tuple[int, int]:
    """An object and how often it was written into: in place it becomes another tensor."""
    try:
        return id(tensor), int(getattr(tensor, "_version", 0))
    except RuntimeError:  # torch's inference tensors count nothing
        return id(tensor), 0


# Operators by what they do, whatever a framework calls them: `torch.true_divide`, MindSpore's `Divs` and `RealDiv`.

# Plain names of what frameworks call otherwise; what is not here has its own name in small letters.
SAME: dict[str, tuple[str, ...]] = {
    "log": ("log2", "log10", "xlogy", "logext"),
    "log1p": (),
    "logit": (),
    "sqrt": ("sqrt_",),
    "rsqrt": (),
    "reciprocal": ("inv", "reciprocalext"),
    "div": (
        "true_divide", "truediv", "rtruediv", "itruediv", "divide", "divs", "realdiv", "rdiv", "div_", "divmod",
        "divnonan", "idiv",
    ),
    "pow": ("rpow", "ipow", "powtensorscalar", "powscalartensor", "float_power", "pow_", "powext"),
    "norm": ("vector_norm", "linalg_norm", "linalgvectornorm", "lpnormv2", "lpnorm", "normalize", "cosine_similarity",
             "cdist", "pairwise_distance", "dist"),
    "exp": ("exp2", "expm1", "expext", "exp_"),
    "softmax": ("softmaxext",),
    "log_softmax": ("logsoftmax", "logsoftmaxext"),
    "attention": ("scaled_dot_product_attention", "flashattentionscore"),
    "std": ("var", "std_mean", "var_mean", "stdext", "varext", "reducestd"),
    "mul": ("rmul", "imul", "muls", "multiply", "mul_"),
    "sub": ("rsub", "isub", "subs", "subext", "subscalar", "subtract", "sub_"),
    "add": ("radd", "iadd", "adds", "addext", "addscalar", "add_", "addn"),
    "asin": ("acos", "arcsin", "arccos", "acosext", "asinext"),
    "mean": ("reducemean", "meanext", "nanmean"),
    "sum": ("reducesum", "sumext"),
    "cross_entropy": ("nll_loss", "crossentropyloss", "nllloss"),
    "mask": ("masked_fill", "maskedfill", "masked_fill_", "masked_fill__", "where", "select", "full", "full_like",
             "triu", "tril", "fill_", "fillscalar", "fillv2", "scatter", "index_fill", "clamp", "masked_scatter",
             "maskedfillscalar", "triuext", "trilext", "setitem"),
    "sinh": ("cosh",),
    "binary_cross_entropy": ("bceloss", "binarycrossentropy"),
}  # fmt: skip
VIEWS = frozenset(
    ("reshape", "view", "flatten", "transpose", "permute", "unsqueeze", "squeeze", "t", "contiguous", "swapaxes",
     "expanddims", "reshapeview", "transposeview", "clone", "identity", "transposeext", "movedim", "view_as")
)  # fmt: skip
ADDING = frozenset(
    ("add", "sub", "sum", "mean", "cat", "concat", "concatenate", "stack", "split", "chunk", "unbind", "getitem",
     "expand", "broadcastto", "expandas", "neg", "tile", "repeat")
)  # fmt: skip
RISKY = frozenset(
    ("log", "sqrt", "rsqrt", "reciprocal", "div", "pow", "norm", "exp", "softmax", "log_softmax", "std", "asin",
     "log1p", "attention", "logit", "binary_cross_entropy")
)  # fmt: skip
_PLAIN = {other: name for name, others in SAME.items() for other in others}


@cache
def plain_name(name: str) -> str:
    """What an operator or a class of layers does.

    >>> plain_name("RealDiv"), plain_name("true_divide"), plain_name("Conv2d")
    ('div', 'div', 'conv2d')
    """
    small = name.lower().strip("_")
    return _PLAIN.get(small, small)


# What was found first in a training that was watched: NaN, Inf or an explosion, and the calls just before.

NonfiniteKind = Literal["NaN", "Inf", "explosion"]
Direction = Literal["forward", "backward", "step", "update"]
GuiltyPart = Literal["input", "parameter", "output", "gradient"]


@dataclass(frozen=True, slots=True)
class NonfiniteEvent:
    """Where it began; steps are counted from 0.

    `direction` is "step" for what the loop does with gradients between the way back and the optimizer. `layer` is the
    path of the innermost module, "" outside of the model. `operator` is a functional call or the class
    of the layer, and `line` the line of user code that called it, forward, "" where none did. `part` says which tensor
    is to blame, `tensor` its name if it has one. `cause` is an id, `reason` and `remedy` say it in words. `samples` are
    indices in the batch where few are to blame. `loss_scale` is what the loss was multiplied by; `better_scale` the
    largest power of two with which this would not have overflowed, None where no scale helps or none is known.
    `weights` says whether they were sound before the step. `factor` is how many times its median an explosion is.
    """

    kind: NonfiniteKind
    step: int
    direction: Direction
    layer: str
    call: int
    operator: str
    line: str
    part: GuiltyPart
    tensor: str
    cause: str
    reason: str
    remedy: str
    weights: str
    samples: tuple[int, ...] = ()
    dtype: str = ""
    loss_scale: float | None = None
    better_scale: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class CallFigures:
    """The root mean square of what one call returned, or of the gradient that came back, in the last steps.

    The last number is that of the step of the event; None for steps in which it was not seen.
    """

    layer: str
    call: int
    operator: str
    line: str
    direction: Direction
    rms: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class NearOverflow:
    """A float16 tensor whose largest value comes near 65504; `better_scale` keeps it away, None in the forward pass."""

    layer: str
    operator: str
    direction: Direction
    step: int
    largest: float
    loss_scale: float | None
    better_scale: float | None


@dataclass(frozen=True, slots=True)
class NonfiniteResult(ShownResult):
    """A training that was watched; `event` is None where nothing was found.

    `steps` were seen, of which `skipped` ended without an update because a loss scale was too large. `tensors` is how
    many were looked at in the last whole step. `shown_steps` are those of the figures `before`.
    """

    result_kind = "nonfinite"
    label: str
    framework: str
    steps: int
    skipped: int
    tensors: int
    event: NonfiniteEvent | None
    shown_steps: tuple[int, ...]
    before: tuple[CallFigures, ...]
    near: tuple[NearOverflow, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
