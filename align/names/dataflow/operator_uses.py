"""What an operator does with parameters, in a form that both frameworks share: one use for each parameter.

A layer norm scales and then shifts what it normalized; a linear layer multiplies by a matrix, and then shifts. So one
framework's single operator and the other's row of small ones come to the same uses, with the same rows going in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from align.names.dataflow.seen_rows import SeenRows, see_rows
from align.names.dataflow.weight_pieces import Piece

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Any

    from align.core.dtypes import Array
    from align.core.traces import OperatorCall
    from align.names.dataflow.weight_pieces import PieceIndex

# Operators of both frameworks: places of what is multiplied, left and right, and of what is added, among their tensors.
PRODUCTS: Final = {
    name: (0, 1, 2)
    for name in (
        "mm", "bmm", "mv", "linear", "matmul", "MatMul", "MatMulExt", "BatchMatMul", "BatchMatMulExt", "Dense", "Mm",
        "BMMExt", "Mv", "dot", "Dot",
    )
} | {name: (1, 2, 0) for name in ("addmm", "baddbmm", "addmv", "addbmm", "Addmm", "Baddbmm", "Addmv", "Addbmm")}  # fmt: skip
CONVOLUTIONS: Final = frozenset({
    "convolution", "Conv2D", "Conv3D", "Conv2DTranspose", "Conv3DTranspose", "Conv2DBackpropInput", "Conv2dExt",
    "Conv1dExt", "Conv2DExt", "Conv1DExt", "Conv3DExt", "Convolution", "ConvolutionStr", "Conv1DPadding",
    "Conv2DPadding", "Conv3DPadding", "ConvTranspose2D", "DepthwiseConv2dNative",
})  # fmt: skip
NORMS: Final = frozenset({
    "native_layer_norm", "native_group_norm", "_fused_rms_norm", "rms_norm", "LayerNorm", "LayerNormExt", "GroupNorm",
    "RmsNorm", "InstanceNorm",
})  # fmt: skip
BATCH_NORMS: Final = frozenset({
    "native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "cudnn_batch_norm",
    "BatchNorm", "BatchNormExt", "SyncBatchNorm",
})  # fmt: skip
TABLES: Final = frozenset({
    "embedding", "_embedding_bag", "_embedding_bag_forward_only", "index_select", "index", "Gather", "Embedding",
    "EmbeddingLookup", "SparseGatherV2", "IndexSelect", "Index", "GatherD",
})  # fmt: skip
ELEMENTWISE: Final = {
    "mul": "scale", "Mul": "scale", "multiply": "scale", "Muls": "scale", "add": "shift", "Add": "shift",
    "AddExt": "shift", "BiasAdd": "shift", "sub": "subtract", "Sub": "subtract", "SubExt": "subtract", "div": "divide",
    "Div": "divide", "RealDiv": "divide", "true_divide": "divide", "_prelu_kernel": "slope", "PReLU": "slope",
}  # fmt: skip
JOINS: Final = frozenset({"cat", "Concat", "stack", "Stack"})
RECURRENT: Final = frozenset({"mkldnn_rnn_layer"})


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


Uses = "Generator[Use, Answer | None, Any]"


def read_uses(call: OperatorCall, index: PieceIndex) -> Generator[Use, Answer | None, Any]:
    """Yield each use of a parameter in a call, and take what is to be instead; return what the call made.

    What is computed from parameters alone is made known to the `index`.
    """
    pieces = {at: piece for at, value in enumerate(call.tensors) if (piece := index.find(value)) is not None}
    if not pieces:
        return call.plain()
    data = [
        at for at, value in enumerate(call.tensors) if at not in pieces and (value.size > 1 or value.dtype.kind in "iu")
    ]
    name = call.name.rstrip("_") if call.name.endswith("_") else call.name
    if not data:
        made = call.answer(call.run())
        for value in call.outputs(made):
            if value.dtype.kind == "f" and index.find(value) is None:
                index.add([one for piece in pieces.values() for one in piece.names], value)
        return made
    return (yield from _reader(name)(name, call, index, pieces))


def _reader(name: str) -> Any:
    if name in PRODUCTS:
        return _products
    if name in CONVOLUTIONS:
        return _convolutions
    if name in NORMS:
        return _norms
    if name in BATCH_NORMS:
        return _batch_norms
    if name in TABLES:
        return _tables
    if name in JOINS:
        return _joins
    return _recurrent if name in RECURRENT else _elementwise


def _products(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    left, right, added = PRODUCTS[name]
    weight, data = (right, left) if right in pieces else (left, right)
    if weight not in pieces:  # only what is added consists of parameters
        return (yield from _elementwise("add", call, index, pieces))
    zero = {added: np.zeros_like(call.tensors[added])} if added < len(call.tensors) else {}
    made = call.run(zero)
    given, product = call.tensors[data], call.output(made)
    new: dict[int, Array] = {}
    value, piece = call.tensors[weight], pieces[weight]
    if product is None or not value.ndim or data in pieces:
        return call.answer(call.run())
    if value.ndim == 1:
        column = replace(piece, shape=(*piece.shape, 1), strides=(*piece.strides, 1))
        answer = yield Use("product", column, value[:, None], see_rows(given), see_rows(product, []), product)
        if answer is None or answer.value is None:
            return call.answer(call.run())
        return call.answer(call.run({weight: answer.value.reshape(value.shape)}))
    turned = weight == left and given.ndim > 1
    rows, products = (given.swapaxes(-1, -2), product.swapaxes(-1, -2)) if turned else (given, product)
    batches = [axis for axis in range(value.ndim - 2) if value.shape[axis] > 1 and piece.strides[axis]]
    index.batch = value.shape[batches[0]] if batches else 0
    while piece.shape and len(piece.shape) - 2 > len(batches):
        axis = next(axis for axis in range(len(piece.shape) - 2) if piece.shape[axis] == 1 or not piece.strides[axis])
        piece = piece.taken(axis, 0)
    if len(batches) > 1:
        return call.answer(call.run())
    pairs = [(piece, rows, products)]
    if batches:
        axis = batches[0] - value.ndim
        rows = np.broadcast_to(rows, (*products.shape[:-1], rows.shape[-1]))
        pairs = [
            (piece.taken(0, n), np.take(rows, n, axis), np.take(products, n, axis)) for n in range(value.shape[axis])
        ]
    whole = np.array(value)
    outs: list[Array | None] = []
    for number, (one, x, y) in enumerate(pairs):
        matrix = index.value(one)
        swapped = _stands_turned(x, matrix, y)
        own = one.moved((1, 0)) if swapped else one
        use = Use("product", own, matrix.T if swapped else matrix, see_rows(x), see_rows(y), y, beside=len(pairs))
        answer = yield use
        outs.append(None if answer is None else answer.product)
        if answer is not None and answer.value is not None:
            region = (..., *((number,) if batches else ()), slice(None), slice(None))
            whole[region] = answer.value.T if swapped else answer.value
            new[weight] = whole
    if new:
        made = call.run(zero | new)
        product = call.output(made)
        if len(pairs) == 1 and product is not None:
            use.out = see_rows(product.swapaxes(-1, -2) if turned else product)
    if len(outs) == 1 and outs[0] is not None and product is not None:
        product = (outs[0].swapaxes(-1, -2) if turned else outs[0]).reshape(product.shape)
        made = call.with_output(made, product)
    if not zero:
        return call.answer(made)
    bias = call.tensors[added]
    if added in pieces and product is not None:
        answer = yield from _shift(pieces[added], index, product, bias.ndim)
        if answer is not None and answer.value is not None:
            bias = np.array(np.broadcast_to(answer.value.reshape(_bare_shape(bias, pieces[added])), bias.shape))
    if len(outs) == 1 and outs[0] is not None and product is not None:
        return call.answer(call.with_output(made, (product + bias).astype(product.dtype)))
    return call.answer(call.run(new | {added: bias}))


def _bare_shape(value: Array, piece: Piece) -> tuple[int, ...]:
    return tuple(n if piece.strides[axis] else 1 for axis, n in enumerate(value.shape))


def _shift(
    piece: Piece, index: PieceIndex, base: Array, ndim: int, axis: int = -1
) -> Generator[Use, Answer | None, Any]:
    """Yield the use of what is added along the last axis, or along `axis`."""
    bare = piece.bare
    axes = [axis] if ndim == 1 else _axes(piece, base.ndim)
    return (yield Use("shift", bare, index.value(bare), see_rows(base, axes)))


def _axes(piece: Piece, ndim: int) -> list[int]:
    """Axes of what a piece is broadcast against along which it varies, counted from the end."""
    return [axis - len(piece.shape) for axis, n in enumerate(piece.shape) if n != 1 and piece.strides[axis]]


def _stands_turned(rows: Array, matrix: Array, product: Array) -> bool:
    """Tell whether rows are multiplied by the transposed matrix, by the row that is largest."""
    width, out = rows.shape[-1], product.shape[-1]
    if matrix.shape[0] != matrix.shape[1]:
        return matrix.shape != (width, out)
    x, y = rows.reshape(-1, width).astype(np.float64), product.reshape(-1, out).astype(np.float64)
    at = int(np.argmax(abs(y).sum(1)))
    straight, turned = (float(abs(x[at] @ one - y[at]).sum()) for one in (matrix, matrix.T))
    return turned < straight


def _convolutions(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    """A convolution of one position is a product over the channels."""
    if 1 not in pieces:
        return (yield from _elementwise("other:convolution", call, index, pieces))
    zero = {2: np.zeros_like(call.tensors[2])} if len(call.tensors) > 2 else {}
    made = call.run(zero)
    given, weight = call.tensors[0], call.tensors[1]
    product = call.output(made)
    if product is None:
        return call.answer(call.run())
    rows = None if "ranspose" in name else _patches(given, weight, product)
    laid = np.moveaxis(product, 1, -1)
    if rows is None:
        piece = pieces[1].bare
        use = Use("convolution", piece, index.value(piece), see_rows(given, [1]), see_rows(product, [1]), laid)
    else:
        own = pieces[1]
        piece = Piece(own.number, own.names, own.offset, (rows.shape[-1], weight.shape[0]), (1, rows.shape[-1]))
        use = Use("product", piece, index.value(piece), see_rows(rows), see_rows(laid), laid)
    answer = yield use
    new: dict[int, Array] = {}
    if answer is not None and answer.value is not None:
        value = answer.value.T if use.kind == "product" else answer.value
        new = {1: value.reshape(weight.shape)}
        made = call.run(zero | new)
        product = call.output(made)
        use.out = None if product is None else see_rows(product, [1])
    forced = answer.product if answer is not None else None
    if forced is not None and product is not None and forced.size == product.size:
        product = np.moveaxis(forced.reshape(np.moveaxis(product, 1, -1).shape), -1, 1)
        made = call.with_output(made, product)
    if not zero:
        return call.answer(made)
    bias = call.tensors[2]
    if 2 in pieces and product is not None:
        answer = yield from _shift(pieces[2], index, product, 1, 1)
        if answer is not None and answer.value is not None:
            bias = answer.value.reshape(bias.shape)
    if forced is not None and product is not None:
        column = bias.reshape(-1, *(1,) * (product.ndim - 2))
        return call.answer(call.with_output(made, (product + column).astype(product.dtype)))
    return call.answer(call.run(new | {2: bias}))


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


def _norms(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    """A norm scales and shifts what it has normalized."""
    channels = name in ("native_group_norm", "GroupNorm", "InstanceNorm")
    plain = {at: np.full_like(call.tensors[at], at == 1) for at in (1, 2) if at < len(call.tensors)}
    base = call.output(call.run(plain))
    new: dict[int, Array] = {}
    for at, kind in ((1, "scale"), (2, "shift")):
        if at not in pieces or base is None:
            continue
        piece = pieces[at].bare
        axes = [1] if channels else [*range(-call.tensors[at].ndim, 0)]
        answer = yield Use(kind, piece, index.value(piece), see_rows(base, axes, signed=kind != "scale"))
        if answer is not None and answer.value is not None:
            new[at] = np.array(answer.value.reshape(call.tensors[at].shape))
        own = new.get(at, call.tensors[at])
        base = call.output(call.run(plain | {1: own})) if at == 1 else base
    return call.answer(call.run(new))


def _batch_norms(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    roles = ("", "weight", "bias", "mean", "variance") if len(call.tensors) > 3 else ("", "mean", "variance")
    rows = see_rows(call.tensors[0], [1])
    new: dict[int, Array] = {}
    for at, role in enumerate(roles):
        if at in pieces:
            piece = pieces[at].bare
            answer = yield Use(f"batch norm {role}", piece, index.value(piece), rows)
            if answer is not None and answer.value is not None:
                new[at] = answer.value.reshape(call.tensors[at].shape)
    return call.answer(call.run(new))


def _tables(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    if 0 not in pieces or len(call.tensors) < 2:
        return (yield from _elementwise(f"other:{name}", call, index, pieces))
    piece = pieces[0]
    answer = yield Use("table", piece, index.value(piece), see_rows(call.tensors[1], []))
    if answer is None or answer.value is None:
        return call.answer(call.run())
    return call.answer(call.run({0: answer.value.reshape(call.tensors[0].shape)}))


def _joins(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    data = next(value for at, value in enumerate(call.tensors) if at not in pieces)
    new: dict[int, Array] = {}
    for at, own in pieces.items():
        piece = own.bare
        answer = yield Use("join", piece, index.value(piece), see_rows(data))
        if answer is not None and answer.value is not None:
            new[at] = _spread(answer.value, call.tensors[at], own)
    return call.answer(call.run(new))


def _elementwise(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    """A piece that scales, shifts or whatever else along the axes along which it varies."""
    kind = ELEMENTWISE.get(name, f"other:{name.lower()}")
    at, own = next(iter(pieces.items()))
    other = next(
        value
        for place, value in enumerate(call.tensors)
        if place not in pieces and (value.size > 1 or value.dtype.kind in "iu")
    )
    if kind in ("subtract", "divide") and at == 0:
        kind = f"{kind} from"
    piece = own.bare
    if name == "BiasAdd":
        axes: Sequence[int] = [1]
    elif kind == "slope":
        axes = [1] if other.ndim > 1 else []
    else:
        shape = (
            np.broadcast_shapes(other.shape, call.tensors[at].shape)
            if kind in ("scale", "shift", "subtract", "divide")
            else other.shape
        )
        other, axes = np.broadcast_to(other, shape), [axis for axis in _axes(own, len(shape)) if -axis <= len(shape)]
    if kind == "shift" and index.batch and len(axes) == 2 and piece.shape[0] == index.batch:
        value = np.array(index.value(piece))
        for number in range(index.batch):
            one, rows = piece.taken(0, number), np.take(other, number, axes[0])
            answer = yield Use(kind, one, index.value(one), see_rows(rows, axes[1:]))
            if answer is not None and answer.value is not None:
                value[number] = answer.value
        return call.answer(call.run({at: _spread(value, call.tensors[at], own)}))
    rows = see_rows(other, axes, signed=kind not in ("scale", "divide"))
    use = Use(kind, piece, index.value(piece), rows)
    use.plain = see_rows(other, axes) if kind == "scale" else None
    answer = yield use
    new = {}
    if answer is not None and answer.value is not None:
        new = {at: _spread(answer.value, call.tensors[at], own)}
    return call.answer(call.run(new))


def _spread(value: Array, like: Array, piece: Piece) -> Array:
    """Lay a bare value out as the operand that it takes the place of."""
    return np.array(np.broadcast_to(value.reshape(_bare_shape(like, piece)), like.shape))


def _recurrent(
    name: str, call: OperatorCall, index: PieceIndex, pieces: Mapping[int, Piece]
) -> Generator[Use, Answer | None, Any]:
    """A whole recurrent layer multiplies its input by one matrix, and what it returned before by the other."""
    made = call.run()
    outputs = call.output(made)
    given = call.tensors[0]
    if outputs is not None and {1, 2} <= pieces.keys():
        state = np.concatenate([call.tensors[5][None], outputs[:-1]]) if len(call.tensors) > 5 else outputs[:-1]
        for at, rows in ((1, given), (2, state)):
            matrix = index.value(pieces[at]).T
            product = rows @ matrix
            gates = np.arange(matrix.shape[1]).reshape(matrix.shape[1] // outputs.shape[-1], -1).tolist()
            use = Use("product", pieces[at].moved((1, 0)), matrix, see_rows(rows), see_rows(product), product)
            use.leaves = [[tuple(gate) for gate in gates]]
            yield use
            if at + 2 in pieces:
                yield from _shift(pieces[at + 2], index, product, 1)
    return call.answer(made)
