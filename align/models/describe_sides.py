"""What a report says of the sides beside their layers: where they ran, what is not seen, what was done to them."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np

from align.core.about import __version__
from align.core.protocols import GraphRunner
from align.core.verdicts import Finding
from align.models.thresholds import SEED
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.models.open_side import Side


def environments(reference: Side, candidate: Side) -> dict[str, dict[str, str]]:
    """The environments of two sides by framework; one of the same framework that differs is named by its side."""
    mine, theirs = ((one.reader.name, one.reader.environment()) for one in (reference, candidate))
    return named_environments(mine, theirs)


def describe_host() -> dict[str, str]:
    """Versions of what is beside the framework, the machine, and the seed that every run starts from."""
    versions = {"mindalign": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "seed": str(SEED)}


def named_environments(
    reference: tuple[str, Mapping[str, str]], candidate: tuple[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """The same of sides that are known by framework and environment only."""
    same = reference[0] == candidate[0] and reference[1] != candidate[1]
    return {reference[0]: {**reference[1]}, candidate[0] + (" (candidate)" if same else ""): {**candidate[1]}}


def unseen_layers(*sides: Side) -> Iterator[Finding]:
    """Note the sides whose layers cannot be seen, and those whose compiled code is run uncompiled so that they can."""
    for side in sides:
        jitted = side.reader.jitted_code(side.model) if isinstance(side.reader, GraphRunner) else ()
        if jitted and not side.compiled:
            message = sentence("side_finding.jit_uncompiled", names=[*jitted])
            yield Finding("jit-uncompiled", "note", side.label, message)
        if side.compiled:
            yield Finding("outputs-only", "note", side.label, sentence("side_finding.outputs_only"))


def copied_sides(*sides: Side) -> Iterator[Finding]:
    """Note the sides whose model is a copy of one that shared tensors, has a wrapper's names, or left state unread."""
    for side in sides:
        if side.unwrapped:
            message = sentence("side_finding.names_unwrapped", words=side.unwrapped)
            yield Finding("names-unwrapped", "note", side.label, message)
        if side.not_loaded:
            message = sentence("side_finding.not_loaded", names=side.not_loaded)
            yield Finding("training-state-not-loaded", "note", side.label, message)
        if side.copied:
            yield Finding("side-copied", "note", side.label, side.copied)
