"""What of this machine and its packages changes a comparison, what to set, and whether a process' memory grows.

The switches that are looked at stand in `mappings/switches.toml`.
A switch is reported where its device is here. Nothing is set: the user's own code does that, before its model is built.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from align.core.load_code import PluginState, plugin_states
from align.core.verdicts import Coverage, Finding, Outcome, Severity, ShownResult, Verdict
from align.errors import UsageError
from align.rules.ascend_rules import crash_devices, crash_steps
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.parameters import Array
    from align.rules.ascend_rules import CrashStep

MEMORY_WARM_UP: Final = 1 / 3
"""So much of the beginning of what was followed is not judged.
Choice: imports, caches and the first batches fill memory in every training; a leak goes on behind them."""
LONGEST_WAIT: Final = 86_400.0
"""So many seconds may lie between two samples of memory.
Choice: a day; twenty of them take three weeks, and a slip of the keys would wait for years."""
LEAST_MEMORY_SAMPLES: Final = 20
"""So many samples must be left to judge a growth.
Choice: the interval of Theil and Sen's slope is wide below; a longer wait would be asked of short runs."""
MOST_MEMORY_SAMPLES: Final = 500
"""A slope is taken over at most twice so many samples, evenly spread.
Measured: it looks at each pair: 1000 samples take a twentieth of a second, a day of them would take hours."""
LEAK_NOISES: Final = 4.0
"""Memory must have grown by so many times the scatter of its samples to be a leak.
Choice: the scatter is a median; in steady runs that were simulated as noise, growth stayed below twice of it."""
LEAK_SHARE: Final = 0.005
"""Memory must have grown by this share of itself to be a leak.
Choice: heaps of steady runs drift by a tenth of that; a leak of this share in minutes fills any machine in a day."""
LEAST_LEAK_BYTES: Final = 2_000_000
"""Memory must have grown by so many bytes to be a leak.
Choice: allocators take memory in pieces of a megabyte; less is one of them."""
LEAK_HALVES: Final = 0.25
"""Each half of what is judged must grow by at least this share of the whole growth a second.
Choice: a cache that is filled once stands in one half; a leak goes on in both."""

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
    devices = {device for environment in frameworks.values() for device in _requested_devices(environment)} | {"cpu"}
    switch_states = [_found(switch, devices, machine) for switch in switches() if switch.framework in frameworks]
    findings = (
        *_broken(states),
        *_numpy(frameworks),
        *(_finding(state) for state in switch_states if state.state == "otherwise"),
    )
    return EnvironmentResult(
        frameworks,
        tuple(switch_states),
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
    value: Any = importlib.import_module(steps[0][0])
    for name, call, argument in steps[1:]:
        value = getattr(value, name, None)
        if value is None:
            return None
        if call:
            try:
                value = value(*filter(None, [argument]))
            except ValueError:  # a name of another version
                return None
    return str(value)


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
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        reason = sentence("doctor.cannot_work", subject=errors[0].subject, message=errors[0].message)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not frameworks:
        return Verdict(Outcome.NOT_COMPARED, sentence("doctor.no_framework"), coverage)
    warnings = sum(finding.severity == "warning" for finding in findings)
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
    """Facts by role: the processor and system, devices, variables, versions, what is not installed, and the rules.

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


# Host memory of a running process over time: its growth, and whether that is more than noise.
#
# Read from /proc, of the process and of those that it started (workers that load data). The growth is Theil and Sen's
# slope, which single steps of an allocator do not move; the beginning, in which every training fills its memory, is
# left out. Memory that grew once and stands is no leak: both halves of what is judged have to grow.


Ended = Literal["process ended", "stopped", "time over"]
PROC = Path("/proc")
MEGABYTE, MINUTE = 1e6, 60  # format: units of what is shown


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """Bytes a minute: the slope with its interval (95 %), how far samples scatter around it, and what is judged."""

    growth: float
    low: float
    high: float
    noise: float
    first: float
    last: float
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryFollowed(ShownResult):
    """Memory of a process over time: `seconds` since the start and `resident` bytes of it and of its descendants."""

    result_kind = "followed"
    pid: int
    command: str
    processes: int
    ended: Ended
    seconds: tuple[float, ...]
    resident: tuple[int, ...]
    trend: MemoryTrend | None
    verdict: Verdict


def follow_memory(
    pid: int,
    every: float = 1.0,
    longest: float | None = None,
    seen: Callable[[float, int], None] = lambda _seconds, _resident: None,
) -> MemoryFollowed:
    """Sample a process until it ends, `longest` seconds are over, or the user interrupts; then judge the growth.

    `every` is the distance of samples in seconds; `seen` hears each. Raises UsageError for a process that is not there,
    and for times that are none.
    """
    _check_times(every, longest)
    born = _born(pid)
    if born is None:
        raise UsageError.of("doctor_usage.process", pid=pid)
    command = _command(pid)
    seconds, resident, processes, ended = _samples(pid, born, every, longest, seen)
    trend = memory_trend(np.asarray(seconds), np.asarray(resident, float))
    verdict = _memory_verdict(trend, len(seconds))
    return MemoryFollowed(pid, command, processes, ended, tuple(seconds), tuple(resident), trend, verdict)


def _check_times(every: float, longest: float | None) -> None:
    if not 0 < every <= LONGEST_WAIT:
        raise UsageError.of("doctor_usage.every", every=every, most=LONGEST_WAIT)
    if longest is not None and not (longest > 0 and isfinite(longest)):
        raise UsageError.of("doctor_usage.longest", longest=longest)


def memory_trend(seconds: Array, resident: Array) -> MemoryTrend | None:
    """The growth of what is judged, without the beginning; None of too few samples.

    >>> time = np.arange(100.0)
    >>> found = memory_trend(time, 1e9 + 1e6 * time)
    >>> round(found.growth / 1e6), leaks(found)
    (60, True)
    """
    from scipy.stats import theilslopes

    begin = int(len(seconds) * MEMORY_WARM_UP)
    times, sizes = seconds[begin:], resident[begin:]
    if len(times) < LEAST_MEMORY_SAMPLES:
        return None
    thin = slice(None, None, max(1, len(times) // MOST_MEMORY_SAMPLES))
    slope, intercept, low, high = theilslopes(sizes[thin], times[thin])
    noise = float(np.median(np.abs(sizes - intercept - slope * times)))
    ends = (float(np.median(part)) for part in (sizes[: len(sizes) // 8 + 1], sizes[-(len(sizes) // 8 + 1) :]))
    halves = [_slope(times[part], sizes[part]) for part in (slice(len(times) // 2), slice(len(times) // 2, None))]
    steady = slope > 0 and min(halves) < LEAK_HALVES * slope
    lowest = 0.0 if steady else float(low)
    first, last = ends
    span = float(times[-1] - times[0])
    return MemoryTrend(slope * MINUTE, lowest * MINUTE, float(high) * MINUTE, noise, first, last, span)


def leaks(trend: MemoryTrend) -> bool:
    """Tell whether memory grew, all the time, by more than noise and than a share of itself."""
    grown = trend.growth / MINUTE * trend.seconds
    least = max(LEAK_NOISES * trend.noise, LEAK_SHARE * trend.first, LEAST_LEAK_BYTES)
    return trend.low > 0 and grown > least


def _slope(times: Array, sizes: Array) -> float:
    from scipy.stats import theilslopes

    thin = slice(None, None, max(1, len(times) // MOST_MEMORY_SAMPLES))
    return float(theilslopes(sizes[thin], times[thin])[0])


def _samples(
    pid: int, born: str, every: float, longest: float | None, seen: Callable[[float, int], None]
) -> tuple[list[float], list[int], int, Ended]:
    seconds: list[float] = []
    resident: list[int] = []
    start, processes = time.monotonic(), 1
    ended: Ended = "process ended"
    try:
        while _born(pid) == born:
            family = [pid, *_descendants(pid)]
            now = time.monotonic() - start
            size = sum(map(resident_bytes, family))
            if not size:  # it ended between two looks
                break
            seconds.append(now)
            resident.append(size)
            processes = max(processes, len(family))
            seen(now, size)
            if longest is not None and now + every > longest:
                ended = "time over"
                break
            time.sleep(every)
    except KeyboardInterrupt as interrupt:
        if type(interrupt) is not KeyboardInterrupt:  # a signal to end align itself
            raise
        ended = "stopped"
    return seconds, resident, processes, ended


def _born(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of its number; None if it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def resident_bytes(pid: int) -> int:
    """What a process holds of the machine's memory; 0 for one that is not there."""
    try:
        pages = (PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those of them in turn."""
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text(encoding="utf-8").split():
                yield int(child)
                yield from _descendants(int(child))


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ").strip()
    return ""


def _memory_verdict(trend: MemoryTrend | None, samples: int) -> Verdict:
    coverage = Coverage("samples", samples)
    if trend is None:
        reason = sentence("memory_verdict.too_few", count=samples, least=LEAST_MEMORY_SAMPLES)
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    facts = {"growth": trend.growth / MEGABYTE, "noise": trend.noise / MEGABYTE, "seconds": trend.seconds}
    if leaks(trend):
        return Verdict(Outcome.NOT_ALIGNED, sentence("memory_verdict.leaks", **facts), coverage)
    return Verdict(Outcome.ALIGNED, sentence("memory_verdict.steady", **facts), coverage)
