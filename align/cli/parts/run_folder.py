"""The run folder of a command: held from its first step to its result."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


HOLDING_THEMSELVES = ("fix",)  # commands that run others, which hold the folder


def claimed_folder(command: str, given: Mapping[str, object]) -> AbstractContextManager[None]:
    """Hold the folder of `--run` for a command that is given these options; without one there is nothing to hold."""
    run = given.get("run")
    if run is None or command in HOLDING_THEMSELVES:
        return contextlib.nullcontext()
    from pathlib import Path

    from align.runs.claim_run_folder import claim_run_folder

    return claim_run_folder(Path(str(run)), _kind(command, given))


def _kind(command: str, given: Mapping[str, object]) -> str:
    """The kind of result that a command makes: by some options it is another than that of its name."""
    if given.get("as_batch"):
        return "batch"
    if command == "map" and given.get("check"):
        return "check"
    if command == "bisect":
        return _kind_of_bisection(given)
    if command == "check_determinism":
        return "determinism"
    if command == "diff" and given.get("updates"):
        return "updates"
    return "log" if command == "loss" and given.get("candidate") is None else command


def _kind_of_bisection(given: Mapping[str, object]) -> str:
    if given.get("train"):
        return "training"
    if given.get("switches"):
        return "switches"
    return "precision" if given.get("precision") or given.get("device") else "bisect"
