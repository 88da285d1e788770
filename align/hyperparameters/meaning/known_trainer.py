"""Which trainer a side is of: the one of whose signs most are among the names that are given.

Case counts here: `TRAIN.OPTIMIZER.NAME` is Swin's, `train.optimizer.name` may be anybody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.thresholds import LEAST_SIGNS
from align.rules.hyperparameter_rules import fits_name, hyperparameter_rules, spelled_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.hyperparameters.settings_format import Setting
    from align.rules.hyperparameter_rules import Trainer


def known_trainer(settings: Iterable[Setting]) -> Trainer | None:
    """The trainer with most signs; None if that are too few, or two trainers have as many."""
    names = {spelled_name(one.name) for one in settings}
    counted = sorted(
        ((_signs(one, names), one.id, one) for one in hyperparameter_rules().trainers), key=lambda found: -found[0]
    )
    most, second = counted[0][0], counted[1][0]
    return counted[0][2] if most >= LEAST_SIGNS and most > second else None


def _signs(trainer: Trainer, names: set[str]) -> int:
    return sum(
        sign in names or ("*" in sign and any(fits_name(name, sign) for name in names)) for sign in trainer.signs
    )
