"""Hints of errors as the running command can follow them: what they say of options that it lacks is left out.

An error is raised by code that several commands share, and its hint says all that may help: clauses between semicolons,
alternatives behind ", or", remarks in brackets. A command that it quotes, best in backticks, has options of its own.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from align.errors import AlignError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_QUOTED = re.compile(r"`[^`]*`|\balign [a-z-]+ [^;`]*")  # commands, which have options of their own
_REMARK = re.compile(r" \([^()]*\)")
_BETWEEN = re.compile(r"; (?![^(]*\))")
_OR = ", or "
EVERYWHERE = frozenset({"--debug", "--help"})
# A command that runs one model calls so what others say of a side.
_OF_ONE_SIDE = {f"--{side}-{what}": f"--{what}" for side in ("reference", "candidate")
                for what in ("device", "dtype", "mode", "checkpoint")}  # fmt: skip


def options_in(text: str) -> set[str]:
    """The options that a text names, but for those of commands that it quotes."""
    return set(_OPTION.findall(_QUOTED.sub("", text)))


def own_hint(hint: str, own: Collection[str], known: Collection[str]) -> str:
    """The hint without what it says of options that are `known`, and not the command's `own`; whole if it is all that.

    >>> own_hint("cast it (--dtype), or add --fast; give --map", {"--map"}, {"--dtype", "--fast", "--map"})
    'cast it; give --map'
    """
    foreign = {*known} - {*own} - EVERYWHERE
    foreign |= {sided for sided, alone in _OF_ONE_SIDE.items() if alone in foreign and sided not in own}
    if {*_OF_ONE_SIDE.values()} <= {*own}:
        hint = _OPTION.sub(lambda found: _OF_ONE_SIDE.get(found[0], found[0]), hint)
    if not options_in(hint) & foreign:
        return hint
    own_clauses = filter(None, (_own_clause(clause, foreign) for clause in _BETWEEN.split(hint)))
    return "; ".join(own_clauses) or hint


def _own_clause(clause: str, foreign: Collection[str]) -> str:
    kept = _REMARK.sub(lambda remark: "" if options_in(remark[0]) & {*foreign} else remark[0], clause)
    return _OR.join(one for one in kept.split(_OR) if not options_in(one) & {*foreign})


@contextlib.contextmanager
def own_hints(own: Collection[str], known: Collection[str]) -> Iterator[None]:
    """Let the errors of the block have hints that name options of the command alone."""
    try:
        yield
    except AlignError as error:
        error.hint = own_hint(error.hint, own, known)
        raise


def options_of(command: Any) -> frozenset[str]:
    """The options of a command of click, as they are typed."""
    names = (name for one in command.params for name in (*one.opts, *one.secondary_opts))
    return frozenset(name for name in names if name.startswith("--"))


def typed_options(group: Any, arguments: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The options of the command that is typed, and those of all commands of a click group."""
    known = {name: options_of(command) for name, command in group.commands.items()}
    typed = next((one for one in arguments if not one.startswith("-")), "")
    return known.get(typed, frozenset()), frozenset().union(*known.values())


def refuse_twice(group: Any, arguments: Sequence[str]) -> None:
    """Raise UsageError for an option of one value that is given several, of which click would take the last."""
    command = group.commands.get(next((one for one in arguments if not one.startswith("-")), ""))
    for one in command.params if command is not None else ():
        if one.param_type_name != "option" or one.multiple or one.is_flag or one.count:
            continue
        given = dict.fromkeys(_values_of(one.opts, arguments))
        if len(given) > 1:
            raise UsageError.of("cli_usage.given_twice", name=one.opts[0], count=len(given), values=list(given))


def _values_of(names: Collection[str], arguments: Sequence[str]) -> Iterator[str]:
    """The values that an option has on a command line, as `--name VALUE` and `--name=VALUE`."""
    before_rest = arguments[: arguments.index("--")] if "--" in arguments else arguments
    following = iter(before_rest)
    for argument in following:
        name, equals, value = argument.partition("=")
        if name in names and name.startswith("-"):
            yield value if equals else next(following, "")
