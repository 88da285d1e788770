"""What of this machine and its packages changes a comparison, and what to set.

The switches that are looked at stand in `mappings/switches.toml`.
A switch is reported where its device is here. Nothing is set: the user's own code does that, before its model is built.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from align.core.registry import PluginState, plugin_states
from align.core.verdicts import Coverage, Finding, Outcome, Severity, ShownResult, Verdict
from align.rules.ascend_rules import crash_devices, crash_steps
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.rules.ascend_rules import CrashStep


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


DISTRIBUTION = "mindalign"
OF_DEVELOPERS = ("dev", "demo", "fuzz")  # extras that no command needs
DEVICE_KINDS = {"cuda": "cuda", "gpu": "cuda", "npu": "npu", "ascend": "npu", "cpu": "cpu"}
_STEP = re.compile(r"(?P<name>\w+)(?P<call>\((?P<argument>\w*)\))?")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Switch:
    """A rule of `mappings/switches.toml`; its head explains the fields."""

    id: str
    framework: str
    wanted: str
    on: str
    severity: Severity
    effect: str
    write: str
    source: str
    reads: str = ""
    variable: str = ""
    alike: tuple[str, ...] = ()


def examine_environment() -> EnvironmentResult:
    """Look at frameworks, switches, packages, memory and disk; imports the frameworks that are installed.

    The verdict is not aligned where an installed framework cannot work, not compared where none is installed.
    """
    states = [state for state in plugin_states(try_import=True) if state.kind == "frameworks"]
    usable = [state.plugin for state in states if state.usable and state.plugin.requires]
    frameworks: dict[str, Mapping[str, str]] = {
        plugin.name: getattr(plugin, "environment", dict)() for plugin in usable
    }
    machine = machine_facts()
    devices = {device for found in frameworks.values() for device in _requested_devices(found)} | {"cpu"}
    found = [_found(switch, devices, machine) for switch in switches() if switch.framework in frameworks]
    findings = (*_broken(states), *_numpy(frameworks), *(_finding(one) for one in found if one.state == "otherwise"))
    return EnvironmentResult(
        frameworks,
        tuple(found),
        tuple(missing_packages()),
        machine,
        findings,
        _environment_verdict(frameworks, findings),
    )


@cache
def switches() -> tuple[Switch, ...]:
    """The rules of `mappings/switches.toml`.

    >>> {switch.framework for switch in switches()} == {"torch", "mindspore"}
    True
    """
    return read_rules(mappings_folder() / "switches.toml", _switches)


def _switches(document: dict[str, Any]) -> tuple[Switch, ...]:
    return tuple(Switch(**{**table, "alike": tuple(table.get("alike", ()))}) for table in document["switch"])


def _requested_devices(environment: Mapping[str, str]) -> Iterator[str]:
    for name in ("device", "available device"):
        if name in environment:
            yield DEVICE_KINDS.get(environment[name].lower(), environment[name].lower())


def _found(switch: Switch, devices: set[str], machine: Mapping[str, str | int]) -> SwitchFound:
    value = os.environ.get(switch.variable, "") if switch.variable else _read(switch.reads)
    state: SwitchState = "as wanted" if value in (switch.wanted, *switch.alike) else "otherwise"
    if value is None:
        state = "not readable"
    elif state == "otherwise" and not _matters(switch.on, devices, machine):
        state = "of no effect here"
    rest = (switch.severity, switch.effect, switch.write, switch.source)
    return SwitchFound(switch.id, switch.framework, value or "", switch.wanted, state, *rest)


def _read(place: str) -> str | None:
    """Follow attributes, and functions that are called; None where this version of the framework lacks one."""
    steps = [(one["name"], one["call"], one["argument"]) for one in _STEP.finditer(place)]
    found: Any = importlib.import_module(steps[0][0])
    for name, call, argument in steps[1:]:
        found = getattr(found, name, None)
        if found is None:
            return None
        if call:
            try:
                found = found(*filter(None, [argument]))
            except ValueError:  # a name of another version
                return None
    return str(found)


def _matters(on: str, devices: set[str], machine: Mapping[str, str | int]) -> bool:
    device, _, processor = on.partition(":")
    return device in devices and all(
        word in str(machine["processor"]).split() for word in filter(None, processor.split("+"))
    )


def _finding(found: SwitchFound) -> Finding:
    message = sentence("doctor.switch", value=found.value or "not set", effect=found.effect, write=found.write)
    return Finding("switch", found.severity, found.id, message, {"value": found.value, "wanted": found.wanted})


def _broken(states: list[PluginState]) -> Iterator[Finding]:
    for state in states:
        for package, reason in state.broken.items():
            yield Finding("framework-broken", "error", package, sentence("doctor.broken", reason=reason))
        for package in state.missing:
            yield Finding("framework-missing", "note", package, sentence("doctor.missing", package=package))


def _numpy(frameworks: Mapping[str, Any]) -> Iterator[Finding]:
    """MindSpore is compiled against NumPy 1: under 2 its in-place addition and its bfloat16 fail."""
    version = importlib.metadata.version("numpy")
    if "mindspore" in frameworks and int(version.partition(".")[0]) > 1:
        yield Finding("numpy-too-new", "error", "numpy", sentence("doctor.numpy", version=version))


def missing_packages() -> Iterator[PackageGroup]:
    """The extras whose packages are not all here, as the package's own requirements list them."""
    groups: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires(DISTRIBUTION) or ():
        if (match := _REQUIREMENT.match(requirement)) and match["extra"] not in OF_DEVELOPERS:
            groups.setdefault(match["extra"], []).append(match["name"])
    installed = {str(one.metadata["Name"]).lower() for one in importlib.metadata.distributions()}
    for extra, names in groups.items():
        if missing := tuple(sorted({name for name in names if name.lower() not in installed})):
            yield PackageGroup(extra, missing, f'pip install "{DISTRIBUTION}[{extra}]"')


def machine_facts() -> dict[str, str | int]:
    """Python, NumPy, system, the processor's maker and flags, threads; memory and disk in bytes that are free."""
    facts = dict(re.findall(r"^(vendor_id|flags)\s*: (.*)$", _file_text(Path("/proc/cpuinfo")), re.MULTILINE))
    vectors = [flag for flag in facts.get("flags", "").split() if flag.startswith(("avx", "amx"))]
    memory = re.search(r"MemAvailable:\s+(\d+) kB", _file_text(Path("/proc/meminfo")))
    return {
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "system": platform.platform(),
        "processor": " ".join([facts.get("vendor_id", platform.machine()), *vectors]),
        "threads": os.cpu_count() or 1,
        "memory": int(memory[1]) * 1024 if memory else 0,
        "disk": shutil.disk_usage(Path.cwd()).free,
    }


def _file_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _environment_verdict(frameworks: Mapping[str, Any], findings: tuple[Finding, ...]) -> Verdict:
    coverage = Coverage("frameworks", len(frameworks))
    errors = [one for one in findings if one.severity == "error"]
    if errors:
        reason = sentence("doctor.cannot_work", subject=errors[0].subject, message=errors[0].message)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not frameworks:
        return Verdict(Outcome.NOT_COMPARED, sentence("doctor.no_framework"), coverage)
    warnings = sum(one.severity == "warning" for one in findings)
    return Verdict(Outcome.ALIGNED, sentence("doctor.sound", names=[*frameworks], warnings=warnings), coverage)


# What `align doctor` reads, as texts that are alike as long as the machine and its switches are: no framework is run.
#
# The switches of a framework that has just been imported follow from these: its version, the processor, the devices
# and the variables of the environment.

PACKAGES = ("torch", "mindspore", "numpy")
# Besides those that `mappings/switches.toml` names: what chooses a device, or overrides a framework's own switch.
VARIABLES = (
    "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "DEVICE_ID",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
DEVICE_FILES = ("nvidia[0-9]*", "davinci[0-9]*", "kfd")  # format: names under /dev of cards of NVIDIA, Ascend and AMD
DRIVER = Path("/proc/driver/nvidia")
CHANGING = ("memory", "disk")  # facts of the machine that are others at each look


def environment_facts() -> dict[str, Path | str]:
    """By role: the processor and system, the devices, variables, versions, what is not installed, and the rules.

    >>> sorted(environment_facts())
    ['devices', 'machine', 'packages', 'switches', 'variables', 'versions']
    """
    machine = {name: fact for name, fact in machine_facts().items() if name not in CHANGING}
    return {
        "machine": _facts_text(machine),
        "devices": " ".join(_cards()),
        "variables": _facts_text(_variables()),
        "versions": _facts_text({package: _version(package) for package in PACKAGES}),
        "packages": _lacking(),
        "switches": mappings_folder() / "switches.toml",
    }


def _facts_text(facts: dict[str, str] | dict[str, str | int]) -> str:
    return "; ".join(f"{name}={fact}" for name, fact in facts.items())


def _variables() -> dict[str, str]:
    names = {*VARIABLES, *(switch.variable for switch in switches() if switch.variable)}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _cards() -> Iterator[str]:
    """Cards by their places under /dev, and what the driver says of their models."""
    yield from sorted(path.name for pattern in DEVICE_FILES for path in Path("/dev").glob(pattern))
    for path in (DRIVER / "version", *sorted(DRIVER.glob("gpus/*/information"))):
        if path.is_file():
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()[:1]


@cache  # to list all packages takes a tenth of a second
def _lacking() -> str:
    return "lacking: " + " ".join(name for group in missing_packages() for name in group.missing)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# What to run when a training crashes or hangs on a device, each line with its source.


@dataclass(frozen=True, slots=True)
class CrashAdvice(ShownResult):
    """The steps for a device, its own first; it decides nothing, so there is no verdict."""

    result_kind = "crash"
    device: str
    title: str
    steps: tuple[CrashStep, ...]


def advise_on_crash(device: str) -> CrashAdvice:
    """The steps of `mappings/crash/` for a device; raises UsageError for one that has none.

    >>> advise_on_crash("npu").steps[0].lines
    ('export ASCEND_LAUNCH_BLOCKING=1', 'TRAIN')
    """
    device = device.strip().lower()
    steps = crash_steps(device)
    return CrashAdvice(device, crash_devices()[device].title, steps)
