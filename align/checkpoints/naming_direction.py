"""Whose names the tensors of a checkpoint get, and what its own names say against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import NAMES_OF_MINDSPORE, NAMES_OF_TORCH, PAIR_OF_MINDSPORE
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.checkpoints.names_in_file import FrameworkName
    from align.rules.directed_rules import TargetFamily

_EXPORTER = "onnx::"  # torch.onnx.export calls so what it computed: `onnx::Conv_16`, `onnx::MatMul_123`


@dataclass(frozen=True, slots=True)
class NamingDirection:
    """From whose names to whose; `family` is None where the names stay."""

    source: FrameworkName
    framework: FrameworkName
    family: TargetFamily | None


def naming_direction(
    source: FrameworkName, target: TargetFamily | None, destination: FrameworkName | None
) -> NamingDirection:
    """Where the names go; `target` is the user's word, `destination` what the file's suffix tells.

    A MindSpore file keeps its names, nn's or mint's, if it does not become torch's. Raises UsageError where the two
    contradict each other.
    """
    check_target(target, destination)
    if source == "torch":
        family: TargetFamily = target or ("torch" if destination == "torch" else "nn")
        return NamingDirection(
            source, "torch" if family == "torch" else "mindspore", None if family == "torch" else family
        )
    if target == "torch" or destination == "torch":
        return NamingDirection(source, "torch", "torch")
    return NamingDirection(source, "mindspore", None)


def check_target(target: TargetFamily | None, destination: FrameworkName | None) -> None:
    """Raise UsageError if the destination's format is not for the target's names."""
    if target is not None and destination is not None and (target == "torch") != (destination == "torch"):
        suffixes = ".pth, .pt or .bin" if target == "torch" else ".ckpt"
        raise UsageError.of("naming_usage.other_format", target=target, destination=destination, suffixes=suffixes)


def check_kept(target: TargetFamily | None, names: Iterable[str]) -> None:
    """Raise UsageError if names that stay are those of mindspore.nn where `target` is mint, or the reverse."""
    attributes = {name.rpartition(".")[2] for name in names}
    telling = {
        "nn": sorted(attributes & {*NAMES_OF_MINDSPORE, *PAIR_OF_MINDSPORE}),
        "mint": sorted(attributes & NAMES_OF_TORCH),
    }
    other = {"nn": "mint", "mint": "nn"}.get(target or "", "")
    if other and telling[other] and not telling[target or ""]:
        raise UsageError.of("naming_usage.other_target", target=target, other=other, names=telling[other])


def exporter_warnings(names: Iterable[str]) -> Iterable[str]:
    """Say which tensors an exporter to ONNX made of several, or turned: none of a model's is called so."""
    if made := [name for name in names if name.startswith(_EXPORTER)]:
        yield sentence("checkpoint_note.exporter", count=len(made), names=made)
