"""What the settings of two models tell before any run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.layer_settings import Setting
    from align.core.verdicts import Severity, Verdict

Part = Literal["layer", "parameters", "optimizer", "loss"]


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """Two paired layers of which one setting is unlike; `rule` is the pitfall's id.

    Paths are "" for the model itself. The settings are given as the user would write them on each side (`eps=1e-05`),
    `change` is what to write in the candidate, `arguments` the same as arguments of its layer's constructor, none where
    it takes another layer. A pair that is not `certain` is paired by its place alone. A finding about groups of an
    optimizer counts the `parameters` that it concerns, of which `example` is one. `part` is what it is about. `line` is
    where the candidate makes it (`port.py:12`), "" where no source shows it.
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
    parameters: int = 0
    example: str = ""
    part: Part = "layer"
    line: str = ""


@dataclass(frozen=True, slots=True)
class LintResult(ShownResult):
    """Findings, the gravest first, then in the reference's order; of the `rules`, `unrun` were never tried on a CPU.

    `not_compared` says what of optimizers and losses could not be compared, each with the reason.
    """

    result_kind = "lint"
    reference: str
    candidate: str
    findings: tuple[SettingFinding, ...]
    layers: int
    rules: int
    unrun: int
    verdict: Verdict
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """What comparing one part of both sides gave: the layers, the optimizers, or the losses.

    `alone` counts what has no counterpart on either side, `not_compared` names what must not be passed over,
    `caveats` are what the comparison does not rest on.
    """

    findings: tuple[SettingFinding, ...] = ()
    pairs: int = 0
    compared: int = 0
    unread: int = 0
    alone: tuple[int, int] = (0, 0)
    not_compared: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def joined_parts(parts: Sequence[ComparedPart]) -> ComparedPart:
    """Several parts as one."""
    left, right = (sum(part.alone[side] for part in parts) for side in (0, 1))
    return ComparedPart(
        tuple(finding for part in parts for finding in part.findings),
        sum(part.pairs for part in parts),
        sum(part.compared for part in parts),
        sum(part.unread for part in parts),
        (left, right),
        tuple(one for part in parts for one in part.not_compared),
        tuple(dict.fromkeys(one for part in parts for one in part.caveats)),
    )
