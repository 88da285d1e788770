"""The files under `notebooks/` that a report is made from, found in a wheel, an editable install and a checkout."""

from __future__ import annotations

from pathlib import Path

import align
from align.errors import ReportError


def asset(name: str) -> str:
    """Return the text of a file under `notebooks/`; raises ReportError if the installation lacks it."""
    package = Path(align.__file__).parent
    checkout = package.parent
    for folder, sound in (
        (package / "_notebooks", True),
        (checkout / "notebooks", (checkout / "pyproject.toml").is_file()),
    ):
        if sound and (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    message = f"{checkout / 'notebooks' / name} is missing"
    raise ReportError(message, "the installation is broken; install mindalign again")
