from __future__ import annotations

import pytest

from align.errors import UsageError
from align.steps.naming import Direction, direction, source_framework


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["bn.weight", "bn.running_mean"], "torch"),
        (["bn.gamma", "bn.beta", "bn.moving_mean"], "mindspore"),
        (["emb.embedding_table"], "mindspore"),
        (["ln.gamma", "ln.beta"], "mindspore"),
        (["blocks.0.gamma", "blocks.0.fc.weight"], "torch"),
        (["ln.gamma", "ln.beta", "bn.running_mean"], "torch"),
        (["bn.moving_mean", "mint.running_mean"], "mindspore"),
        (["w"], "torch"),
        ([], "torch"),
    ],
)
def test_names_tell_the_framework_where_the_format_does_not(names, framework) -> None:
    found, warning = source_framework({}, names)
    assert found == framework
    assert bool(warning) == (framework == "mindspore")


def test_the_format_tells_it_first_and_without_a_word() -> None:
    assert source_framework({"format": "pt"}, ["ln.gamma", "ln.beta"]) == ("torch", "")
    assert source_framework({"format": "ms"}, ["fc.weight"]) == ("mindspore", "")


@pytest.mark.parametrize(
    ("source", "target", "destination", "framework", "family"),
    [
        ("torch", None, "mindspore", "mindspore", "nn"),
        ("torch", "mint", "mindspore", "mindspore", "mint"),
        ("torch", None, "torch", "torch", None),
        ("torch", "torch", "torch", "torch", None),
        ("torch", None, None, "mindspore", "nn"),
        ("torch", "mint", None, "mindspore", "mint"),
        ("torch", "torch", None, "torch", None),
        ("mindspore", None, "mindspore", "mindspore", None),
        ("mindspore", None, "torch", "torch", "torch"),
        ("mindspore", "torch", "torch", "torch", "torch"),
        ("mindspore", None, None, "mindspore", None),
        ("mindspore", "torch", None, "torch", "torch"),
    ],
)
def test_the_ends_decide_where_the_names_go(source, target, destination, framework, family) -> None:
    assert direction(source, target, destination) == Direction(source, framework, family)


@pytest.mark.parametrize(
    ("source", "target", "destination", "word"),
    [
        ("torch", "torch", "mindspore", "does not go with"),
        ("torch", "nn", "torch", "does not go with"),
        ("mindspore", "mint", "torch", "does not go with"),
        ("mindspore", "torch", "mindspore", "does not go with"),
        ("mindspore", "nn", "mindspore", "says nothing of"),
        ("mindspore", "nn", None, "says nothing of"),
    ],
)
def test_contradictions_are_refused(source, target, destination, word) -> None:
    with pytest.raises(UsageError, match=word):
        direction(source, target, destination)
