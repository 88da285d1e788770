"""Operators that add, given what they add in another order: mathematically the same, and rounded otherwise.

A fixed shuffle of the axis that is summed over stands for the orders that kernels take which are not deterministic.
"""

from __future__ import annotations

from typing import Any

from align.models.thresholds import SEED

# Places of the two matrices of a product, and the axis of the second that is summed over; of the first it is the last.
PRODUCTS = {
    "mm": (0, 1, 0), "addmm": (1, 2, 0), "_addmm_activation": (1, 2, 0), "mv": (0, 1, 0), "addmv": (1, 2, 0),
    "bmm": (0, 1, 1), "baddbmm": (1, 2, 1), "linear": (0, 1, -1),
}  # fmt: skip
CONVOLUTIONS = frozenset({"convolution", "_convolution"})
TRANSPOSED, GROUPS = 6, 8  # no limit: places among the arguments of a convolution


def reordered(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator, shuffled along what it adds over; as they are where it adds nothing up.

    A convolution adds its channels in another order, not the places under its kernel.
    """
    if name in PRODUCTS:
        return _product(args, *PRODUCTS[name])
    if name in CONVOLUTIONS:
        return _convolution(args)
    return _indexed(args)


def _product(args: tuple[Any, ...], first: int, second: int, axis: int) -> tuple[Any, ...]:
    order = _order(args[first].shape[-1], args[first])
    return _with(args, {first: args[first].index_select(-1, order), second: args[second].index_select(axis, order)})


def _convolution(args: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    given, weight, groups = args[0], args[1], args[GROUPS]
    channels = given.dim() - weight.dim() + 1
    size = given.shape[channels] // groups
    inner = _order(size, given)
    starts = torch.arange(groups, device=given.device)[:, None] * size
    order = (starts + inner[None, :]).flatten()
    turned = weight.index_select(0, order) if args[TRANSPOSED] else weight.index_select(1, inner)
    return _with(args, {0: given.index_select(channels, order), 1: turned})


def _indexed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of `index_add` and `scatter_add` what is added, with its places."""
    axis, index, source = args[1:4]
    if index.dim() == 0 or (index.dim() > 1 and index.shape != source.shape):
        return args
    over = axis if index.dim() > 1 else 0
    order = _order(index.shape[over], index)
    return _with(args, {2: index.index_select(over, order), 3: source.index_select(axis, order)})


def _order(size: int, like: Any) -> Any:
    import torch

    return torch.randperm(size, generator=torch.Generator().manual_seed(SEED)).to(like.device)


def _with(args: tuple[Any, ...], changed: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(changed.get(place, one) for place, one in enumerate(args))
