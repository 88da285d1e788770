"""Hyperparameters of two trainings compared by meaning, whatever their trainers call them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import Coverage, Outcome, Verdict
from align.hyperparameters.hyperparameter_result import (
    ComparedHyperparameter,
    Comparison,
    HyperparameterComparison,
    OneSidedHyperparameter,
    SettingsSide,
    batch_quantity,
    common_forms,
    duration_quantity,
    side_value,
    warmup_quantity,
)
from align.hyperparameters.named_parameters import read_meaning
from align.hyperparameters.setting_values import Held, as_number, in_one_form, listed_values, same_value, shown_value
from align.hyperparameters.settings_format import read_settings_of
from align.hyperparameters.thresholds import LEAST_LETTERS_OF_A_NAME, LEAST_SIGNS, VALUE_NOT_SET
from align.rules.hyperparameter_rules import fits_name, hyperparameter_rules, spelled_name
from align.words.catalogue import say, sentence, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import TypeVar

    from align.hyperparameters.hyperparameter_result import Form, Quantity
    from align.hyperparameters.named_parameters import Meaning
    from align.hyperparameters.settings_format import Setting, SettingsRead
    from align.rules.hyperparameter_rules import Parameter, Trainer

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


# Two sides' parameters compared: single ones, derived ones, and settings that only their spelling pairs.

STARTING_POINT = "starting point"
WORLD_SIZE, ACCUMULATION = "world_size", "accumulation"
BATCHES = {"global_batch", "micro_batch"}
# Derived quantities: the parameters that they stand for, the first names them in the order of all.
QUANTITIES: tuple[tuple[str, Callable[[Meaning], Quantity]], ...] = (
    ("warmup_steps", warmup_quantity),
    ("global_batch", batch_quantity),
    ("max_steps", duration_quantity),
)


def compare_meanings(reference: Meaning, candidate: Meaning) -> Comparison:
    """Compare all parameters in their order, then what is left over."""
    found = Comparison()
    for one, other in ((reference, candidate), (candidate, reference)):
        _give_back(one, other)
    for parameter in hyperparameter_rules().parameters:
        quantity = dict(QUANTITIES).get(parameter.id)
        if quantity is not None:
            _compare_quantity(parameter, quantity(reference), quantity(candidate), found)
        elif not parameter.part or _stands_alone(parameter, reference, candidate):
            _compare_single(parameter, reference, candidate, found)
    compare_others(reference, candidate, found)
    return found


def _give_back(mine: Meaning, other: Meaning) -> None:
    """Leave to its spelling what only the end of a name said, where the other side has the same name unexplained."""
    unexplained = {name.rpartition(".")[2] for name in other.others}
    for ident, names in mine.by_end.items():
        if ident not in other.held and any(name.rpartition(".")[2] in unexplained for name in names):
            del mine.held[ident]
            mine.others.update(names)


def _stands_alone(parameter: Parameter, *sides: Meaning) -> bool:
    """Tell what multiplies a batch where there is none to multiply: of both sides the devices, of one accumulation."""
    lacking = [not one.held.keys() & BATCHES for one in sides]
    return (parameter.id == WORLD_SIZE and all(lacking)) or (parameter.id == ACCUMULATION and any(lacking))


def _compare_single(parameter: Parameter, reference: Meaning, candidate: Meaning, found: Comparison) -> None:
    one, other = reference.held.get(parameter.id), candidate.held.get(parameter.id)
    if one is None and other is None:
        return
    if one is None or other is None:
        giver = candidate if one is None else reference
        if (one or other).origin != "default" and _counts(parameter, giver):  # type: ignore[union-attr]
            _add_one_sided(parameter.order, parameter.id, parameter.title, one, other, found)
        return
    one, other = _by_like_names(one, other)
    counts = _counts(parameter, reference) and _counts(parameter, candidate)
    compared = _compared(parameter, one, other, parameter.why)
    if one.rivals or other.rivals:
        found.unsettled.append((parameter.order, _compared(parameter, one, other, _several(one, other))))
    elif same_value(one.value, other.value) or _same_share(one, other):
        found.equal.append((parameter.order, compared))
    elif why := _open_because(parameter, one, other, same_trainer=_of_one_trainer(reference, candidate)):
        found.unsettled.append((parameter.order, _compared(parameter, one, other, why)))
    elif parameter.group in hyperparameter_rules().unsettling or not counts:
        found.without_effect.append((parameter.order, compared))
    else:
        found.differs.append((parameter.order, compared))


def _of_one_trainer(reference: Meaning, candidate: Meaning) -> bool:
    return reference.trainer is not None and reference.trainer is candidate.trainer


def _by_like_names(one: Held, other: Held) -> tuple[Held, Held]:
    """Both without their rivals, if these have the same names: of two runs of one program each is held against its own.

    What is held then is the first that is unlike.
    """
    mine, theirs = (dict(text.split(" = ", 1) for text in held.rivals) for held in (one, other))
    if not mine or mine.keys() != theirs.keys():
        return one, other
    unlike = next((name for name in mine if not same_value(mine[name], theirs[name])), None)
    if unlike is None:
        return replace(one, rivals=()), replace(other, rivals=())
    first, second = mine[unlike], theirs[unlike]
    return replace(one, value=first, text=first, rivals=()), replace(other, value=second, text=second, rivals=())


def _several(*held: Held) -> str:
    """Say which settings of one file may mean the same."""
    return sentence("hyperparameters.several", settings=list(next(one.rivals for one in held if one.rivals)))


def _same_share(one: Held, other: Held) -> bool:
    """Tell whether both are one share of a learning rate: where that differs, it is said there."""
    return one.share is not None and other.share is not None and same_value(one.share, other.share)


def _open_because(parameter: Parameter, one: Held, other: Held, *, same_trainer: bool) -> str:
    """Say why unlike texts may stand for the same: paths, and names that a trainer gives; "" for all else."""
    if one.computed or other.computed:
        return sentence("hyperparameters.computed")
    if parameter.kind == "pixels" or parameter.background:
        return _open_colours(one, other) if parameter.kind == "pixels" else _open_background(one, other)
    if parameter.kind == "switch" and not any(isinstance(held.value, bool) for held in (one, other)):
        return sentence("hyperparameters.place")
    known = parameter.same.values()
    if parameter.classes and not (one.value in known and other.value in known):
        return sentence("hyperparameters.own_name")
    if parameter.kind == "place" and not (parameter.group == STARTING_POINT and _named_weights(one, other)):
        return sentence("hyperparameters.place")
    return "" if parameter.kind != "own name" or same_trainer else sentence("hyperparameters.own_name")


def _open_background(one: Held, other: Held) -> str:
    """Say what is not known of numbers of classes that are unlike by one."""
    numbers = [held.value for held in (one, other) if isinstance(held.value, float)]
    near = len(numbers) == 2 and abs(numbers[0] - numbers[1]) == 1
    return sentence("hyperparameters.background") if near else ""


def _open_colours(one: Held, other: Held) -> str:
    """Say what is not known of the same numbers in another order, as of BGR and RGB, and of names of numbers."""
    both = (one.value, other.value)
    if not all(isinstance(value, tuple) for value in both):
        return sentence("hyperparameters.own_name")
    same = sorted(both[0]) == sorted(both[1])  # type: ignore[arg-type,type-var]
    return sentence("hyperparameters.colours") if same else ""


def _named_weights(one: Held, other: Held) -> bool:
    """Tell whether both are names of a hub, `owner/name`: then they name what they stand for."""
    return all(HUB_NAME.fullmatch(held.text) is not None for held in (one, other))


def _counts(parameter: Parameter, meaning: Meaning) -> bool:
    """Tell whether what a parameter needs is so on a side, as far as that is known."""
    if parameter.beside and "nothing" in dict(QUANTITIES)[parameter.beside](meaning).forms:
        return False
    return all(
        _is_open(name, meaning) or _is_one_of(values, meaning.held[name]) for name, values in parameter.needs.items()
    )


def _is_open(name: str, meaning: Meaning) -> bool:
    """Tell a choice that is not given, or is spelled as no table knows: what it needs may be so."""
    held, parameter = meaning.held.get(name), hyperparameter_rules().parameter(name)
    return held is None or (
        parameter.kind == "choice" and held.value not in parameter.same.values() and bool(parameter.same)
    )


def _is_one_of(values: tuple[object, ...], held: Held) -> bool:
    return any(same_value(held.value, one) for one in values)  # type: ignore[arg-type]


def _compare_quantity(parameter: Parameter, reference: Quantity, candidate: Quantity, found: Comparison) -> None:
    one, other = reference.first, candidate.first
    if one is None or other is None:
        if one is not other and (one or other).origin != "default":  # type: ignore[union-attr]
            _add_one_sided(parameter.order, parameter.id, parameter.title, one, other, found)
        return
    if one.rivals != other.rivals:
        found.unsettled.append((parameter.order, _compared(parameter, one, other, _several(one, other))))
        return
    form = next(common_forms(reference, candidate), None)
    none = [side for side in (reference, candidate) if "nothing" in side.forms]
    if form == "batch of a rank" and not _of_like_ranks(reference, candidate):
        form = None
    if form is None and not none:
        forms = [word("hyperparameter_form", next(iter(side.forms))) for side in (reference, candidate)]
        why = sentence("hyperparameters.unlike_forms", reference=forms[0], candidate=forms[1])
        found.unsettled.append((parameter.order, _compared(parameter, one, other, why)))
        return
    if form is not None:
        one, other = reference.forms[form], candidate.forms[form]
    same = len(none) == 2 or (form is not None and not none and same_value(one.value, other.value))
    compared = _compared(parameter, one, other, parameter.why, _unit(form, reference, candidate))
    (found.equal if same else found.differs).append((parameter.order, compared))


def _of_like_ranks(reference: Quantity, candidate: Quantity) -> bool:
    """Tell batches of a rank that say something: no ranks are known, or one side has one rank and they are unlike."""
    if ("batch" in reference.forms) == ("batch" in candidate.forms):
        return True
    held = [side.forms["batch of a rank"] for side in (reference, candidate)]
    if any(side.unsure for side in held):
        return False
    one, other = (side.value for side in held)
    known = next(side for side in (reference, candidate) if "batch" in side.forms)
    return same_value(known.forms["batch"].value, known.forms["batch of a rank"].value) and not same_value(one, other)


def _unit(form: Form | None, reference: Quantity, candidate: Quantity) -> tuple[str, str]:
    """The units of both values."""
    forms = [
        form or next(iter(one for one in side.forms if one != "nothing"), "steps") for side in (reference, candidate)
    ]
    first, second = (word("hyperparameter_unit", str(one)) for one in forms)
    return first, second


def _compared(
    parameter: Parameter, one: Held, other: Held, why: str, units: tuple[str, str] = ("", "")
) -> ComparedHyperparameter:
    first, second = side_value(one, units[0]), side_value(other, units[1])
    return ComparedHyperparameter(parameter.id, parameter.title, parameter.group, first, second, why)


def _add_one_sided(order: int, name: str, title: str, one: Held | None, other: Held | None, found: Comparison) -> None:
    side: Literal["reference", "candidate"] = "candidate" if one is None else "reference"
    found.one_sided.append((order, OneSidedHyperparameter(side, name, title, True, side_value(one or other))))


# Settings that no table knows, paired by their spelling; and those that no loss depends on.

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


# Names that no table knows and that stand at other depths.
#
# `dataset_conf.filter_conf.max_length` is `dataset_conf.max_length` if no other name ends so, both stand under one
# part, and both have as many numbers or words. `pitch.feature` is `audio.pitch.feature`. Without a common part they
# are `far`: equal ones are equal, and whether unlike ones mean the same is not known. Only ends of two words or more
# count then, which say something by themselves: `mask_ratio`, and not `ratio`.

# Last parts that stand under many things and say nothing alone.
COMMON = frozenset(
    ("type", "name", "size", "value", "p", "prob", "scale", "dim", "num", "path", "factor", "enable", "enabled", "mode")
)


_COUNT = re.compile(r"^(num|n|nb)_(?=[a-z]{4})")


def with_nested_names(
    reference: Mapping[str, Setting], candidate: Mapping[str, Setting]
) -> tuple[dict[str, Setting], dict[str, Setting], set[str]]:
    """Both sides' settings, of which those of the candidate that have another depth are called as the reference's.

    Also the names of those that only their end pairs.
    """
    near = {**_by_last_part(reference, candidate), **_by_tail(reference, candidate)}
    taken = {*near.values()}
    far = {
        other: one
        for other, one in _by_last_part(reference, candidate, far=True).items()
        if other not in near and one not in taken
    }
    renamed = {**far, **near}
    called = {renamed.get(name, name): setting for name, setting in candidate.items()}
    return dict(reference), called, {*far.values()}


def _by_tail(reference: Mapping[str, Setting], candidate: Mapping[str, Setting]) -> dict[str, str]:
    """Names of two parts or more that another name ends with: `pitch.feature` is `audio.pitch.feature`."""
    mine = [name for name in reference if "." in name and name not in candidate]
    theirs = [name for name in candidate if "." in name and name not in reference]
    longer = [(one, tail) for one in mine for tail in _tails(one) if tail in candidate and tail not in reference]
    longer += [
        (tail, other) for other in theirs for tail in _tails(other) if tail in reference and tail not in candidate
    ]
    counted = Counter(name for pair in longer for name in pair)
    return {other: one for one, other in longer if counted[one] == counted[other] == 1}


def _tails(name: str) -> Iterator[str]:
    """What a name ends with, of two parts or more, without its beginning."""
    parts = name.split(".")
    yield from (".".join(parts[begin:]) for begin in range(1, len(parts) - 1))


def _by_last_part(
    reference: Mapping[str, Setting], candidate: Mapping[str, Setting], *, far: bool = False
) -> dict[str, str]:
    """Names whose last part is theirs alone, with values of one form: under a common part, or `far` from each other."""
    ends = _single_ends(reference, candidate), _single_ends(candidate, reference)
    found = {}
    for end, name in ends[0].items():
        other = ends[1].get(end, "")
        common = ({*name.split(".")[:-1]} & {*other.split(".")[:-1]}) - hyperparameter_rules().neutral
        if (
            other
            and (_says_enough(end, name, other) if far else common)
            and _form(reference[name]) == _form(candidate[other])
        ):
            found[other] = name
    return found


def _plain_end(name: str) -> str:
    """The last part of a name without what says that it is a number: `num_factors` is `factors`."""
    return _COUNT.sub("", name.rpartition(".")[2])


def _says_enough(end: str, name: str, other: str) -> bool:
    """Tell an end that pairs names without a common part: two words, or a whole name of one side."""
    whole = any("." not in one for one in (name, other))
    return "_" in end or (whole and len(end) >= LEAST_LETTERS_OF_A_NAME)


def _single_ends(names: Mapping[str, Setting], others: Mapping[str, Setting]) -> dict[str, str]:
    """The names by their last part, where all that end so have one value, and the other side lacks the whole name."""
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(_plain_end(name), []).append(name)
    return {
        end: several[0]
        for end, several in ends.items()
        if end not in COMMON
        and not end.isdigit()
        and not any(name in others for name in several)
        and all(same_value(names[name].value, names[several[0]].value) for name in several)
    }


def _form(setting: Setting) -> tuple[bool, int]:
    """Whether a value is of numbers, and of how many; of texts there may be more or fewer."""
    listed = listed_values(setting.value)
    numbers = all(as_number(one) is not None for one in listed)
    return numbers, len(listed) if numbers else 0


# Which trainer a side is of: the one of whose signs most are among the names that are given.
#
# One that is built like another needs a sign that this one lacks; one that is driven by another is not the trainer.
#
# Case counts here: `TRAIN.OPTIMIZER.NAME` is Swin's, `train.optimizer.name` may be anybody's.


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


# What a side does not give and its trainer or its optimizer's library has by default, with where that can be read.

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
