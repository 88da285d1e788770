"""Names that no table knows pair at other depths where that is safe, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

FIRST = "data_conf: {filter: {longest: 40, shortest: 0}, kind: {batching: static}}\n"


def test_one_setting_at_two_depths_is_compared(settings: Any) -> None:
    second = "data_conf: {longest: 30, shortest: 0, batching: bucket}\n"
    assert settings.differing(("a.yaml", FIRST), ("b.yaml", second)) == {
        "data_conf.filter.longest": ("40", "30"),
        "data_conf.kind.batching": ("static", "bucket"),
    }
    equal = settings.compare(("a.yaml", FIRST), ("b.yaml", second)).equal
    assert {one.parameter for one in equal} == {"data_conf.filter.shortest"}


@pytest.mark.parametrize(
    "second",
    [
        "other: {longest: 30}\n",  # under no common part
        "data_conf: {a: {longest: 30}, b: {longest: 20}}\n",  # two names end so
        "data_conf: {longest: imagenet}\n",  # a word against a number
        "longest: 30\n",  # under no part at all
    ],
)
def test_what_may_be_another_setting_is_not(settings: Any, second: str) -> None:
    assert settings.differing(("a.yaml", FIRST), ("b.yaml", second)) == {}


def test_last_parts_that_say_nothing_do_not_pair(settings: Any) -> None:
    first, second = "net: {head: {size: 3, type: A}}\n", "net: {neck: {size: 4, type: B}}\n"
    assert settings.differing(("a.yaml", first), ("b.yaml", second)) == {}


def test_a_name_that_both_sides_have_stays_with_itself(settings: Any) -> None:
    first = "net: {longest: 1, deep: {longest: 2}}\n"
    assert settings.differing(("a.yaml", first), ("b.yaml", "net: {longest: 1}\n")) == {}


def test_a_name_that_another_ends_with_is_compared(settings: Any) -> None:
    first = "audio: {pitch: {feature: a, scale: 1}, energy: {feature: b}}\n"
    second = "pitch: {feature: c, scale: 1}\nenergy: {feature: b}\n"
    assert settings.differing(("a.yaml", first), ("b.yaml", second)) == {"audio.pitch.feature": ("a", "c")}


def test_a_name_that_two_others_end_with_is_not(settings: Any) -> None:
    first, second = "a: {pitch: {feature: a}}\nb: {pitch: {feature: b}}\n", "pitch: {feature: c}\n"
    assert settings.differing(("a.yaml", first), ("b.yaml", second)) == {}
