"""Parameters that are frozen in one of two models alone, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.lint.lint_result import SettingFinding
from align.names.frozen_parameters import freezing, frozen_apart
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet


def frozen_findings(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> Iterator[SettingFinding]:
    """One finding for each side that freezes what the other trains; the outputs are equal, what is learned is not."""
    found = frozen_apart(name_map, *sides)
    classes = [next((module.class_name for module in side.modules), "") for side in sides]
    apart = (found.frozen_in_source, "reference"), (found.frozen_in_target, "candidate")
    for pairs, side in apart:
        if pairs:
            yield SettingFinding(
                rule="frozen-on-one-side",
                severity="error",
                reference="",
                candidate="",
                reference_class=classes[0],
                candidate_class=classes[1],
                setting=sentence("lint_setting.trainable_parameters"),
                reference_setting=sentence("lint_setting.trainable", count=found.trainable[0]),
                candidate_setting=sentence("lint_setting.trainable", count=found.trainable[1]),
                effect=sentence("lint_effect.frozen", count=len(pairs), side=side),
                change=freezing([pairing.target for pairing in pairs], frozen=side == "reference"),
                parameters=len(pairs),
                example=pairs[0].source,
                part="parameters",
            )
