"""Which trainer a side is of: the one of whose signs most are among the names that are given.

One that is built like another needs a sign that this one lacks; one that is driven by another is not the trainer.

Case counts here: `TRAIN.OPTIMIZER.NAME` is Swin's, `train.optimizer.name` may be anybody's.
"""

from __future__ import annotations

from dataclasses import replace
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
    signs = {one.id: _signs(one, names) for one in hyperparameter_rules().trainers}
    known = [one for one in hyperparameter_rules().trainers if len(signs[one.id]) >= LEAST_SIGNS]
    known = [one for one in known if not signs[one.id] <= signs.get(one.like, set())]
    driven = {name for one in known for name in one.drives}
    found = sorted((one for one in known if one.id not in driven), key=lambda one: -len(signs[one.id]))
    if not found or (len(found) > 1 and len(signs[found[0].id]) == len(signs[found[1].id])):
        return None
    return _with_driven(found[0], [one for one in known if one.id in found[0].drives])


def _signs(trainer: Trainer, names: set[str]) -> set[str]:
    return {
        sign
        for sign in trainer.signs
        if sign in names or ("*" in sign and any(fits_name(name, sign) for name in names))
    }


def _with_driven(trainer: Trainer, driven: list[Trainer]) -> Trainer:
    """A trainer with the names of those that it drives: what their settings say is done, and its own are only asked."""
    for one in driven:
        off = {**one.off, **trainer.off}
        names = {
            name: (*one.names.get(name, ()), *trainer.names.get(name, ())) for name in {*one.names, *trainer.names}
        }
        trainer = replace(trainer, names=names, off=off, ignored=(*one.ignored, *trainer.ignored))
    return trainer
