"""What is known of layers beside how they name their parameters: layouts of matrices, and constants.

No shape tells which way round a square matrix is kept. The rules under `mappings/layers/layouts` name the classes
beyond torch's and MindSpore's own for which it is known, and the attribute of a live layer that settles it where the
class alone does not. Masks, indices and tables of positions are computed from settings alone: what the rules under
`mappings/layers/constants` name, and no optimizer changes, need not be on both sides; nor need indices and flags in a
layer of no known class. Other whole numbers may be quantized weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.parameters import Parameter


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
    return read_rules(path, lambda document: [_layout(table) for table in document["layout"]])


def _layout(table: dict[str, Any]) -> LinearLayout:
    fields = dict(table)
    layout = LinearLayout(fields.pop("class"), fields.pop("reason"), **fields)
    if layout.inputs_first == bool(layout.outputs_first_if) or not layout.reason.strip():
        raise ValueError(say("rule_file.no_layout", class_name=layout.class_name))
    return layout


_WHOLE = frozenset({"bool", "uint8", "int32", "int64"})
_INDICES = frozenset({"bool", "int64"})
_UNNAMED = sentence("dropped_reason.constants")


def constant_reason(parameter: Parameter, *, known_layer: bool) -> str:
    """Why a tensor may be left out that only one side has, "" if nothing says that it is a constant.

    `known_layer` says that a layer rule knows the class that holds it.
    """
    fixed = parameter.buffer or parameter.trainable is False
    named = constants().get(parameter.attribute, "")
    if named and (fixed or (parameter.trainable is None and parameter.dtype in _WHOLE)):
        return named
    return _UNNAMED if fixed and not known_layer and parameter.dtype in _INDICES and parameter.shape else ""


@cache
def constants() -> dict[str, str]:
    """Reason by attribute; raises MappingRuleError naming a malformed file."""
    files = sorted((mappings_folder() / "layers" / "constants").glob("*.toml"))
    return {name: reason for path in files for name, reason in read_constants(path).items()}


def read_constants(path: Path) -> dict[str, str]:
    """Read one file; raises MappingRuleError naming what is malformed."""
    rules = read_rules(
        path, lambda document: [(one["attributes"], one["reason"], len(one)) for one in document["constant"]]
    )
    if any(keys > 2 or not isinstance(names, list) or not str(reason).strip() for names, reason, keys in rules):
        raise MappingRuleError(path, say("rule_file.malformed_constant"))
    return {name: reason for names, reason, _ in rules for name in names}
