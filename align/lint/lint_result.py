"""What the settings of two models tell before any run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.core.findings import Severity
    from align.core.layer_settings import Setting
    from align.core.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """Two paired layers of which one setting is unlike; `rule` is the pitfall's id.

    Paths are "" for the model itself. The settings are given as the user would write them on each side (`eps=1e-05`),
    `change` is what to write in the candidate, `arguments` the same as arguments of its layer's constructor, none where
    it takes another layer. A pair that is not `certain` is paired by its place alone.
    """

    rule: str
    severity: Severity
    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    setting: str
    reference_setting: str
    candidate_setting: str
    effect: str
    change: str
    certain: bool = True
    arguments: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LintResult:
    """Findings, the gravest first, then in the reference's order; of the `rules`, `unrun` were never tried on a CPU."""

    result_kind = "lint"
    reference: str
    candidate: str
    findings: tuple[SettingFinding, ...]
    layers: int
    rules: int
    unrun: int
    verdict: Verdict
