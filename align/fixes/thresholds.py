"""The limits of the fixes. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

OVERLAY_BYTES: Final = 256 * 1024**2
"""A package that is larger is not copied: it holds weights or compiled code, and a copy of it would surprise.
Measured: transformers, the largest package of models here, has 59 MiB, mindone 48 MiB;
mindspore with its compiled code 2.5 GiB."""

OVERLAY_FILES: Final = 10_000
"""A package with more files is not copied: each is read, hashed and written.
Measured: transformers has 2,900 files; mindspore and torch, which nobody is to copy, 12,000 and more."""

DEEPEST_HAND: Final = 12
"""A value that is handed on more often is not followed: two names that stand for each other would have no end.
Measured: in the models of mindcv and mindone an activation or a norm goes through five hands at most."""
