"""Hyperparameters of two trainings compared by meaning, whatever their trainers call them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.hyperparameters.named_parameters import (
    batch_quantity,
    common_forms,
    duration_quantity,
    read_meaning,
    warmup_quantity,
)
from align.hyperparameters.setting_values import Held, as_number, in_one_form, listed_values, same_value, shown_value
from align.hyperparameters.settings_format import read_settings_of
from align.hyperparameters.thresholds import LEAST_LETTERS_OF_A_NAME, LEAST_SIGNS, VALUE_NOT_SET
from align.rules.hyperparameter_rules import fits_name, hyperparameter_rules, spelled_name
from align.words.catalogue import say, sentence, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from align.hyperparameters.named_parameters import Form, Meaning, Quantity
    from align.hyperparameters.settings_format import Setting
    from align.rules.hyperparameter_rules import Parameter, Trainer


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
    files = read_settings_of(reference), read_settings_of(candidate)
    meanings = [read_meaning(list(side.settings), known_trainer(side.settings)) for side in files]
    for meaning in meanings:
        fill_defaults(meaning)
    comparison = compare_meanings(*meanings)
    trainers = [meaning.trainer.title if meaning.trainer else "" for meaning in meanings]
    first, second = (
        SettingsSide(side.label, side.formats, trainer, len({setting.name for setting in side.settings}))
        for side, trainer in zip(files, trainers, strict=True)
    )
    return HyperparameterComparison(
        first, second, tuple(comparison.differs), tuple(comparison.unsettled), tuple(comparison.without_effect),
        tuple(comparison.one_sided), tuple(comparison.equal), _verdict(comparison),
    )  # fmt: skip


def _verdict(comparison: Comparison) -> Verdict:
    differences = comparison.differs
    compared = len(differences) + len(comparison.equal)
    sides = [one.side for one in comparison.one_sided]
    alone = sides.count("reference"), sides.count("candidate")
    coverage = Coverage("hyperparameters", compared, len(comparison.without_effect), *alone)
    caveats = (
        (sentence("hyperparameters_verdict.unsettled", count=len(comparison.unsettled)),)
        if comparison.unsettled
        else ()
    )
    if differences:
        first = differences[0]
        facts = {"title": first.title, "reference": first.reference.value, "candidate": first.candidate.value}
        reason = sentence("hyperparameters_verdict.differ", count=len(differences), compared=compared, **facts)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats)
    if not compared:
        return Verdict(Outcome.NOT_COMPARED, sentence("hyperparameters_verdict.nothing"), coverage, caveats)
    return Verdict(Outcome.ALIGNED, sentence("hyperparameters_verdict.equal", count=compared), coverage, caveats)


# What two trainings are set to, side by side: what differs, what cannot be told, and what only one side gives.

ValueOrigin = Literal["given", "default", "derived", "not given"]


@dataclass(frozen=True, slots=True)
class SideValue:
    """The value of one side: as it is shown, as it is spelled there, `file:line` or the address of a default.

    `how` says how a derived value was computed.
    """

    value: str
    spelled: str
    place: str
    origin: ValueOrigin
    how: str


@dataclass(frozen=True, slots=True)
class ComparedHyperparameter:
    """One parameter on both sides; `why` says what it does to a loss, or why it cannot be compared."""

    parameter: str
    title: str
    group: str
    reference: SideValue
    candidate: SideValue
    why: str


@dataclass(frozen=True, slots=True)
class OneSidedHyperparameter:
    """A setting that one side alone gives, and for which no default of the other is known."""

    side: Literal["reference", "candidate"]
    parameter: str
    title: str
    known: bool
    value: SideValue


@dataclass(frozen=True, slots=True)
class SettingsSide:
    """What was read of a side: forms of its files, the trainer that its names tell ("" if none), how many settings."""

    label: str
    formats: tuple[str, ...]
    trainer: str
    settings: int


@dataclass(frozen=True, slots=True)
class HyperparameterComparison(ShownResult):
    """Both sides' settings; `differences` stand in the order of what they do to a loss.

    `without_effect` differ and change rounding, speed or what is printed; `unsettled` cannot be compared as they stand.
    """

    result_kind = "hyperparameters"
    reference: SettingsSide
    candidate: SettingsSide
    differences: tuple[ComparedHyperparameter, ...]
    unsettled: tuple[ComparedHyperparameter, ...]
    without_effect: tuple[ComparedHyperparameter, ...]
    one_sided: tuple[OneSidedHyperparameter, ...]
    equal: tuple[ComparedHyperparameter, ...]
    verdict: Verdict


# What a comparison has found so far, and how a side of a row is shown.

NOT_GIVEN = SideValue("", "", "", "not given", "")


@dataclass(slots=True)
class Comparison:
    """What a comparison has found so far, by kind, each in the order of what it does to a loss."""

    differs: list[ComparedHyperparameter] = field(default_factory=list)
    unsettled: list[ComparedHyperparameter] = field(default_factory=list)
    without_effect: list[ComparedHyperparameter] = field(default_factory=list)
    equal: list[ComparedHyperparameter] = field(default_factory=list)
    one_sided: list[OneSidedHyperparameter] = field(default_factory=list)


def side_value(given: Held | None, unit: str = "") -> SideValue:
    """What is shown of a side; names of choices as they are spelled, since the common form is for comparing only."""
    if given is None:
        return NOT_GIVEN
    is_name = isinstance(given.value, str) and not given.how
    value = (given.text if is_name else shown_value(given.value)).strip()
    shown = sentence("hyperparameters.with_unit", value=value, unit=unit) if unit else value
    return SideValue(shown, given.text, given.place, given.origin, given.how)


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
    comparison = Comparison()
    for one, other in ((reference, candidate), (candidate, reference)):
        _give_back(one, other)
    for parameter in hyperparameter_rules().parameters:
        quantity = dict(QUANTITIES).get(parameter.id)
        if quantity is not None:
            _compare_quantity(parameter, quantity(reference), quantity(candidate), comparison)
        elif not parameter.part or _stands_alone(parameter, reference, candidate):
            _compare_single(parameter, reference, candidate, comparison)
    compare_others(reference, candidate, comparison)
    return comparison


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


def _compare_single(parameter: Parameter, reference: Meaning, candidate: Meaning, comparison: Comparison) -> None:
    first, second = reference.held.get(parameter.id), candidate.held.get(parameter.id)
    if first is None and second is None:
        return
    if first is None or second is None:
        giver = candidate if first is None else reference
        if (first or second).origin != "default" and _counts(parameter, giver):  # type: ignore[union-attr]
            comparison.one_sided.append(_one_sided(parameter.id, parameter.title, first, second))
        return
    first, second = _by_like_names(first, second)
    # Where a learning rate differs, it is said there, and not of what is the same share of it.
    same_share = first.share is not None and second.share is not None and same_value(first.share, second.share)
    counts = _counts(parameter, reference) and _counts(parameter, candidate)
    compared = _compared(parameter, first, second, parameter.why)
    if first.rivals or second.rivals:
        comparison.unsettled.append(_compared(parameter, first, second, _several(first, second)))
    elif same_value(first.value, second.value) or same_share:
        comparison.equal.append(compared)
    elif why := _open_because(
        parameter, first, second, same_trainer=reference.trainer is candidate.trainer is not None
    ):
        comparison.unsettled.append(_compared(parameter, first, second, why))
    elif parameter.group in hyperparameter_rules().unsettling or not counts:
        comparison.without_effect.append(compared)
    else:
        comparison.differs.append(compared)


def _by_like_names(left: Held, right: Held) -> tuple[Held, Held]:
    """Both without their rivals, if these have the same names: of two runs of one program each is held against its own.

    What is held then is the first that is unlike.
    """
    mine, theirs = (dict(text.split(" = ", 1) for text in held.rivals) for held in (left, right))
    if not mine or mine.keys() != theirs.keys():
        return left, right
    unlike = next((name for name in mine if not same_value(mine[name], theirs[name])), None)
    if unlike is None:
        return replace(left, rivals=()), replace(right, rivals=())
    first, second = mine[unlike], theirs[unlike]
    return replace(left, value=first, text=first, rivals=()), replace(right, value=second, text=second, rivals=())


def _several(*held: Held) -> str:
    """Say which settings of one file may mean the same."""
    return sentence("hyperparameters.several", settings=list(next(one.rivals for one in held if one.rivals)))


def _open_because(parameter: Parameter, first: Held, second: Held, *, same_trainer: bool) -> str:
    """Say why unlike texts may stand for the same: paths, and names that a trainer gives; "" for all else."""
    if first.computed or second.computed:
        return sentence("hyperparameters.computed")
    if parameter.kind == "pixels" or parameter.background:
        return _open_colours(first, second) if parameter.kind == "pixels" else _open_background(first, second)
    if parameter.kind == "switch" and not any(isinstance(side.value, bool) for side in (first, second)):
        return sentence("hyperparameters.place")
    known = parameter.same.values()
    if parameter.classes and not (first.value in known and second.value in known):
        return sentence("hyperparameters.own_name")
    if parameter.kind == "place":
        of_a_hub = parameter.group == STARTING_POINT and all(HUB_NAME.fullmatch(side.text) for side in (first, second))
        return "" if of_a_hub else sentence("hyperparameters.place")
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


def _counts(parameter: Parameter, meaning: Meaning) -> bool:
    """Tell whether what a parameter needs is so on a side, as far as that is known."""
    if parameter.beside and "nothing" in dict(QUANTITIES)[parameter.beside](meaning).forms:
        return False
    return all(
        _is_open(name, meaning) or any(same_value(meaning.held[name].value, value) for value in values)  # type: ignore[arg-type]
        for name, values in parameter.needs.items()
    )


def _is_open(name: str, meaning: Meaning) -> bool:
    """Tell a choice that is not given, or is spelled as no table knows: what it needs may be so."""
    held, parameter = meaning.held.get(name), hyperparameter_rules().parameter(name)
    return held is None or (
        parameter.kind == "choice" and held.value not in parameter.same.values() and bool(parameter.same)
    )


def _compare_quantity(parameter: Parameter, reference: Quantity, candidate: Quantity, comparison: Comparison) -> None:
    first, second = reference.first, candidate.first
    if first is None or second is None:
        if first is not second and (first or second).origin != "default":  # type: ignore[union-attr]
            comparison.one_sided.append(_one_sided(parameter.id, parameter.title, first, second))
        return
    if first.rivals != second.rivals:
        comparison.unsettled.append(_compared(parameter, first, second, _several(first, second)))
        return
    form = next(common_forms(reference, candidate), None)
    none = [side for side in (reference, candidate) if "nothing" in side.forms]
    if form == "batch of a rank" and not _of_like_ranks(reference, candidate):
        form = None
    if form is None and not none:
        forms = [word("hyperparameter_form", next(iter(side.forms))) for side in (reference, candidate)]
        why = sentence("hyperparameters.unlike_forms", reference=forms[0], candidate=forms[1])
        comparison.unsettled.append(_compared(parameter, first, second, why))
        return
    if form is not None:
        first, second = reference.forms[form], candidate.forms[form]
    same = len(none) == 2 or (form is not None and not none and same_value(first.value, second.value))
    compared = _compared(parameter, first, second, parameter.why, _unit(form, reference, candidate))
    (comparison.equal if same else comparison.differs).append(compared)


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
    both = (reference, candidate)
    forms = [form or next((one for one in side.forms if one != "nothing"), "steps") for side in both]
    first, second = (say(f"hyperparameter_unit.{one.replace(' ', '_')}") for one in forms)
    return first, second


def _compared(
    parameter: Parameter, one: Held, other: Held, why: str, units: tuple[str, str] = ("", "")
) -> ComparedHyperparameter:
    first, second = side_value(one, units[0]), side_value(other, units[1])
    return ComparedHyperparameter(parameter.id, parameter.title, parameter.group, first, second, why)


def _one_sided(
    name: str, title: str, one: Held | None, other: Held | None, *, known: bool = True
) -> OneSidedHyperparameter:
    side: Literal["reference", "candidate"] = "candidate" if one is None else "reference"
    return OneSidedHyperparameter(side, name, title, known, side_value(one or other))


# Settings that no table knows, paired by their spelling; and those that no loss depends on.

OTHERS, BOOKKEEPING, ENVIRONMENT = "other settings", "bookkeeping", "environment"
HUB_NAME = re.compile(r"[A-Za-z][\w-]*/[\w.-]*[A-Z\d][\w.-]*")


def compare_others(reference: Meaning, candidate: Meaning, comparison: Comparison) -> None:
    """Pair by spelling what no table knows; and what no loss depends on."""
    mine, theirs, far = with_nested_names(reference.others, candidate.others)
    for name in sorted({*mine, *theirs}):
        first, second = mine.get(name), theirs.get(name)
        if first is not None and second is not None:
            _compare_spelled(name, first, second, comparison, far=name in far)
        else:
            held = (None if setting is None else _plain(setting) for setting in (first, second))
            comparison.one_sided.append(_one_sided(name, name, *held, known=False))
    for name in sorted(reference.without_effect.keys() & candidate.without_effect.keys()):
        first, second = reference.without_effect[name], candidate.without_effect[name]
        if not same_value(first.value, second.value):
            group = ENVIRONMENT if name.startswith(f"{ENVIRONMENT}.") else BOOKKEEPING
            comparison.without_effect.append(_spelled(name, first, second, group))


def _compare_spelled(name: str, first: Setting, second: Setting, comparison: Comparison, *, far: bool) -> None:
    """Compare two settings of one name that no table knows; of two paths it is not known what lies there."""
    compared = _spelled(name, first, second, OTHERS)
    texts = [setting.value for setting in (first, second) if isinstance(setting.value, str)]
    if same_value(first.value, second.value):
        comparison.equal.append(compared)
    elif any("/" in text and HUB_NAME.fullmatch(text) is None for text in texts) and len(texts) == 2:
        comparison.unsettled.append(replace(compared, why=sentence("hyperparameters.place")))
    elif any(same_value(setting.value, VALUE_NOT_SET) for setting in (first, second)):
        comparison.unsettled.append(replace(compared, why=sentence("hyperparameters.minus_one")))
    elif first.computed or second.computed:
        comparison.unsettled.append(replace(compared, why=sentence("hyperparameters.computed")))
    elif far:
        comparison.unsettled.append(replace(compared, why=sentence("hyperparameters.far", name=second.name)))
    else:
        comparison.differs.append(compared)


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
    longer = [(name, tail) for name in mine for tail in _tails(name) if tail in candidate and tail not in reference]
    longer += [(tail, name) for name in theirs for tail in _tails(name) if tail in reference and tail not in candidate]
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
    partners = {}
    for end, name in ends[0].items():
        other = ends[1].get(end, "")
        common = ({*name.split(".")[:-1]} & {*other.split(".")[:-1]}) - hyperparameter_rules().neutral
        # Without a common part two words of an end say enough, or a whole name of one side.
        long_enough = len(end) >= LEAST_LETTERS_OF_A_NAME and not all("." in one for one in (name, other))
        says_enough = "_" in end or long_enough if far else common
        if other and says_enough and _form(reference[name]) == _form(candidate[other]):
            partners[other] = name
    return partners


def _single_ends(names: Mapping[str, Setting], others: Mapping[str, Setting]) -> dict[str, str]:
    """The names by their last part, where all that end so have one value, and the other side lacks the whole name."""
    ends: dict[str, list[str]] = {}
    for name in names:
        # `num_factors` is `factors`: a name may say that it is a number.
        ends.setdefault(_COUNT.sub("", name.rpartition(".")[2]), []).append(name)
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
    names = {spelled_name(setting.name) for setting in settings}

    def is_there(sign: str) -> bool:
        return sign in names or ("*" in sign and any(fits_name(name, sign) for name in names))

    signs = {trainer.id: set(filter(is_there, trainer.signs)) for trainer in hyperparameter_rules().trainers}
    known = [trainer for trainer in hyperparameter_rules().trainers if len(signs[trainer.id]) >= LEAST_SIGNS]
    known = [trainer for trainer in known if not signs[trainer.id] <= signs.get(trainer.like, set())]
    driven = {name for trainer in known for name in trainer.drives}
    candidates = sorted(
        (trainer for trainer in known if trainer.id not in driven), key=lambda trainer: -len(signs[trainer.id])
    )
    if not candidates or (len(candidates) > 1 and len(signs[candidates[0].id]) == len(signs[candidates[1].id])):
        return None
    return _with_driven(candidates[0], [trainer for trainer in known if trainer.id in candidates[0].drives])


def _with_driven(trainer: Trainer, driven: list[Trainer]) -> Trainer:
    """A trainer with the names of those that it drives: what their settings say is done, and its own are only asked."""
    for other in driven:
        mine, theirs = trainer.names, other.names
        names = {name: (*theirs.get(name, ()), *mine.get(name, ())) for name in {*theirs, *mine}}
        off, ignored = {**other.off, **trainer.off}, (*other.ignored, *trainer.ignored)
        trainer = replace(trainer, names=names, off=off, ignored=ignored)
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

    def holds(name: str, pattern: str) -> bool:
        return name in meaning.held and fits_name(meaning.held[name].text.lower(), pattern)

    fitting = [case for case in trainer.cases if all(holds(*condition) for condition in case.when.items())]
    for defaults in (*(case.defaults for case in fitting), trainer.defaults):
        yield from ((name, value, trainer.sources.get(name, trainer.source)) for name, value in defaults.items())


def _of_optimizer(meaning: Meaning) -> Iterator[tuple[str, object, str]]:
    """The defaults of the class that makes the updates, where a configuration is all that it is given."""
    chosen = meaning.held.get("optimizer")
    for library, known in hyperparameter_rules().optimizers.items():
        own = meaning.trainer is not None and meaning.trainer.library == library
        if chosen is not None and (own or chosen.text.startswith(known.spelled)):
            defaults = known.defaults.get(str(chosen.value), {})
            yield from ((name, value, known.source) for name, value in defaults.items())
