"""TensorBoard event files, by whichever library writes them; read without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.curves.log_parts.event_files import EventKind, is_event_file, read_events
from align.curves.loss_log import RAW
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog

_KIND = EventKind(version=b"brain.Event:", scalar=2, tensor=8)


class TensorboardFormat:
    """Records that begin with the version `brain.Event:2`."""

    name = "tensorboard"
    summary = "TensorBoard event file: events.out.tfevents..."
    requires: tuple[str, ...] = ()
    quoted = False
    sample = bytes.fromhex(
        "4800000000000000fe92489d0917f4bcff01c0da411a0d627261696e2e4576656e743a32522e0a2c74656e736f72626f"
        "6172642e73756d6d6172792e7772697465722e6576656e745f66696c655f777269746572b22792b82000000000000000"
        "29eda950092afabcff01c0da4110012a130a110a0a747261696e2f6c6f7373150000803f6cd208fe2000000000000000"
        "29eda950097bfabcff01c0da4110022a130a110a0a747261696e2f6c6f7373150000003fc471a9a52000000000000000"
        "29eda95009a5fabcff01c0da4110032a130a110a0a747261696e2f6c6f737315abaaaa3e7da53b6e"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first record is TensorBoard's."""
        return is_event_file(source, _KIND)

    def read(self, source: LogSource) -> LossLog:
        """Read the scalars of all tags; raises EmptyLogError if there is none."""
        log = read_events(source, self, _KIND)
        raw = all(series.window == RAW for series in log.table.metrics.values())
        return log.with_notes((sentence("logs_note.values_of_steps"),) if raw else ())


PLUGIN = TensorboardFormat()
