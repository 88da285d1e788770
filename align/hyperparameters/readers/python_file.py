"""Python: configurations of mmengine with their bases, files of assignments, defaults of a script's argparse.

The code is parsed and never run. What it computes stays the text of what computes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.nested_settings import flat_settings
from align.hyperparameters.reader_parts.python_config import PythonConfig

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Setting
    from align.hyperparameters.settings_source import SettingsSource


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


PLUGIN = PythonSettings()
