"""Settings of trainings that cannot be read."""

from __future__ import annotations

from align.errors.base import CannotRunError
from align.words.catalogue import say


class UnreadableSettingsError(CannotRunError):
    """A file that holds no settings, is damaged, or asks for more than any configuration does."""

    def __init__(self, place: str, reason: str, hint: str = "") -> None:
        super().__init__(f"cannot read settings from {place}: {reason}", hint or say("settings_fault.hint"))
