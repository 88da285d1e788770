"""Layers that drop a share of what they are given, in any framework."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.core.protocols import Model

# What modules call the share that they drop, or that they keep, where they hand it to a function themselves.
_DROPS = re.compile(r"Drop|Stochastic_?Depth")
_SHARES = re.compile(r"(?:\w+_)?(?:dropout|drop)(?:_(?:p|prob|rate|ratio))?|keep_prob")


def dropping(
    modules: Iterable[tuple[str, Model]], off: Mapping[str, float]
) -> Iterator[tuple[str, Model, dict[str, Any]]]:
    """Modules that drop a share of what they are given, each with the attributes that switch it off.

    Layers for dropout, by their class or one that it derives from, have the attributes `off`; others keep a share as a
    number under a usual name.
    """
    for path, module in modules:
        attributes = vars(module)
        drops = any(_DROPS.search(one.__name__) for one in type(module).__mro__)
        found = {name: value for name, value in off.items() if drops and name in attributes}
        shares = {name for name, value in attributes.items() if isinstance(value, float) and 0.0 < value < 1.0}
        found |= {name: 1.0 if name == "keep_prob" else 0.0 for name in shares if _SHARES.fullmatch(name)}
        if found:
            yield path, module, found
