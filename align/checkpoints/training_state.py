"""Tensors of a checkpoint that are no weights: what optimizers, loss scalers and averaging wrappers keep.

A name alone proves nothing: a model may have a parameter called `momentum` and a module called `moments`. The state of
an optimizer is known by the parameters that it belongs to, and the numbers beside it by that state.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.checkpoints.framework_of_names import FrameworkName
    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Shape
    from align.rules.training_state_rules import OptimizerState, TrainingStateRules

    Tensors = Mapping[str, StoredTensor]

STATE = "optimizer state"
COUNTER = "a wrapper's count of averaged models"
REASONS = frozenset({STATE, COUNTER})
ENOUGH = 2  # parameters of one state, or kinds of state, that need no number beside them


def training_state(tensors: Tensors, rules: TrainingStateRules, framework: FrameworkName) -> dict[str, str]:
    """Name -> reason of every tensor that is none of the weights, in the file's order.

    Only MindSpore writes the state of an optimizer beside the weights, as if it were one of them.
    """
    found = dict.fromkeys(_counters(tensors, rules), COUNTER)
    if framework == "mindspore":
        found |= dict.fromkeys(_optimizer_state(tensors, rules), STATE)
    return {name: found[name] for name in tensors if name in found}


def _optimizer_state(tensors: Tensors, rules: TrainingStateRules) -> Iterator[str]:
    numbers = _numbers(tensors, rules)
    owners: dict[str, str] = {}
    heads: set[str] = set()
    for optimizer in rules.optimizers:
        for head, groups in _states(tensors, optimizer).items():
            if _is_sure(groups, any(_head(number) == head for number in numbers)):
                owners |= {name: owner for group in groups.values() for name, owner in group.items()}
                heads |= set(_places(head))
    yield from owners
    numbers = [name for name in numbers if name not in owners.values()]  # an optimizer has no state for its own numbers
    yield from (n for n in numbers if _head(n) in heads or _are_several(tensors, numbers, _head(n)))


def _states(tensors: Tensors, optimizer: OptimizerState) -> dict[str, dict[str, dict[str, str]]]:
    """Place of the optimizer ("" or a path with its dot) -> each of its states, if all are there -> name -> parameter.

    Where something under the name of a state belongs to no parameter, it is a module of the model.
    """
    needed = (*optimizer.states, *optimizer.reduced)
    found: dict[str, dict[str, dict[str, str]]] = {}
    foreign: set[tuple[str, str]] = set()
    for affix in (*needed, *optimizer.more):
        for name, head, parameter in _split(tensors, affix):
            owner = next((one for one in (head + parameter, parameter) if one in tensors), None)
            if owner and _fits(tensors[name].shape, tensors[owner].shape, reduced=affix in optimizer.reduced):
                found.setdefault(head, {}).setdefault(affix, {})[name] = owner
            elif affix.endswith("."):
                foreign.add((head, affix))
    sound = {
        head: {affix: names for affix, names in groups.items() if (head, affix) not in foreign}
        for head, groups in found.items()
    }
    return {head: groups for head, groups in sound.items() if all(affix in groups for affix in needed)}


def _split(tensors: Tensors, affix: str) -> Iterator[tuple[str, str, str]]:
    """Names with the affix at the start of a part, what stands before it and what comes after it."""
    for name in tensors:
        place = name.find(affix)
        while place > 0 and name[place - 1] != ".":
            place = name.find(affix, place + 1)
        if place >= 0:
            yield name, name[:place], name[place + len(affix) :]


def _fits(state: Shape, parameter: Shape, *, reduced: bool) -> bool:
    if not reduced:
        return state == parameter
    short = [(*parameter[:axis], *parameter[axis + 1 :]) for axis in range(len(parameter))]
    return state in ((), (1,), parameter, *short)


def _is_sure(groups: Mapping[str, Mapping[str, str]], numbered: bool) -> bool:
    return numbered or max(len(groups), *(len(names) for names in groups.values())) >= ENOUGH


def _numbers(tensors: Tensors, rules: TrainingStateRules) -> list[str]:
    return [
        name
        for name, tensor in tensors.items()
        if len(tensor.shape) <= 1 and any(fnmatchcase(name.rpartition(".")[2], glob) for glob in rules.numbers)
    ]


def _are_several(tensors: Tensors, numbers: list[str], head: str) -> bool:
    """Whether some numbers stand together of which one is an integer, a count of steps: no weight is."""
    together = [name for name in numbers if _head(name) == head]
    return len(together) >= ENOUGH and any(tensors[name].dtype.startswith("int") for name in together)


def _counters(tensors: Tensors, rules: TrainingStateRules) -> Iterator[str]:
    for counter in rules.counters:
        tensor = tensors.get(counter.name)
        others = [name for name in tensors if name != counter.name]
        if tensor is not None and tensor.shape == () and tensor.dtype.startswith("int"):
            yield from [counter.name] if others and all(name.startswith(counter.prefix) for name in others) else []


def _head(name: str) -> str:
    prefix, dot, _ = name.rpartition(".")
    return prefix + dot


def _places(head: str) -> Iterator[str]:
    """A place and all above it: "", "net." and "net.opt." of "net.opt."."""
    parts = head.split(".")[:-1]
    yield from ("".join(f"{part}." for part in parts[:n]) for n in range(len(parts) + 1))
