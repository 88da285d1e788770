"""Next commands with the names of the logs that were compared, and what was said of them, so that they can be pasted.

Models and checkpoints are not known here: `align forward REFERENCE CANDIDATE` keeps its two words.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_BOTH = re.compile(r"align loss REFERENCE CANDIDATE((?: --[a-z-]+ (?:'[^']*'|[^\s,;]*[^\s,;:]))*)")
_OF_ONE = re.compile(r"align loss (REFERENCE|CANDIDATE)\b(?! CANDIDATE)")
_WITHOUT = re.compile(r" without (--[a-z]+-base) 0")


class LogsOnCommandLine(NamedTuple):
    """The two logs as they are given to `align loss`, and options by name: of the logs, and of what was asked.

    A log that is several files cannot be given so: its name is "".
    """

    reference: str
    candidate: str
    of_logs: Mapping[str, object]
    of_judging: Mapping[str, object]


def name_logs(commands: str, logs: LogsOnCommandLine) -> str:
    """Put the logs into the commands `align loss` of a text, with the options that they were read and judged by.

    An option of the command itself goes before; a command on another metric is not given how this one was judged.
    """
    if not logs.reference or not logs.candidate:
        return commands
    dropped = {found[1] for found in _WITHOUT.finditer(commands)}
    named = _OF_BOTH.sub(lambda found: _command(found[1], logs, dropped), _WITHOUT.sub("", commands))
    return _OF_ONE.sub(lambda found: f"align loss {shlex.quote(getattr(logs, found[1].lower()))}", named)


def _command(own: str, logs: LogsOnCommandLine, dropped: set[str]) -> str:
    given = {**logs.of_logs, **({} if " --metric " in own else logs.of_judging)}
    options = "".join(
        f" {name} {shlex.quote(str(value))}"
        for name, value in given.items()
        if value is not None and f"{name} " not in f"{own} " and name not in dropped
    )
    return f"align loss {shlex.quote(logs.reference)} {shlex.quote(logs.candidate)}{own}{options}"
