"""A module that holds all of a side, as a wrapper does, says nothing of any layer in it: paths are read without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.wrapper_prefixes import PARALLEL, paths_without_wrappers, without_wrappers, wrapper_words
from align.names.layers.read_layers import ASIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.parameters import ParameterSet


def without_outer_wrappers(source: ParameterSet, target: ParameterSet) -> tuple[ParameterSet, ParameterSet]:
    """Return both sides with the paths of their modules below what holds them all; the names of parameters stay.

    What `torch.compile`, FSDP and the like put in between is left out as well, and `module` if the other side has none.
    A module that the other side has beside others stays, and so does a list, since its numbers mean little without it.
    """
    source, target = _without_inner(source, target), _without_inner(target, source)
    paths = [[module.path for module in side.modules if module.parameters] for side in (source, target)]
    wrappers = [_outer_wrapper(own) for own in paths]
    kept = [wrapper if _wraps(wrapper, others) else "" for wrapper, others in zip(wrappers, paths[::-1], strict=True)]
    if wrappers[0] == wrappers[1]:
        kept = wrappers
    return _below(source, kept[0]), _below(target, kept[1])


def wrapper_warnings(sides: Iterable[ParameterSet]) -> Iterator[str]:
    """Say of each side what wrappers put into its names."""
    for side in sides:
        if words := wrapper_words(without_wrappers(side.names)):
            yield f"{side.label}: paired without what a wrapper put into the names: {words}"


def _without_inner(side: ParameterSet, other: ParameterSet) -> ParameterSet:
    """The side with its modules where they are without wrappers; of a wrapper and what it holds the latter."""
    holders = [module.path for module in side.modules if module.parameters]
    inner = not any(PARALLEL in module.path.split(".") for module in other.modules)
    paths = paths_without_wrappers([module.path for module in side.modules], holders, inner=inner)
    if all(was == new for was, new in paths.items()):
        return side
    held = {new: was for was, new in sorted(paths.items(), key=lambda item: len(item[0]))}
    modules = (replace(one, path=paths[one.path]) for one in side.modules if held[paths[one.path]] == one.path)
    parameters = (replace(one, module=paths.get(one.module, one.module)) for one in side.parameters)
    return replace(side, modules=tuple(modules), parameters=tuple(parameters))


def _wraps(wrapper: str, others: Sequence[str]) -> bool:
    """Tell whether nothing on the other side stands in a module of this name."""
    return not any(path.startswith(f"{wrapper.partition('.')[0]}.") for path in others)


def _below(side: ParameterSet, wrapper: str) -> ParameterSet:
    if not wrapper:
        return side
    modules = tuple(replace(module, path=module.path.removeprefix(wrapper)) for module in side.modules)
    parameters = tuple(
        replace(parameter, module=parameter.module.removeprefix(wrapper)) for parameter in side.parameters
    )
    return replace(side, modules=modules, parameters=parameters)


def _outer_wrapper(paths: Sequence[str]) -> str:
    """What stands before all paths, with the dot; "" if nothing does."""
    wrapper = ""
    while held := _holder(paths, wrapper):
        wrapper = held
    return wrapper


def _holder(paths: Sequence[str], wrapper: str) -> str:
    """The wrapper with the one module more that holds all paths, "" if none does."""
    first = paths[0].removeprefix(wrapper).partition(".")[0] if paths else ""
    if not first or first.lower() in ASIDE:  # that a side is a copy is told by this word
        return ""
    longer = f"{wrapper}{first}."
    below = [path.removeprefix(longer) for path in paths if path.startswith(longer)]
    return longer if len(below) == len(paths) and not any(path[:1].isdigit() for path in below) else ""
