"""Which calls of a script set a training: `torch.optim.AdamW(..., lr=1e-4)`, `clip_grad_norm_(..., 1.0)`.

`mappings/hyperparameters/calls/` lists them, a file for each library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = ("hyperparameters", "calls")


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Calls of one kind: what they end with, the setting that is called like them, and those that arguments give."""

    calls: tuple[str, ...]
    named: str = ""
    keywords: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)


@cache
def script_calls() -> tuple[ScriptCall, ...]:
    """All calls of the tables; raises MappingRuleError for a malformed file.

    >>> any("optim.[A-Z]*" in one.calls for one in script_calls())
    True
    """
    files = sorted(mappings_folder().joinpath(*FOLDER).glob("*.toml"))
    return tuple(one for path in files for one in read_rules(path, _calls))


def _calls(document: dict[str, Any]) -> list[ScriptCall]:
    return [ScriptCall(**{**one, "calls": tuple(one["calls"])}) for one in document["call"]]
