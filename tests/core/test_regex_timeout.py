"""Patterns are tried in their order, none for longer than the limit; the caller's alarm is kept."""

from __future__ import annotations

import re
import signal
import threading

import pytest

from align.core.regex_timeout import MatchTimeoutError, first_match

ENDLESS = re.compile("(.*)*(.*)*(.*)*(.*)*q")
NAME = "encoder.layer.attention.weight" * 3


def test_the_first_pattern_that_matches_the_whole_name_is_found() -> None:
    found = first_match([re.compile("fc"), re.compile(r"fc\.(.*)"), re.compile(".*")], "fc.weight")
    assert found is not None
    assert (found[0], found[1][1]) == (1, "weight")
    assert first_match([re.compile("fc")], "fc.weight") is None
    assert first_match([], "fc.weight") is None


def test_a_pattern_without_an_end_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align.core.regex_timeout.SECONDS", 0.1)
    with pytest.raises(MatchTimeoutError) as caught:
        first_match([re.compile("fc"), ENDLESS], NAME)
    assert caught.value.index == 1


def test_the_callers_alarm_is_put_back() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    try:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        left, _ = signal.setitimer(signal.ITIMER_REAL, 60)
        first_match([re.compile("fc")], "fc")
        assert 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        assert signal.getsignal(signal.SIGALRM) is signal.default_int_handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before[0])


def test_another_thread_matches_without_a_limit() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(first_match([re.compile("fc")], "fc")))
    thread.start()
    thread.join()
    assert found != [None]
    assert found
