"""Numbers whose digits are parted, `1,000`, `1_000` or `0,53`, or cut short, `1k`: what stands in front is a part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.line_formats.log_words import counter_kind, is_loss_name
from align.curves.line_formats.numbers_of_line import numbers_of_line
from align.errors import NoNumberError, NoStepError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.curves.line_formats.line_roles import LineRoles

# In a bracket a comma parts two numbers: `[1,200]` is step 200 of epoch 1.
_GROUPED = re.compile(
    r"(?<![\[(\w.,])[-+]?[0-9]+(?:[,_][0-9]+)+(?:\.[0-9]+)?(?![\w,])|(?<![\w.])[0-9]+(?:\.[0-9]+)?[kKM](?![\w/])"
)


def refuse_grouped_digits(label: str, roles: Iterable[LineRoles]) -> None:
    """Raise NoStepError or NoNumberError where such a number stands for a step or a loss in a line with a loss."""
    for one in roles:
        grouped = {found.start(): found[0] for found in _GROUPED.finditer(one.line)}
        numbers = numbers_of_line(one.line) if grouped else []
        if not any(is_loss_name(number.label) for number in numbers):
            continue
        for number in numbers:
            if number.start in grouped and counter_kind(number.label):
                raise NoStepError(label, one.number, grouped[number.start])
            if number.start in grouped and is_loss_name(number.label):
                raise NoNumberError(label, one.number, grouped[number.start])
