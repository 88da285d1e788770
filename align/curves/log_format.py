"""What a plugin for a log format offers, and all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from align.core.protocols import Plugin
from align.core.registry import plugins

if TYPE_CHECKING:
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog


@runtime_checkable
class LogFormat(Plugin, Protocol):
    """Reads one kind of loss log."""

    @property
    def sample(self) -> bytes:
        """A few real lines of such a log, or a small file where it is no text."""
        ...

    @property
    def quoted(self) -> bool:
        """True if the sample is quoted from documents: nobody here has run the logger that writes it."""
        ...

    def recognizes(self, source: LogSource) -> bool:
        """Tell by the content whether this plugin reads the log; exactly one plugin should say yes.

        It is given the beginning of a long log first, and more of it only while no plugin says yes.
        """
        ...

    def read(self, source: LogSource) -> LossLog:
        """Read every line that tells of a step; raises EmptyLogError if there is none."""
        ...


def log_formats() -> dict[str, LogFormat]:
    """All loss-log formats by name."""
    return {name: cast("LogFormat", plugin) for name, plugin in plugins("losslogs").items()}
