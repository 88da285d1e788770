"""Of all that is off in a whole step, what is wrong by itself: it was made of what is right."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.judge_step import SeenTensor
    from align.training.steps.replace_step import Way

    Call = tuple[str, int]


def tensors_by_themselves(seen: Sequence[SeenTensor]) -> list[SeenTensor]:
    """Leave out all that is off since something before it is.

    What is off first stays, and what a call made of right tensors, unless a layer inside it is off. Ways back are only
    judged where all is right on the way forth.
    """
    way: Way = "forward" if any(one.factor > 1.0 for one in seen if one.way == "forward") else "backward"
    off = sorted((one for one in seen if one.way == way and one.factor > 1.0), key=_time, reverse=way == "backward")
    calls: dict[Call, list[SeenTensor]] = defaultdict(list)
    for one in seen:
        if one.way == way:
            calls[one.own.module, one.own.call].append(one)
    paths = {one.own.module for one in off}
    return [one for one in off if one is off[0] or _is_made_of_right(one, calls[one.own.module, one.own.call], paths)]


def values_by_themselves(
    values: Sequence[JudgedValue], seen: Sequence[SeenTensor], owners: Mapping[str, str]
) -> list[JudgedValue]:
    """Leave out gradients and buffers of layers that were given something that is off, or hold a layer that is off.

    For a layer that was never called, as those that an attention only keeps, the next one around it stands.
    """
    off = [one for one in seen if one.factor > 1.0]
    given = {one.own.module for one in off if (one.way == "forward") == (one.own.role == "input")}
    called, paths = {one.own.module for one in seen}, {one.own.module for one in off}

    def follows(name: str) -> bool:
        owner = owners.get(name, "")
        while owner and owner not in called:
            owner = owner.rpartition(".")[0]
        return owner in given or _holds_any(owner, paths)

    return [one for one in values if one.factor <= 1.0 or not follows(one.pairing.target)]


def _is_made_of_right(one: SeenTensor, call: Sequence[SeenTensor], off: set[str]) -> bool:
    """Tell whether a call made a tensor of others that are all right, in itself and not in a layer inside."""
    made = (one.way == "forward") == (one.own.role == "output")
    given = [other for other in call if other.own.role != one.own.role]
    return made and bool(given) and not _holds_any(one.own.module, off) and all(each.factor <= 1.0 for each in given)


def _holds_any(module: str, paths: set[str]) -> bool:
    return any(path and (not module or path.startswith(f"{module}.")) for path in paths if path != module)


def _time(one: SeenTensor) -> tuple[int, bool, int]:
    """When a tensor arose: what a call is given is seen before what it returns, and outside before inside."""
    return one.own.order, one.own.role == "output", one.own.module.count(".") + bool(one.own.module)
