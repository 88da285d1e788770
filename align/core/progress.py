"""How long work tells where it is: capabilities call a `Progress`, the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called now and then with what is being done and how far it is, in any unit; `done == total` ends that task."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note."""


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""
