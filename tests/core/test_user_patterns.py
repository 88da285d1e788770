"""Patterns of users are tried in their order, for a limited time on any thread, and mean what `re` says."""

from __future__ import annotations

import re
import signal
import threading

import pytest

from align.core.user_patterns import LimitedPattern, MatchTimeoutError, first_match

ENDLESS = re.compile(r"(?:\w|\w\w|\.)+[0-9]")
NAME = "encoder.layer.attention.weight" * 3


def test_the_first_pattern_that_matches_the_whole_name_is_found() -> None:
    found = first_match([re.compile("fc"), re.compile(r"fc\.(.*)"), re.compile(".*")], "fc.weight")
    assert found is not None
    assert (found[0], found[1][1], found[1].expand(r"dense.\1")) == (1, "weight", "dense.weight")
    assert first_match([re.compile("fc")], "fc.weight") is None
    assert first_match([], "fc.weight") is None


def find_endless(found: list[int]) -> None:
    """Note the place of the pattern that takes too long."""
    with pytest.raises(MatchTimeoutError) as caught:
        first_match([re.compile("fc"), ENDLESS], NAME)
    found.append(caught.value.index)


def test_a_pattern_without_an_end_is_named_by_its_place_on_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align.core.user_patterns.PATTERN_SECONDS", 0.1)
    before, found = signal.getsignal(signal.SIGALRM), list[int]()
    find_endless(found)
    thread = threading.Thread(target=find_endless, args=(found,))
    thread.start()
    thread.join()
    assert found == [1, 1]
    assert signal.getsignal(signal.SIGALRM) is before


def test_all_searches_of_a_pattern_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align.core.user_patterns.PATTERN_SECONDS", 0.2)
    limited = LimitedPattern(re.compile("loss (.)"))
    assert limited.search("a loss 2")[1] == "2"
    matches = limited.finditer("loss 1, loss 2")
    assert next(matches)[1] == "1"
    with pytest.raises(TimeoutError):
        LimitedPattern(ENDLESS).search(NAME)
    with pytest.raises(TimeoutError):
        next(matches)


@pytest.mark.filterwarnings("ignore:Possible (nested set|set intersection|set union|set symmetric):FutureWarning")
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"a{i}", ("a{i}", "a", "ab")),  # `regex` allows errors so
        (r"(loss){e<=1}", ("loss{e<=1}", "lost", "loss")),
        (r"x{}y{,}z{2}\{{,2}", ("x{}yyzz{{", "x{}zz")),
        (r"[[:alpha:]]+", (":]", "[]]", "b")),
        (r"[]{}[^]+[^]{]", ("]{}[^x", "[]")),
        (r"[:=] ?(\d+)\b", (": 5", "=5", "[ 5")),
        (r"[a&&b|~~]+", ("a&|~", "b")),
        (r"(?i)LOSS\s*[\[{]\s*(?P<loss>\S+?)[\]}]", ("Loss {0.5}", "loss [1]")),
        ("(?x) a\\ b  # c [\n", ("a b", "ab")),
        (r"\N{DIGIT ONE}{2}\\{", ("11\\{", "1{2}\\{")),
        (r"(?P<a>x)?(?(a)y|z)(?=.)(?P=a)?.*$", ("xyxw", "zq", "y")),
    ],
)
def test_a_pattern_means_what_it_means_to_re(pattern: str, texts: tuple[str, ...]) -> None:
    compiled = re.compile(pattern)
    found = [(compiled.search(text), LimitedPattern(compiled).search(text)) for text in texts]
    assert any(ours for ours, _ in found)
    for ours, theirs in found:
        assert (ours and (ours.span(), ours.groups())) == (theirs and (theirs.span(), theirs.groups()))
