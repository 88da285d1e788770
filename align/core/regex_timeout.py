"""Regular expressions of the user's tried on a name, for a limited time: some would take longer than the world lasts.

An alarm interrupts the search. Only the main thread of a program can set one, and not on every system; elsewhere the
search takes as long as it takes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    Found = tuple[int, re.Match[str]] | None

SECONDS = 3  # a sound expression takes microseconds for a name


class MatchTimeoutError(Exception):
    """The time was up while the pattern of this index was tried."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class TimeIsUpError(Exception):
    """The time was up."""


def first_match(patterns: Sequence[re.Pattern[str]], name: str) -> Found:
    """Index and match of the first pattern that matches the whole name; raises MatchTimeoutError after `SECONDS`."""
    if not patterns:
        return None
    tried: list[int] = []
    try:
        with limited_time():
            return _search(patterns, name, tried)
    except TimeIsUpError:
        raise MatchTimeoutError(tried[-1]) from None


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Raise TimeIsUpError in what runs longer than `SECONDS` inside, where an alarm can be set."""
    can_wait = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not can_wait or signal.getsignal(signal.SIGALRM) is None:  # None: it could not be put back
        yield
        return
    before, since = signal.signal(signal.SIGALRM, _interrupt), time.monotonic()
    left, every = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # another's alarm goes on
            signal.setitimer(signal.ITIMER_REAL, max(left - time.monotonic() + since, 1e-3), every)


def _search(patterns: Sequence[re.Pattern[str]], name: str, tried: list[int]) -> Found:
    for index, pattern in enumerate(patterns):
        tried.append(index)
        if match := pattern.fullmatch(name):
            return index, match
    return None


def _interrupt(*_: object) -> None:
    raise TimeIsUpError
