"""What training leaves in a checkpoint beside the weights: `mappings/training_state.toml`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """How an optimizer calls its state: what it puts before a parameter's name.

    `states` have the parameter's shape and `reduced` a smaller one, and all of them are there; `more` may be missing.
    """

    id: str
    states: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrapperCounter:
    """A 0-d integer that a wrapper saves beside its model, whose names start with the prefix."""

    name: str
    prefix: str
    wrapper: str


@dataclass(frozen=True, slots=True)
class TrainingStateRules:
    """`numbers` are globs over the names of what an optimizer or a loss scaler counts and sets.

    `counts` are names of what training counts, which are known where they stand alone.
    """

    optimizers: tuple[OptimizerState, ...]
    numbers: tuple[str, ...]
    counts: tuple[str, ...]
    counters: tuple[WrapperCounter, ...]


@cache
def training_state_rules() -> TrainingStateRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    path = mappings_folder() / "training_state.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return TrainingStateRules(
            tuple(OptimizerState(**_tuples(entry)) for entry in table["optimizer"]),
            tuple(table["numbers"]["names"]),
            tuple(table["numbers"]["counts"]),
            tuple(WrapperCounter(**entry) for entry in table["counter"]),
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise MappingRuleError(path, f"malformed: {error!r}") from error


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
