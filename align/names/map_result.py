"""What mapping the parameters of two sides gives; `align.core.json_data` gives its JSON form, which reports read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSummary
    from align.core.verdicts import Finding, Verdict


@dataclass(frozen=True, slots=True)
class MapResult(ShownResult):
    """The name map of two sides, the counts of both and all their parameters with shape, dtype and ties.

    `warnings` say what the map rests on, or what stands against it. `tried` is the line of the map file that says what
    a trial was made of, "" if there was none.
    """

    result_kind = "map"
    name_map: NameMap
    source: ParameterSummary
    target: ParameterSummary
    verdict: Verdict
    source_parameters: tuple[Parameter, ...] = ()
    target_parameters: tuple[Parameter, ...] = ()
    warnings: tuple[str, ...] = ()
    tried: str = ""


@dataclass(frozen=True, slots=True)
class MapCheck(ShownResult):
    """A given map judged against two sides: its faults, and the rules of it that matched nothing."""

    result_kind = "check"
    map: str
    reference: str
    candidate: str
    faults: tuple[Finding, ...]
    unused_rules: tuple[str, ...]
    verdict: Verdict
