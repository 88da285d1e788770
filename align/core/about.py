"""What this installation is: its version, and the files that lie beside the package."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"
RUN_FOLDER = "align-run"  # where `align run` writes by default

PACKAGE = Path(__file__).parents[1]
CHECKOUT = PACKAGE.parent


def beside_package(folder: str, wanted: str) -> Path | None:
    """The folder of this name that came with the package and holds the file or folder `wanted`, else None.

    A wheel has `mappings/` as `_mappings` inside the package; an editable install and a checkout have it beside.
    """
    for path, sound in (
        (PACKAGE / f"_{folder}", True),
        (CHECKOUT / folder, (CHECKOUT / "pyproject.toml").is_file()),
    ):
        if sound and (path / wanted).exists():
            return path
    return None
