"""Modules whose children have other names in the target, recognized in a checkpoint by what lies below them.

A TransformerEncoderLayer shows itself by its attention, two linear layers and norms. But people write such a class
themselves under the same names, and then a port keeps them; so each one is open until the user says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.from_file.infer_layers import spoken_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from align.core.name_map import LayerChoice
    from align.rules.directed_rules import DirectedRule

CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class RenamedChildren:
    """A module that looks like the rules of these ids, which would rename its children so."""

    prefix: str
    ids: tuple[str, ...]
    children: dict[str, str]
    choice: LayerChoice | None

    @property
    def renames(self) -> dict[str, str]:
        """Path of a child -> its name in the target; nothing for a class of the user's own."""
        if self.choice is None or self.choice.kind == CUSTOM:
            return {}
        return {f"{self.prefix}.{old}" if self.prefix else old: new for old, new in self.children.items()}


def find_renamed_children(
    names: Collection[str],
    rules: Iterable[DirectedRule],
    choices: Sequence[LayerChoice],
    told: Mapping[str, Sequence[str]],
) -> list[RenamedChildren]:
    """All modules that look like one with renamed children, each with the last choice that speaks of it."""
    known = dict.fromkeys([*names, *(path for name in names for path in _modules_above(name))])
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[DirectedRule]] = {}
    for rule in rules:
        for form in rule.forms if rule.children else ():
            first, *others = form.attributes
            for name in known:
                prefix = name.removesuffix(first)
                if prefix != name and prefix[-1:] in ("", ".") and all(prefix + other in known for other in others):
                    found.setdefault((prefix[:-1], tuple(rule.children.items())), []).append(rule)
    return [
        _container(prefix, dict(renames), fitting, spoken_of(prefix, choices, told))
        for (prefix, renames), fitting in found.items()
    ]


def renamed_path(path: str, renames: dict[str, str]) -> str:
    """The path with every renamed child on it under its new name; one that is renamed to "" is left out."""
    parts = path.split(".")
    new = (renames.get(".".join(parts[: n + 1]), part) for n, part in enumerate(parts))
    return ".".join(part for part in new if part) if renames else path


def _modules_above(name: str) -> list[str]:
    parts = name.split(".")[:-1]
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _container(
    prefix: str, children: dict[str, str], rules: Sequence[DirectedRule], choices: Sequence[LayerChoice]
) -> RenamedChildren:
    words = {CUSTOM} | {word for rule in rules for word in (rule.id, rule.kind)}
    spoken = [choice for choice in choices if choice.kind in words]
    return RenamedChildren(prefix, tuple(rule.id for rule in rules), children, spoken[-1] if spoken else None)
