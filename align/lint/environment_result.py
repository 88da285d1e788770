"""What was found of the machine and of what is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.verdicts import Finding, Severity, Verdict

SwitchState = Literal["as wanted", "otherwise", "of no effect here", "not readable"]


@dataclass(frozen=True, slots=True)
class SwitchFound:
    """One switch: its value here, the one that a comparison wants, whether it matters here, and what to write."""

    id: str
    framework: str
    value: str
    wanted: str
    state: SwitchState
    severity: Severity
    effect: str
    write: str
    source: str


@dataclass(frozen=True, slots=True)
class PackageGroup:
    """An extra of mindalign: its packages that are missing here, and the line that installs them."""

    extra: str
    missing: tuple[str, ...]
    install: str


@dataclass(frozen=True, slots=True)
class EnvironmentResult(ShownResult):
    """Versions and devices by framework, switches, missing packages, memory and disk in bytes, and the verdict.

    Switches that differ are warnings or notes: they do not fail the environment. What cannot work does.
    """

    result_kind = "doctor"
    frameworks: Mapping[str, Mapping[str, str]]
    switches: tuple[SwitchFound, ...]
    packages: tuple[PackageGroup, ...]
    machine: Mapping[str, str | int]
    findings: tuple[Finding, ...]
    verdict: Verdict
