"""Commands `align loss` as sentences: the logs that they name, and their options, are facts, to be filled in later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.curve_result import Side

OF_BOTH, OF_ONE, WITHOUT = "loss_command.compare", "loss_command.describe", "loss_command.without"


def compare_logs(*options: str) -> str:
    """Return the command that compares both logs, with options such as `--metric lr`.

    >>> compare_logs("--metric lr")
    'align loss REFERENCE CANDIDATE --metric lr'
    """
    return sentence("loss_command.compare", reference="REFERENCE", candidate="CANDIDATE", options=options)


def without_option(name: str) -> str:
    """Return what stands among the options of `compare_logs` where leaving out one that was 0 is the answer."""
    return sentence("loss_command.without", option=name)


def describe_log(side: Side) -> str:
    """Return the command that shows what is understood of the log of one side.

    >>> describe_log("candidate")
    'align loss CANDIDATE'
    """
    return sentence("loss_command.describe", log=side.upper())
