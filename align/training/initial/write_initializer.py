"""What to write on one side so that a parameter is drawn as on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.rules.initial_value_rules import initial_value_rules

if TYPE_CHECKING:
    from align.core.parameters import Parameter
    from align.training.initial.name_distribution import Sizes
    from align.training.initial_values_result import Distribution

CUT = 2.0


def write_initializer(wanted: Distribution, sizes: Sizes, target: Parameter, own: Sizes, framework: str | None) -> str:
    """The line that draws a parameter as `wanted`, which was seen in a weight of `sizes`; "" if there is none.

    A scheme is written only where the target's sizes give the same scale, and not for a vector, of which frameworks
    take no sizes.
    """
    if framework not in ("torch", "mindspore") or wanted.scale is None:
        return ""
    rules = initial_value_rules()
    facts = {
        "tensor": target.attribute,
        "shape": str(tuple(target.shape)),
        "scale": f"{wanted.scale:.4g}",
        "twice": f"{CUT * wanted.scale:.4g}",
    }
    scheme = next((one for one in rules.schemes if one.id == wanted.scheme), None)
    text = getattr(scheme, framework) if scheme is not None and len(target.shape) > 1 else ""
    if text and sizes.fans == own.fans:
        return str(text).format(**facts)
    family = rules.families.get(wanted.family)
    return str(getattr(family, framework)).format(**facts) if family is not None else ""
