"""Recomputation of MindSpore passed by: cells that run again on the way back, to save memory."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from align.models.recompute_layers import note_recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.protocols import Model

# Where a cell keeps what `Cell.recompute()` made, and what `mindspore.recompute` finds in its module at each call.
OF_CELL = "_recompute_cell"
REENTRANT, NOT_REENTRANT = "_RecomputeCell", "recompute_without_reentrant"
MODULE = "mindspore.common.recompute"  # the package has a function of this name


@contextmanager
def recompute_passed_by(model: Model) -> Iterator[None]:
    """Let cells that are set to be recomputed run once, and `mindspore.recompute` call what it is given."""
    names = vars(sys.modules[MODULE])
    with ExitStack() as stack:
        for name, plain in ((REENTRANT, _Block), (NOT_REENTRANT, _called)):
            if name in names:  # MindSpore keeps them to itself, and may rename them
                stack.callback(names.__setitem__, name, names[name])
                names[name] = plain
        for cell in [one for _, one in model.cells_and_names() if getattr(one, OF_CELL, None) is not None]:
            stack.callback(_set_aside(cell))
        yield


def _set_aside(cell: Any) -> Callable[[], None]:
    """Take what recomputes a cell out of it: a child, or a function. Return what puts it back."""
    note_recompute()
    attributes, children = vars(cell), cell._cells  # noqa: SLF001 - MindSpore tells of it nowhere else
    where = children if OF_CELL in children else attributes
    kept = where.pop(OF_CELL)
    attributes[OF_CELL] = None

    def put_back() -> None:
        del attributes[OF_CELL]
        where[OF_CELL] = kept

    return put_back


class _Block:
    """Takes the place of the class of the cell around a block: what is made of it is the block."""

    def __new__(cls, block: Callable[..., Any]) -> Any:
        note_recompute()
        return block


def _called(block: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the block with what stands behind the three settings of recomputation."""
    note_recompute()
    kwargs.pop("save_rng_state", None)
    return block(*args[3:], **kwargs)
