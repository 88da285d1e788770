from __future__ import annotations

import pytest

from align.checkpoints.names_in_file import (
    NamingDirection,
    check_kept,
    exporter_warnings,
    naming_direction,
    source_framework,
)
from align.errors import UsageError


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
    found, telling = source_framework({}, names)
    assert found == framework
    assert bool(telling) == (framework == "mindspore")


def test_the_format_tells_it_first_whatever_the_names() -> None:
    assert source_framework({"format": "pt"}, ["ln.gamma", "ln.beta"]) == ("torch", [])
    assert source_framework({"format": "ms"}, ["fc.weight"]) == ("mindspore", [])


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
        ("mindspore", "nn", "mindspore", "mindspore", None),
        ("mindspore", "mint", None, "mindspore", None),
    ],
)
def test_the_ends_decide_where_the_names_go(source, target, destination, framework, family) -> None:
    assert naming_direction(source, target, destination) == NamingDirection(source, framework, family)


@pytest.mark.parametrize(
    ("source", "target", "destination", "word"),
    [
        ("torch", "torch", "mindspore", "does not go with"),
        ("torch", "nn", "torch", "does not go with"),
        ("mindspore", "mint", "torch", "does not go with"),
        ("mindspore", "torch", "mindspore", "does not go with"),
    ],
)
def test_contradictions_are_refused(source, target, destination, word) -> None:
    with pytest.raises(UsageError, match=word):
        naming_direction(source, target, destination)


NN, MINT = ["bn.gamma", "bn.moving_mean"], ["bn.weight", "bn.running_mean"]


@pytest.mark.parametrize(
    ("target", "names"),
    [("nn", NN), ("mint", MINT), ("nn", [*NN, *MINT]), ("mint", [*NN, *MINT]), ("nn", ["fc.w"]), (None, NN)],
)
def test_names_that_stay_may_be_called_what_they_are(target, names) -> None:
    check_kept(target, names)


@pytest.mark.parametrize(("target", "names", "other"), [("mint", NN, "nn"), ("nn", MINT, "mint")])
def test_names_that_stay_and_are_others_are_refused(target, names, other) -> None:
    with pytest.raises(UsageError, match=f"--target {target} contradicts the source, whose names are those of {other}"):
        check_kept(target, names)


def test_names_that_an_exporter_made_are_said() -> None:
    (warning,) = exporter_warnings(["fc.weight", "onnx::Conv_16", "onnx::MatMul_17"])
    assert warning.startswith("2 tensors with a name that the exporter to ONNX made (onnx::Conv_16, onnx::MatMul_17)")
    assert list(exporter_warnings(["fc.weight", "my_onnx::x"])) == []
