"""Every entry of `mappings/ascend/` says of which chip it speaks, where that stands and how sure it is."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest

from align.errors import UsageError
from align.rules.ascend_rules import (
    MAKERS,
    Certainty,
    Driver,
    OperatorClass,
    OperatorEntry,
    ascend_chips,
    ascend_switches,
    ascend_target,
    operator_entries,
)

DRIVERS: dict[str, Driver] = {"ascend": "torch_npu", "gpu": "torch"}
RELEASE = re.compile(r"\d+\.\d+( to \d+\.\d+)?")
ADDRESS = re.compile(
    r"https://(www\.)?(hiascend\.com|mindspore\.cn|gitcode\.com|github\.com|gitee\.com|docs\.pytorch\.org)/\S+"
)


def test_each_entry_has_chips_a_release_a_source_a_certainty_and_a_class(assert_each) -> None:
    known = {chip.id for maker in MAKERS for chip in ascend_chips(maker)}

    def is_whole(entry: OperatorEntry) -> None:
        assert entry.operators
        assert entry.chips
        assert set(entry.chips) <= known
        assert RELEASE.fullmatch(entry.cann)
        assert ADDRESS.fullmatch(entry.source)
        assert entry.certainty in get_args(Certainty)
        assert entry.operator_class in get_args(OperatorClass)

    assert_each(is_whole, [entry for maker in MAKERS for entry in operator_entries(maker)])


def test_ids_are_unique_and_files_are_all_read() -> None:
    ids = [entry.id for entry in operator_entries()]
    assert len(ids) == len(set(ids)) >= 18


def test_each_switch_that_an_entry_names_is_known_and_changes_what_the_entry_says(assert_each) -> None:
    def changes_it(chip: str, entry: OperatorEntry) -> None:
        target = replace(ascend_target(chip, switches={entry.switch: entry.when[entry.switch][0]}), reorders=True)
        switches = {switch.id: switch for switch in target.own_switches}
        assert entry in target.entries()
        assert entry not in target.with_switches({entry.switch: entry.keeps}).entries()
        assert entry.keeps in switches[entry.switch].values

    entries = [(f"{maker}:{one.chips[0]}", one) for maker in MAKERS for one in operator_entries(maker) if one.switch]
    assert_each(changes_it, entries)


def test_switches_have_a_default_everywhere_and_lines_for_both_frameworks() -> None:
    for maker, switch in [(one, switch) for one in MAKERS for switch in ascend_switches(one)]:
        assert RELEASE.fullmatch(switch.cann)
        assert ADDRESS.fullmatch(switch.source)
        assert switch.write.keys() == {"mindspore", DRIVERS[maker]}
        for chip in ascend_chips(maker):
            for driver in ("mindspore", DRIVERS[maker]):
                value = ascend_target(chip.label, driver).switches[switch.id]
                assert value in switch.values
                assert switch.line(driver, value)


def test_a_chip_goes_by_the_names_that_people_give_it() -> None:
    names = ("ascend:910B", "ascend:910b4", "ascend:Ascend910B1", "Ascend:a2")
    assert {ascend_target(name).chip.id for name in names} == {"910b"}
    assert ascend_target("ascend:910ProB").chip.id == "910a"
    assert {ascend_target(name).chip.label for name in ("gpu", "gpu:H100", "GPU:ampere")} == {"gpu:ampere"}


@pytest.mark.parametrize("name", ["ascend:920", "910b", "cuda:0", "ascend:", ""])
def test_an_unknown_chip_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(UsageError, match="no chip is called") as caught:
        ascend_target(name)
    assert "ascend:910a, ascend:310p, ascend:910b" in str(caught.value)


def test_unknown_switches_and_values_are_refused() -> None:
    with pytest.raises(UsageError, match="no switch is called 'speed'"):
        ascend_target("ascend:910b", switches={"speed": "high"})
    with pytest.raises(UsageError, match="precision_mode cannot be 'fp32'"):
        ascend_target("ascend:910b", switches={"precision_mode": "fp32"})


def test_what_is_rounded_follows_from_chip_framework_and_switches() -> None:
    def computes(target: str, driver: str = "mindspore", **switches: str) -> dict[str, str]:
        operators = ascend_target(target, driver, switches).emulation().operators  # type: ignore[arg-type]
        return {name: rounding.computes for name, rounding in operators.items()}

    assert computes("ascend:310p")["convolution"] == computes("ascend:310p")["mm"] == "float16"
    assert computes("ascend:910b") == {
        "convolution": "HF32", "_convolution": "HF32", "_conv_depthwise2d": "HF32", "lstm": "float16", "gru": "float16"
    }  # fmt: skip
    assert "lstm" not in computes("ascend:910b", "torch_npu")
    assert computes("ascend:910b", conv_allow_hf32="False").keys() == {"lstm", "gru"}
    assert computes("ascend:910b", precision_mode="allow_fp32_to_fp16")["convolution"] == "float16"
    assert ascend_target("ascend:310p").emulation().saturates
    assert not ascend_target("ascend:910b").emulation().saturates
    assert ascend_target("ascend:910b", switches={"inf_nan_mode": "0"}).emulation().saturates


@pytest.mark.frameworks
def test_the_operators_of_torch_that_entries_name_exist(assert_each) -> None:
    import torch

    def is_there(name: str) -> None:
        assert hasattr(torch.ops.aten, name) or callable(getattr(torch, name, None))

    assert_each(
        is_there,
        sorted({name for maker in MAKERS for entry in operator_entries(maker) for name in entry.torch} - {"*"}),
    )


def test_a_value_that_the_driving_framework_ignores_is_refused() -> None:
    assert ascend_target("ascend:910b", switches={"precision_mode": "force_fp16"}).entries()
    with pytest.raises(UsageError, match="when torch_npu drives the chip"):
        ascend_target("ascend:910b", "torch_npu", {"precision_mode": "force_fp16"})


def test_switches_on_which_nothing_depends_are_known() -> None:
    asked = {"precision_mode": "must_keep_origin_dtype", "conv_allow_hf32": "False"}
    assert ascend_target("ascend:310p", switches=asked).without_effect() == tuple(asked)
    assert ascend_target("ascend:910b", switches=asked).without_effect() == ()
    assert ascend_target("ascend:310p").changing() == ()
    assert ascend_target("ascend:950").changing() == ("precision_mode", "conv_allow_hf32", "matmul_allow_hf32")
    assert ascend_target("ascend:910b").coarser_by() == ("precision_mode", "matmul_allow_hf32")
