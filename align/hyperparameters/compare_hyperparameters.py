"""Hyperparameters of two trainings compared by meaning, whatever their trainers call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.verdicts import Coverage, Outcome, Verdict
from align.hyperparameters.hyperparameter_result import HyperparameterComparison, SettingsSide
from align.hyperparameters.meaning.compare_meanings import compare_meanings
from align.hyperparameters.meaning.known_defaults import fill_defaults
from align.hyperparameters.meaning.known_trainer import known_trainer
from align.hyperparameters.meaning.named_parameters import read_meaning
from align.hyperparameters.read_settings import read_settings_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    from align.hyperparameters.meaning.found_so_far import Comparison
    from align.hyperparameters.meaning.named_parameters import Meaning
    from align.hyperparameters.read_settings import SettingsRead

    T = TypeVar("T")


def compare_hyperparameters(reference: str | Path, candidate: str | Path) -> HyperparameterComparison:
    r"""Read the settings of two trainings, and compare them by what they mean.

    A side is a configuration (YAML, JSON, TOML, a Python file of mmengine), a shell script, a log with printed
    arguments, training_args.bin, or a folder of `align capture`; several files have commas between, the last counts.
    Values that only their spelling differs in are equal; defaults of known trainers count where nothing is given.
    Raises MissingFileError or UnreadableSettingsError.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> a, b = folder / "a.json", folder / "b.toml"
    >>> _ = a.write_text('{"lr": 1e-4, "optimizer": "adamw_torch"}')
    >>> _ = b.write_text('learning_rate = 2e-4\noptim = "AdamW"')
    >>> found = compare_hyperparameters(a, b)
    >>> [(one.title, one.reference.value, one.candidate.value) for one in found.differences]
    [('learning rate', '0.0001', '0.0002')]
    """
    read = read_settings_of(reference), read_settings_of(candidate)
    meanings = [_meaning(one) for one in read]
    found = compare_meanings(*meanings)
    first, second = (_side(one, meaning) for one, meaning in zip(read, meanings, strict=True))
    return HyperparameterComparison(
        first,
        second,
        _sorted(found.differs),
        _sorted(found.unsettled),
        _sorted(found.without_effect),
        _sorted(found.one_sided),
        _sorted(found.equal),
        _verdict(found),
    )


def _meaning(read: SettingsRead) -> Meaning:
    meaning = read_meaning(list(read.settings), known_trainer(read.settings))
    fill_defaults(meaning)
    return meaning


def _side(read: SettingsRead, meaning: Meaning) -> SettingsSide:
    trainer = meaning.trainer.title if meaning.trainer else ""
    return SettingsSide(read.label, read.formats, trainer, len({one.name for one in read.settings}))


def _sorted(found: list[tuple[int, T]]) -> tuple[T, ...]:
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


def _verdict(found: Comparison) -> Verdict:
    differences = _sorted(found.differs)
    compared = len(differences) + len(found.equal)
    alone = [one.side for _, one in found.one_sided]
    coverage = Coverage(
        "hyperparameters", compared, len(found.without_effect), alone.count("reference"), alone.count("candidate")
    )
    caveats = (sentence("hyperparameters_verdict.unsettled", count=len(found.unsettled)),) if found.unsettled else ()
    if differences:
        first = differences[0]
        facts = {"title": first.title, "reference": first.reference.value, "candidate": first.candidate.value}
        reason = sentence("hyperparameters_verdict.differ", count=len(differences), compared=compared, **facts)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats)
    if not compared:
        return Verdict(Outcome.NOT_COMPARED, sentence("hyperparameters_verdict.nothing"), coverage, caveats)
    return Verdict(Outcome.ALIGNED, sentence("hyperparameters_verdict.equal", count=compared), coverage, caveats)
