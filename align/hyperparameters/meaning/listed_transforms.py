"""What a program does to its data, one after the other: the names in a list of transforms, as one value.

Each program has names of its own for them. So they are shown side by side, and are a difference within one program only.
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
    """Hold the names in the list of transforms of a trainer, where its settings have one."""
    found: dict[str, str] = {}
    place = ""
    for name, setting in by_name.items():
        if trainer is not None and fits_one_of(name, trainer.transforms):
            at, called = _entry(setting, trainer.transforms)
            found.setdefault(at, called)
            place = place or setting.place
    if found:
        text = ", ".join(found.values())[:LONGEST_VALUE]
        held[TRANSFORMS] = Held(", ".join(map(plain_choice, found.values())), text, place)


def _entry(setting: Setting, patterns: tuple[str, ...]) -> tuple[str, str]:
    """The place in the list and the name there: `transforms.1.Flip.prob` and `pipeline.1.type = Flip` are such."""
    parts, depth = setting.name.split("."), max(one.count(".") for one in patterns) + 1
    place, called = parts[: depth - 1], parts[depth - 1]
    return ".".join(place), str(setting.value) if called.lower() in ("type", "func_name") else called
