"""Commands `align loss` as sentences: the logs that they name, and their options, are facts, to be filled in later."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from align.words.catalogue import sentence
from align.words.message_words import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class LogsOnCommandLine(NamedTuple):
    """The two logs as they are given to `align loss`, and options by name: of the logs, and of what was asked.

    A log that is several files cannot be given so: its name is "".
    """

    reference: str
    candidate: str
    of_logs: Mapping[str, object]
    of_judging: Mapping[str, object]


def name_logs(commands: str, logs: LogsOnCommandLine) -> str:
    """Put the logs into the commands `align loss` of a sentence, with the options that they were read and judged by.

    An option of the command itself goes before; a command on another metric is not given how this one was judged.
    Models and checkpoints are not known here: `align forward REFERENCE CANDIDATE` keeps its two words.
    """
    return _named(commands, logs) if logs.reference and logs.candidate else commands


def _named(value: Any, logs: LogsOnCommandLine) -> Any:
    if isinstance(value, (list, tuple)):
        return [_named(one, logs) for one in value]
    if not isinstance(value, Sentence):
        return value
    if value.key == OF_BOTH:
        return _command(value.facts["options"], logs)
    if value.key == OF_ONE:
        return sentence("loss_command.describe", log=shlex.quote(getattr(logs, value.facts["log"].lower())))
    return sentence(value.key, **{name: _named(one, logs) for name, one in value.facts.items()})


def _command(own: tuple[str, ...], logs: LogsOnCommandLine) -> str:
    dropped = {one.facts["option"] for one in own if isinstance(one, Sentence) and one.key == WITHOUT}
    kept = [one for one in own if not isinstance(one, Sentence)]
    said = dropped | {one.split()[0] for one in kept}
    given = {**logs.of_logs, **({} if "--metric" in said else logs.of_judging)}
    options = [
        f"{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None and name not in said
    ]
    reference, candidate = shlex.quote(logs.reference), shlex.quote(logs.candidate)
    return sentence("loss_command.compare", reference=reference, candidate=candidate, options=[*kept, *options])
