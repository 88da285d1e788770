"""Whose names a checkpoint has, and whose the destination gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.rules.directed_rules import TargetFamily

FrameworkName = Literal["torch", "mindspore"]

_FORMATS: dict[str, FrameworkName] = {"pt": "torch", "ms": "mindspore"}
# No layer of torch's has any of the first; a lone gamma or beta is a name that people give too.
_MINDSPORE = frozenset({"moving_mean", "moving_variance", "embedding_table"})
_MINDSPORE_PAIR = frozenset({"gamma", "beta"})
_TORCH = frozenset({"running_mean", "running_var", "num_batches_tracked"})
_EXPORTER = "onnx::"  # torch.onnx.export calls so what it computed: `onnx::Conv_16`, `onnx::MatMul_123`


@dataclass(frozen=True, slots=True)
class NamingDirection:
    """From whose names to whose; `family` is None where the names stay."""

    source: FrameworkName
    framework: FrameworkName
    family: TargetFamily | None


def source_framework(metadata: Mapping[str, str], names: Iterable[str]) -> tuple[FrameworkName, list[str]]:
    """Whose names a file has, by its format, else by the names; and the attributes that decided where names did so.

    A file that says nothing, with names that tell nothing, is taken as torch's.
    """
    if known := declared_framework(metadata):
        return known, []
    groups: dict[str, set[str]] = {}
    for name in names:
        prefix, _, attribute = name.rpartition(".")
        groups.setdefault(prefix, set()).add(attribute)
    present = set().union(*groups.values())
    telling = sorted(present & _MINDSPORE)
    if not telling and not present & _TORCH and any(own >= _MINDSPORE_PAIR for own in groups.values()):
        telling = sorted(_MINDSPORE_PAIR)
    return "mindspore" if telling else "torch", telling


def declared_framework(metadata: Mapping[str, str]) -> FrameworkName | None:
    """Whose names a file says that it has, None where it does not say."""
    return _FORMATS.get(metadata.get("format", ""))


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
        raise UsageError(
            f"--target {target} does not go with a destination of {destination}'s format",
            f"leave --target out, or name a destination that ends in {suffixes}, .safetensors or .npz",
        )


def check_kept(target: TargetFamily | None, names: Iterable[str]) -> None:
    """Raise UsageError if names that stay are those of mindspore.nn where `target` is mint, or the reverse."""
    attributes = {name.rpartition(".")[2] for name in names}
    telling = {"nn": sorted(attributes & {*_MINDSPORE, *_MINDSPORE_PAIR}), "mint": sorted(attributes & _TORCH)}
    other = {"nn": "mint", "mint": "nn"}.get(target or "", "")
    if other and telling[other] and not telling[target or ""]:
        raise UsageError(
            f"--target {target} contradicts the source, whose names are those of {other} ({', '.join(telling[other])})",
            "leave --target out: the names stay; they can be changed by a map (--map)",
        )


def exporter_warnings(names: Iterable[str]) -> Iterable[str]:
    """Say which tensors an exporter to ONNX made of several, or turned: none of a model's is called so."""
    if made := [name for name in names if name.startswith(_EXPORTER)]:
        yield sentence("checkpoint_note.exporter", count=len(made), names=made)
