"""What a user gives as `--map`: a map at hand, a map file or the record of a conversion."""

from __future__ import annotations

from pathlib import Path

from align.convert.planning.record_as_map import is_record, read_record_map
from align.convert.planning.two_way_map import TwoWayMap, as_two_way
from align.core.atomic_files import existing_file
from align.core.name_map import NameMap
from align.names.map_file import read_rules


def read_given_map(given: NameMap | Path | str) -> TwoWayMap:
    """Return a map that can be followed either way; raises MissingFileError, or MapError with all faults."""
    if isinstance(given, NameMap):
        return as_two_way(given, "the map")
    path = existing_file(Path(given), "map file")
    return read_record_map(path) if is_record(path) else TwoWayMap(read_rules(path))
