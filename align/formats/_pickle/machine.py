"""An interpreter of pickle opcodes that builds inert records instead of objects.

`pickletools.genops` names the opcodes; a global becomes a pair of strings, a call a record of what would have been
called. That is safe by construction, where `Unpickler.find_class` has to guess which names are harmless. Work and
memory are bounded by the number of opcodes, each of which makes at most one value.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align.errors import HostileFileError, NotACheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONGEST_PICKLE = 256 << 20
MOST_OPCODES = 20_000_000


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name, never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: the callee, its arguments, the state set on it, the items put into it."""

    callee: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A reference to something outside the pickle."""

    reference: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OddKey:
    """A dict key that is no plain scalar; hashing it could run deep, so it is kept by identity."""

    value: Any


ORDERED_DICT = Global("collections", "OrderedDict")
DEFAULT_DICT = Global("collections", "defaultdict")


def mapping_of(value: Any) -> dict[Any, Any] | None:
    """The items of a dict, or of a record that is one by its class or by what was put into it; None otherwise."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Made) and (value.items or value.callee in (ORDERED_DICT, DEFAULT_DICT)):
        return value.items
    return None


def read_pickle(path: Path, data: bytes) -> Any:
    """Interpret one pickle of the file at `path`; raises NotACheckpointError or HostileFileError."""
    if len(data) > LONGEST_PICKLE:
        raise HostileFileError(path, f"its pickle is {len(data)} bytes long, more than any checkpoint needs")
    machine = _Machine(path)
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count > MOST_OPCODES:
                raise HostileFileError(path, f"its pickle has more than {MOST_OPCODES} opcodes")
            machine.step(opcode.name, argument, position)
    except (ValueError, OverflowError) as error:
        raise NotACheckpointError(path, f"its pickle is damaged ({error})") from error
    except (IndexError, KeyError) as error:
        raise HostileFileError(path, f"its pickle uses what it never made ({error!r})") from error
    return machine.result


class _Machine:
    """Stack, marks and memo of one pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.result: Any = None

    def step(self, name: str, argument: Any, position: int | None) -> None:
        if name in _PUSHES_ARGUMENT:
            self.stack.append(argument)
        elif name in _PUSHES_CONSTANT:
            self.stack.append(_PUSHES_CONSTANT[name]())
        elif name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name in _PUTS:
            self.memo[int(argument)] = self.stack[-1]
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        elif name not in _IGNORED:
            raise HostileFileError(self.path, f"its pickle uses {name} at byte {position}, which torch.save never does")

    def push(self, value: Any) -> None:
        """Push onto the stack as it is now, after marks were popped on the way to `value`."""
        self.stack.append(value)

    def popped_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer.pop()
        return items

    def set_items(self, flat: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target = target.items
        if not isinstance(target, dict) or len(flat) % 2:
            raise HostileFileError(self.path, "its pickle puts items into what is no dict")
        target.update(zip(map(_key, flat[::2]), flat[1::2], strict=True))

    def add_elements(self, elements: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target = target.elements
        if not isinstance(target, list):
            raise HostileFileError(self.path, "its pickle appends to what is no list")
        target.extend(elements)

    def make(self, callee: Any, arguments: Any) -> None:
        self.stack.append(Made(callee, arguments))

    def name_global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise HostileFileError(self.path, "its pickle names a global by something other than text")
        self.stack.append(Global(module, name))


def _key(key: Any) -> Any:
    """Integers of more than 64 bits are odd too: they could be chosen to have one hash."""
    if isinstance(key, int):
        return key if -(1 << 63) <= key < 1 << 63 else OddKey(key)
    return key if isinstance(key, (str, float, bytes, type(None))) else OddKey(key)


def _dict(machine: _Machine) -> None:
    items = machine.popped_mark()
    machine.stack.append({})
    machine.set_items(items)


def _set_item(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


def _reduce(machine: _Machine) -> None:
    arguments, callee = machine.stack.pop(), machine.stack.pop()
    machine.make(callee, arguments)


def _new_with_keywords(machine: _Machine) -> None:
    keywords, arguments, callee = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.make(callee, (arguments, keywords))


def _build(machine: _Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    if isinstance(target, Made):
        target.state = state


def _instance(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.make(Global(module, name), tuple(machine.popped_mark()))


def _object(machine: _Machine) -> None:
    callee, *arguments = machine.popped_mark()
    machine.make(callee, tuple(arguments))


def _stack_global(machine: _Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.name_global(module, name)


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def pack(machine: _Machine, _argument: Any) -> None:
        if len(machine.stack) < count:
            raise IndexError(count)
        machine.stack[-count:] = [tuple(machine.stack[-count:])]

    return pack


def _set_of(name: str) -> Callable[[_Machine, Any], None]:
    def pack(machine: _Machine, _argument: Any) -> None:
        elements = machine.popped_mark()
        machine.make(Global("builtins", name), ())
        machine.add_elements(elements)

    return pack


def _mark(machine: _Machine) -> None:
    machine.outer.append(machine.stack)
    machine.stack = []


def _append(machine: _Machine) -> None:
    element = machine.stack.pop()
    machine.add_elements([element])


def _stop(machine: _Machine) -> None:
    machine.result = machine.stack.pop()


_PUSHES_ARGUMENT = {
    "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "FLOAT", "BINFLOAT",
}  # fmt: skip
_PUSHES_CONSTANT: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": lambda: Made(Global("builtins", "set"), ()),
}
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_IGNORED = frozenset(("PROTO", "FRAME"))
_ACTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda m, _: _mark(m),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.popped_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "LIST": lambda m, _: m.push(m.popped_mark()),
    "TUPLE": lambda m, _: m.push(tuple(m.popped_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "FROZENSET": _set_of("frozenset"),
    "DICT": lambda m, _: _dict(m),
    "SETITEM": lambda m, _: _set_item(m),
    "SETITEMS": lambda m, _: m.set_items(m.popped_mark()),
    "APPEND": lambda m, _: _append(m),
    "APPENDS": lambda m, _: m.add_elements(m.popped_mark()),
    "ADDITEMS": lambda m, _: m.add_elements(m.popped_mark()),
    "GLOBAL": lambda m, argument: m.name_global(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: _stack_global(m),
    "REDUCE": lambda m, _: _reduce(m),
    "NEWOBJ": lambda m, _: _reduce(m),
    "NEWOBJ_EX": lambda m, _: _new_with_keywords(m),
    "INST": _instance,
    "OBJ": lambda m, _: _object(m),
    "BUILD": lambda m, _: _build(m),
    "PERSID": lambda m, argument: m.stack.append(Persistent(argument)),
    "BINPERSID": lambda m, _: m.stack.append(Persistent(m.stack.pop())),
    "STOP": lambda m, _: _stop(m),
}
