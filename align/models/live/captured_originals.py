"""What a copy of a model still reaches of the original: functions are not copied, nor what they keep."""

from __future__ import annotations

from functools import partial
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def refuse_captured(modules: Sequence[Any], tensors: Iterable[Any], kinds: tuple[type, ...]) -> None:
    """Raise TypeError if a function of a copy's modules, or a hook, keeps what is of these kinds and not the copy's."""
    own = {id(one) for one in (*modules, *tensors)}
    owners = {id(owner): owner for module in modules for owner in (module, *type(module).__mro__)}
    for owner in owners.values():
        for name, function in _functions(vars(owner)):
            for kept in _kept(function):
                if isinstance(kept, kinds) and id(kept) not in own:
                    what = f"{(owner if isinstance(owner, type) else type(owner)).__name__}.{name}"
                    msg = f"{what} is a function, which is not copied, and keeps a {type(kept).__name__}"
                    raise TypeError(msg)


def _functions(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in attributes.items():
        for one in value.values() if isinstance(value, dict) else (value,):  # hooks are kept in dicts
            if isinstance(one, (FunctionType, MethodType, partial)):
                yield name, one


def _kept(function: Any) -> Iterator[Any]:
    """What a function keeps in its closure and its defaults, a method as its object."""
    if isinstance(function, partial):
        yield from (*function.args, *function.keywords.values())
        yield from _kept(function.func)
    elif isinstance(function, MethodType):
        yield function.__self__
    elif isinstance(function, FunctionType):
        yield from function.__defaults__ or ()
        yield from (cell.cell_contents for cell in function.__closure__ or () if cell != CellType())
