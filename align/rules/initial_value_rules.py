"""How initial values are drawn, by number or by the sizes of a weight: `mappings/initial_values.toml`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, Literal

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Fan = Literal["in", "out", "sum", "hidden"]


@dataclass(frozen=True, slots=True)
class InitialFamily:
    """A distribution with one number, its `scale`, and what draws from it in each framework."""

    id: str
    torch: str
    mindspore: str


@dataclass(frozen=True, slots=True)
class InitialScheme:
    """A family whose scale follows from the sizes of the weight: sqrt(factor / fan).

    The texts are what draws so, "" where nothing does in one call.
    """

    id: str
    family: str
    fan: Fan
    factor: float
    formula: str
    torch: str = ""
    mindspore: str = ""

    def scale(self, fans: Mapping[Fan, int]) -> float | None:
        """The scale for a weight of these sizes, None if it has no such size."""
        fan = fans.get(self.fan, 0)
        return sqrt(self.factor / fan) if fan else None


@dataclass(frozen=True, slots=True)
class InitialValueRules:
    """Families by id, and the schemes in the order in which they count."""

    families: dict[str, InitialFamily]
    schemes: tuple[InitialScheme, ...]


@cache
def initial_value_rules() -> InitialValueRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    path = mappings_folder() / "initial_values.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        families = [InitialFamily(**entry) for entry in table["family"]]
        schemes = tuple(InitialScheme(**entry) for entry in table["scheme"])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise MappingRuleError(path, f"malformed: {error!r}") from error
    return InitialValueRules({one.id: one for one in families}, schemes)
