"""Trace folders: a manifest of one JSON line a capture, flushed as it goes, and one safetensors file beside it.

The safetensors header is reserved and filled in when the trace is sealed; what was written before a crash stays
readable, because the manifest says where each tensor lies. A line is written only after its tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from align.core.dtypes import numpy_dtype
from align.errors import RunFolderError
from align.traces.stored.checksums import check_file
from align.traces.stored.manifest import MANIFEST, SCHEMA, TENSORS, read_manifest
from align.traces.thresholds import TRACE_HEADER_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.traces import Capture
    from align.traces.stored.manifest import TensorLocation


class TraceFolder:
    """A trace read back; tensors are memory-mapped.

    `complete` is False if the run ended before it was sealed, or before all that its seal names was written. Of a run
    that ended so, captures whose bytes did not reach the disk are left out. `manifest` is all that its
    manifest says. Raises RunFolderError for what is no trace, and for a file that is not what was written.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / TENSORS
        manifest = read_manifest(folder / MANIFEST, SCHEMA)
        if manifest is not None and manifest.tensors is not None:
            check_file(path, manifest.tensors)
        if manifest is None or not path.is_file():
            raise RunFolderError.of("traces_error.no_trace", folder=folder, schema=SCHEMA)
        self.folder, self.manifest = folder, manifest
        self._start = 8 + (manifest.header_bytes or TRACE_HEADER_BYTES)
        self._checked: set[int] = set()
        empty = not path.stat().st_size
        # A plain view of the file: frameworks that trace code refuse a memmap.
        self._data = np.empty(0, np.uint8) if empty else np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        self.environment, self.complete = manifest.environment, manifest.sealed and not manifest.awaited
        captures = [one for one in manifest.captures if self._reached_the_disk(one)]
        self.captures = tuple(one for one in captures if one.role == "output")
        self.inputs = tuple(one for one in captures if one.role == "input")

    def holds(self, capture: Capture) -> bool:
        """Tell whether elements of a captured tensor were kept."""
        return capture.key in self.manifest.places

    def value(self, capture: Capture) -> Array:
        """Return a captured tensor, or the elements of it that were kept, as a read-only view of the file.

        Raises RunFolderError for bytes that are not those that were written.
        """
        place = self.manifest.places[capture.key]
        start = self._start + place.offset
        raw = self._data[start : start + place.nbytes]
        self._check(capture, place, raw)
        return np.asarray(raw).view(numpy_dtype(capture.dtype)).reshape(place.shape)

    def _check(self, capture: Capture, place: TensorLocation, raw: Array) -> None:
        """Hold bytes against their checksum when they are first read: they are about to be read anyway."""
        if place.crc32 is None or place.offset in self._checked:
            return
        if crc32(raw.data) != place.crc32:
            raise RunFolderError.of("traces_error.other_values", path=self.folder / TENSORS, tensor=capture.key)
        self._checked.add(place.offset)

    def _reached_the_disk(self, capture: Capture) -> bool:
        place = self.manifest.places.get(capture.key)
        end = 0 if place is None or not place.nbytes else self._start + place.offset + place.nbytes
        return end <= self._data.size
