"""What a checkpoint claims, held to what can be: shapes of arrays, JSON without a name that stands twice, other files.

A value of two bytes of JSON takes seventy in memory. Headers and indexes spend twelve bytes and more on each; those
with far more values are refused before they are parsed, so that parsing takes fifteen times their size at most.

A download must not be able to have any file of the machine read. A file in the folder may still be a link, if it ends
in the folder, or below the one where the file lies that the checkpoint itself is a link to, or in the store of the
model hub's cache (`blobs`) that the folder is a snapshot of (below `snapshots`), where all files are such links.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from align.checkpoints.extents import require_crc
from align.checkpoints.thresholds import (
    LONGEST_DIRECTORY_BYTES,
    LONGEST_NPY_HEADER_BYTES,
    MOST_ARRAY_ELEMENTS,
    MOST_DEFLATED,
    MOST_MEMBERS_SHOWN,
    PACKED_BLOCK_BYTES,
    SPARE_JSON_MARKS,
    USUAL_NPY_HEADER_BYTES,
)
from align.core.operating_system import read_into
from align.core.parameters import Checksum, Extent, dtype_name, numpy_dtype
from align.core.thresholds import BLOCK_BYTES, MOST_AXES
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from io import RawIOBase
    from pathlib import Path

    from align.core.parameters import Array, Shape


LEAST_BYTES = {b"{": 40, b"[": 20, b":": 20, b",": 12}


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raises ValueError for damage, a name given twice, too many values and too deep ones."""
    if any(raw.count(mark) > SPARE_JSON_MARKS + len(raw) // least for mark, least in LEAST_BYTES.items()):
        raise ValueError(say("json_file.too_many_values", count=len(raw)))
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise ValueError(say("json_file.too_deep")) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(say("json_file.name_twice"))
    return table


def sound_shape(path: Path, name: str, dims: Sequence[int]) -> Shape:
    """Return the dims as a shape; raises HostileFileError, naming the tensor, if no array can have it."""
    if len(dims) > MOST_AXES:
        raise HostileFileError(path, say("checkpoint_file.too_many_axes", name=name, count=len(dims), most=MOST_AXES))
    if min(dims, default=0) < 0 or prod([dim or 1 for dim in dims]) > MOST_ARRAY_ELEMENTS:
        raise HostileFileError(path, say("checkpoint_file.no_such_shape", name=name, shape=str(tuple(dims))))
    return tuple(dims)


class ExternalPlace(NamedTuple):
    """Where a tensor's bytes are said to lie: a path relative to the checkpoint's folder, and which bytes."""

    location: str
    offset: int
    nbytes: int


def external_extents(path: Path, places: Mapping[str, ExternalPlace]) -> dict[str, Extent]:
    """Return the places of tensors in other files, which are the same bytes or do not meet.

    Raises UnsupportedCheckpointError naming the files that are missing, and HostileFileError or NotACheckpointError for
    places outside the folder or outside their file.
    """
    locations = dict.fromkeys(place.location for place in places.values())
    files = {location: file for location in locations if (file := external_file(path, location)) is not None}
    if missing := [location for location in locations if location not in files]:
        raise UnsupportedCheckpointError(path, *texts("external_file.missing", count=len(missing), missing=missing))
    sizes = {location: file.stat().st_size for location, file in files.items()}
    for name, (location, offset, nbytes) in places.items():
        if offset + nbytes > sizes[location]:
            end, size = offset + nbytes, sizes[location]
            raise NotACheckpointError(
                path, say("external_file.too_short", name=name, end=end, location=location, size=size)
            )
    _check_overlap(path, places.values())
    return {name: Extent(files[location], offset, nbytes) for name, (location, offset, nbytes) in places.items()}


def external_file(path: Path, location: str) -> Path | None:
    """Return the file at a location relative to the folder of the checkpoint at `path`, None if there is none.

    Raises HostileFileError for a location that leaves the folder, by its words or as a link, or is no plain file.
    """
    return FilesBeside(path).file(location)


class FilesBeside:
    """The files that the one at `path` may name; what is known of folders is found out once."""

    def __init__(self, path: Path) -> None:
        self._path, self._homes = path, tuple(_homes(path))
        self._plain: dict[Path, bool] = {}

    def file(self, location: str) -> Path | None:
        """The file at a location, as `external_file` gives it."""
        odd = not location or location.startswith("/") or "\\" in location or not location.isprintable()
        if odd or ".." in location.split("/"):
            raise HostileFileError(self._path, say("external_file.outside", location=location))
        file = self._path.parent / location
        if self._is_plain(file.parent) and _is_regular(file):
            return file
        return self._resolved(file, location)

    def _is_plain(self, folder: Path) -> bool:
        """Whether a folder is below the one of the naming file without any link."""
        if folder not in self._plain:
            home = self._path.parent
            below = self._homes[0].joinpath(folder.relative_to(home)) if folder.is_relative_to(home) else None
            self._plain[folder] = folder.resolve() == below
        return self._plain[folder]

    def _resolved(self, file: Path, location: str) -> Path | None:
        try:
            real = file.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # a name that is too long, a folder that may not be read
            facts = {"location": location[:60], "reason": error.strerror or str(error)}
            raise HostileFileError(self._path, say("external_file.not_opened", **facts)) from error
        except RuntimeError as error:  # a loop of links, before Python 3.13
            raise HostileFileError(self._path, say("external_file.link_to_itself", location=location)) from error
        if not any(real.is_relative_to(folder) for folder in self._homes):
            raise HostileFileError(self._path, say("external_file.link_outside", location=location, real=real))
        if not real.is_file():
            raise HostileFileError(self._path, say("external_file.not_plain", location=location))
        return file


def _is_regular(file: Path) -> bool:
    try:
        return S_ISREG(file.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _homes(path: Path) -> Iterator[Path]:
    folder = path.parent.resolve()
    yield folder
    yield path.resolve().parent
    yield from (above.parent / "blobs" for above in folder.parents if above.name == "snapshots")


def _check_overlap(path: Path, places: Iterable[ExternalPlace]) -> None:
    ordered = sorted({place for place in places if place.nbytes})
    for before, after in pairwise(ordered):
        if before.location == after.location and after.offset < before.offset + before.nbytes:
            raise HostileFileError(path, say("external_file.overlap", offset=after.offset, location=after.location))


# The records of a zip file: each checked to lie inside it before anything is read, or written as a stream.
#
# The payload's offset comes from the record's own header: the central directory tells where that header is, but its
# name and extra field may have other lengths there. Records that overlap, share a name or leave the archive's root
# are what attacks are made of. Written, each crc comes behind its bytes, so that nothing is ever gone back to.
# Padding and zip64 fields are where torch's own writer puts them (`.format_version` 1), because its loader may
# calculate from them where a record begins. Without times and modes, equal records make equal files.

ZIP_HEAD = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
ENCRYPTED, CRC_FOLLOWS, UTF8_NAME = 0x1, 0x8, 0x800  # format: general purpose flags, bits 0, 3 and 11


@dataclass(frozen=True, slots=True)
class Record:
    """One file of an archive. `extent` is where its bytes lie in the archive, as stored."""

    name: str
    extent: Extent
    size: int
    crc: int
    compressed: bool

    def moved(self, start: int) -> Record:
        """The record of an archive that begins at `start` of its file."""
        checksum = self.extent.checksum
        checksum = None if checksum is None else replace(checksum, offset=checksum.offset + start)
        return replace(self, extent=replace(self.extent, offset=self.extent.offset + start, checksum=checksum))


def first_record_name(head: bytes) -> str:
    """Name of the record that starts with a file's first bytes, "" if none does; for telling formats apart."""
    if len(head) < LOCAL_HEADER.size or not head.startswith(ZIP_HEAD):
        return ""
    length = LOCAL_HEADER.unpack(head[: LOCAL_HEADER.size])[9]
    return head[LOCAL_HEADER.size : LOCAL_HEADER.size + length].decode("utf-8", "replace")


def zip_records(path: Path, part: Extent | None = None) -> dict[str, Record]:
    """Read the directory of a zip file, or of one that is a part of a file, in its order.

    Raises NotACheckpointError or HostileFileError.
    """
    start = 0 if part is None else part.offset
    try:
        with _Directory(path, part) as stream, zipfile.ZipFile(stream) as archive:
            infos, end = archive.infolist(), archive.start_dir
            is_checked = any(info.CRC for info in infos)  # torch can leave all of them out
            records = [_record(path, stream, info, is_checked) for info in infos]
    except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError) as error:
        raise NotACheckpointError(path, say("zip_file.damaged", error=error)) from error
    _check_layout(path, infos, records, end)
    return {record.name: record.moved(start) for record in records} if start else {r.name: r for r in records}


def zip_names(path: Path) -> list[str]:
    """The names in the directory of a zip file, whose records are not looked at; raises as `zip_records`."""
    try:
        with _Directory(path) as stream, zipfile.ZipFile(stream) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError) as error:
        raise NotACheckpointError(path, say("zip_file.damaged", error=error)) from error


def record_checksums(records: Mapping[str, Record]) -> tuple[Extent, ...]:
    """Where records with a checksum lie as they are; what is compressed is checked as it is unpacked."""
    return tuple(record.extent for record in records.values() if record.extent.checksum is not None)


def read_record(record: Record, limit: int | None = None, stream: RawIOBase | None = None) -> bytes:
    """Read a record's content, or its first `limit` bytes; raises what `record_pieces` raises.

    `stream` is the file where it is open already: to open it for each of many records takes longer than to read them.
    """
    wanted = record.size if limit is None else min(limit, record.size)
    raw = bytearray()
    for piece in record_pieces(record, wanted, stream):
        raw += piece
        if limit is not None and len(raw) >= wanted:
            break
    del raw[wanted:]
    return bytes(raw)


def record_pieces(record: Record, first: int = BLOCK_BYTES, opened: RawIOBase | None = None) -> Iterator[bytes]:
    """Yield a record's content in pieces of at most 1 MiB; of one that is not compressed the first has `first` bytes.

    What is compressed is unpacked to its claimed size at most, and the crc is checked at the end. Raises
    NotACheckpointError if the content is not what the directory says.
    """
    path, left = record.extent.path, record.size
    with path.open("rb", buffering=0) if opened is None else contextlib.nullcontext(opened) as stream:
        stream.seek(record.extent.offset)
        for piece in _unpacked(record, stream) if record.compressed else _stored(record, stream, first):
            left -= len(piece)
            yield piece
    if left:
        raise NotACheckpointError(path, say("zip_file.short_record", name=record.name, size=record.size))


def _stored(record: Record, stream: RawIOBase, first: int) -> Iterator[bytes]:
    left, most, crc = record.size, min(first, BLOCK_BYTES), 0
    while left and (piece := stream.read(min(left, most))):
        left, most, crc = left - len(piece), BLOCK_BYTES, zlib.crc32(piece, crc)
        if not left and record.extent.checksum is not None:
            require_crc(record.extent.path, record.extent.checksum, crc)
        yield piece


def _unpacked(record: Record, stream: RawIOBase) -> Iterator[bytes]:
    machine, crc = zlib.decompressobj(-zlib.MAX_WBITS), 0
    packed, left = record.extent.nbytes, record.size
    while left:
        raw = machine.unconsumed_tail
        if not raw:
            raw = stream.read(min(packed, PACKED_BLOCK_BYTES)) or b""
            packed -= len(raw)
        piece = _decompress(record, machine, raw, min(left, BLOCK_BYTES))
        if not piece and not raw:
            return
        left, crc = left - len(piece), zlib.crc32(piece, crc)
        yield piece
    if crc != record.crc and record.size:
        raise NotACheckpointError(record.extent.path, say("zip_file.other_crc", name=record.name))


def _decompress(record: Record, machine: zlib._Decompress, raw: bytes, most: int) -> bytes:
    try:
        return machine.decompress(raw, most)
    except zlib.error as error:
        raise NotACheckpointError(
            record.extent.path, say("zip_file.not_unpacked", name=record.name, error=error)
        ) from error


class _Part(io.RawIOBase):
    """The bytes of an extent as a file of their own."""

    def __init__(self, part: Extent) -> None:
        self._stream = io.FileIO(part.path)
        self._part, self._at = part, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place; raises ValueError for one before the first byte."""
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._part.nbytes}[whence]
        if at < 0:
            raise ValueError(at)
        self._at = at
        return at

    def readinto(self, buffer: Any, /) -> int:
        """Read what lies inside of the extent."""
        wanted = max(min(len(buffer), self._part.nbytes - self._at), 0)
        count = read_into(self._stream.fileno(), memoryview(buffer)[:wanted], self._part.offset + self._at)
        self._at += count
        return count

    def close(self) -> None:
        """Close the file too."""
        self._stream.close()
        super().close()


class _Directory(io.BufferedReader):
    """A zip file whose directory is read only if it has a sound length: its records would fill the memory."""

    def __init__(self, path: Path, part: Extent | None = None) -> None:
        super().__init__(io.FileIO(path) if part is None else _Part(part))
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LONGEST_DIRECTORY_BYTES:
            raise HostileFileError(self._path, say("zip_file.long_directory", size=size))
        return super().read(size)


def _record(path: Path, stream: BinaryIO, info: zipfile.ZipInfo, is_checked: bool) -> Record:
    stream.seek(info.header_offset)
    header = stream.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(ZIP_HEAD):
        raise NotACheckpointError(path, say("zip_file.no_record", start=info.header_offset, name=info.filename))
    fields = LOCAL_HEADER.unpack(header)
    name_length, extra_length = fields[9], fields[10]
    encoding = "utf-8" if fields[2] & UTF8_NAME else "cp437"
    name = stream.read(name_length).decode(encoding)
    if name != info.orig_filename:
        raise HostileFileError(path, say("zip_file.two_names", listed=info.orig_filename, name=name))
    if (fields[2] | info.flag_bits) & ENCRYPTED:
        raise NotACheckpointError(path, say("zip_file.encrypted", name=name))
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotACheckpointError(path, say("zip_file.unknown_method", name=name))
    offset = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
    compressed = info.compress_type != zipfile.ZIP_STORED
    checksum = Checksum(name, offset, info.file_size, info.CRC) if is_checked and not compressed else None
    return Record(name, Extent(path, offset, info.compress_size, checksum), info.file_size, info.CRC, compressed)


def _check_layout(path: Path, infos: list[zipfile.ZipInfo], records: list[Record], end: int) -> None:
    if not records:
        raise NotACheckpointError(path, say("zip_file.empty"))
    if len({record.name for record in records}) != len(records):
        raise HostileFileError(path, say("zip_file.one_name"))
    for record in records:
        _check_record(path, record)
    spans = sorted(zip((info.header_offset for info in infos), records, strict=True), key=lambda span: span[0])
    starts = [start for start, _ in spans[1:]] + [end]
    for (_, record), following in zip(spans, starts, strict=True):
        last = record.extent.offset + record.extent.nbytes
        if last > following:
            raise HostileFileError(path, say("zip_file.overlap", name=record.name, last=last, following=following))


def _check_record(path: Path, record: Record) -> None:
    parts = record.name.split("/")
    if record.name.startswith("/") or ".." in parts or "\\" in record.name or "\0" in record.name:
        raise HostileFileError(path, say("zip_file.leaves_archive", name=record.name))
    stored = record.extent.nbytes
    if not record.compressed and stored != record.size:
        raise HostileFileError(path, say("zip_file.other_size", name=record.name, size=record.size, stored=stored))
    if record.compressed and record.size > MOST_DEFLATED * (stored + 1):
        raise HostileFileError(path, say("zip_file.unpacked_size", name=record.name, size=record.size, stored=stored))


ALIGNMENT = 64  # format: torch's own writer starts each record at a multiple of it
LARGE = 0xFFFFFFFF  # format: a size or an offset from which on the zip64 fields hold it
DESCRIPTOR, LARGE_DESCRIPTOR = struct.Struct("<4s3L"), struct.Struct("<4sL2Q")
CENTRAL, END = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
END64, LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
ZIP64_VERSION = 45  # format: the version of zip that reads zip64 (APPNOTE 4.4.3)


@dataclass(slots=True)
class ZipWriter:
    """A zip file in the making; `directory` grows with the records and is written last."""

    stream: BinaryIO
    position: int = 0
    records: int = 0
    directory: bytearray = field(default_factory=bytearray)

    def add(self, name: str, content: bytes) -> None:
        """Write a record whose content is at hand."""
        self.add_blocks(name, len(content), (content,))

    def add_blocks(self, name: str, size: int, blocks: Iterable[bytes | memoryview]) -> None:
        """Write a record of `size` bytes that come in blocks."""
        title, start, crc = name.encode("utf-8"), self.position, 0
        flags = UTF8_NAME | (CRC_FOLLOWS if size else 0)
        large = _zip64([size, size] * (size >= LARGE) + [start] * (start >= LARGE))
        extra = large + _padding(start + LOCAL_HEADER.size + len(title) + len(large))
        self._put(LOCAL_HEADER.pack(ZIP_HEAD, 0, flags, 0, 0, 0, 0, 0, 0, len(title), len(extra)) + title + extra)
        for block in blocks:
            crc = zlib.crc32(block, crc)
            self._put(block)
        if size:
            self._put((LARGE_DESCRIPTOR if large else DESCRIPTOR).pack(b"PK\7\x08", crc, size, size))
        short, place = min(size, LARGE), min(start, LARGE)
        lengths = len(title), len(large), 0
        entry = CENTRAL.pack(b"PK\1\2", 0, 0, flags, 0, 0, 0, crc, short, short, *lengths, 0, 0, 0, place)
        self.directory += entry + title + large
        self.records += 1

    def fingerprint(self) -> bytes:
        """Forty digits that stand for this content; torch makes its own of the names and crcs too."""
        digest = hashlib.sha256(self.directory).digest()
        return b"%040d" % (int.from_bytes(digest, "big") % 10**40)

    def finish(self) -> None:
        """Write the directory and its end, in the zip64 form and in the old one, as torch always does."""
        start, size, count = self.position, len(self.directory), self.records
        self._put(self.directory)
        self._put(END64.pack(b"PK\6\6", END64.size - 12, 0, ZIP64_VERSION, 0, 0, count, count, size, start))
        self._put(LOCATOR.pack(b"PK\6\7", 0, start + size, 1))
        short, place = min(count, 0xFFFF), min(start, LARGE)
        self._put(END.pack(b"PK\5\6", 0, 0, short, short, min(size, LARGE), place, 0))

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self.stream.write(data)
        self.position += len(data)


def _zip64(numbers: Sequence[int]) -> bytes:
    """The extra field for numbers that have outgrown their own; nothing for none."""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def _padding(position: int) -> bytes:
    """An extra field at `position`, behind which the next aligned byte comes."""
    length = -(position + 4) % ALIGNMENT
    return struct.pack("<2sH", b"FB", length) + b"Z" * length


# The header of a NumPy array file: parsed by pattern, and held against the size of what it heads.
#
# NumPy's own parser evaluates and tokenizes it. An array of objects, which NumPy would unpickle, is refused.

DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "complex64", "complex128",
}  # fmt: skip
MAGIC = b"\x93NUMPY"
LENGTH_BYTES = {b"\x01": 2, b"\x02": 4, b"\x03": 4}
HEADER = re.compile(
    rb"\{'descr': '(?P<descr>[<>|=]?[a-zA-Z?][0-9]{0,7})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>[\d ,]{0,1000})\),? ?\}\s*"
)
STRUCTURED = re.compile(rb"\{'descr': \[")


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an array file says of itself; its bytes begin behind `length` bytes."""

    shape: Shape
    dtype: np.dtype[Any]
    fortran: bool
    length: int

    def array(self, data: bytes | memoryview, start: int = 0) -> Array:
        """The array whose bytes begin at `start` of these; in little-endian order."""
        value: Array = np.ndarray(self.shape, self.dtype, data, start, order="F" if self.fortran else "C")
        return value.astype(numpy_dtype(dtype_name(self.dtype)), copy=False)


def read_npy_header(path: Path, name: str, size: int, read: Callable[[int], bytes]) -> NpyHeader:
    """Parse the header of the array `name` of `size` bytes, of which `read` gives the first few.

    Raises NotACheckpointError, HostileFileError or UnsupportedCheckpointError, which name the file at `path`.
    """
    head = read(USUAL_NPY_HEADER_BYTES)
    width = LENGTH_BYTES.get(head[len(MAGIC) : len(MAGIC) + 1])
    start = len(MAGIC) + 2 + (width or 0)
    length = int.from_bytes(head[len(MAGIC) + 2 : start], "little")
    if len(head) < start + length <= LONGEST_NPY_HEADER_BYTES:
        head = read(start + length)
    match = HEADER.fullmatch(head[start : start + length])
    if head.startswith(MAGIC) and STRUCTURED.match(head, start):
        raise UnsupportedCheckpointError(path, *texts("npz_file.structured", name=name))
    if not head.startswith(MAGIC) or width is None or len(head) < start + length or match is None:
        raise NotACheckpointError(path, say("npz_file.no_header", name=name))
    try:
        dtype = np.dtype(match["descr"].decode("ascii"))
        shape = tuple(int(n) for n in match["shape"].split(b",") if n.strip())
    except (TypeError, ValueError) as error:
        raise NotACheckpointError(path, say("npz_file.odd_header", name=name, error=error)) from error
    header = NpyHeader(shape, dtype, match["fortran"] == b"True", start + length)
    _check_header(path, name, size, header)
    return header


def _check_header(path: Path, name: str, size: int, header: NpyHeader) -> None:
    if header.dtype.hasobject:
        raise UnsupportedCheckpointError(path, *texts("npz_file.objects", name=name))
    expected = header.length + prod(sound_shape(path, name, header.shape)) * header.dtype.itemsize
    if size != expected:
        raise NotACheckpointError(path, say("npz_file.other_size", name=name, size=size, expected=expected))
    if header.dtype.kind not in "SU" and dtype_name(header.dtype) not in DTYPES:
        raise UnsupportedCheckpointError(path, *texts("npz_file.unknown_dtype", name=name, dtype=header.dtype.str))


# Tar files: only the names of their first members are looked at.

TAR_BLOCK, TAR_MARK, TAR_AT = 512, b"ustar", 257  # format: of a tar file, POSIX.1-1988


def names_in_tar(path: Path, head: bytes) -> set[str]:
    """Names of the first members of a tar file, none for any other; sizes that it claims move the place alone."""
    return {*_tar_members(path)} if is_tar(head) else set()


def _tar_members(path: Path) -> Iterator[str]:
    at = 0
    with path.open("rb") as stream:
        for _ in range(MOST_MEMBERS_SHOWN):
            stream.seek(at)
            block = stream.read(TAR_BLOCK)
            size = block[124:135].strip(b" \0")
            if not is_tar(block) or not size.isdigit() or set(size) & set(b"89"):
                return
            name = block[:100].rstrip(b"\0").decode("utf-8", "replace")
            yield from [] if "PaxHeader" in name else [name]
            at += TAR_BLOCK + -(-int(size, 8) // TAR_BLOCK) * TAR_BLOCK


def is_tar(head: bytes) -> bool:
    """Tell a tar file by its first block."""
    return head[TAR_AT : TAR_AT + len(TAR_MARK)] == TAR_MARK
