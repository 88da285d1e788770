"""A task of a job, and what became of it: both are small, for they travel between processes and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Task:
    """One comparison, conversion or check; `paths` are local paths or URLs, `options` what JSON can hold."""

    id: str  # unique in the job, used as a file name of its outcome: [A-Za-z0-9._-]
    action: str  # "diff" | "forward" | "convert" | "check"
    paths: tuple[str, ...]
    options: Mapping[str, Any]
    timeout: float | None = None  # seconds that an attempt may take


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of a task; `error` and `hint` are those of its last failure, `figures` empty when it failed."""

    task: str
    state: Literal["done", "failed"]
    attempts: int
    seconds: float  # of the last attempt
    peak_bytes: int | None  # of the process that ran it, while it ran
    figures: Mapping[str, Any]
    error: str
    hint: str
