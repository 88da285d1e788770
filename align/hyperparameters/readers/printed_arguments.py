"""`Namespace(lr=0.1, ...)` of argparse and `TrainingArguments(...)` of transformers, as logs print them."""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.literals import call_arguments, printed_value
from align.hyperparameters.settings_format import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_source import SettingsSource

_CALL = re.compile(r"\b(?:Namespace|\w*TrainingArguments|\w+Config)\((?=\s*\w+\s*=)")
TEXTS = (".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".toml", ".md")


class PrintedArguments:
    """Logs with a printed call."""

    name = "printed-call"
    summary = "a log with Namespace(...) or TrainingArguments(...)"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By the call; source code is none."""
        return source.suffix not in TEXTS and source.is_text and _CALL.search(source.text) is not None

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read the first call of each name: later ones are of later runs."""
        starts = [match.start() for match in re.finditer("^", source.text, re.MULTILINE)]
        seen: set[str] = set()
        for call in _CALL.finditer(source.text):
            if call[0] in seen:
                continue
            seen.add(call[0])
            for name, text, begin in call_arguments(source.text, call.end())[0]:
                yield Setting(name, printed_value(text), source.place(bisect.bisect_right(starts, begin)))


PLUGIN = PrintedArguments()
