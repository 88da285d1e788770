"""Whether layers of activation checkpointing are computed again on the way back, as a side by itself does.

Otherwise they run once, as all layers do: then what they take and return, and the gradients of it, are seen like any.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_recomputes = ContextVar("recomputes", default=False)
_noted: ContextVar[list[bool] | None] = ContextVar("noted", default=None)


def layers_run_once() -> bool:
    """Tell whether steps are to pass checkpointing by."""
    return not _recomputes.get()


@contextmanager
def layers_recomputed() -> Iterator[None]:
    """Let steps in this block run as a side takes them by itself."""
    token = _recomputes.set(True)
    try:
        yield
    finally:
        _recomputes.reset(token)


def note_recompute() -> None:
    """Note that something is checkpointed, though it is passed by."""
    noted = _noted.get()
    if noted is not None:
        noted.append(True)


@contextmanager
def recompute_noted() -> Iterator[list[bool]]:
    """Yield a list that is not empty any more once something was passed by in this block."""
    noted: list[bool] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
