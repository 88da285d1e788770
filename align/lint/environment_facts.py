"""What `align doctor` reads, as texts that are alike as long as the machine and its switches are: no framework is run.

The switches of a framework that has just been imported follow from these: its version, the processor, the devices and
the variables of the environment.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from align.lint.examine_environment import machine_facts, missing_packages, switches
from align.rules.layer_rules import mappings_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("torch", "mindspore", "numpy")
# Besides those that `mappings/switches.toml` names: what chooses a device, or overrides a framework's own switch.
VARIABLES = (
    "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "DEVICE_ID",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
DEVICES = ("nvidia[0-9]*", "davinci[0-9]*", "kfd")  # format: names under /dev of cards of NVIDIA, Ascend and AMD
DRIVER = Path("/proc/driver/nvidia")
CHANGING = ("memory", "disk")  # facts of the machine that are others at each look


def environment_facts() -> dict[str, Path | str]:
    """By role: the processor and system, the devices, variables, versions, what is not installed, and the rules.

    >>> sorted(environment_facts())
    ['devices', 'machine', 'packages', 'switches', 'variables', 'versions']
    """
    machine = {name: fact for name, fact in machine_facts().items() if name not in CHANGING}
    return {
        "machine": _text(machine),
        "devices": " ".join(_devices()),
        "variables": _text(_variables()),
        "versions": _text({package: _version(package) for package in PACKAGES}),
        "packages": _lacking(),
        "switches": mappings_folder() / "switches.toml",
    }


def _text(facts: dict[str, str] | dict[str, str | int]) -> str:
    return "; ".join(f"{name}={fact}" for name, fact in facts.items())


def _variables() -> dict[str, str]:
    names = {*VARIABLES, *(switch.variable for switch in switches() if switch.variable)}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _devices() -> Iterator[str]:
    """Cards by their places under /dev, and what the driver says of their models."""
    yield from sorted(path.name for pattern in DEVICES for path in Path("/dev").glob(pattern))
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
