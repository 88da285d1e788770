"""Policies of augmentation: what two programs spell otherwise, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from align.hyperparameters.setting_values import plain_policy
from align.rules.hyperparameter_rules import hyperparameter_rules

SAME = [
    ("rand-m9-mstd0.5-inc1", "randaug-m9-mstd0.5-inc1"),
    ("rand-m9-mstd0.5-inc1", "randaug-inc1-m9"),  # MindCV's mstd is 0.5 if it is not given
    ("rand-m9-n2-mstd0.50-mmax10", "rand-mstd0.5-m9"),
    ("original-mstd0.5", "autoaug"),
    ("originalr-mstd0.5", "autoaugr-mstd0.5"),
    ("rand-m9-inc1", "rand-m9-inc0"),  # both programs take any number for yes
]
OTHER = [
    ("rand-m9-mstd0.5-inc1", "randaug-m7-mstd0.5-inc1"),
    ("rand-m9-mstd0.5-inc1", "randaug-m9-mstd0.5"),
    ("rand-m9", "randaug-m9"),  # without noise in timm
    ("original", "autoaug"),
    ("rand-m9-mstd0.5", "rand-m9-mstd0.5-tweights"),
    ("v0", "autoaug"),
    ("augmix-m5", "randaug-m5"),
]


def differ(settings: Any, first: str, second: str) -> bool:
    """In the whole comparison of timm's arguments with a configuration of MindCV."""
    found = settings.differing(("a.yaml", f"aa: {first}\n"), ("b.yaml", f"auto_augment: '{second}'\n"))
    assert found.keys() <= {"auto_augment"}
    return bool(found)


@pytest.mark.parametrize(("first", "second"), SAME)
def test_policies_that_are_only_spelled_otherwise_are_equal(settings: Any, first: str, second: str) -> None:
    assert not differ(settings, first, second)


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_other_policies_differ(settings: Any, first: str, second: str) -> None:
    assert differ(settings, first, second)


@pytest.mark.parametrize("text", ["", "imagenet", "rand-9", "rand--", "-m9", "rand-m9-\u00e9"])
def test_a_text_that_is_not_understood_stays(text: str) -> None:
    assert plain_policy(text, hyperparameter_rules().parameter("auto_augment").policies) == text


def test_every_policy_has_a_source() -> None:
    policies = hyperparameter_rules().parameter("auto_augment").policies
    assert len(policies) == len({one.name for one in policies}) == 6
    assert all(one.source.startswith("https://github.com/") and one.name for one in policies)
