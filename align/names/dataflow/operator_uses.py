"""What an operator does with parameters, in a form that both frameworks share: one use for each parameter.

A layer norm scales and then shifts what it normalized; a linear layer multiplies by a matrix, and then shifts. So one
framework's single operator and the other's row of small ones come to the same uses, with the same rows going in. What
each operator does stands in `mappings/operators.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from align.measure.tensor_statistics import relative_rms_distance
from align.names.dataflow.weight_pieces import Piece
from align.names.thresholds import AGREEING_DISTANCE, LEAST_RANGE, LEAST_SHARED_ROWS, MOST_SEEN_ROWS, SEEN_PEAKS
from align.rules.api_table import OperatorRule, operator_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.traces import OperatorCall
    from align.names.dataflow.weight_pieces import PieceIndex

    Uses = Generator["Use", "Answer | None", Any]


@dataclass(slots=True)
class Use:
    """What is done with one piece of a parameter: the piece, as (in, out) where rows are multiplied by it.

    `rows` is what goes in, `out` what comes out of a product before anything is added, `value` the piece's values.
    """

    kind: str
    piece: Piece
    value: Array
    rows: SeenRows
    out: SeenRows | None = None
    product: Array | None = None
    order: int = 0
    bias: Use | None = None
    leaves: list[list[tuple[int, ...]]] = field(default_factory=list)
    after: tuple[tuple[int, ...], ...] = ()  # the shapes of what is used behind it
    plain: SeenRows | None = None  # of what scales: the rows with their sign
    beside: int = 1  # how many products of one call it is among

    @property
    def inside(self) -> int | None:
        """The axis of the value along which the features of the rows lie; None where all axes do, or none does."""
        at = {"product": 0, "convolution": 1, "table": 0}.get(self.kind)
        if self.kind == "table":
            return at
        if at is not None and (at >= self.value.ndim or self.value.shape[at] != self.rows.width):
            return 0 if self.value.ndim and self.value.shape[0] == self.rows.width else None
        return at

    @property
    def heavy(self) -> bool:
        """Tell whether rows are multiplied, which both sides do in the same order, more or less."""
        return self.kind in ("product", "convolution")

    @property
    def fans(self) -> tuple[int, ...]:
        """The shape that a counterpart has."""
        return self.value.shape

    @property
    def features(self) -> int:
        """How many numbers it makes of a row."""
        return self.value.shape[-1] if self.value.ndim else 1


@dataclass(slots=True)
class Answer:
    """What takes the place of a use: another value of the piece, or what its product is to be."""

    value: Array | None = None
    product: Array | None = None


BROADCAST: Final = ("scale", "shift", "subtract", "divide")  # of two operands, either may be laid out along the other


def read_uses(call: OperatorCall, index: PieceIndex) -> Uses:
    """Yield each use of a parameter in a call, and take what is to be instead; return what the call made.

    What is computed from parameters alone is made known to the `index`.
    """
    pieces = {at: piece for at, value in enumerate(call.tensors) if (piece := index.find(value)) is not None}
    if not pieces:
        return call.plain()
    name = call.name.rstrip("_")
    rule = operator_rules().get(name) or OperatorRule(f"other:{name.lower()}", (name,), "")
    if not any(_is_data(value) for at, value in enumerate(call.tensors) if at not in pieces):
        rows = pieces.get(rule.places[0]) if rule.does == "product" else None
        if rows is not None and len(rows.bare.shape) == len(rows.names) == 1:
            index.states.update(rows.names)
        made = call.answer(call.run())
        for value in call.outputs(made):
            if value.dtype.kind == "f" and index.find(value) is None:
                index.add([one for piece in pieces.values() for one in piece.names], value)
        return made
    return (yield from _READERS.get(rule.does, _elementwise)(_Reading(name, rule, call, index, pieces)))


def _is_data(value: Array) -> bool:
    return value.size > 1 or value.dtype.kind in "iu"


@dataclass(slots=True)
class _Reading:
    """A call that is read: `pieces` are those of its tensors that consist of parameters, `new` what takes their place.

    `without` are the tensors with which it adds nothing to what it multiplies.
    """

    name: str
    rule: OperatorRule
    call: OperatorCall
    index: PieceIndex
    pieces: Mapping[int, Piece]
    new: dict[int, Array] = field(default_factory=dict)
    without: dict[int, Array] = field(default_factory=dict)

    @property
    def tensors(self) -> Sequence[Array]:
        return self.call.tensors

    def use(self, kind: str, piece: Piece, rows: SeenRows) -> Use:
        return Use(kind, piece, self.index.value(piece), rows)

    def put(self, at: int, value: Array | None) -> None:
        """Let a value take the place of a tensor, laid out as that is."""
        if value is not None:
            self.new[at] = self.spread(value, at)

    def spread(self, value: Array, at: int) -> Array:
        """Lay a bare value out as the tensor that it takes the place of, which may repeat it along some axes."""
        like, piece = self.tensors[at], self.pieces[at]
        bare = tuple(n if piece.strides[axis] else 1 for axis, n in enumerate(like.shape))
        return np.array(np.broadcast_to(value.reshape(bare), like.shape))

    def made(self) -> Any:
        """What the call makes with what takes the place of its tensors."""
        return self.call.answer(self.call.run(self.new))


def _asked(use: Use) -> Generator[Use, Answer | None, Array | None]:
    """Yield a use of which only the value can be another; return that."""
    answer = yield use
    return None if answer is None else answer.value


def _products(reading: _Reading) -> Uses:
    left, right, added = reading.rule.places
    call, pieces = reading.call, reading.pieces
    weight, data = (right, left) if right in pieces else (left, right)
    if weight not in pieces:  # only what is added consists of parameters
        return (yield from _elementwise(reading, "shift"))
    if added < len(call.tensors):
        reading.without = {added: np.zeros_like(call.tensors[added])}
    made = call.run(reading.without)
    product, value = call.output(made), call.tensors[weight]
    if product is None or not value.ndim or data in pieces:
        return reading.made()
    if value.ndim == 1:
        return (yield from _vector_product(reading, weight, call.tensors[data], product))
    turned = weight == left and call.tensors[data].ndim > 1
    factors = [one.swapaxes(-1, -2) if turned else one for one in (call.tensors[data], product)]
    matrices = _matrices(reading, weight, *factors)
    if matrices is None:
        return reading.made()
    stand_turned = _stand_turned(reading, weight, data, matrices, turned=turned)
    uses, forced = yield from _matrix_products(reading, weight, matrices, stand_turned)
    if weight in reading.new:
        made = call.run(reading.without | reading.new)
        product = call.output(made)
        if product is not None:
            factors[1] = product.swapaxes(-1, -2) if turned else product
            for use, (*_, out) in zip(uses, _matrices(reading, weight, *factors) or (), strict=True):
                use.out = see_rows(out)
    if forced is not None and product is not None:
        product = (forced.swapaxes(-1, -2) if turned else forced).reshape(product.shape)
        made = call.with_output(made, product)
    return (yield from _with_added(reading, added, (made, product), forced=forced is not None))


def _vector_product(reading: _Reading, weight: int, rows: Array, product: Array) -> Uses:
    """A vector is a matrix of one column."""
    value, piece = reading.tensors[weight], reading.pieces[weight]
    column = replace(piece, shape=(*piece.shape, 1), strides=(*piece.strides, 1))
    own = yield from _asked(Use("product", column, value[:, None], see_rows(rows), see_rows(product, []), product))
    if own is not None:
        reading.new[weight] = own.reshape(value.shape)
    return reading.made()


def _matrices(reading: _Reading, weight: int, rows: Array, products: Array) -> list[tuple[Piece, Array, Array]] | None:
    """Each matrix with the rows that it multiplies, and what comes out; None where they lie along several axes."""
    value, piece = reading.tensors[weight], reading.pieces[weight]
    batches = [axis for axis in range(value.ndim - 2) if value.shape[axis] > 1 and piece.strides[axis]]
    reading.index.batch = value.shape[batches[0]] if batches else 0
    while piece.shape and len(piece.shape) - 2 > len(batches):
        repeats = (axis for axis in range(len(piece.shape) - 2) if piece.shape[axis] == 1 or not piece.strides[axis])
        piece = piece.taken(next(repeats), 0)
    if len(batches) > 1:
        return None
    if not batches:
        return [(piece, rows, products)]
    axis = batches[0] - value.ndim
    rows = np.broadcast_to(rows, (*products.shape[:-1], rows.shape[-1]))
    return [
        (piece.taken(0, number), np.take(rows, number, axis), np.take(products, number, axis))
        for number in range(value.shape[axis])
    ]


def _matrix_products(
    reading: _Reading, weight: int, matrices: Sequence[tuple[Piece, Array, Array]], turned: Sequence[bool]
) -> Generator[Use, Answer | None, tuple[list[Use], Array | None]]:
    """Yield the use of each matrix; return all, and what the product of the only one is to be."""
    whole, uses = np.array(reading.tensors[weight]), list[Use]()
    forced = None
    for number, (piece, rows, product) in enumerate(matrices):
        matrix = reading.index.value(piece)
        own = (piece.moved((1, 0)), matrix.T) if turned[number] else (piece, matrix)
        uses.append(Use("product", *own, see_rows(rows), see_rows(product), product, beside=len(matrices)))
        answer = yield uses[-1]
        if answer is None:
            continue
        forced = answer.product if len(matrices) == 1 else None
        if answer.value is not None:
            region = (..., *((number,) if len(matrices) > 1 else ()), slice(None), slice(None))
            whole[region] = answer.value.T if turned[number] else answer.value
            reading.new[weight] = whole
    return uses, forced


def _stand_turned(
    reading: _Reading, weight: int, data: int, matrices: Sequence[tuple[Piece, Array, Array]], *, turned: bool
) -> list[bool]:
    """Tell of each matrix whether rows are multiplied by the transposed one; where rows are zeros, others tell."""
    call, given = reading.call, reading.tensors[data]
    if not given.any():
        given = np.random.default_rng(0).standard_normal(given.shape).astype(given.dtype)
        product = call.output(call.run(reading.without | {data: given}))
        if product is not None:
            laid = [one.swapaxes(-1, -2) if turned else one for one in (given, product)]
            matrices = _matrices(reading, weight, *laid) or matrices
    return [_stands_turned(rows, reading.index.value(piece), product) for piece, rows, product in matrices]


def _stands_turned(rows: Array, matrix: Array, product: Array) -> bool:
    """Tell whether rows are multiplied by the transposed matrix, by the row that is largest."""
    width, out = rows.shape[-1], product.shape[-1]
    if matrix.shape[0] != matrix.shape[1]:
        return matrix.shape != (width, out)
    x, y = rows.reshape(-1, width).astype(np.float64), product.reshape(-1, out).astype(np.float64)
    at = int(np.argmax(abs(y).sum(1)))
    straight, turned = (float(abs(x[at] @ one - y[at]).sum()) for one in (matrix, matrix.T))
    return turned < straight


def _with_added(reading: _Reading, added: int, made: tuple[Any, Array | None], *, forced: bool, axis: int = -1) -> Uses:
    """Yield the use of what an operator adds to a product along an axis, if anything.

    `made` is what it made without, and the product in it, which is kept if it is `forced`.
    """
    outcome, product = made
    call = reading.call
    if not reading.without:
        return call.answer(outcome)
    bias = call.tensors[added]
    if added in reading.pieces and product is not None:
        axes = [axis] if bias.ndim == 1 else _axes(reading.pieces[added])
        value = yield from _shift(reading, added, product, axes)
        bias = bias if value is None else reading.spread(value, added)
    if forced and product is not None:
        along = bias if axis == -1 else bias.reshape(-1, *(1,) * (product.ndim - axis - 1))
        return call.answer(call.with_output(outcome, (product + along).astype(product.dtype)))
    reading.new[added] = bias
    return reading.made()


def _axes(piece: Piece) -> list[int]:
    """Axes of what a piece is broadcast against along which it varies, counted from the end."""
    return [axis - len(piece.shape) for axis, n in enumerate(piece.shape) if n != 1 and piece.strides[axis]]


def _convolutions(reading: _Reading) -> Uses:
    """A convolution of one position is a product over the channels."""
    call = reading.call
    if 1 not in reading.pieces:
        return (yield from _elementwise(reading, "other:convolution"))
    if len(call.tensors) > 2:
        reading.without = {2: np.zeros_like(call.tensors[2])}
    made = call.run(reading.without)
    product = call.output(made)
    if product is None:
        return reading.made()
    use = _filter_use(reading, product)
    answer = yield use
    if answer is not None and answer.value is not None:
        value = answer.value.T if use.kind == "product" else answer.value
        reading.new[1] = value.reshape(call.tensors[1].shape)
        made = call.run(reading.without | reading.new)
        product = call.output(made)
        use.out = None if product is None else see_rows(product, [1])
    forced = answer.product if answer is not None else None
    if forced is not None and product is not None:
        product = np.moveaxis(forced.reshape(np.moveaxis(product, 1, -1).shape), -1, 1)
        made = call.with_output(made, product)
    return (yield from _with_added(reading, 2, (made, product), forced=forced is not None, axis=1))


def _filter_use(reading: _Reading, product: Array) -> Use:
    """The use of a filter: as a matrix where it multiplies patches of the image, each once."""
    given, weight, own = *reading.tensors[:2], reading.pieces[1]
    rows = None if reading.rule.transposed else _patches(given, weight, product)
    laid = np.moveaxis(product, 1, -1)
    if rows is None:
        use, out = reading.use("convolution", own.bare, see_rows(given, [1])), see_rows(product, [1])
    else:
        piece = Piece(own.number, own.names, own.offset, (rows.shape[-1], weight.shape[0]), (1, rows.shape[-1]))
        use, out = reading.use("product", piece, see_rows(rows)), see_rows(laid)
    use.out, use.product = out, laid
    return use


def _patches(given: Array, weight: Array, product: Array) -> Array | None:
    """What a convolution multiplies, if its windows neither overlap nor leave anything out: one row a window."""
    sizes = weight.shape[2:]
    if weight.shape[0] != product.shape[1] or weight.shape[1] != given.shape[1]:
        return None
    if given.shape[2:] != tuple(n * size for n, size in zip(product.shape[2:], sizes, strict=True)):
        return None
    cut = given.reshape(*given.shape[:2], *(n for pair in zip(product.shape[2:], sizes, strict=True) for n in pair))
    places = [*range(2, cut.ndim, 2)]
    rows = cut.transpose(0, *places, 1, *(axis + 1 for axis in places))
    return rows.reshape(*rows.shape[: 1 + len(places)], -1)


def _norms(reading: _Reading) -> Uses:
    """A norm scales and shifts what it has normalized."""
    call = reading.call
    plain = {at: np.full_like(call.tensors[at], at == 1) for at in (1, 2) if at < len(call.tensors)}
    base = call.output(call.run(plain))
    for at, kind in ((1, "scale"), (2, "shift")):
        if at not in reading.pieces or base is None:
            continue
        axes = [1] if reading.rule.channels else [*range(-call.tensors[at].ndim, 0)]
        rows = see_rows(base, axes, signed=kind != "scale")
        value = yield from _asked(reading.use(kind, reading.pieces[at].bare, rows))
        if value is not None:
            reading.new[at] = np.array(value.reshape(call.tensors[at].shape))
        if at == 1:
            base = call.output(call.run(plain | {1: reading.new.get(1, call.tensors[1])}))
    return reading.made()


def _batch_norms(reading: _Reading) -> Uses:
    tensors = reading.tensors
    roles = ("", "weight", "bias", "mean", "variance") if len(tensors) > 3 else ("", "mean", "variance")
    rows = see_rows(tensors[0], [1])
    for at, role in enumerate(roles):
        if at in reading.pieces:
            value = yield from _asked(reading.use(f"batch norm {role}", reading.pieces[at].bare, rows))
            if value is not None:
                reading.new[at] = value.reshape(tensors[at].shape)
    return reading.made()


def _tables(reading: _Reading) -> Uses:
    if 0 not in reading.pieces or len(reading.tensors) < 2:
        return (yield from _elementwise(reading, f"other:{reading.name.lower()}"))
    value = yield from _asked(reading.use("table", reading.pieces[0], see_rows(reading.tensors[1], [])))
    if value is not None:
        reading.new[0] = value.reshape(reading.tensors[0].shape)
    return reading.made()


def _joins(reading: _Reading) -> Uses:
    rows = see_rows(next(value for at, value in enumerate(reading.tensors) if at not in reading.pieces))
    for at, piece in reading.pieces.items():
        reading.put(at, (yield from _asked(reading.use("join", piece.bare, rows))))
    return reading.made()


def _elementwise(reading: _Reading, kind: str = "") -> Uses:
    """A piece that scales, shifts or whatever else along the axes along which it varies."""
    kind = kind or reading.rule.does
    at, own = next(iter(reading.pieces.items()))
    if kind in ("subtract", "divide") and at == 0:
        kind = f"{kind} from"
    rows, axes = _other_operand(reading, kind, at)
    if kind == "shift":
        reading.put(at, (yield from _shift(reading, at, rows, axes)))
        return reading.made()
    use = reading.use(kind, own.bare, see_rows(rows, axes, signed=kind not in ("scale", "divide")))
    use.plain = see_rows(rows, axes) if kind == "scale" else None
    reading.put(at, (yield from _asked(use)))
    return reading.made()


def _other_operand(reading: _Reading, kind: str, at: int) -> tuple[Array, list[int]]:
    """The data that an operator is given beside a piece, and the axes along which the piece lies."""
    tensors = reading.tensors
    other = next(value for place, value in enumerate(tensors) if place not in reading.pieces and _is_data(value))
    if reading.rule.channels:
        return other, [1]
    if kind == "slope":
        return other, [1] if other.ndim > 1 else []
    shape: Shape = other.shape
    if kind in BROADCAST:
        shape = np.broadcast_shapes(shape, tensors[at].shape)
    return np.broadcast_to(other, shape), [axis for axis in _axes(reading.pieces[at]) if -axis <= len(shape)]


def _shift(reading: _Reading, at: int, rows: Array, axes: Sequence[int]) -> Generator[Use, Answer | None, Array | None]:
    """Yield the use of what is added; of as many as products were made at once: each is added to its own."""
    piece = reading.pieces[at].bare
    if not reading.index.batch or len(axes) != 2 or piece.shape[0] != reading.index.batch:
        return (yield from _asked(reading.use("shift", piece, see_rows(rows, axes))))
    whole = np.array(reading.index.value(piece))
    for number in range(len(whole)):
        own = see_rows(np.take(rows, number, axes[0]), axes[1:])
        value = yield from _asked(reading.use("shift", piece.taken(0, number), own))
        if value is not None:
            whole[number] = value
    return whole


def _recurrent(reading: _Reading) -> Uses:
    """A whole recurrent layer multiplies its input by one matrix, and what it returned before by the other."""
    call, pieces = reading.call, reading.pieces
    made = call.run()
    outputs, tensors = call.output(made), call.tensors
    if outputs is None or not {1, 2} <= pieces.keys():
        return call.answer(made)
    state = np.concatenate([tensors[5][None], outputs[:-1]]) if len(tensors) > 5 else outputs[:-1]
    for at, rows in ((1, tensors[0]), (2, state)):
        matrix = reading.index.value(pieces[at]).T
        product = rows @ matrix
        gates = np.arange(matrix.shape[1]).reshape(matrix.shape[1] // outputs.shape[-1], -1).tolist()
        leaves = [[tuple(gate) for gate in gates]]
        yield Use(
            "product", pieces[at].moved((1, 0)), matrix, see_rows(rows), see_rows(product), product, leaves=leaves
        )
        if at + 2 in pieces:
            yield reading.use("shift", pieces[at + 2].bare, see_rows(product))
    return call.answer(made)


_READERS: Final[Mapping[str, Callable[[_Reading], Uses]]] = {
    "product": _products,
    "convolution": _convolutions,
    "norm": _norms,
    "batch norm": _batch_norms,
    "table": _tables,
    "join": _joins,
    "recurrent": _recurrent,
}


# What is kept of a tensor that an operator is given: one number a row, whatever the order of rows and features.
#
# Two implementations lay tokens, pixels and heads out in other orders; a routed expert sees some rows of those that
# one which computes all sees. So rows are compared as a set.


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Sorted marks of the rows, evenly chosen ones where there are too many; `count` rows and their `width`.

    `ends` are the first and the last row, `peaks` those of the smallest and of the largest marks.
    """

    marks: NDArray[np.float64]
    count: int
    width: int
    ends: NDArray[np.float64]
    peaks: NDArray[np.float64]

    def same(self, other: SeenRows) -> bool:
        """Tell whether two tensors have the same rows, or all of one's are among the other's."""
        if self.width != other.width or not (self.varies and other.varies):
            return False
        if self.count == other.count:
            return distance(self.marks, other.marks) < AGREEING_DISTANCE
        few, many = sorted((self, other), key=lambda one: one.count)
        if len(few.marks) < LEAST_SHARED_ROWS or many.count > len(many.marks):
            return False
        right = np.searchsorted(many.marks, few.marks).clip(1, len(many.marks) - 1)
        near = np.minimum(abs(many.marks[right] - few.marks), abs(many.marks[right - 1] - few.marks))
        return bool(np.sqrt(np.mean(near**2)) < AGREEING_DISTANCE * np.sqrt(np.mean(few.marks**2)))

    def moved(self, other: SeenRows) -> bool:
        """Tell whether the rows are others than in another run."""
        return self.count != other.count or distance(self.marks, other.marks) > AGREEING_DISTANCE

    def columns(self, other: SeenRows) -> NDArray[np.int64] | None:
        """Which feature of this one each feature of the other is; None where they stand alike, or nothing tells."""
        if self.count != other.count or self.peaks.shape != other.peaks.shape or self.width < 2:
            return None
        if self.alike(other):
            return None
        for order in _usual_orders(self.width):
            if distance(self.peaks[:, order], other.peaks) < AGREEING_DISTANCE:
                return order
        weights = np.random.default_rng(0).uniform(0.5, 1.5, len(self.peaks))
        mine, theirs = np.argsort(weights @ self.peaks, kind="stable"), np.argsort(weights @ other.peaks, kind="stable")
        found = np.empty(self.width, np.int64)
        found[theirs] = mine
        return found if distance(self.peaks[:, found], other.peaks) < AGREEING_DISTANCE else None

    @property
    def negated(self) -> SeenRows:
        """The rows of the negative tensor, as far as their features tell."""
        return replace(self, peaks=-self.peaks)

    def alike(self, other: SeenRows) -> bool:
        """Tell whether the features stand alike."""
        return self.peaks.shape == other.peaks.shape and distance(self.peaks, other.peaks) < AGREEING_DISTANCE

    def begins(self, other: SeenRows) -> int | None:
        """The feature of this one at which the features of the other, which are fewer, begin in every row."""
        if self.count != other.count or other.width >= self.width or not other.varies:
            return None
        margin = AGREEING_DISTANCE * max(float(abs(other.ends).max()), 1e-30)
        for at in np.flatnonzero(abs(self.ends[0] - other.ends[0, 0]) < margin):
            own = self.ends[:, at : at + other.width]
            if own.shape == other.ends.shape and distance(other.ends, own) < AGREEING_DISTANCE:
                return int(at)
        return None

    @property
    def size(self) -> float:
        """How large the marks are: the same rows have the same size."""
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.mean(self.marks**2))) if self.marks.size else 0.0

    @property
    def varies(self) -> bool:
        """Tell whether the rows are unlike."""
        return bool(self.marks.size) and float(np.ptp(self.marks)) > LEAST_RANGE * float(abs(self.marks).max())


def _usual_orders(width: int) -> Iterator[NDArray[np.int64]]:
    """Orders of features that two frameworks flatten two or three axes to: dead features tell none apart."""
    sizes = [size for size in range(2, width) if width % size == 0]
    for size in sizes:
        yield np.arange(width).reshape(size, -1).T.reshape(-1)
    for size in sizes:
        for other in (one for one in sizes if (width // size) % one == 0 and size * one < width):
            for turn in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
                yield np.arange(width).reshape(size, other, -1).transpose(turn).reshape(-1)


def distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """The relative RMS distance; infinite where nothing was kept."""
    return relative_rms_distance(one, two) if one.size else float("inf")


def see_rows(value: Array, axes: Sequence[int] = (-1,), *, signed: bool = True) -> SeenRows:
    """Keep what is known of a tensor whose features lie along these axes; of none, each element is a row.

    Unless `signed`, a tensor and its negative have the same marks: what scales may have the sign.
    """
    axes = sorted(axis % value.ndim for axis in axes) if value.ndim else []
    width = int(np.prod([value.shape[axis] for axis in axes], dtype=int))
    rest = [axis for axis in range(value.ndim) if axis not in axes]
    with np.errstate(all="ignore"):
        rows = value.transpose([*rest, *axes]).reshape(-1, width).astype(np.float64)
        marks = (rows * abs(rows) + 0.37 * rows**2).sum(1) if width > 1 else rows[:, 0]
        marks = marks if signed else abs(rows).sum(1)  # not of squares: a norm makes their sum one
    count = len(marks)
    order = np.argsort(marks, kind="stable")
    peaks = rows[[*order[:SEEN_PEAKS], *order[-SEEN_PEAKS:]]]
    marks = marks[order]
    if count > MOST_SEEN_ROWS:
        marks = marks[np.linspace(0, count - 1, MOST_SEEN_ROWS).astype(int)]
    return SeenRows(marks, count, width, rows[[0, -1]] if count else rows, peaks)


def joined_rows(parts: Sequence[SeenRows]) -> SeenRows:
    """Join what several calls were given."""
    if len(parts) == 1:
        return parts[0]
    marks, count = np.sort(np.concatenate([one.marks for one in parts])), sum(one.count for one in parts)
    peaks = parts[0].peaks if count == parts[0].count else parts[0].peaks[:0]
    return SeenRows(marks, count, parts[0].width, parts[0].ends, peaks)
