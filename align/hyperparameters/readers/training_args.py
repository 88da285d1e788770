"""training_args.bin of transformers' Trainer; its pickle is looked at and never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.checkpoints.kept_settings import is_kept_by_torch, read_kept_settings
from align.errors import NotACheckpointError, UnreadableSettingsError
from align.hyperparameters.settings_format import Setting

if TYPE_CHECKING:
    from align.hyperparameters.settings_source import SettingsSource


class TrainingArgsFile:
    """Files of `torch.save` with one object of settings."""

    name = "training-args"
    summary = "training_args.bin of transformers, looked at and never run"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its first bytes."""
        return is_kept_by_torch(source.head)

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read the fields of the object."""
        try:
            fields = read_kept_settings(source.path)
        except NotACheckpointError as error:
            raise UnreadableSettingsError(source.shown, error.message) from error
        return [Setting(name, value, source.shown) for name, value in fields.items()]


PLUGIN = TrainingArgsFile()
