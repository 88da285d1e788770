"""Settings that no table knows, paired by their spelling; and those that no loss depends on."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.hyperparameter_result import ComparedHyperparameter, OneSidedHyperparameter
from align.hyperparameters.meaning.found_so_far import side_value
from align.hyperparameters.meaning.held_values import Held
from align.hyperparameters.meaning.nested_names import with_nested_names
from align.hyperparameters.meaning.setting_values import same_value, shown_value
from align.hyperparameters.thresholds import VALUE_NOT_SET
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from align.hyperparameters.meaning.found_so_far import Comparison
    from align.hyperparameters.meaning.named_parameters import Meaning
    from align.hyperparameters.settings_format import Setting

OTHERS, BOOKKEEPING, ENVIRONMENT = "other settings", "bookkeeping", "environment"
HUB_NAME = re.compile(r"[A-Za-z][\w-]*/[\w.-]*[A-Z\d][\w.-]*")
LAST = sys.maxsize  # behind all parameters that a table knows


def compare_others(reference: Meaning, candidate: Meaning, found: Comparison) -> None:
    """Pair by spelling what no table knows; and what no loss depends on."""
    mine, theirs, far = with_nested_names(reference.others, candidate.others)
    for name in sorted({*mine, *theirs}):
        one, other = mine.get(name), theirs.get(name)
        if one is not None and other is not None:
            _compare_spelled(name, one, other, found, far=name in far)
        else:
            setting = one or other
            side: Literal["reference", "candidate"] = "candidate" if one is None else "reference"
            value = side_value(_plain(setting))  # type: ignore[arg-type]
            found.one_sided.append((LAST, OneSidedHyperparameter(side, name, name, False, value)))
    for name in sorted(reference.without_effect.keys() & candidate.without_effect.keys()):
        one, other = reference.without_effect[name], candidate.without_effect[name]
        if not same_value(one.value, other.value):
            group = ENVIRONMENT if name.startswith(f"{ENVIRONMENT}.") else BOOKKEEPING
            found.without_effect.append((LAST, _spelled(name, one, other, group)))


def _compare_spelled(name: str, one: Setting, other: Setting, found: Comparison, *, far: bool) -> None:
    """Compare two settings of one name that no table knows; of two paths it is not known what lies there."""
    compared = _spelled(name, one, other, OTHERS)
    if same_value(one.value, other.value):
        found.equal.append((LAST, compared))
    elif any(_is_path(held) for held in (one, other)) and all(isinstance(held.value, str) for held in (one, other)):
        found.unsettled.append((LAST, replace(compared, why=sentence("hyperparameters.place"))))
    elif any(same_value(held.value, VALUE_NOT_SET) for held in (one, other)):
        found.unsettled.append((LAST, replace(compared, why=sentence("hyperparameters.minus_one"))))
    elif one.computed or other.computed:
        found.unsettled.append((LAST, replace(compared, why=sentence("hyperparameters.computed"))))
    elif far:
        found.unsettled.append((LAST, replace(compared, why=sentence("hyperparameters.far", name=other.name))))
    else:
        found.differs.append((LAST, compared))


def _is_path(setting: Setting) -> bool:
    return isinstance(setting.value, str) and "/" in setting.value and HUB_NAME.fullmatch(setting.value) is None


def _spelled(name: str, one: Setting, other: Setting, group: str) -> ComparedHyperparameter:
    why = sentence("hyperparameters.unknown") if group == OTHERS else say("hyperparameters.no_effect")
    return ComparedHyperparameter(name, name, group, side_value(_plain(one)), side_value(_plain(other)), why)


def _plain(setting: Setting) -> Held:
    return Held(setting.value, shown_value(setting.value), setting.place)
