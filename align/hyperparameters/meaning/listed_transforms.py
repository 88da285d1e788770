"""What a program does to its data, one after the other: the names in a list of transforms, as one value.

Each program has names of its own for them. So they are shown side by side, and differ within one program only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.meaning.held_values import Held
from align.hyperparameters.thresholds import LONGEST_VALUE
from align.rules.hyperparameter_rules import fits_one_of, plain_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.hyperparameters.settings_format import Setting
    from align.rules.hyperparameter_rules import Trainer

TRANSFORMS = "transforms"


def hold_transforms(by_name: Mapping[str, Setting], trainer: Trainer | None, held: dict[str, Held]) -> None:
    """Hold the names in the first list of transforms of a trainer, where its settings have one."""
    lists: dict[str, dict[str, str]] = {}
    first: Setting | None = None
    for name, setting in by_name.items():
        if trainer is not None and fits_one_of(name, trainer.transforms):
            place, called = _entry(setting, trainer.transforms)
            lists.setdefault(place.rpartition(".")[0], {}).setdefault(place, called)
            first = first or setting
    if first is not None:
        called_so = next(iter(lists.values())).values()
        text = ", ".join(called_so)[:LONGEST_VALUE]
        held[TRANSFORMS] = Held(", ".join(map(plain_choice, called_so)), text, first.place)


def _entry(setting: Setting, patterns: tuple[str, ...]) -> tuple[str, str]:
    """The place in the list and the name there: `transforms.1.Flip.prob` and `pipeline.1.type = Flip` are such."""
    place, _, last = setting.name.rpartition(".")
    if any(one.endswith((f".{last.lower()}", f"*{last.lower()}")) for one in patterns):
        return place, str(setting.value)
    parts, depth = setting.name.split("."), max(one.count(".") for one in patterns) + 1
    return ".".join(parts[: depth - 1]), parts[depth - 1]
