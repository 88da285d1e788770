"""Scalars in the event files of TensorBoard and MindSpore, which differ in the number of one field.

Event    wall_time = 1 (double), step = 2 (a 0 is left out), version = 3, summary = 5
Summary  value = 1, repeated
Value    tag = 1, a float = 2 (MindSpore: 3), tensor = 8
Tensor   type = 1, content = 4, floats = 5, doubles = 6
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.log_parts.record_lines import phase_by_name
from align.curves.log_parts.table_reader import find_names, is_lightning, known_table, loss_names, loss_notes
from align.curves.loss_log import EPOCH_MEAN, RAW, LogTable, LossLog, Series
from align.curves.thresholds import EVENT_HEAD_BYTES, LARGEST_STEP, LONGEST_CHECKED_RECORD, MOST_FIELDS, RECORDS_AT_ONCE
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.log_sources import LogFormat, LogSource
    from align.curves.loss_log import Booleans, Floats, Integers, Window

    Checksums = NDArray[np.uint32]
    Bytes = NDArray[np.uint8]


_STEP, _VERSION, _SUMMARY, _VALUE, _TAG = 2, 3, 5, 1, 1  # format: numbers of fields
_TYPE, _CONTENT, _FLOATS, _DOUBLES = 1, 4, 5, 6  # format: numbers of fields
_KINDS = {1: "<f4", 2: "<f8"}
_LENGTH, _HEADER, _FOOTER = 8, 12, 4  # format: bytes
_FAR = 1 << 62  # format: behind the end of any file, as a damaged length may be up to 2^64
_read_length = struct.Struct("<Q").unpack_from


class EventKind(NamedTuple):
    """How the version in the first record begins, and the fields of a value that hold a float and a tensor."""

    version: bytes
    scalar: int
    tensor: int | None = None


class _Scalars(NamedTuple):
    """One entry for each scalar: its record (from 0), its step, which tag it has, its value."""

    records: Integers
    steps: Integers
    tags: Integers
    values: Floats


def is_event_file(source: LogSource, kind: EventKind) -> bool:
    """Tell whether the first record names a version of this kind."""
    head = source.data[:EVENT_HEAD_BYTES]
    if kind.version not in head:
        return False
    frames, buffer = read_event_records(head), np.frombuffer(head, np.uint8)
    versions = read_fields(buffer, frames.starts[:1], frames.ends[:1]).where(_VERSION, SPAN)
    return any(head[start:].startswith(kind.version) for start in versions.starts.tolist())


def read_events(source: LogSource, plugin: LogFormat, kind: EventKind) -> LossLog:
    """Read the scalars of all sound records, each tag as a metric; raises EmptyLogError if there is none.

    The loss is the first tag of a usual name; without one `loss_name` is empty, and other metrics can still be had.
    All bits of a value are there, but not what it is the mean of, unless the tag says so. Wall times tell when an event
    was written, not how long a step took; they are not kept.
    """
    if not is_event_file(source, kind):
        raise EmptyLogError(source.label, [plugin.summary])
    frames, tags = read_event_records(source.data), dict[bytes, int]()
    scalars = _all_scalars(source.data, frames, kind, tags)
    if not len(scalars.steps):
        raise EmptyLogError(source.label, [plugin.summary])
    table = _table(scalars, frames.numbers, [tag.decode("utf-8", errors="backslashreplace") for tag in tags])
    known = known_table(table.metrics)
    losses = find_names(known.loss, table.metrics) if known else loss_names(table.metrics)
    return LossLog(
        label=source.label,
        format=plugin.name,
        table=table,
        loss_name=losses[0] if losses else "",
        counting="global step",
        base=known.first_step if known else 0 if is_lightning({*table.metrics, "step"}) else None,
        ignored_lines=frames.records - len(np.unique(scalars.records)),
        notes=(
            *frames.notes,
            *([sentence("logs_note.tags_of", logger=known.summary)] if known else []),
            *loss_notes(losses),
        ),
    )


def _all_scalars(data: bytes, frames: EventRecords, kind: EventKind, tags: dict[bytes, int]) -> _Scalars:
    """Read the records a block at a time; new tags go to `tags`."""
    buffer, blocks = np.frombuffer(data, np.uint8), []
    for first in range(0, max(1, len(frames.starts)), RECORDS_AT_ONCE):
        some = slice(first, first + RECORDS_AT_ONCE)
        events = read_fields(buffer, frames.starts[some], frames.ends[some])
        steps = np.zeros(len(frames.starts[some]), np.int64)
        counted = events.where(_STEP, VARINT)
        steps[counted.owners] = counted.values
        summaries = events.where(_SUMMARY, SPAN)
        values = read_fields(buffer, summaries.starts, summaries.ends).where(_VALUE, SPAN)
        records = summaries.owners[values.owners]
        found = read_fields(buffer, values.starts, values.ends)
        numbers, known = _numbers(buffer, found, len(records), kind)
        tagged = _tag_ids(data, found.where(_TAG, SPAN), len(records), tags)
        usable = known & (tagged >= 0) & (steps[records] >= 0) & (steps[records] < LARGEST_STEP)
        chosen = records[usable]
        blocks.append(_Scalars(first + chosen, steps[chosen], tagged[usable], numbers[usable]))
    return _Scalars(*map(np.concatenate, zip(*blocks, strict=True)))


def _numbers(buffer: Bytes, fields: MessageFields, count: int, kind: EventKind) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the number of each of `count` values, and whether it has one."""
    numbers, known = np.zeros(count), np.zeros(count, np.bool_)
    floats = fields.where(kind.scalar, FIXED32)
    numbers[floats.owners], known[floats.owners] = read_floats(buffer, floats.starts, "<f4"), True
    if kind.tensor is not None:
        tensors = fields.where(kind.tensor, SPAN)
        for owners, values in _tensor_scalars(buffer, tensors):
            numbers[tensors.owners[owners]], known[tensors.owners[owners]] = values, True
    return numbers, known


def _tensor_scalars(buffer: Bytes, tensors: MessageFields) -> list[tuple[Integers, Floats]]:
    """Return (index, value) of the tensors that hold one float or double and nothing else."""
    fields = read_fields(buffer, tensors.starts, tensors.ends)
    types = np.zeros(len(tensors.starts), np.int64)
    typed = fields.where(_TYPE, VARINT)
    types[typed.owners] = typed.values
    scalars = []
    for number, kind in ((_FLOATS, 1), (_DOUBLES, 2), (_CONTENT, 1), (_CONTENT, 2)):
        held = fields.where(number, SPAN)
        one = (held.ends - held.starts == np.dtype(_KINDS[kind]).itemsize) & (types[held.owners] == kind)
        scalars.append((held.owners[one], read_floats(buffer, held.starts[one], _KINDS[kind])))
    return scalars


def _tag_ids(data: bytes, fields: MessageFields, count: int, tags: dict[bytes, int]) -> Integers:
    """Return the place of each value's tag in `tags`, -1 where it has none."""
    ids = np.full(count, -1, np.int64)
    spelled = list(map(data.__getitem__, map(slice, fields.starts.tolist(), fields.ends.tolist())))
    for tag in dict.fromkeys(spelled):
        tags.setdefault(tag, len(tags))
    ids[fields.owners] = np.fromiter(map(tags.__getitem__, spelled), np.int64, len(spelled))
    return ids


def _table(scalars: _Scalars, numbers: Integers, names: list[str]) -> LogTable:
    """Put scalars that follow each other at one step into one row, unless a tag comes twice in it."""
    known = known_table(names)
    window = known.window_of if known else _window
    rows = np.cumsum(np.append(0, np.diff(scalars.steps) != 0))
    if len(np.unique(rows * len(names) + scalars.tags)) < len(rows):
        rows = np.arange(len(rows))
    first = np.flatnonzero(np.append(True, np.diff(rows) != 0))
    order = np.argsort(scalars.tags, kind="stable")
    ends = np.searchsorted(scalars.tags[order], np.arange(1, len(names)))
    metrics = {
        name: Series(rows[of], scalars.values[of], np.zeros(len(of)), window(name), phase_by_name(name))
        for name, of in zip(names, np.split(order, ends), strict=True)
        if len(of)
    }
    return LogTable(numbers[scalars.records[first]], scalars.steps[first], None, metrics)


def _window(name: str) -> Window:
    return EPOCH_MEAN if name.lower().endswith("_epoch") else RAW


class EventRecords(NamedTuple):
    """Where the sound records of a file start and end; `numbers` counts all records from 1; `notes` names damage."""

    starts: Integers
    ends: Integers
    numbers: Integers
    records: int
    notes: tuple[str, ...]


def read_event_records(data: bytes) -> EventRecords:
    """Find the records of an event file up to the first broken length; those with a wrong checksum are left out.

    Each has its length, a checksum of that, the record, and a checksum of it. Training may still be writing, or may
    have been killed: what follows the last whole record is reported. A loop over bytes would take minutes in Python,
    so all records advance together.
    """
    buffer = np.frombuffer(data, np.uint8)
    starts, sizes = _lengths(data)
    whole = _are_sound(buffer, starts - _HEADER, np.full(len(starts), _LENGTH))
    count = len(starts) if whole.all() else int(np.argmin(whole))
    starts, sizes = starts[:count], sizes[:count]
    sound = np.ones(count, np.bool_)
    short = np.flatnonzero(sizes <= LONGEST_CHECKED_RECORD)
    for first in range(0, len(short), RECORDS_AT_ONCE):
        some = short[first : first + RECORDS_AT_ONCE]
        sound[some] = _are_sound(buffer, starts[some], sizes[some])
    end = int(starts[-1] + sizes[-1]) + _FOOTER if count else 0
    numbers = np.flatnonzero(sound) + 1
    return EventRecords(starts[sound], (starts + sizes)[sound], numbers, count, _damage(data, end, sound))


def _lengths(data: bytes) -> tuple[Integers, Integers]:
    """Return the start and the size of each record that lies whole in the file, by the lengths alone."""
    starts, at, last = [], _HEADER, len(data) - _FOOTER
    while at <= last:
        starts.append(at)
        at += _read_length(data, at - _HEADER)[0] + _FOOTER + _HEADER
    places = np.array([*starts, min(at, _FAR)], np.int64)
    sizes = np.diff(places) - _FOOTER - _HEADER
    whole = places[:-1] + sizes <= last
    return places[:-1][whole], sizes[whole]


def _damage(data: bytes, end: int, sound: Booleans) -> tuple[str, ...]:
    notes = []
    if not sound.all():
        wrong = np.flatnonzero(~sound) + 1
        notes.append(sentence("logs_note.damaged", count=len(wrong), first=wrong[0]))
    if end < len(data):
        notes.append(sentence("logs_note.no_whole_record", count=len(data) - end))
    return tuple(notes)


def _are_sound(buffer: Bytes, starts: Integers, sizes: Integers) -> Booleans:
    """Tell which spans of bytes are followed by their own masked CRC-32C."""
    stored = np.zeros(len(starts), np.uint32)
    for place in range(_FOOTER):
        stored |= buffer[starts + sizes + place].astype(np.uint32) << np.uint32(8 * place)
    found = _checksums(buffer, starts, sizes)
    masked = ((found >> np.uint32(15)) | (found << np.uint32(17))) + _MASK
    equal: Booleans = masked == stored
    return equal


def _checksums(buffer: Bytes, starts: Integers, sizes: Integers) -> Checksums:
    order = np.argsort(-sizes, kind="stable")
    at, crc = starts[order], np.full(len(starts), 0xFFFFFFFF, np.uint32)
    going = np.searchsorted(-sizes[order], -np.arange(int(sizes.max(initial=0))), "left")
    for place, count in enumerate(going.tolist()):
        some = crc[:count]
        crc[:count] = _TABLE[(some ^ buffer[at[:count] + place]) & np.uint32(0xFF)] ^ (some >> np.uint32(8))
    checksums = np.empty_like(crc)
    checksums[order] = ~crc
    return checksums


def _crc_table() -> Checksums:
    """The remainders of all bytes by the Castagnoli polynomial, lowest bit first."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


_TABLE, _MASK = _crc_table(), np.uint32(0xA282EAD8)


# The fields of protocol-buffer messages, of many messages at once, so that no protobuf package is needed.
#
# A million events are a million tiny messages: all of them step from field to field together. What is no message is
# named by its index, never read half.

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
