"""Something worth telling the user: a fact in figures, which the report turns into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `code` is a stable id (`weights-differ`), `subject` the layer, name or step, `facts` its figures."""

    code: str
    severity: Severity
    subject: str
    message: str
    facts: dict[str, float | int | str] = field(default_factory=dict)
