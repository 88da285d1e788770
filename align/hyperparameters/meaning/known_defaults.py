"""What a side does not give and its trainer or its optimizer's library has by default, with where that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.meaning.held_values import Held
from align.hyperparameters.meaning.setting_values import in_one_form, shown_value
from align.rules.hyperparameter_rules import fits_name, hyperparameter_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.meaning.named_parameters import Meaning

_FORMS = {
    "warmup_steps": {"warmup_ratio", "warmup_epochs", "warmup_samples"},
    "warmup_epochs": {"warmup_ratio", "warmup_steps", "warmup_samples"},
    "epochs": {"max_steps", "train_samples"},
    "micro_batch": {"global_batch"},
    "accumulation": {"global_batch"},
}


def fill_defaults(meaning: Meaning) -> None:
    """Take the defaults for what is not given; one of several forms of a thing stands for all of them."""
    given = set(meaning.held)
    ruled_out: set[str] = set(meaning.lacking)
    for name, value, place in [*_of_trainer(meaning), *_of_optimizer(meaning)]:
        if value == "":
            ruled_out.add(name)
        elif name not in meaning.held and name not in ruled_out and not given & _FORMS.get(name, set()):
            parameter = hyperparameter_rules().parameter(name)
            found = in_one_form(value, parameter.kind, parameter.same)  # type: ignore[arg-type]
            meaning.held[name] = Held(found, shown_value(value), place, "default")  # type: ignore[arg-type]


def _of_trainer(meaning: Meaning) -> Iterator[tuple[str, object, str]]:
    """The trainer's defaults, those of a case that holds before the others."""
    trainer = meaning.trainer
    if trainer is None:
        return
    fitting = [case for case in trainer.cases if all(_fits(meaning, *one) for one in case.when.items())]
    for defaults in (*(case.defaults for case in fitting), trainer.defaults):
        yield from ((name, value, trainer.sources.get(name, trainer.source)) for name, value in defaults.items())


def _fits(meaning: Meaning, name: str, pattern: str) -> bool:
    return name in meaning.held and fits_name(meaning.held[name].text.lower(), pattern)


def _of_optimizer(meaning: Meaning) -> Iterator[tuple[str, object, str]]:
    """The defaults of the class that makes the updates, where a configuration is all that it is given."""
    chosen = meaning.held.get("optimizer")
    for library, known in hyperparameter_rules().optimizers.items():
        own = meaning.trainer is not None and meaning.trainer.library == library
        if chosen is not None and (own or chosen.text.startswith(known.spelled)):
            defaults = known.defaults.get(str(chosen.value), {})
            yield from ((name, value, known.source) for name, value in defaults.items())
