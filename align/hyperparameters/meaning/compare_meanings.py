"""Two sides' parameters compared: single ones, derived ones, and settings that only their spelling pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.hyperparameter_result import ComparedHyperparameter, OneSidedHyperparameter
from align.hyperparameters.meaning.compare_others import HUB_NAME, compare_others
from align.hyperparameters.meaning.derived_values import (
    batch_quantity,
    common_forms,
    duration_quantity,
    warmup_quantity,
)
from align.hyperparameters.meaning.found_so_far import Comparison, side_value
from align.hyperparameters.meaning.setting_values import same_value
from align.rules.hyperparameter_rules import hyperparameter_rules
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.hyperparameters.meaning.derived_values import Form, Quantity
    from align.hyperparameters.meaning.held_values import Held
    from align.hyperparameters.meaning.named_parameters import Meaning
    from align.rules.hyperparameter_rules import Parameter

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
