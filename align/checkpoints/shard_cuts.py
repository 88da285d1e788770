"""What ranks of tensor parallelism hold of a parameter: put together by its cut, and cut in the same way again.

Where two or three layers lie in one, each rank has its part of each of them: the pieces do not follow each other as
they are. How large each layer is the weight behind it tells, whose input it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.checkpoints.shard_pieces import cut_along, equal_copies, joined_along
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import StoredTensor
    from align.rules.training_rules import ShardCut

    Tensors = Mapping[str, StoredTensor]


def join_ranks(
    path: Path, name: str, ranks: Sequence[tuple[str, Tensors]], cut: ShardCut | None, local: str
) -> StoredTensor:
    """The parameter that ranks hold under the name `local`, each with its label; raises ValueError for odd pieces."""
    pieces = [(label, tensors[local]) for label, tensors in ranks]
    if len(pieces) == 1:
        return pieces[0][1]
    if cut is None:
        raise ValueError(say("shard_fault.unknown_cut", name=name, shape=str(pieces[0][1].shape)))
    if cut.axis is None:
        return equal_copies(path, pieces)
    axis = cut.axis
    sizes = [_block_sizes(cut, local, tensors) for _, tensors in ranks]
    if len({len(one) for one in sizes}) > 1:
        raise ValueError(say("shard_fault.unlike_blocks", name=name))
    blocks = []
    for number in range(len(sizes[0])):
        parts = []
        for (_, piece), own in zip(pieces, sizes, strict=True):
            start = sum(own[:number])
            parts.append(cut_along(name, piece, axis, start, start + own[number]))
        blocks.append(joined_along(name, parts, axis))
    return joined_along(name, blocks, axis)


def cut_for_rank(name: str, tensors: Tensors, cut: ShardCut, rank: int, count: int) -> StoredTensor:
    """The piece of a parameter that one of `count` ranks holds; raises ValueError where it cannot be cut evenly."""
    whole = tensors[name]
    if cut.axis is None or count == 1:
        return whole
    if cut.axis >= len(whole.shape):
        raise ValueError(say("shard_fault.no_axis", name=name, shape=str(whole.shape), axis=cut.axis))
    parts, start = [], 0
    for size in _block_sizes(cut, name, tensors):
        if size % count:
            raise ValueError(say("shard_fault.uneven", name=name, shape=str(whole.shape), size=size, count=count))
        step = size // count
        parts.append(cut_along(name, whole, cut.axis, start + rank * step, start + (rank + 1) * step))
        start += size
    return joined_along(name, parts, cut.axis)


def _block_sizes(cut: ShardCut, name: str, tensors: Tensors) -> list[int]:
    """How long each of the layers is that lie in one parameter; one size where there is but one."""
    tensor, axis = tensors[name], cut.axis or 0
    if axis >= len(tensor.shape):
        raise ValueError(say("shard_fault.no_axis", name=name, shape=str(tensor.shape), axis=axis))
    length = tensor.shape[axis]
    if not cut.neighbour(name):
        return [length]
    behind = tensors.get(cut.neighbour(name))
    if behind is None or len(behind.shape) != 2:
        raise ValueError(say("shard_fault.no_neighbour", name=name, other=cut.neighbour(name)))
    taken = behind.shape[1]
    if cut.gated:
        if length not in (taken, 2 * taken):
            raise ValueError(
                say("shard_fault.odd_gate", name=name, length=length, other=cut.neighbour(name), taken=taken)
            )
        return [taken] * (length // taken)
    rest = length - taken
    if rest <= 0 or rest % 2:
        raise ValueError(say("shard_fault.odd_gate", name=name, length=length, other=cut.neighbour(name), taken=taken))
    return [taken, rest // 2, rest // 2]
