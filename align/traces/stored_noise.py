"""The reference's rounding noise kept beside its trace, so that two traces are judged where no model can be run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.json_data import to_json_data
from align.core.measurements import Measurement
from align.errors import RunFolderError
from align.traces.stored.manifest import NOISE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOISE_SCHEMA = "mindalign.noise/1"


def write_noise(folder: Path, noise: Mapping[str, Measurement] | None, missing: str = "") -> None:
    """Write the measurement of each capture by its key; `missing` says why there is none."""
    document = {
        "schema": NOISE_SCHEMA,
        "missing": missing,
        "noise": to_json_data(None if noise is None else dict(noise)),
    }
    write_text(folder / NOISE, json.dumps(document) + "\n")


def read_noise(folder: Path) -> tuple[dict[str, Measurement] | None, str]:
    """Return the measurements, or None and the reason; raises RunFolderError for another schema or damage."""
    path = folder / NOISE
    if not path.is_file():
        return None, sentence("noise_note.not_measured")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != NOISE_SCHEMA:
            schema = document["schema"]
            raise RunFolderError(f"{path} has schema {schema!r}, expected {NOISE_SCHEMA!r}", "capture the trace again")
        if document["noise"] is None:
            return None, str(document["missing"])
        return {key: _measurement(table) for key, table in document["noise"].items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} is damaged: {error}", "capture the trace again") from error


def _measurement(table: dict[str, Any]) -> Measurement:
    figures: dict[str, Any] = {name: float(one) if isinstance(one, str) else one for name, one in table.items()}
    return Measurement(**{**figures, "worst": tuple(table["worst"]), "decades": tuple(table["decades"])})
