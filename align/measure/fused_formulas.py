"""What fused operators compute, in NumPy: the formulas that `mappings/fused/` names.

Each takes the tensors in float64, and returns what the operator returns, as far as it is a formula. It runs once more
with a `keep` that rounds what a kernel keeps between its steps: how far that moves the result is the noise that another
kernel may show. Rows that no key is left for are NaN, for what an operator returns there is not documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import erf, expit

from align.measure.thresholds import SCORE_ROWS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.parameters import Array

    Keep = Callable[[Array], Array]
    Formula = Callable[..., tuple[Array, ...]]
    Sides = tuple[Array, Array, Array]

WITHOUT_END: Final = 2**31 - 1  # format: "all tokens", as the operators have it by default
DEFAULT, ALL, LEFT_CAUSAL, RIGHT_CAUSAL, BAND, PREFIX, PACKED_PREFIX = range(7)  # format: values of sparse_mode
PACKED: Final = (LEFT_CAUSAL, RIGHT_CAUSAL, BAND, PACKED_PREFIX)  # the mask is one of 2048 x 2048 for every size
AXES: Final = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3)}
SLOPE: Final = 1.702  # format: of the sigmoid in the fast GELU
TANH: Final = (0.7978845608028654, 0.044715)  # format: sqrt(2 / pi) and the cubic term of the GELU with tanh


class FormulaError(ValueError):
    """Tensors or arguments that a formula has no meaning for; its text says which."""


def same(values: Array) -> Array:
    """Keep everything."""
    return values


@dataclass(frozen=True, slots=True)
class _Scores:
    """How scores come about: their scale, what hides keys, and what is kept of them."""

    scale: float
    inside: bool
    mode: int
    before: int
    after: int
    prefix: int
    keep: Keep
    squares: bool

    def hidden(self, rows: Array, queries: int, keys: int, mask: Array | None) -> Array | None:
        """Where a query sees no key; None where all are seen."""
        place: Array = np.arange(keys) - rows[:, None]
        shift = keys - queries
        if self.mode == LEFT_CAUSAL:
            return np.asarray(place > 0)
        if self.mode in (RIGHT_CAUSAL, PACKED_PREFIX):
            return np.asarray((place > shift) & (np.arange(keys) >= self.prefix))  # without a prefix this is 0
        if self.mode == BAND:
            return np.asarray((place - shift > self.after) | (shift - place > self.before))
        if mask is None:
            return None
        band = (place > self.after) | (-place > self.before) if self.mode == DEFAULT else False
        return np.asarray((mask[rows, :keys] != 0) | band)


def attention(  # noqa: PLR0913 - one parameter an argument of the operators
    query: Array,
    key: Array,
    value: Array,
    *,
    heads: int = 1,
    key_heads: int = 0,
    layout: str = "BNSD",
    mask: Array | None = None,
    shift: Array | None = None,
    shift_inside: bool = False,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    before: int = WITHOUT_END,
    after: int = WITHOUT_END,
    sparse_mode: int = DEFAULT,
    prefix: Sequence[int] | None = None,
    query_lengths: Sequence[int] | None = None,
    key_lengths: Sequence[int] | None = None,
    keep: Keep = same,
    squares: bool = False,
) -> tuple[Array, ...]:
    """Attention in any layout, without dropout: `keep_prob` plays no part, for which weights fall is random.

    With `squares` the sum of squares of weights times values, by which dropout spreads.
    """
    if keep_prob < 0 or sparse_mode not in range(PACKED_PREFIX + 1):
        raise FormulaError(f"sparse_mode={sparse_mode}, keep_prob={keep_prob}")
    sides = _sequences((query, key, value), layout, (heads, key_heads), (query_lengths, key_lengths))
    outputs = []
    for number, (parts, rows) in enumerate(sides):
        start = int(prefix[number]) if prefix and sparse_mode == PACKED_PREFIX else 0
        scores = _Scores(scale, shift_inside, sparse_mode, before, after, start, keep, squares)
        hides = None if sparse_mode in PACKED else _of_batch(mask, number, len(sides))
        outputs.append(_padded(_one_sequence(parts, scores, hides, _of_batch(shift, number, len(sides))), rows))
    return (_laid_out(outputs, layout),)


def _sequences(
    sides: Sides, layout: str, heads: tuple[int, int], lengths: tuple[Sequence[int] | None, Sequence[int] | None]
) -> list[tuple[Sides, int]]:
    """Query, key and value of each sequence as (heads, tokens, size), without padding, and the rows with padding."""
    if layout == "TND":
        if lengths[0] is None or lengths[1] is None or _lacks_heads(sides):
            raise FormulaError("TND")
        ends = [[0, *(int(end) for end in one)] for one in lengths if one is not None]
        places = [[slice(*pair) for pair in pairwise(one)] for one in ends]
        cut = zip(places[0], places[1], places[1], strict=True)
        found = [tuple(side[place].swapaxes(0, 1) for side, place in zip(sides, own, strict=True)) for own in cut]
        return [(own, own[0].shape[1]) for own in found]  # type: ignore[misc]
    wide = [_by_heads(side, layout, count) for side, count in zip(sides, _counts(sides, layout, heads), strict=True)]
    if len({side.shape[0] for side in wide}) > 1:
        raise FormulaError(f"{[side.shape for side in sides]}")
    return [(_without_padding(wide, lengths, batch), wide[0].shape[2]) for batch in range(wide[0].shape[0])]


def _without_padding(
    wide: Sequence[Array], lengths: tuple[Sequence[int] | None, Sequence[int] | None], batch: int
) -> Sides:
    queries, keys = (_length(one, batch) for one in lengths)
    return wide[0][batch][:, :queries], wide[1][batch][:, :keys], wide[2][batch][:, :keys]


def _lacks_heads(sides: Sides) -> bool:
    return any(side.ndim != 3 for side in sides)


def _length(lengths: Sequence[int] | None, batch: int) -> int | None:
    if not lengths:
        return None
    return int(lengths[batch if len(lengths) > 1 else 0])


def _counts(sides: Sides, layout: str, heads: tuple[int, int]) -> tuple[int, int, int]:
    """The heads of each side; without a word, those of key and value follow from the size of the query's."""
    if layout not in ("BSH", "SBH"):
        return (0, 0, 0)
    size, rest = divmod(sides[0].shape[-1], heads[0] or 1)
    of_keys = heads[1] or (sides[1].shape[-1] // size if size else 0)
    if rest or not of_keys:
        raise FormulaError(f"{layout}, {heads[0]}, {sides[0].shape}")
    return (heads[0], of_keys, of_keys)


def _by_heads(side: Array, layout: str, heads: int) -> Array:
    """A tensor as (batch, heads, tokens, size)."""
    name = layout.partition("_")[0]
    if name not in AXES or side.ndim != len(name) or (heads and side.shape[-1] % heads):
        raise FormulaError(f"{layout}, {side.shape}")
    if heads:
        side = side.reshape(*side.shape[:2], heads, side.shape[-1] // heads)
    return side.transpose(AXES[name])


def _of_batch(table: Array | None, number: int, count: int) -> Array | None:
    """A mask or a shift of scores as (heads, queries, keys) of one sequence."""
    if table is None:
        return None
    wide = table.reshape((1,) * (4 - table.ndim) + table.shape) if table.ndim != 3 else table[:, None]
    return np.asarray(wide[number if wide.shape[0] == count > 1 else 0])


def _one_sequence(sides: Sides, scores: _Scores, mask: Array | None, shift: Array | None) -> Array:
    query, key, value = sides
    if query.shape[-1] != key.shape[-1] or key.shape[:2] != value.shape[:2] or query.shape[0] % max(key.shape[0], 1):
        raise FormulaError(f"{query.shape}, {key.shape}, {value.shape}")
    for table in (mask, shift):
        if table is not None and (table.shape[-2] not in (1, query.shape[1]) or table.shape[-1] < key.shape[1]):
            raise FormulaError(f"{table.shape[-2:]}, {query.shape[1]} x {key.shape[1]}")
    group = query.shape[0] // key.shape[0]
    out = np.empty((*query.shape[:2], value.shape[-1]), query.dtype)
    for head in range(query.shape[0]):
        tables = [
            None if one is None else _rows(one[head if one.shape[0] > 1 else 0], query.shape[1])
            for one in (mask, shift)
        ]
        for start in range(0, query.shape[1], SCORE_ROWS_AT_ONCE):
            rows = np.arange(start, min(start + SCORE_ROWS_AT_ONCE, query.shape[1]))
            parts = query[head], key[head // group], value[head // group]
            out[head, rows] = _rows_of_head(parts, scores, rows, *tables)
    return out


def _rows(table: Array, count: int) -> Array:
    return np.broadcast_to(table, (count, table.shape[-1]))


def _rows_of_head(sides: Sides, scores: _Scores, rows: Array, mask: Array | None, shift: Array | None) -> Array:
    query, key, value = sides
    products = query[rows] @ key.T
    added = 0.0 if shift is None else shift[rows, : key.shape[0]]
    values = scores.scale * (products + added) if scores.inside else scores.scale * products + added
    hidden = scores.hidden(rows, query.shape[0], key.shape[0], mask)
    weights = scores.keep(_softmax(scores.keep(values), hidden))
    return (weights**2) @ (value**2) if scores.squares else weights @ value


def _softmax(values: Array, hidden: Array | None) -> Array:
    """Softmax over the last axis; NaN in rows where all is hidden."""
    shown = values if hidden is None else np.where(hidden, -np.inf, values)
    with np.errstate(invalid="ignore"):
        powers = np.exp(shown - shown.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _padded(values: Array, rows: int) -> Array:
    """Rows of padding are NaN: what is in them is not said."""
    if values.shape[1] == rows:
        return values
    return np.pad(values, ((0, 0), (0, rows - values.shape[1]), (0, 0)), constant_values=np.nan)


def _laid_out(outputs: Sequence[Array], layout: str) -> Array:
    """The sequences in the layout of what is returned."""
    if layout == "TND":
        return np.concatenate([one.swapaxes(0, 1) for one in outputs])
    name = layout.rpartition("_")[2]
    whole = np.stack(outputs).transpose(np.argsort(AXES[name]))
    return whole.reshape(*whole.shape[:2], -1) if len(name) == len("BSH") else whole


def masked_softmax(x: Array, mask: Array, scale: float = 1.0, keep: Keep = same) -> tuple[Array, ...]:
    """Softmax of what is scaled, where the mask is not set."""
    hidden = None if mask is None else np.broadcast_to(mask != 0, x.shape)
    return (_softmax(keep(x * scale), hidden),)


def rotary(
    x: Array,
    cos: Array,
    sin: Array,
    mode: str | float = "half",
    rotate: Array | None = None,
    keep: Keep = same,
) -> tuple[Array, ...]:
    """Rotary embedding of one tensor; `rotate` is the matrix that turns it, if a call gives one."""
    turned = _turned(x, mode) if rotate is None else x @ rotate
    if not _fits(cos, x) or not _fits(sin, x):
        raise FormulaError(f"{cos.shape}, {x.shape}")
    return (keep(x * cos) + keep(turned * sin),)


def _fits(table: Array, x: Array) -> bool:
    return table.ndim == x.ndim and all(own in (1, all_) for own, all_ in zip(table.shape, x.shape, strict=True))


def is_interleaved(mode: str | float) -> bool:
    """Tell what a mode means: `interleave`, 1, or False where it stands for `is_neox_style`.

    >>> [is_interleaved(mode) for mode in ("half", 0, True, "interleave", 1, False)]
    [False, False, False, True, True, True]
    """
    return not mode if isinstance(mode, bool) else mode in ("interleave", 1)


def _turned(x: Array, mode: str | float) -> Array:
    if x.shape[-1] % 2:
        raise FormulaError(f"{x.shape}")
    if is_interleaved(mode):
        return np.asarray(np.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape))
    half = x.shape[-1] // 2
    return np.concatenate((-x[..., half:], x[..., :half]), axis=-1)


def cached_rotary(  # noqa: PLR0913 - one parameter an argument of the operators
    positions: Array,
    query: Array,
    key: Array,
    cache: Array,
    head_size: int,
    mode: str | float = "half",
    keep: Keep = same,
) -> tuple[Array, ...]:
    """Rotary embedding of query and key as (tokens, heads * size), cosines and sines of a table by position."""
    if positions.ndim != 1:
        raise FormulaError(f"{positions.shape}")
    parts = np.split(cache[positions.astype(np.int64)], 2, axis=-1)
    doubled = [np.repeat(part, 2, -1) if is_interleaved(mode) else np.tile(part, (1, 2)) for part in parts]
    size = doubled[0].shape[-1]
    outputs = []
    for side in (query, key):
        wide = side.reshape(len(positions), -1, head_size)
        turned = rotary(wide[..., :size], doubled[0][:, None], doubled[1][:, None], mode, keep=keep)[0]
        outputs.append(np.concatenate((turned, wide[..., size:]), axis=-1).reshape(side.shape))
    return tuple(outputs)


def rms_norm(x: Array, gamma: Array, epsilon: float = 1e-6, keep: Keep = same) -> tuple[Array, ...]:
    """Root-mean-square norm over the axes of `gamma`, and one over the root."""
    axes = tuple(range(-gamma.ndim, 0))
    if x.shape[x.ndim - gamma.ndim :] != gamma.shape:
        raise FormulaError(f"{gamma.shape}, {x.shape}")
    inverse = 1.0 / np.sqrt((x**2).mean(axis=axes, keepdims=True) + epsilon)
    return keep(x * inverse) * gamma, inverse


def add_rms_norm(
    x: Array, added: Array | None, gamma: Array, epsilon: float = 1e-6, keep: Keep = same
) -> tuple[Array, ...]:
    """The norm of a sum; the sum is the third output."""
    total = keep(x if added is None else x + added)
    return (*rms_norm(total, gamma, epsilon, keep), total)


def group_norm(  # noqa: PLR0913 - one parameter an argument of the operators
    x: Array,
    groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    *,
    silu: bool = False,
    keep: Keep = same,
) -> tuple[Array, ...]:
    """Norm of groups of channels, with SiLU if asked; then the means, and one over the deviations."""
    if x.shape[1] % groups:
        raise FormulaError(f"{x.shape}, {groups}")
    wide = x.reshape(x.shape[0], groups, -1)
    mean = wide.mean(axis=-1)
    inverse = 1.0 / np.sqrt(wide.var(axis=-1) + epsilon)
    normed = keep(((wide - mean[..., None]) * inverse[..., None]).reshape(x.shape))
    channels = (1, -1, *[1] * (x.ndim - 2))
    normed = normed * (1.0 if weight is None else weight.reshape(channels))
    normed = keep(normed + (0.0 if bias is None else bias.reshape(channels)))
    return normed * expit(normed) if silu else normed, mean, inverse


def swiglu(x: Array, dim: int = -1, *, swapped: bool = False, keep: Keep = same) -> tuple[Array, ...]:
    """SiLU of the first half times the second; `swapped` takes the halves the other way."""
    if not -x.ndim <= dim < x.ndim or x.shape[dim] % 2:
        raise FormulaError(f"{x.shape}, dim={dim}")
    gate, up = np.split(x, 2, axis=dim)[:: -1 if swapped else 1]
    return (keep(gate * expit(gate)) * up,)


def gelu(x: Array, approximate: str = "none", keep: Keep = same) -> tuple[Array, ...]:
    """GELU by the error function, or with the tanh that comes near it."""
    if approximate == "tanh":
        return (0.5 * x * keep(1.0 + np.tanh(TANH[0] * (x + TANH[1] * x**3))),)
    return (0.5 * x * keep(1.0 + erf(x / np.sqrt(2.0))),)


def silu(x: Array, keep: Keep = same) -> tuple[Array, ...]:
    """SiLU."""
    return (x * keep(expit(x)),)


def fast_gelu(x: Array, keep: Keep = same) -> tuple[Array, ...]:
    """GELU by a sigmoid. The form for older products, with |x|, is the same number."""
    return (x * keep(expit(SLOPE * x)),)


def gating(
    x: Array, finished: Array | None = None, k: int = 1, *, normed: bool = False, keep: Keep = same
) -> tuple[Array, ...]:
    """The `k` largest weights of a router; rows that are finished are NaN. `normed` has them add up to 1."""
    if not 0 < k <= x.shape[-1]:
        raise FormulaError(f"k={k}, {x.shape}")
    best = -np.sort(-_softmax(keep(x), None), axis=-1)[..., :k]
    best = best / best.sum(axis=-1, keepdims=True) if normed else best
    return (best if finished is None else np.where((finished != 0)[..., None], np.nan, best),)


def confusion_transpose(
    x: Array, perm: Sequence[int], shape: Sequence[int], transpose_first: bool, keep: Keep = same
) -> tuple[Array, ...]:
    """Transpose and reshape, in the order asked for."""
    del keep
    try:
        return (x.transpose(perm).reshape(shape) if transpose_first else x.reshape(shape).transpose(perm),)
    except ValueError as error:
        raise FormulaError(f"{x.shape}: {error}") from error


FORMULAS: Final[Mapping[str, Formula]] = {
    one.__name__: one
    for one in (
        attention,
        masked_softmax,
        rotary,
        cached_rotary,
        rms_norm,
        add_rms_norm,
        group_norm,
        swiglu,
        gelu,
        silu,
        fast_gelu,
        gating,
        confusion_transpose,
    )
}
