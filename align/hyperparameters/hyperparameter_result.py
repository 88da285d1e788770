"""What two trainings are set to, side by side: what differs, what cannot be told, and what only one side gives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult
from align.hyperparameters.setting_values import Held, shown_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.verdicts import Verdict
    from align.hyperparameters.named_parameters import Meaning
    from align.hyperparameters.settings_format import Value


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
    """What a comparison has found so far, by kind, with the order of each."""

    differs: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    unsettled: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    without_effect: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    equal: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    one_sided: list[tuple[int, OneSidedHyperparameter]] = field(default_factory=list)


def side_value(held: Held | None, unit: str = "") -> SideValue:
    """What is shown of a side; names of choices as they are spelled, since the common form is for comparing only."""
    if held is None:
        return NOT_GIVEN
    is_name = isinstance(held.value, str) and not held.how
    value = f"{held.text if is_name else shown_value(held.value)} {unit}".strip()
    return SideValue(value, held.text, held.place, held.origin, held.how)


# What follows from several settings: the global batch, the duration in steps, the warm-up; each says how.
#
# A quantity has several forms (a warm-up in steps, in epochs, as a share of the run). Two sides are compared in a
# form that both have, which may be computed; where there is none, that is said and nothing is guessed.

Form = Literal["batch", "batch of a rank", "steps", "epochs", "samples", "share", "nothing"]
PARALLEL = ("tensor_parallel", "pipeline_parallel", "context_parallel")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of one side in all forms that it can be told in; the first is the one that is given."""

    forms: dict[Form, Held]

    @property
    def first(self) -> Held | None:
        """What is given, or the best that is known."""
        return next(iter(self.forms.values()), None)


def batch_quantity(meaning: Meaning) -> Quantity:
    """The global batch: as given, or micro batch x accumulation x data-parallel ranks; else what one rank takes."""
    forms: dict[Form, Held] = {}
    if "global_batch" in meaning.held:
        forms["batch"] = meaning.held["global_batch"]
    micro, steps = meaning.number("micro_batch"), meaning.number("accumulation")
    if micro is not None:
        parts = [micro] if steps is None else [micro, steps]
        origin = "default" if meaning.held["micro_batch"].origin == "default" else "derived"
        ranks = data_ranks(meaning)
        shared = ranks is not None and ranks.value != 1 and _may_be_shared(meaning)
        if ranks is not None and not shared:
            forms.setdefault("batch", _product([*parts, ranks.value], meaning, "micro_batch", ranks.how))
        forms["batch of a rank"] = replace(_product(parts, meaning, "micro_batch", "", origin), unsure=shared)
    return Quantity(forms)


def _may_be_shared(meaning: Meaning) -> bool:
    """Tell a `batch_size` beside `gpus` of a program that no table knows: it may be that of all of them."""
    held = [meaning.held.get(name) for name in ("micro_batch", "world_size")]
    return meaning.trainer is None and all(one is not None and one.unsure for one in held)


def data_ranks(meaning: Meaning) -> Held | None:
    """Data-parallel ranks: as given, or all devices by those that share one copy of the model."""
    if "data_parallel" in meaning.held:
        return meaning.held["data_parallel"]
    devices = all_devices(meaning)
    if devices is None or not isinstance(devices.value, float):
        return None
    shared, how = 1.0, [devices.how or shown_value(devices.value)]
    for name in PARALLEL:
        number = meaning.number(name)
        if number is not None and number > 1:
            shared *= number
            how.append(shown_value(number))
    ranks = devices.value / shared
    text = how[0] if len(how) == 1 else f"{shown_value(ranks)} = {' / '.join([shown_value(devices.value), *how[1:]])}"
    return Held(ranks, shown_value(ranks), devices.place, "derived", text) if ranks >= 1 else None


def all_devices(meaning: Meaning) -> Held | None:
    """All devices: as given, or nodes x devices of a node.

    One device beside several of a node is what a program has before its launcher says more.
    """
    each, nodes = meaning.number("ranks_per_node"), meaning.number("nodes")
    alone = meaning.number("world_size") == 1 and (each or 1) > 1
    if "world_size" in meaning.held and not alone:
        return meaning.held["world_size"]
    if each is None:
        return None
    nodes = 1.0 if nodes is None else nodes
    how = f"{shown_value(nodes)} × {shown_value(each)}" if nodes != 1 else shown_value(each)
    return Held(nodes * each, shown_value(nodes * each), meaning.place("ranks_per_node"), "derived", how)


def duration_quantity(meaning: Meaning) -> Quantity:
    """The duration in steps, epochs or samples; the others follow where batch and length of the dataset are known."""
    forms: dict[Form, Held] = {}
    for name, form in _DURATIONS:
        if name in meaning.held:
            forms[form] = meaning.held[name]
    batch, length = _global_batch(meaning), meaning.number("samples")
    if "steps" not in forms and batch:
        if "samples" in forms:
            forms["steps"] = _quotient(forms["samples"], batch)
        elif "epochs" in forms and length:
            each = max(1.0, length // batch)
            how = f"{shown_value(forms['epochs'].value)} × ({shown_value(length)} // {shown_value(batch)})"
            total = float(forms["epochs"].value) * each  # type: ignore[arg-type]
            forms["steps"] = Held(total, forms["epochs"].text, forms["epochs"].place, "derived", how)
    return Quantity(forms)


_DURATIONS: tuple[tuple[str, Form], ...] = (("max_steps", "steps"), ("epochs", "epochs"), ("train_samples", "samples"))


def warmup_quantity(meaning: Meaning) -> Quantity:
    """The warm-up in steps, in epochs or as a share; none in any form is none in all."""
    forms: dict[Form, Held] = {}
    for name, form in _WARMUPS:
        if name in meaning.held and (meaning.number(name) or not forms):
            forms[form] = meaning.held[name]
    batch = _global_batch(meaning)
    if "samples" in forms and batch:
        forms = {"steps": _quotient(forms.pop("samples"), batch), **forms}
    given = {form: held for form, held in forms.items() if held.value}
    if forms and not given:
        return Quantity({"nothing": next(iter(forms.values())), **forms})
    forms = given
    duration = duration_quantity(meaning).forms
    for form in ("steps", "epochs"):
        if form in forms and form in duration and duration[form].value and "share" not in forms:
            forms["share"] = _share(forms[form], duration[form])
    if "share" in forms and "steps" in duration and "steps" not in forms:
        steps = float(forms["share"].value) * float(duration["steps"].value)  # type: ignore[arg-type]
        how = f"{shown_value(forms['share'].value)} × {shown_value(duration['steps'].value)}"
        forms["steps"] = Held(float(round(steps)), forms["share"].text, forms["share"].place, "derived", how)
    return Quantity(forms)


_WARMUPS: tuple[tuple[str, Form], ...] = (
    ("warmup_steps", "steps"),
    ("warmup_ratio", "share"),
    ("warmup_epochs", "epochs"),
    ("warmup_samples", "samples"),
)


def common_forms(one: Quantity, other: Quantity) -> Iterator[Form]:
    """Forms that both sides have, those that are given before those that are computed."""
    both = [form for form in one.forms if form in other.forms]
    derived = {form: (one.forms[form].how != "") + (other.forms[form].how != "") for form in both}
    derived |= {form: 0 for form in both if form == "batch"}
    yield from sorted(both, key=lambda form: derived[form])


def _global_batch(meaning: Meaning) -> float | None:
    held = batch_quantity(meaning).forms.get("batch")
    return float(held.value) if held is not None and isinstance(held.value, float) else None


def _product(numbers: Sequence[Value], meaning: Meaning, name: str, ranks: str, origin: str = "derived") -> Held:
    total = 1.0
    for number in numbers:
        total *= float(number)  # type: ignore[arg-type]
    several = len(numbers) > 1
    how = " × ".join(shown_value(one) for one in numbers) if several else ""
    how += f" ({ranks})" if " " in ranks else ""
    held = meaning.held[name]
    kind = origin if several or origin == "default" else held.origin
    return Held(total, held.text, held.place, kind, how, rivals=held.rivals)  # type: ignore[arg-type]


def _quotient(held: Held, divisor: float) -> Held:
    how = f"{shown_value(held.value)} / {shown_value(divisor)}"
    return Held(float(held.value) / divisor, held.text, held.place, "derived", how)  # type: ignore[arg-type]


def _share(part: Held, whole: Held) -> Held:
    how = f"{shown_value(part.value)} / {shown_value(whole.value)}"
    return Held(float(part.value) / float(whole.value), part.text, part.place, "derived", how)  # type: ignore[arg-type]
