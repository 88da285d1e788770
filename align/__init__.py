"""mindalign: prove that a port computes what its original computes.

The public API is `align.NAME` for the names in `__init__.pyi`, and the errors in `align.errors`. All else is internal
and may change with any release. That file is the one table of these names: type checkers read it as it is, and
here each name is imported from the module that it tells, on first use, so that `import align` is quick.
"""

from __future__ import annotations

import importlib

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _table:  # noqa: PTH123 - pathlib is slow to import
    _HOMES = {line.split()[3]: line.split()[1] for line in _table if line.startswith("from ")}

__all__ = sorted(name for name in _HOMES if not name.startswith("_"))  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    msg = f"module 'align' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(_HOMES)
