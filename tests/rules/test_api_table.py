"""The table of counterparts: every class of torch.nn is in it, and what it calls the same is the same."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from align.errors import UsageError
from align.rules.ascend_rules import ApiEntry, api_entries, scan_target

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

EVERY = 12  # no limit: every so manieth entry is tried


def test_each_entry_says_what_to_write_where_torchs_call_is_not_taken(assert_each) -> None:
    def says(entry: ApiEntry) -> None:
        status, counterpart = entry.answer("cpu")
        if status == "no counterpart":
            assert entry.write
        if status in ("other default", "other name"):
            assert counterpart
            assert counterpart.write
        if status == "other default":
            assert counterpart.settings

    assert_each(says, api_entries().values())


def test_a_target_decides_which_counterpart_counts() -> None:
    convolution = api_entries()["torch.nn.functional.conv2d"]
    on_cpu, on_ascend = convolution.answer("cpu"), convolution.answer("ascend")
    assert (on_cpu[0], on_cpu[1] and on_cpu[1].name) == ("other default", "mindspore.ops.conv2d")
    assert (on_ascend[0], on_ascend[1] and on_ascend[1].name) == ("same", "mindspore.mint.nn.functional.conv2d")
    assert api_entries()["torch.einsum"].answer("cpu")[0] == "no kernel"
    assert api_entries()["torch.nn.functional.rms_norm"].answer("cpu")[0] == "no counterpart"


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(UsageError, match="no target is called 'tpu'"):
        scan_target("tpu")


@pytest.mark.frameworks
def test_every_class_of_torch_nn_is_classified() -> None:
    import torch

    names = [f"torch.nn.{name}" for name, one in vars(torch.nn).items() if inspect.isclass(one)]
    assert [name for name in names if name not in api_entries()] == []


@pytest.mark.frameworks
def test_a_sample_of_what_is_the_same_returns_the_same(assert_each) -> None:
    from _api_calls import called, differences, find, reader_of

    def function(name: str) -> Any:
        found = find(name)
        return found if callable(found) and name != "mindspore.Tensor.dtype" else reader_of(name)

    def is_same(entry: ApiEntry) -> None:
        there = entry.answer("cpu")[1]
        assert there is not None
        for example in entry.examples:
            reference = called("torch", function(entry.torch), example)
            call = example.replace(", inplace=True", "").replace("inplace=True", "")
            other = called("mindspore", function(there.name), call)
            assert other.error == ""
            assert differences(example, reference, other) == ""

    same = [one for one in api_entries().values() if one.answer("cpu")[0] == "same" and one.examples]
    assert_each(is_same, same[::EVERY])


@pytest.mark.frameworks
def test_the_trial_sees_a_counterpart_that_computes_otherwise() -> None:
    from _api_calls import called, differences, find

    example = "F(x(2, 3))"
    reference = called("torch", find("torch.nn.functional.leaky_relu"), example)
    other = called("mindspore", find("mindspore.ops.leaky_relu"), example)
    assert other.error == ""
    assert "values differ" in differences(example, reference, other)


@pytest.mark.frameworks
def test_no_layer_is_called_the_same_of_which_a_pitfall_says_otherwise(assert_each) -> None:
    from make_api_tables import linted

    def agrees(entry: ApiEntry) -> None:
        there = entry.answer("cpu")[1]
        assert there is not None
        assert linted(entry.torch, {"name": there.name, "relation": "same"})["relation"] == "same"

    layers = [one for name, one in api_entries().items() if name.startswith("torch.nn.") and name.count(".") == 2]
    same = [one for one in layers if one.answer("cpu")[0] == "same" and one.examples]
    assert len(same) > 50
    assert_each(agrees, same)


@pytest.mark.frameworks
def test_a_default_that_a_pitfall_knows_is_seen() -> None:
    from make_api_tables import linted

    found = linted("torch.nn.LeakyReLU", {"name": "mindspore.nn.LeakyReLU", "relation": "same"})
    assert found["relation"] == "other default"
    assert "0.2" in found["settings"][0]["mindspore"]
