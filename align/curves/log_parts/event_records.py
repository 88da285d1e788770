"""Event files as TensorBoard and MindSpore frame them: length, its checksum, the record, its checksum.

Training may still be writing, or may have been killed while it did: what follows the last whole record is told, not
guessed at. A byte by byte loop over checksums would take minutes in Python, so all records advance together.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.thresholds import LONGEST_CHECKED_RECORD, RECORDS_AT_ONCE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.log_parts.protobuf import Bytes
    from align.curves.loss_log import Booleans, Integers

    Checksums = NDArray[np.uint32]

_LENGTH, _HEADER, _FOOTER = 8, 12, 4  # format: bytes
_FAR = 1 << 62  # format: behind the end of any file, as a damaged length may be up to 2^64
_read_length = struct.Struct("<Q").unpack_from


class EventRecords(NamedTuple):
    """Where the sound records of a file start and end; `numbers` counts all records from 1; `notes` names damage."""

    starts: Integers
    ends: Integers
    numbers: Integers
    records: int
    notes: tuple[str, ...]


def read_event_records(data: bytes) -> EventRecords:
    """Find the records of an event file up to the first broken length; those with a wrong checksum are left out."""
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


def _table() -> Checksums:
    """The remainders of all bytes by the Castagnoli polynomial, lowest bit first."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & np.uint32(1), (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


_TABLE, _MASK = _table(), np.uint32(0xA282EAD8)
