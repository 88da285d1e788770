"""Points for `align bisect`: places in the reference and their counterparts, as text or in a TOML file.

"encoder.layer.0" = "blocks.0"
"encoder.layer.1#0:0" = "blocks.1"
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from align.core.atomic_files import existing_file
from align.errors import InputsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TEXT_HINT = "write PATH[#CALL][:OUTPUT]=PATH[#CALL][:OUTPUT], the reference's first"
HINT = 'write one line a point: "path.in.reference" = "path.in.candidate"'


def read_points(path: Path) -> dict[str, str]:
    """Read the file; raises MissingFileError, or InputsError listing all that is no pair of names."""
    try:
        table = tomllib.loads(existing_file(path, "points file").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputsError(f"{path} is not TOML: {error}", HINT) from error
    if faults := [f"{name}: {value!r} is no text" for name, value in table.items() if not isinstance(value, str)]:
        raise InputsError(f"{path} is no table of points:", HINT, faults)
    return table


def parse_points(specs: Sequence[str]) -> dict[str, str]:
    """Read points of the form `REFERENCE=CANDIDATE`; raises InputsError listing all that are not."""
    pairs = [(spec, *(part.strip() for part in spec.split("="))) for spec in specs]
    if faults := [pair[0] for pair in pairs if len(pair) != len(("spec", "reference", "candidate")) or "" in pair]:
        raise InputsError("points that name no two places:", TEXT_HINT, faults)
    return {reference: candidate for _, reference, candidate in pairs}
