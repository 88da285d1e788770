"""Weights of the classes of a loss, as a setting that two sides can compare and a reader can read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from align.core.thresholds import LONGEST_SETTING
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.layer_settings import Setting


def weights_as_setting(numbers: Array | None) -> Setting:
    """Weights of classes as a setting: the numbers, or of more than LONGEST_SETTING how many and a checksum."""
    if numbers is None:
        return None
    flat = numbers.astype("float32").reshape(-1)
    if len(flat) <= LONGEST_SETTING:
        return tuple(float(f"{number:.7g}") for number in flat)
    return sentence("setting_note.checksum", count=len(flat), checksum=crc32(flat.tobytes()))
