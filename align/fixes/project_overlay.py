"""The key of a project file that names the overlay, written under its table; all other lines stay as they are."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from align.core.documents import parse_toml

if TYPE_CHECKING:
    from pathlib import Path

_TABLE = re.compile(r"^[ \t]*\[[ \t]*candidate[ \t]*\][^\r\n]*(\r?\n|$)", re.MULTILINE)


def with_overlay(text: str, file: Path, overlay: Path) -> str | None:
    """Return a project file's text with `[candidate] overlay`; as it is where it names one, None where it cannot."""
    if "overlay" in parse_toml(text).get("candidate", {}):
        return text
    found = _TABLE.search(text)
    if found is None:
        return None
    end = found[1] or "\n"
    line = f"overlay = {json.dumps(os.path.relpath(overlay, file.resolve().parent))}{end}"
    lead = "" if found[1] else end
    return text[: found.end()] + lead + line + text[found.end() :]
