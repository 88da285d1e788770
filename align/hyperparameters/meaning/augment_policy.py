"""Policies of augmentation written as texts: `rand-m9-mstd0.5-inc1` of timm is `randaug-inc1-m9` of MindCV."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.rules.hyperparameter_rules import Policy

_PART = re.compile(r"([A-Za-z]+)(\d.*)?$")


def plain_policy(text: str, policies: Iterable[Policy]) -> str:
    """A policy in one form: its common name, then its parts in order, those too that its program fills in.

    A text of no known policy, or with a part that is not understood, stays as it is.

    >>> from align.rules.hyperparameter_rules import hyperparameter_rules
    >>> plain_policy("randaug-m7", hyperparameter_rules().parameter("auto_augment").policies)
    'rand-m7-mmax10-mstd0.5-n2-p0.5'
    """
    name, *parts = text.strip().lower().split("-")
    policy = next((one for one in policies if one.name == name), None)
    given = [_PART.match(part) for part in parts]
    if policy is None or not all(given):
        return text
    held: dict[str, str] = {key: _number(str(value)) for key, value in policy.parts.items()}
    held |= {found[1]: "" if found[1] in policy.flags else _number(found[2] or "") for found in given if found}
    return "-".join([policy.same, *_joined(held)])


def _joined(held: dict[str, str]) -> Iterator[str]:
    return (key + value for key, value in sorted(held.items()))


def _number(text: str) -> str:
    """A number in its shortest form: 0.50 is 0.5, 9.0 is 9."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text
