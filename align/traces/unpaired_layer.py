"""Calls of modules that have no counterpart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class UnpairedLayer:
    """A call of a module that has no counterpart on the other side, and why."""

    side: Literal["reference", "candidate"]
    module: str
    class_name: str
    call: int
    reason: str
