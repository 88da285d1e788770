"""What an operator does with parameters, in a form that both frameworks share: one use for each parameter.

A layer norm scales and then shifts what it normalized; a linear layer multiplies by a matrix, and then shifts. So one
framework's single operator and the other's row of small ones come to the same uses, with the same rows going in. What
each operator does stands in `mappings/operators.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from align.names.dataflow.seen_rows import Piece, see_rows
from align.names.thresholds import MOST_FILTER_GROUPS
from align.rules.ascend_rules import OperatorRule, operator_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import Any

    from align.core.parameters import Array, Shape
    from align.core.traces import OperatorCall
    from align.names.dataflow.seen_rows import PieceIndex, SeenRows

    Uses = Generator["Use", "Answer | None", Any]


@dataclass(slots=True, eq=False)
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
    data: Array | None = field(default=None, repr=False)  # the rows themselves, as long as the call is read
    order: int = 0
    bias: Use | None = None
    leaves: list[list[tuple[int, ...]]] = field(default_factory=list)
    becomes: Mapping[tuple[int, ...], frozenset[str]] = field(default_factory=dict)  # what is done with which features
    terms: list[tuple[Piece, Array]] = field(default_factory=list)  # of what is added, which may be a sum
    added_to: list[Use] = field(default_factory=list, repr=False)  # products, or sums with them
    biases: list[Bias] = field(default_factory=list, repr=False)  # all that is added to it, and to sums with it
    summed: list[Use] = field(default_factory=list, repr=False)  # the products that it is added to, and itself
    sums: list[tuple[tuple[int, ...], list[Use]]] = field(default_factory=list, repr=False)  # of some features each
    after: tuple[tuple[int, ...], ...] = ()  # the shapes of what is used behind it
    plain: SeenRows | None = None  # of what scales: the rows with their sign
    beside: int = 1  # how many products of one call it is among
    by_channels: bool = False  # whether what comes out has its features along the second axis

    @property
    def inside(self) -> int | None:
        """The axis of the value along which the features of the rows lie; None where all axes do, or none does."""
        at = {"product": 0, "convolution": 0, "table": 0}.get(self.kind)
        if self.kind == "table":
            return at
        if at is not None and (at >= self.value.ndim or self.value.shape[at] != self.rows.width):
            return 0 if self.value.ndim and self.value.shape[0] == self.rows.width else None
        return at

    @property
    def multiplies(self) -> bool:
        """Tell whether each of its features is made of all features of a row."""
        return self.kind in ("product", "convolution")

    @property
    def heavy(self) -> bool:
        """Tell whether rows are multiplied, which both sides do in the same order, more or less."""
        return self.kind in ("product", "convolution", "depthwise")

    @property
    def follows_features(self) -> bool:
        """Tell whether each feature of a row has its own entry of the value along its last axis, and no other."""
        by_feature = self.kind in _BY_FEATURE or self.kind.startswith("batch norm")
        return by_feature and self.value.shape[-1:] == (self.rows.width,)

    @property
    def fans(self) -> tuple[int, ...]:
        """The shape that a counterpart has."""
        return self.value.shape

    @property
    def features(self) -> int:
        """How many numbers it makes of a row."""
        return self.value.shape[-1] if self.value.ndim else 1


Bias = tuple[Use, tuple[int, ...]]  # what is added to which features of a product


@dataclass(slots=True)
class Answer:
    """What takes the place of a use: another value of the piece, or what its product is to be."""

    value: Array | None = None
    product: Array | None = None


_BY_FEATURE: Final = ("scale", "shift", "subtract", "divide", "slope", "depthwise")


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
        answer = call.answer(call.run())
        for value in call.outputs(answer):
            if value.dtype.kind == "f" and index.find(value) is None:
                names = [one for piece in pieces.values() for one in piece.names]
                index.add(names, value, list(pieces.values()))
        return answer
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
    outcome = call.run(reading.without)
    product, value = call.output(outcome), call.tensors[weight]
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
        outcome = call.run(reading.without | reading.new)
        product = call.output(outcome)
        if product is not None:
            factors[1] = product.swapaxes(-1, -2) if turned else product
            for use, (*_, out) in zip(uses, _matrices(reading, weight, *factors) or (), strict=True):
                use.out = see_rows(out)
    if forced is not None and product is not None:
        product = (forced.swapaxes(-1, -2) if turned else forced).reshape(product.shape)
        outcome = call.with_output(outcome, product)
    return (yield from _with_added(reading, added, (outcome, product), forced=forced is not None))


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
        uses.append(Use("product", *own, see_rows(rows), see_rows(product), product, rows, beside=len(matrices)))
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


def _with_added(
    reading: _Reading, added: int, outcomes: tuple[Any, Array | None], *, forced: bool, axis: int = -1
) -> Uses:
    """Yield the use of what an operator adds to a product along an axis, if anything.

    `made` is what it made without, and the product in it, which is kept if it is `forced`.
    """
    outcome, product = outcomes
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
    """A convolution of one position is a product over the channels; one in groups is several."""
    call = reading.call
    if 1 not in reading.pieces:
        return (yield from _elementwise(reading, "other:convolution"))
    if len(call.tensors) > 2:
        reading.without = {2: np.zeros_like(call.tensors[2])}
    outcome = call.run(reading.without)
    product = call.output(outcome)
    if product is None:
        return reading.made()
    uses, forced = yield from _filter_products(reading, product)
    if 1 in reading.new:
        outcome = call.run(reading.without | reading.new)
        product = call.output(outcome)
        for use, own in zip(uses, () if product is None else np.split(product, len(uses), 1), strict=False):
            use.out = see_rows(own, [1])
    if forced is not None and product is not None:
        product = np.moveaxis(forced.reshape(np.moveaxis(product, 1, -1).shape), -1, 1)
        outcome = call.with_output(outcome, product)
    return (yield from _with_added(reading, 2, (outcome, product), forced=forced is not None, axis=1))


def _filter_products(
    reading: _Reading, product: Array
) -> Generator[Use, Answer | None, tuple[list[Use], Array | None]]:
    """Yield the use of the filters of each group; return all, and what the product of the only group is to be."""
    given, weight = reading.tensors[:2]
    backwards = _goes_backwards(reading, product)
    groups = 1 if backwards else _groups(given, weight)
    whole, uses, forced = np.array(weight), list[Use](), None
    filters = np.split(whole, groups)  # views
    parts = zip(np.split(given, groups, 1), filters, np.split(product, groups, 1), strict=True)
    for number, (rows, filter_rows, made) in enumerate(parts):
        uses.append(_filter_use(reading, number, (rows, filter_rows, made), backwards=backwards))
        answer = yield uses[-1]
        forced = answer.product if answer is not None and groups == 1 else None
        if answer is not None and answer.value is not None:
            axis = int(backwards)
            size = (*filter_rows.shape[:axis], *filter_rows.shape[axis + 1 :], filter_rows.shape[axis])
            filter_rows[...] = np.moveaxis(answer.value.reshape(size), -1, axis)
            reading.new[1] = whole
    return uses, forced


def _groups(given: Array, weight: Array) -> int:
    """How many groups of channels are told apart: of one channel each, or too many, none are."""
    if weight.shape[1] == 1:
        return 1
    groups = given.shape[1] // weight.shape[1]
    return groups if groups <= MOST_FILTER_GROUPS and not weight.shape[0] % groups else 1


def _goes_backwards(reading: _Reading, product: Array) -> bool:
    """Tell whether the filter has the channels that go in first."""
    given, weight = reading.tensors[:2]
    larger = any(after > before for before, after in zip(given.shape[2:], product.shape[2:], strict=True))
    fits = weight.shape[0] == product.shape[1] and not given.shape[1] % weight.shape[1]
    return reading.rule.transposed or not fits or (larger and weight.shape[0] == given.shape[1])


def _filter_use(reading: _Reading, number: int, group: tuple[Array, Array, Array], *, backwards: bool) -> Use:
    """The use of the filters of a group: as a matrix where it multiplies patches of the image, each once.

    Its last axis is that of what comes out.
    """
    given, weight, product = group
    filter_piece = reading.pieces[1]
    filter_piece = replace(
        filter_piece,
        shape=weight.shape,
        offset=filter_piece.offset + number * weight.shape[0] * filter_piece.strides[0],
    )
    rows = None if backwards else _patches(given, weight, product)
    laid = np.moveaxis(product, 1, -1)
    if rows is not None:
        piece = Piece(
            filter_piece.number,
            filter_piece.names,
            filter_piece.offset,
            (rows.shape[-1], weight.shape[0]),
            (1, rows.shape[-1]),
        )
        piece = replace(piece, derived=filter_piece.derived)
        use, out = reading.use("product", piece, see_rows(rows)), see_rows(laid)
    else:
        last = int(backwards)
        order = [axis for axis in range(weight.ndim) if axis != last and weight.shape[axis] > 1]
        kind = "depthwise" if weight.shape[1] == 1 and weight.shape[0] == given.shape[1] > 1 else "convolution"
        piece = filter_piece.moved([*order, last])
        use, out = reading.use(kind, piece, see_rows(given, [1])), see_rows(product, [1])
    use.out, use.product, use.by_channels = out, laid, True
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
    at, piece = next(iter(reading.pieces.items()))
    if kind in ("subtract", "divide") and at == 0:
        kind = f"{kind} from"
    rows, axes = _other_operand(reading, kind, at)
    if kind == "shift":
        reading.put(at, (yield from _shift(reading, at, rows, axes)))
        return reading.made()
    use = reading.use(kind, piece.bare, see_rows(rows, axes, signed=kind not in ("scale", "divide")))
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
    outcome = call.run()
    outputs, tensors = call.output(outcome), call.tensors
    if outputs is None or not {1, 2} <= pieces.keys():
        return call.answer(outcome)
    state = np.concatenate([tensors[5][None], outputs[:-1]]) if len(tensors) > 5 else outputs[:-1]
    uses = [_gates(reading, at, rows, outputs.shape[-1]) for at, rows in ((1, tensors[0]), (2, state))]
    for at, use in enumerate(uses, 1):
        use.summed, use.sums = uses, [(tuple(range(use.features)), uses)]
        yield use
        if at + 2 in pieces and use.product is not None:
            yield reading.use("shift", pieces[at + 2].bare, see_rows(use.product))
    return call.answer(outcome)


def _gates(reading: _Reading, at: int, rows: Array, width: int) -> Use:
    """The product that makes all gates of a recurrent layer."""
    matrix = reading.index.value(reading.pieces[at]).T
    product = rows @ matrix
    gates = [tuple(gate) for gate in np.arange(matrix.shape[1]).reshape(matrix.shape[1] // width, -1).tolist()]
    becomes = dict(zip(gates, LSTM_GATES, strict=True)) if len(gates) == len(LSTM_GATES) else {}
    turned = reading.pieces[at].moved((1, 0))
    use = Use("product", turned, matrix, see_rows(rows), see_rows(product), product)
    use.leaves, use.becomes = [gates], becomes
    return use


# What becomes of the gates that torch documents for an LSTM: input, forget, cell, output.
LSTM_GATES: Final = (
    frozenset({"sigmoid", "by_product"}),
    frozenset({"sigmoid", "by_others"}),
    frozenset({"tanh", "by_product"}),
    frozenset({"sigmoid", "by_tanh"}),
)


_READERS: Final[Mapping[str, Callable[[_Reading], Uses]]] = {
    "product": _products,
    "convolution": _convolutions,
    "norm": _norms,
    "batch norm": _batch_norms,
    "table": _tables,
    "join": _joins,
    "recurrent": _recurrent,
}
