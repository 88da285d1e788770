"""Which way round a class of linear layers keeps its weight: no shape tells that of a square matrix.

The rules under `mappings/layers/layouts` name the classes beyond torch's and MindSpore's own for which it is known, and
the attribute of a live layer that settles it where the class alone does not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder
from align.words.catalogue import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """Whether a class keeps its weight as (in, out): always, or if the attribute `outputs_first_if` is false."""

    class_name: str
    reason: str
    inputs_first: bool = False
    outputs_first_if: str = ""


def inputs_first(classes: tuple[str, ...], layer: object) -> bool | None:
    """Tell whether a live layer of these classes (itself first) keeps its weight as (in, out); None if unknown."""
    known = linear_layouts()
    layout = next((known[name] for name in classes if name in known), None)
    if layout is None or not layout.outputs_first_if:
        return layout.inputs_first if layout else None
    outputs_first = getattr(layer, layout.outputs_first_if, None)
    return None if outputs_first is None else not outputs_first


@cache
def linear_layouts() -> dict[str, LinearLayout]:
    """All layouts by class; raises MappingRuleError naming a malformed file."""
    files = sorted((mappings_folder() / "layers" / "layouts").glob("*.toml"))
    return {layout.class_name: layout for path in files for layout in read_linear_layouts(path)}


def read_linear_layouts(path: Path) -> list[LinearLayout]:
    """Read one file; raises MappingRuleError naming what is malformed."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["layout"]
        return [_layout(table) for table in tables]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, f"malformed: {error!r}") from error


def _layout(table: dict[str, Any]) -> LinearLayout:
    fields = dict(table)
    layout = LinearLayout(fields.pop("class"), fields.pop("reason"), **fields)
    if layout.inputs_first == bool(layout.outputs_first_if) or not layout.reason.strip():
        raise ValueError(say("rule_file.no_layout", class_name=layout.class_name))
    return layout
