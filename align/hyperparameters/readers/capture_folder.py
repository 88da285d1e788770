"""A trace folder of `align capture`: versions, devices and data that a run had, fingerprints of inputs and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.atomic_files import sha256_of
from align.hyperparameters.reader_parts.captured_facts import fact_name
from align.hyperparameters.settings_format import Setting
from align.traces.open_trace import show_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_source import SettingsSource

MANIFEST, VALUES = "manifest.jsonl", "values.safetensors"


class CaptureFolder:
    """Folders of `align capture`."""

    name = "capture"
    summary = "a trace folder of align capture: versions, devices, variables, lengths of the data, fingerprints"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its manifest."""
        return (source.path / MANIFEST).is_file()

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read what the manifest says of the run, and hash the weights."""
        trace = show_trace(source.path)
        place = f"{source.path / MANIFEST}:1"
        for name, value in trace.environment.items():
            yield Setting(fact_name(name), value, place)
        if trace.head is not None:
            yield Setting("fingerprint.mode", trace.head.mode, place)
            for name, facts in trace.head.inputs.items():
                for fact, found in facts.items():
                    yield Setting(f"fingerprint.inputs.{name}.{fact}", str(found), place)
        if (source.path / VALUES).is_file():
            yield Setting("fingerprint.weights", sha256_of(source.path / VALUES), str(source.path / VALUES))


PLUGIN = CaptureFolder()
