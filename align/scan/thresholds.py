"""The limits of a scan: why each is there, and where it comes from."""

from __future__ import annotations

from typing import Final

CODE_WIDTH: Final = 100
"""A call of a skeleton that is longer is broken into one item a line.
Choice: with the attribute that it is kept under, the line still fits most screens.
"""
