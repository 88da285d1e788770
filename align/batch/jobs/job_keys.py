"""What a job file may say: the paths and options of each action, and what each value must be."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from align.convert.convert_checkpoint import PRECISIONS, TARGETS
from align.errors import UsageError
from align.forward.allowances import read_limits
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable

# The paths of each action, in the order in which a task has them.
PATHS: Final[dict[str, tuple[str, ...]]] = {
    "diff": ("reference", "candidate"),
    "forward": ("reference", "candidate"),
    "convert": ("source", "destination"),
    "check": ("file",),
}
TEXT: Final = "text"
_TEXTS: Final = "texts"
OPTIONS: Final[dict[str, dict[str, str]]] = {
    "diff": {"map": TEXT, "strip": _TEXTS, "key_a": TEXT, "key_b": TEXT},
    "forward": {"map": TEXT, "limit": "limits", "partial": "switch"},
    "convert": {
        "map": TEXT,
        "family": TEXT,
        "target": "target",
        "layer": _TEXTS,
        "strip": _TEXTS,
        "key": TEXT,
        "dtype": "dtype",
        "max_shard_size": TEXT,
        "verify": "switch",
        "overwrite": "switch",
    },
    "check": {"key": TEXT},
}
RANKS: Final = {"replicated": _TEXTS, "sharded": _TEXTS}
OF_TABLE: Final = {"id": TEXT, "ranks": "numbers", "steps": "numbers", "timeout": "seconds"}
OF_JOB: Final = {"timeout": "seconds"}


def value_fault(kind: str, value: Any) -> str:
    """What a value of a kind should be, where it is something else; "" if it is right."""
    return "" if _FITS[kind](value) else say(f"job_fault.{kind}", targets=TARGETS, dtypes=[*PRECISIONS])


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int and one >= 0 for one in value)


def _limits(value: Any) -> bool:
    try:
        return _texts(value) and bool(read_limits(value) or not value)
    except UsageError:
        return False


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    TEXT: lambda value: isinstance(value, str),
    _TEXTS: _texts,
    "numbers": _numbers,
    "seconds": lambda value: type(value) in (int, float) and 0 < value < inf,
    "limits": _limits,
    "switch": lambda value: isinstance(value, bool),
    "target": lambda value: value in TARGETS,
    "dtype": lambda value: isinstance(value, str) and value in PRECISIONS,
}
