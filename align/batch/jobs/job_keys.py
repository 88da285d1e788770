"""What a job file may say: the paths and options of each action."""

from __future__ import annotations

from typing import Any, Final

from align.words.catalogue import say

# The paths of each action, in the order in which a task has them.
PATHS: Final[dict[str, tuple[str, ...]]] = {
    "diff": ("reference", "candidate"),
    "forward": ("reference", "candidate"),
    "convert": ("source", "destination"),
    "check": ("file",),
}
_TEXTS: Final = "texts"
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "diff": {"map": str, "strip": _TEXTS, "key_a": str, "key_b": str},
    "forward": {"map": str, "limit": _TEXTS, "partial": bool},
    "convert": {
        "map": str,
        "family": str,
        "target": str,
        "layer": _TEXTS,
        "strip": _TEXTS,
        "key": str,
        "dtype": str,
        "max_shard_size": str,
        "verify": bool,
        "overwrite": bool,
    },
    "check": {"key": str},
}
RANKS: Final = {"replicated": _TEXTS, "sharded": _TEXTS}
OF_TABLE: Final = {"id": str, "ranks": list, "steps": list}


def value_fault(kind: Any, value: Any) -> str:
    """What a value should be, where it is something else; "" if it is right."""
    if kind == _TEXTS:
        fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return "" if fits else say("job_fault.texts")
    if kind is list:
        fits = isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
        return "" if fits else say("job_fault.numbers")
    return "" if type(value) is kind else say("job_fault.text" if kind is str else "job_fault.switch")
