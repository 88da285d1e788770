"""Modules with parameters that a run does not show, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from align.core.name_map import SideOf

UnseenState = Literal["bypassed", "never called", "not seen"]


@dataclass(frozen=True, slots=True)
class UnseenModule:
    """A module with parameters of its own, `elements` of them, no call of which was seen.

    It is "bypassed" if the outputs change with its parameters, "never called" if they do not, else "not seen".
    """

    side: SideOf
    module: str
    class_name: str
    elements: int
    state: UnseenState = "not seen"
