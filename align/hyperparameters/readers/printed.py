"""The last resort: lines `name: value`, `name = value` or `| name | value |` in a row, as programs print settings.

What a logger puts before a line is taken off; lines that are further in belong to the name above them.
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING

from align.hyperparameters.setting_values import call_arguments, printed_value
from align.hyperparameters.settings_format import Setting, SettingsPlugin
from align.hyperparameters.thresholds import LEAST_LINES_OF_A_LIST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_format import SettingsSource


_PREFIX = re.compile(r"^(?:\[[^\]]*\] ?|\d{4}-\d\d-\d\d[ T][\d:.,]+ |(?:INFO|WARNING|DEBUG)[: ]+| ?[|-] )*")
_LISTED_LINE = re.compile(
    r"^(?P<indent>\s*)(?:-\s)?(?P<name>[A-Za-z_][\w.-]*)\s*(?::|=)(?:\s+|(?<==))(?P<value>.*?),?\s*$"
)
_HEADER = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z_][\w.-]*)\s*:\s*$")
_TABLE = re.compile(
    r"^\W*[|\u2500-\u257f\ufffd]\s+(?P<name>[A-Za-z_][\w.-]*)\s+[|\u2500-\u257f\ufffd]+\s+(?P<value>\S.*?)\s+[|\u2500-\u257f\ufffd]+\s*$"
)


class PrintedList(SettingsPlugin):
    """Logs with a list of settings."""

    name = "printed-list"
    summary = "a log or a text with lines `name: value`"
    certain = False

    def recognizes(self, source: SettingsSource) -> bool:
        """Any text may be one."""
        return source.is_text

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read lines that stand in a row, each name as it comes first."""
        found = {one.name: one for one in reversed([*_rows(source)])}
        yield from reversed(found.values())


def _rows(source: SettingsSource) -> Iterator[Setting]:
    block: list[Setting] = []
    above: list[tuple[int, str]] = []
    for number, line in enumerate(source.text.splitlines(), 1):
        bare = line[_PREFIX.match(line).end() :] if _PREFIX.match(line) else line  # type: ignore[union-attr]
        header, row = _HEADER.match(bare), _TABLE.match(line) or _LISTED_LINE.match(bare)
        if header or row:
            _leave(above, len((header or row)["indent"]) if "indent" in (header or row).groupdict() else 0)  # type: ignore[union-attr,index]
        if header:
            above.append((len(header["indent"]), header["name"]))
        elif row:
            name = ".".join([*(one for _, one in above), row["name"]])
            block.append(Setting(name, printed_value(row["value"]), source.place(number)))
        elif bare.strip(" -=_*"):
            yield from block if len(block) >= LEAST_LINES_OF_A_LIST else ()
            block, above = [], []
    yield from block if len(block) >= LEAST_LINES_OF_A_LIST else ()


def _leave(above: list[tuple[int, str]], indent: int) -> None:
    """Leave the names that are as far in as this line, or further."""
    while above and above[-1][0] >= indent:
        above.pop()


# `Namespace(lr=0.1, ...)` of argparse and `TrainingArguments(...)` of transformers, as logs print them.

_CALL = re.compile(r"\b(?:Namespace|\w*TrainingArguments|\w+Config)\((?=\s*\w+\s*=)")
TEXTS = (".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".toml", ".md")


class PrintedArguments(SettingsPlugin):
    """Logs with a printed call."""

    name = "printed-call"
    summary = "a log with Namespace(...) or TrainingArguments(...)"

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by the call; source code is none."""
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


# Megatron's block of arguments in a log: `  adam_beta1 ............ 0.9` between two lines that say `arguments`.

_START = re.compile(r"-{4,} arguments -{4,}")
_END = re.compile(r"-{4,} end of .*arguments")
_DOTTED_LINE = re.compile(r"(?:^|[\s:\]])([A-Za-z_]\w*) \.{2,} ?(.*)$")


class MegatronBlock(SettingsPlugin):
    """Logs with a block of arguments."""

    name = "megatron-log"
    summary = "a log with Megatron's block of arguments"

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by the line that begins the block."""
        return source.is_text and _START.search(source.text) is not None

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read the lines of all blocks."""
        inside = False
        for number, line in enumerate(source.text.splitlines(), 1):
            if _START.search(line):
                inside = True
            elif _END.search(line):
                inside = False
            elif inside and (found := _DOTTED_LINE.search(line)):
                yield Setting(found[1], printed_value(found[2]), source.place(number))


PLUGINS = (PrintedList(), PrintedArguments(), MegatronBlock())
