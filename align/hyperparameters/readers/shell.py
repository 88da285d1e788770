"""Shell scripts that start a training: options of commands, with the variables of the script filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.shell_script import ShellScript

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Setting
    from align.hyperparameters.settings_source import SettingsSource

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")


class ShellSettings:
    """Scripts of sh and bash."""

    name = "shell"
    summary = "shell scripts: --lr 1e-4, exported variables, ${X:-3}"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its name, or by a first line that names a shell."""
        first = source.head.split(b"\n")[0]
        return source.suffix in SUFFIXES or (first.startswith(b"#!") and first.rstrip().endswith(b"sh"))

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read what the script gives its programs; nothing is run."""
        return ShellScript(source).settings()


PLUGIN = ShellSettings()
