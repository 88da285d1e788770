"""An interpreter of pickle opcodes that builds inert records instead of objects.

A global becomes a pair of strings, a call a record of what would have been called. That is safe by construction, where
`Unpickler.find_class` has to guess which names are harmless. Memory is bounded at about a gigabyte by the number of
opcodes, each of which makes at most one value of eighty bytes, and by `MOST_COSTLY_OPCODES` of whatever takes more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from align.checkpoints.format_parts.pickle.opcodes import CODES, NAMES, READERS
from align.checkpoints.thresholds import LONGEST_GLOBAL_NAME, LONGEST_PICKLE_BYTES, MOST_COSTLY_OPCODES, MOST_OPCODES
from align.errors import HostileFileError, NotACheckpointError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.checkpoints.format_parts.pickle.opcodes import Buffer

STOP = CODES["STOP"]


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by name, never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        text = f"{self.module[:LONGEST_GLOBAL_NAME]}.{self.name[:LONGEST_GLOBAL_NAME]}"[:LONGEST_GLOBAL_NAME]
        return text if text.isprintable() else repr(text)


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: the callee, its arguments, the state set on it, what was put into it if anything."""

    callee: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] | None = None
    elements: list[Any] | None = None


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
SET, FROZEN_SET = Global("builtins", "set"), Global("builtins", "frozenset")


def mapping_of(value: Any) -> dict[Any, Any] | None:
    """The items of a dict, or of a record that is one by its class or by what was put into it; None otherwise."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Made) and (value.items or value.callee in (ORDERED_DICT, DEFAULT_DICT)):
        return value.items or {}
    return None


@dataclass(frozen=True, slots=True)
class Pickled:
    """What a pickle holds, where its last byte is followed, and every reference to the outside in the order made."""

    value: Any
    end: int
    references: list[Persistent]


def read_pickle(path: Path, data: Buffer, start: int = 0) -> Pickled:
    """Interpret one pickle of the file at `path`, from `start` to its own end, which need not be that of the data.

    Raises NotACheckpointError or HostileFileError.
    """
    machine = _Machine(path)
    try:
        end = machine.run(data, start)
        value = machine.stack.pop()
    except (ValueError, OverflowError, struct.error) as error:
        raise NotACheckpointError(path, say("pickle_file.damaged", error=error)) from error
    except (IndexError, KeyError) as error:
        raise HostileFileError(path, say("pickle_file.never_made", error=error)) from error
    return Pickled(value, end, machine.references)


class _Machine:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.references: list[Persistent] = []
        self.left = MOST_COSTLY_OPCODES

    def run(self, data: Buffer, start: int) -> int:
        """Take opcodes up to STOP and return where it ends."""
        at, end = start, min(len(data), start + LONGEST_PICKLE_BYTES)
        for _ in range(MOST_OPCODES):
            if at >= end:
                raise NotACheckpointError(self.path, say("pickle_file.no_end", count=end - start))
            code = data[at]
            reader = _READER_OF[code]
            if reader is None:
                at += 1
                _ACTION_OF[code](self)
            else:
                argument, at = reader(data, at + 1)
                _ACTION_WITH[code](self, argument)
            if code == STOP:
                return at
        raise HostileFileError(self.path, say("pickle_file.too_many_opcodes", most=MOST_OPCODES))

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def popped(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError("pop from empty list")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def popped_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer.pop()
        return items

    def set_items(self, flat: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.items = {} if target.items is None else target.items
            target = target.items
        if not isinstance(target, dict) or len(flat) % 2:
            raise HostileFileError(self.path, say("pickle_file.no_dict"))
        target.update(zip(map(_key, flat[::2]), flat[1::2], strict=True))

    def add_elements(self, elements: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.elements = [] if target.elements is None else target.elements
            target = target.elements
        if not isinstance(target, list):
            raise HostileFileError(self.path, say("pickle_file.no_list"))
        target.extend(elements)

    def make(self, callee: Any, arguments: Any) -> None:
        self.stack.append(Made(callee, arguments))
        if arguments and callee == ORDERED_DICT and isinstance(arguments, tuple) and isinstance(arguments[0], list):
            self.pay(len(arguments[0]))
            self.set_items(_flat(arguments[0]))

    def refer(self, reference: Any) -> None:
        self.references.append(Persistent(reference))
        self.stack.append(self.references[-1])

    def name_global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise HostileFileError(self.path, say("pickle_file.odd_global"))
        self.pay(1)
        self.stack.append(Global(module, name))

    def pay(self, count: int) -> None:
        """Count what takes more than other values do."""
        self.left -= count
        if self.left < 0:
            raise HostileFileError(self.path, say("pickle_file.too_costly"))


def _key(key: Any) -> Any:
    """Integers of more than 64 bits are odd too: they could be chosen to have one hash."""
    if isinstance(key, int):
        return key if -(1 << 63) <= key < 1 << 63 else OddKey(key)
    return key if isinstance(key, (str, float, bytes, type(None))) else OddKey(key)


def _flat(pairs: list[Any]) -> list[Any]:
    """Items of an OrderedDict as Python 2 pickled it: a list of lists of two."""
    return [part for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2 for part in pair]


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def pack(machine: _Machine) -> None:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError(count)
        stack[-count:] = (tuple(stack[-count:]),)

    return pack


def _dict(machine: _Machine) -> None:
    items = machine.popped_mark()
    machine.stack.append({})
    machine.set_items(items)


def _frozen_set(machine: _Machine) -> None:
    elements = machine.popped_mark()
    machine.make(FROZEN_SET, ())
    machine.add_elements(elements)


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
    arguments = tuple(machine.popped_mark())
    machine.name_global(module, name)
    machine.make(machine.stack.pop(), arguments)


def _object(machine: _Machine) -> None:
    callee, *arguments = machine.popped_mark()
    machine.make(callee, tuple(arguments))


def _mark(machine: _Machine) -> None:
    machine.outer.append(machine.stack)
    machine.stack = []


def _get(machine: _Machine, index: int) -> None:
    machine.stack.append(machine.memo[index])


def _put(machine: _Machine, index: int) -> None:
    machine.pay(1)
    machine.memo[index] = machine.stack[-1]


def _refuse(machine: _Machine, code: int) -> None:
    name = NAMES.get(code, say("pickle_file.unknown_opcode", code=code))
    raise HostileFileError(machine.path, say("pickle_file.odd_opcode", name=name))


def _ignore(_machine: _Machine, _argument: Any = None) -> None:
    """PROTO and FRAME say nothing that is needed; STOP is seen by the loop."""


_ACTIONS: dict[str, Callable[[_Machine], object]] = {
    "STOP": _ignore,
    "NONE": lambda m: m.stack.append(None),
    "NEWTRUE": lambda m: m.stack.append(True),
    "NEWFALSE": lambda m: m.stack.append(False),
    "EMPTY_LIST": lambda m: m.stack.append([]),
    "EMPTY_TUPLE": lambda m: m.stack.append(()),
    "EMPTY_DICT": lambda m: m.stack.append({}),
    "EMPTY_SET": lambda m: m.make(SET, ()),
    "MARK": _mark,
    "POP": lambda m: m.stack.pop(),
    "POP_MARK": lambda m: m.popped_mark(),
    "DUP": lambda m: m.stack.append(m.stack[-1]),
    "MEMOIZE": lambda m: _put(m, len(m.memo)),
    "LIST": lambda m: m.push(m.popped_mark()),
    "TUPLE": lambda m: m.push(tuple(m.popped_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "FROZENSET": _frozen_set,
    "DICT": _dict,
    "SETITEM": lambda m: m.set_items(m.popped(2)),
    "SETITEMS": lambda m: m.set_items(m.popped_mark()),
    "APPEND": lambda m: m.add_elements(m.popped(1)),
    "APPENDS": lambda m: m.add_elements(m.popped_mark()),
    "ADDITEMS": lambda m: m.add_elements(m.popped_mark()),
    "STACK_GLOBAL": lambda m: m.name_global(*m.popped(2)),
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_with_keywords,
    "OBJ": _object,
    "BUILD": _build,
    "BINPERSID": lambda m: m.refer(m.stack.pop()),
}
# Those with an argument; all that are not named here push it.
_TAKING: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": _ignore,
    "FRAME": _ignore,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GLOBAL": lambda m, argument: m.name_global(*argument.split(" ", 1)),
    "INST": _instance,
    "PERSID": lambda m, argument: m.refer(argument),
}
_READER_OF = [READERS.get(code) for code in range(256)]
_ACTION_OF = [_ACTIONS.get(NAMES.get(code, ""), partial(_refuse, code=code)) for code in range(256)]
_ACTION_WITH = [_TAKING.get(NAMES.get(code, ""), _Machine.push) for code in range(256)]
