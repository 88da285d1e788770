"""Python: configurations of mmengine with their bases, files of assignments, defaults of a script's argparse.

The code is parsed and never run. What it computes stays the text of what computes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.nested_settings import flat_settings
from align.hyperparameters.python_config import PythonConfig
from align.hyperparameters.shell_script import ShellScript

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Setting, SettingsSource


class PythonSettings:
    """Python files."""

    name = "python"
    summary = "Python: mmengine configurations, assignments, defaults of argparse; parsed, never run"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its name."""
        return source.suffix == ".py"

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read what stands at the top of the file, and the defaults of its options."""
        return flat_settings(PythonConfig(source).tree(), source.shown)


PYTHON_FILE = PythonSettings()


# Shell scripts that start a training: options of commands, with the variables of the script filled in.

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


SHELL = ShellSettings()

PLUGINS = (
    PYTHON_FILE,
    SHELL,
)
