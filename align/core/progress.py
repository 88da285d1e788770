"""Long work: it calls a `Progress`, which the command line draws, and may spare itself the search for cycles."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress(Protocol):
    """Called now and then with what is being done and how far it is, in any unit; `done == total` ends that task."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note."""


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a growing tree of records again and again: a third of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
