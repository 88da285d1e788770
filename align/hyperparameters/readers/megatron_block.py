"""Megatron's block of arguments in a log: `  adam_beta1 ............ 0.9` between two lines that say `arguments`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.literals import printed_value
from align.hyperparameters.settings_format import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_source import SettingsSource

_START = re.compile(r"-{4,} arguments -{4,}")
_END = re.compile(r"-{4,} end of .*arguments")
_LINE = re.compile(r"(?:^|[\s:\]])([A-Za-z_]\w*) \.{2,} ?(.*)$")


class MegatronBlock:
    """Logs with a block of arguments."""

    name = "megatron-log"
    summary = "a log with Megatron's block of arguments"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By the line that begins the block."""
        return source.is_text and _START.search(source.text) is not None

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read the lines of all blocks."""
        inside = False
        for number, line in enumerate(source.text.splitlines(), 1):
            if _START.search(line):
                inside = True
            elif _END.search(line):
                inside = False
            elif inside and (found := _LINE.search(line)):
                yield Setting(found[1], printed_value(found[2]), source.place(number))


PLUGIN = MegatronBlock()
