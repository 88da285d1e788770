"""Tensors that a model computes from its settings alone: masks, indices, tables of positions.

What the rules under `mappings/layers/constants` name, and no optimizer changes, need not be on both sides; nor need
indices and flags in a layer of no known class. Other whole numbers may be quantized weights.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder
from align.words.catalogue import say, sentence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.parameters import Parameter

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
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["constant"]
        rules = [(table["attributes"], table["reason"], table.keys() - {"attributes", "reason"}) for table in tables]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, f"malformed: {error!r}") from error
    if any(unknown or not isinstance(names, list) or not str(reason).strip() for names, reason, unknown in rules):
        raise MappingRuleError(path, say("rule_file.malformed_constant"))
    return {name: reason for names, reason, _ in rules for name in names}
