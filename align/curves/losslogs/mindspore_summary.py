"""MindSpore summary files (`..._MS`), as `SummaryCollector` and `SummaryRecord` write them; read without MindSpore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.curves.log_parts.event_files import EventKind, is_event_file, read_events

if TYPE_CHECKING:
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog

_KIND = EventKind(version=b"MindSpore.Event:", scalar=3)


class MindsporeSummaryFormat:
    """Records that begin with the version `MindSpore.Event:1`."""

    name = "mindspore_summary"
    summary = "MindSpore summary file: ...out.events.summary..._MS"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = bytes.fromhex(
        "1c00000000000000c8c1951d092662cdba01c0da411a114d696e6453706f72652e4576656e743a31fd9aa9f91a000000"
        "00000000129bd82d09b8a6ccba01c0da4110012a0d0a0b0a046c6f73731d0000803f4df965711a00000000000000129b"
        "d82d09474fcdba01c0da4110022a0d0a0b0a046c6f73731d0000003f765f5b8b1a00000000000000129bd82d09a451cd"
        "ba01c0da4110032a0d0a0b0a046c6f73731dabaaaa3e69fd612f"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first record is MindSpore's."""
        return is_event_file(source, _KIND)

    def read(self, source: LogSource) -> LossLog:
        """Read the scalars of all tags; raises EmptyLogError if there is none."""
        return read_events(source, self, _KIND)


PLUGIN = MindsporeSummaryFormat()
