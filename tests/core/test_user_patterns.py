"""Patterns of users are searched for a limited time, and mean what `re` says."""

from __future__ import annotations

import re

import pytest

from align.core.documents import LimitedPattern

ENDLESS = re.compile(r"(?:\w|\w\w|\.)+[0-9]")
NAME = "encoder.layer.attention.weight" * 3


def test_all_searches_of_a_pattern_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align.core.documents.PATTERN_SECONDS", 0.2)
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
