"""Files that a command line names, looked for before anything is imported: a framework takes seconds to come up."""

from __future__ import annotations

import contextlib
import re
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.errors import AlignError, UsageError
from align.words.catalogue import LANGUAGES
from align.words.message_words import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager


_FILES = {
    "project": "project file",
    "map_file": "map file",
    "check": "map file",
    "rules": "map file",
    "points": "points file",
}
_CHECKPOINTS = ("reference_checkpoint", "candidate_checkpoint", "checkpoint", "source")
# Parameters of commands that may be `file.py:function`, and what a file is that one of them names.
_MODEL, _INPUTS = "model file", "inputs file"
_FUNCTIONS = {
    **dict.fromkeys(("reference", "candidate", "side", "step", "source_model", "target_model"), _MODEL),
    **dict.fromkeys(("data", "candidate_data"), "data file"),
    **dict.fromkeys(("metric", "candidate_metric"), "metric file"),
    **dict.fromkeys(("reference_step", "candidate_step"), "step file"),
    "loss": "loss file",
}


def require_given_files(given: Mapping[str, object]) -> None:
    """Raise MissingFileError for the first file that the options of a command name and that is not there."""
    for name, what in _FILES.items():
        for path in _texts(given.get(name)):
            _require_file(path, what)
    for name in _CHECKPOINTS:
        for path in _texts(given.get(name)):
            _require_checkpoint(path)
    for name, what in _FUNCTIONS.items():
        for side in _texts(given.get(name)):
            _require_module(side, what)
    for name in ("inputs", "candidate_inputs", "batch"):
        for source in _texts(given.get(name)):
            require_source(source)


def require_source(source: Path | str) -> None:
    """Raise MissingFileError if inputs, of a file or a function, name a file that is not there."""
    if isinstance(source, Path) or ":" not in source:
        _require_file(source, _INPUTS)
    else:
        _require_module(source, _INPUTS)


def _require_file(path: Path | str, what: str) -> None:
    from align.core.atomic_files import existing_file

    existing_file(Path(path), what)


def _require_checkpoint(path: str) -> None:
    from align.checkpoints.open_checkpoint import require_checkpoint

    require_checkpoint(path)


def _require_module(side: str, what: str) -> None:
    from align.core.import_user_code import require_file

    require_file(side, what)


def _texts(given: object) -> Iterator[str]:
    """What an option was given, once or several times; the number of some command's option of that name is none."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return (str(one) for one in several if isinstance(one, (str, Path)))


# Paths of object storage on a command line: commands see local files in their place.

_WRITTEN = ("destination", "output", "out")
_FOLDERS = ("run",)
_TEXTS = ("reference", "candidate", "inputs", "candidate_inputs", "batch")  # a path, or the name of a function
_TEXT_MARK = "://"  # without it a text is no URL, but the name of a function


@contextmanager
def local_paths(command: str, given: dict[str, Any]) -> Iterator[None]:
    """Replace URLs among the paths of a command; what it writes is uploaded when it ends without an error.

    Of what `inspect` looks at, headers are fetched alone. A job of many tasks keeps its URLs: a task fetches its own.
    """
    if given.get("as_batch") is True or not any(":/" in str(value) for value in given.values()):
        yield
        return
    # With --into the destination is a model that is read, and -o the file to write.
    written = _WRITTEN[1:] if given.get("into") else _WRITTEN
    replace = bool(given.get("overwrite", True))
    with ExitStack() as stack:
        for name, value in given.items():
            _require_place(name, value, given)
            if name in written:
                given[name] = _destination(stack, value, replace=replace)
            else:
                given[name] = _local(stack, value, texts=name in _TEXTS, headers=command == "inspect")
        yield


def _require_place(name: str, value: Any, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a URL where a command changes files in their place."""
    from align.errors import UsageError
    from align.remote.remote_files import remote_url

    if not isinstance(value, Path) or (url := remote_url(value)) is None:
        return
    if name in _FOLDERS:
        raise UsageError.of("remote_file.run_folder", url=url)
    if name == "destination" and given.get("into") and not given.get("out"):
        raise UsageError.of("remote_file.into", url=url)


def _destination(stack: ExitStack, value: Any, *, replace: bool) -> Any:
    from align.remote.remote_files import local_destination, remote_url

    if not isinstance(value, Path) or remote_url(value) is None:
        return value
    return stack.enter_context(local_destination(value, replace=replace))


def _local(stack: ExitStack, value: Any, *, texts: bool, headers: bool) -> Any:
    from align.remote.remote_files import local_copy, remote_url

    if isinstance(value, tuple | list):
        return type(value)(_local(stack, one, texts=texts, headers=headers) for one in value)
    text = texts and isinstance(value, str) and _TEXT_MARK in value
    if not (text or isinstance(value, Path)) or remote_url(value) is None:
        return value
    found = stack.enter_context(local_copy(value, headers=headers))
    return str(found) if text else found


# Hints of errors as the running command can follow them: what they say of options that it lacks is left out.
#
# An error is raised by code that several commands share, and its hint says all that may help: clauses between
# semicolons, alternatives behind ", or", remarks in brackets, in Chinese behind its own marks. A command that it
# quotes, best in backticks, has options of its own.

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_QUOTED = re.compile(r"`[^`]*`|\balign [a-z-]+ [^;`]*")  # commands, which have options of their own
_REMARK = re.compile(r" \([^()]*\)|（[^（）]*）")
_BETWEEN = re.compile(r"; (?![^(]*\))|；(?![^（]*）)")
_OR = re.compile(r", or |，或")
PROJECT = "align.toml"
EVERYWHERE = frozenset({"--debug", "--help", "--lang"})
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
    return _rejoined(_BETWEEN, hint, lambda clause: _own_clause(clause, foreign)) or hint


def _own_clause(clause: str, foreign: Collection[str]) -> str:
    kept = _REMARK.sub(lambda remark: "" if options_in(remark[0]) & {*foreign} else remark[0], clause)
    return _rejoined(_OR, kept, lambda one: "" if options_in(one) & {*foreign} else one)


def _rejoined(between: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """The parts of a text that `change` leaves something of, with the same mark between them."""
    mark = found[0] if (found := between.search(text)) else ""
    return mark.join(filter(None, map(change, between.split(text))))


def language_of_project(arguments: Sequence[str]) -> str:
    """The language that the project file of a command line names, "" if none does: read as text, in no time."""
    asked = [value for name, value in pairwise((*arguments, "")) if name == "--project"]
    asked += [one.partition("=")[2] for one in arguments if one.startswith("--project=")]
    try:
        text = Path(asked[-1] if asked else PROJECT).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
    head = re.split(r"^\s*\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.search(r"""^\s*language\s*=\s*["'](\w+)["']""", head, re.MULTILINE)
    return found[1] if found and found[1] in LANGUAGES else ""


@contextlib.contextmanager
def own_hints(own: Collection[str], known: Collection[str]) -> Iterator[None]:
    """Let the errors of the block have hints that name options of the command alone."""
    try:
        yield
    except AlignError as error:
        error.hint = changed(error.hint, lambda hint: own_hint(hint, own, known))
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


# The run folder of a command: held from its first step to its result.

HOLDING_THEMSELVES = ("fix",)  # commands that run others, which hold the folder


def claimed_folder(command: str, given: Mapping[str, object]) -> AbstractContextManager[None]:
    """Hold the folder of `--run` for a command that is given these options; without one there is nothing to hold."""
    run = given.get("run")
    if run is None or command in HOLDING_THEMSELVES:
        return contextlib.nullcontext()
    from pathlib import Path

    from align.runs.run_folder import claim_run_folder

    return claim_run_folder(Path(str(run)), _kind(command, given))


def _kind(command: str, given: Mapping[str, object]) -> str:
    """The kind of result that a command makes: by some options it is another than that of its name."""
    if given.get("as_batch"):
        return "batch"
    if command == "map" and given.get("check"):
        return "check"
    if command == "bisect":
        return _kind_of_bisection(given)
    if command == "check_determinism":
        return "determinism"
    if command == "diff" and given.get("updates"):
        return "updates"
    return "log" if command == "loss" and given.get("candidate") is None else command


def _kind_of_bisection(given: Mapping[str, object]) -> str:
    if given.get("train"):
        return "training"
    if given.get("switches"):
        return "switches"
    return "precision" if given.get("precision") or given.get("device") else "bisect"
