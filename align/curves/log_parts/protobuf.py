"""The fields of protocol-buffer messages, of many messages at once, so that no protobuf package is needed.

A million events are a million tiny messages: all of them step from field to field together. What is no message is
named by its index, never read half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.thresholds import MOST_FIELDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.loss_log import Integers

    Bytes = NDArray[np.uint8]

VARINT, FIXED64, SPAN, FIXED32 = 0, 1, 2, 5  # format: wire types
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10  # format: bytes of a number of 64 bits, seven bits each


class MessageFields(NamedTuple):
    """Columns of shape (fields,): which message a field stands in, its number and wire type, and where its bytes are.

    They are in the order of the messages, and of the fields in them. `values` is what a varint says, 0 for all else.
    `broken` are the messages that end inside a field, or hold more than `MOST_FIELDS`; no field of theirs is here.
    """

    owners: Integers
    numbers: Integers
    wires: Integers
    starts: Integers
    ends: Integers
    values: Integers
    broken: Integers

    def where(self, number: int, wire: int) -> MessageFields:
        """Return the fields of this number and wire type."""
        chosen = (self.numbers == number) & (self.wires == wire)
        return MessageFields._make([*(column[chosen] for column in self[:-1]), self.broken])


def read_fields(buffer: Bytes, starts: Integers, ends: Integers) -> MessageFields:
    """Read the fields of the messages that span `starts[i]` to `ends[i]` in a buffer."""
    owners, at = np.arange(len(starts)), starts
    rounds: list[tuple[Integers, ...]] = []
    broken = [_NONE]
    for _ in range(MOST_FIELDS):
        going = at < ends
        owners, at, ends = owners[going], at[going], ends[going]
        if not len(owners):
            break
        keys, at = _read_varints(buffer, at)
        wires = keys & 7
        values, after = _values(buffer, at, wires)
        stops = after + np.where(wires == SPAN, values, 0)
        bad = (keys >> 3 < 1) | (after < 0) | (stops < after) | (stops > ends)
        broken.append(owners[bad])
        first = np.where(wires == SPAN, after, at)
        columns = (owners, keys >> 3, wires, first, stops, np.where(wires == VARINT, values, 0))
        rounds.append(tuple(column[~bad] for column in columns))
        owners, at, ends = owners[~bad], stops[~bad], ends[~bad]
    return _joined(rounds, np.concatenate([*broken, owners]))


def read_floats(buffer: Bytes, starts: Integers, kind: str) -> NDArray[np.float64]:
    """Read a number of a numpy type such as "<f4" at each start."""
    places = np.arange(np.dtype(kind).itemsize)
    raw = np.ascontiguousarray(buffer.take(starts[:, None] + places, mode="clip"))
    return raw.view(kind)[:, 0].astype(np.float64)


def _values(buffer: Bytes, at: Integers, wires: Integers) -> tuple[Integers, Integers]:
    """Return the number that each field starts with (the size of a span) and where it ends, -1 for no wire type."""
    values, after = np.zeros(len(at), np.int64), np.full(len(at), -1, np.int64)
    for wire, size in _FIXED_SIZES.items():
        after[wires == wire] = at[wires == wire] + size
    counted = np.flatnonzero((wires == VARINT) | (wires == SPAN))
    values[counted], after[counted] = _read_varints(buffer, at[counted])
    return values, after


def _read_varints(buffer: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Return the number at each place and where it ends: seven bits a byte, lowest first, until a byte below 128."""
    byte = buffer.take(at, mode="clip")
    values, ends = (byte & 0x7F).astype(np.int64), at + 1
    longer = np.flatnonzero(byte > 0x7F)
    for place in range(1, _LONGEST_VARINT):
        if not len(longer):
            break
        byte = buffer.take(ends[longer], mode="clip")
        values[longer] |= (byte & 0x7F).astype(np.int64) << (7 * place)
        ends[longer] += 1
        longer = longer[byte > 0x7F]
    ends[longer] = np.iinfo(np.int64).max
    return values, ends


def _joined(rounds: list[tuple[Integers, ...]], broken: Integers) -> MessageFields:
    if not rounds:
        return MessageFields._make([*[_NONE] * 6, broken])
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    order = order[~np.isin(columns[0][order], broken)] if len(broken) else order
    return MessageFields._make([*(column[order] for column in columns), broken])


_NONE = np.zeros(0, np.int64)
