"""Public names of the layer classes that dumps name without their package: `Conv2d` of torch is `torch.nn.Conv2d`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Collection

_PACKAGES = {"torch": ("torch.nn",), "mindspore": ("mindspore.nn", "mindspore.mint.nn")}


def public_classes(framework: str, class_name: str, attributes: Collection[str]) -> tuple[str, ...]:
    """The class as the layer rules know it: of several the first whose parameters have such names; else as it is.

    >>> public_classes("mindspore", "LayerNorm", ["weight", "bias"])
    ('mindspore.mint.nn.LayerNorm',)
    """
    for package in _PACKAGES.get(framework, ()):
        name = f"{package}.{class_name}"
        if (found := rule_for((name,))) and set(attributes) <= set(found[0].families[found[1]].parameters.values()):
            return (name,)
    return (class_name,) if class_name else ()
