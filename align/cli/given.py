"""What a command line gives: its command, and files, looked for before a framework is imported, which takes seconds."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import io
import os
import re
import signal
import sys
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.about import PYPROJECT, find_project, text_of_project
from align.errors import AlignError, UsageError, UserCodeError
from align.words.catalogue import LANGUAGES, harmless, hint_of_command, in_language, reader_language, say, speaking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from _typeshed import ReadableBuffer

_FILES = {
    "project": "project file",
    "map_file": "map file",
    "check": "map file",
    "rules": "map file",
    "points": "points file",
}
_CHECKPOINTS = ("reference_checkpoint", "candidate_checkpoint", "checkpoint", "source")
# Parameters of commands that may be `file.py:function`, and what a file is that one of them names.
_MODEL = "model file"
_FUNCTIONS = {
    **dict.fromkeys(("reference", "candidate", "side", "step", "source_model", "target_model"), _MODEL),
    **dict.fromkeys(("data", "candidate_data"), "data file"),
    **dict.fromkeys(("metric", "candidate_metric"), "metric file"),
    **dict.fromkeys(("reference_step", "candidate_step"), "step file"),
    "loss": "loss file",
}


def require_given_files(given: Mapping[str, object]) -> None:
    """Raise MissingFileError for the first file that the options of a command name and that is not there."""
    from align.core.load_code import require_file
    from align.runs.read_settings import require_source

    for name, what in _FILES.items():
        for path in _texts(given.get(name)):
            require_source(Path(path), what)
    for name in _CHECKPOINTS:
        for path in _texts(given.get(name)):
            _require_checkpoint(path)
    for name, what in _FUNCTIONS.items():
        for side in _texts(given.get(name)):
            require_file(side, what)
    for name in ("inputs", "candidate_inputs", "batch"):
        for source in _texts(given.get(name)):
            require_source(source)


@contextlib.contextmanager
def as_command(name: str, given: dict[str, Any]) -> Iterator[None]:
    """Do what every command does before and after: URLs are local files, the run folder is held, files are there."""
    try:
        with local_paths(name, given), claimed_folder(name, given):
            require_given_files(given)
            yield
    except SystemExit as end:  # of the user's code, such as a method that a reader of models calls
        raise UserCodeError(say("cli_usage.code_of_a_side"), end) from end


def _require_checkpoint(path: str) -> None:
    from align.checkpoints.open_checkpoint import require_checkpoint

    require_checkpoint(path)


def _texts(given: object) -> Iterator[str]:
    """What an option was given, once or several times; the number of some command's option of that name is none."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return (str(one) for one in several if isinstance(one, (str, Path)))


# The commands, found in the source of this room: a function `NAME_command` in a module of it. Names and texts are read,
# so that a start imports the module of one command alone.

# In the order of a port's way.
GROUPS = {
    "begin": "init run fix report verify",
    "weights": "map convert diff inspect",
    "forward": "forward lint bisect repro capture trace validate data generate tokens",
    "training": "step ranks watch params initial check-determinism nonfinite memory hyperparameters",
    "curves": "loss advise",
    "devices": "doctor scan emulate export plugins schema explain",
    "many": "batch",
}
_COMMAND = re.compile(r'^def (\w+)_command\((?:(?!^def ).)*?\) -> int:\n    """(.*?)"""', re.DOTALL | re.MULTILINE)


class CommandPlace(NamedTuple):
    """A command: how it is typed, where its function is, what it says of itself, and the group it is listed in."""

    name: str
    module: str
    function: str
    text: str
    group: str


def find_commands() -> Mapping[str, CommandPlace]:
    """All commands by the name that is typed, in the order of a port's way; those that no group names stand last."""
    return _commands_in(tuple(importlib.import_module(str(__package__)).__path__))


@functools.cache
def _commands_in(folders: tuple[str, ...]) -> Mapping[str, CommandPlace]:
    groups = {name: group for group, names in GROUPS.items() for name in names.split()}
    places = [place for folder in folders for path in sorted(Path(folder).glob("*.py")) for place in _in(path, groups)]
    order = [*groups]
    places.sort(key=lambda place: (order.index(place.name) if place.group else len(order), place.name))
    return {place.name: place for place in places}


def _in(path: Path, groups: Mapping[str, str]) -> Iterator[CommandPlace]:
    for name, text in _COMMAND.findall(path.read_text(encoding="utf-8")):
        typed = name.replace("_", "-")
        module = f"{__package__}.{path.stem}"
        yield CommandPlace(
            typed, module, f"{name}_command", text.replace("\n    ", "\n").strip(), groups.get(typed, "")
        )


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
    from align.core.atomic_files import remote_url
    from align.errors import UsageError

    if not isinstance(value, Path) or (url := remote_url(value)) is None:
        return
    if name in _FOLDERS:
        raise UsageError.of("remote_file.run_folder", url=url)
    if name == "destination" and given.get("into") and not given.get("out"):
        raise UsageError.of("remote_file.into", url=url)


def _destination(stack: ExitStack, value: Any, *, replace: bool) -> Any:
    from align.core.atomic_files import local_destination, remote_url

    if not isinstance(value, Path) or remote_url(value) is None:
        return value
    return stack.enter_context(local_destination(value, replace=replace))


def _local(stack: ExitStack, value: Any, *, texts: bool, headers: bool) -> Any:
    from align.core.atomic_files import local_copy, remote_url

    if isinstance(value, tuple | list):
        return type(value)(_local(stack, one, texts=texts, headers=headers) for one in value)
    text = texts and isinstance(value, str) and _TEXT_MARK in value
    if not (text or isinstance(value, Path)) or remote_url(value) is None:
        return value
    found = stack.enter_context(local_copy(value, headers=headers))
    return str(found) if text else found


# Hints of errors as the running command can follow them: what they say of options that it lacks is left out.

EVERYWHERE = frozenset({"--debug", "--help", "--lang", "--quiet", "--verbose"})
# A command that runs one model calls so what others say of a side.
OF_ONE_SIDE = {f"--{side}-{what}": f"--{what}" for side in ("reference", "candidate")
                for what in ("device", "dtype", "mode", "checkpoint")}  # fmt: skip


def own_option(option: str, options: Collection[str]) -> str:
    """What a command of these options calls an option that a hint names; "" if it has none.

    >>> own_option("--map", {"--map"}), own_option("--fast", {"--map"})
    ('--map', '')
    """
    if option in options or option in EVERYWHERE:
        return option
    alone = OF_ONE_SIDE.get(option, "")
    return alone if {*OF_ONE_SIDE.values()} <= {*options} else ""


def named_project(arguments: Sequence[str]) -> Path | None:
    """The project file that a command line names."""
    asked = [value for name, value in pairwise((*arguments, "")) if name == "--project"]
    asked += [word.partition("=")[2] for word in arguments if word.startswith("--project=")]
    return Path(asked[-1]) if asked else None


def language_of_project(arguments: Sequence[str]) -> str:
    """The language that the project file of a command line names, "" if none does: read as text, in no time."""
    file = named_project(arguments) or find_project()
    text = "" if file is None else text_of_project(file)
    if file is not None and file.name == PYPROJECT:
        text = re.split(r"^\s*\[tool\.align\][^\n]*$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    head = re.split(r"^\s*\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.search(r"""^\s*language\s*=\s*["'](\w+)["']""", head, re.MULTILINE)
    return found[1] if found and found[1] in LANGUAGES else ""


@contextlib.contextmanager
def own_hints(named: Callable[[str], str]) -> Iterator[None]:
    """Let the errors of the block have hints of the command alone; `named` gives what it calls an option, or ""."""
    try:
        yield
    except AlignError as error:
        error.hint = hint_of_command(error.hint, named)
        raise


def named_as_typed(group: Any, arguments: Sequence[str]) -> Callable[[str], str]:
    """What the command that is typed calls an option that a hint names, "" if it has none: looked up when asked."""
    options = functools.cache(lambda: typed_options(group(), arguments))
    return lambda option: own_option(option, options())


def options_of(command: Any) -> frozenset[str]:
    """The options of a command of click, as they are typed."""
    names = (name for one in command.params for name in (*one.opts, *one.secondary_opts))
    return frozenset(name for name in names if name.startswith("--"))


def typed_options(group: Any, arguments: Sequence[str]) -> frozenset[str]:
    """The options of the command that is typed, of a click group."""
    command = group.commands.get(next((word for word in arguments if not word.startswith("-")), ""))
    return frozenset() if command is None else options_of(command)


def refuse_twice(group: Any, arguments: Sequence[str]) -> None:
    """Raise UsageError for an option of one value that is given several, of which click would take the last."""
    command = group.commands.get(next((word for word in arguments if not word.startswith("-")), ""))
    for option in command.params if command is not None else ():
        if option.param_type_name != "option" or option.multiple or option.is_flag or option.count:
            continue
        given = dict.fromkeys(_values_of(option.opts, arguments))
        if len(given) > 1:
            raise UsageError.of("cli_usage.given_twice", name=option.opts[0], count=len(given), values=list(given))


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


# What is said on the terminal beside results, JSON, and the streams that all of it goes to.
#
# Results for the eye are drawn by `align.report.show_result`, into the same streams.
#
# A stream may be closed, be a pipe whose reader has left, or a full disk. The exit code says what was found, so
# whatever nobody can read is dropped; only results that a disk does not take are an error. What is printed comes from
# files as well: control characters, which could steer a terminal, are escaped, and a line ends where nobody reads on.


FIRST_OF_OTHER_FILES = 3  # format: 0, 1 and 2 are the standard streams
NOBODY_READS = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})  # a reader that left, a terminal that hung up, a close
# Behind ASCII only text can hold them; below space JSON escapes them by itself.
_STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


_BEYOND_ASCII = re.compile("[^\x00-\x7e]")


_only_first = [False]  # of the process: whether a result is told by its first block alone


def speak_only_first(only: bool) -> bool:
    """Tell results by their first block alone, or whole; returns what was chosen before."""
    before, _only_first[0] = _only_first[0], only
    return before


def speaks_only_first() -> bool:
    """Tell whether of a result its first block is enough."""
    return _only_first[0]


def tell(text: str, *, err: bool = False) -> None:
    """Print lines for the eye, as all that is no result in blocks: harmless, and not longer than a line has use for."""
    _print(harmless(in_language(text, reader_language())) + "\n", err=err)


def _print(text: str, *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        stream.write(text)
        stream.flush()


def tell_in_place(text: str) -> None:
    """Show one line on standard error in the place of the one before it."""
    _print(f"\r{harmless(in_language(text, reader_language()))}", err=True)


def print_json(text: str) -> None:
    """Print a document as it is; what could steer a terminal, or has no place on it, is escaped, as JSON can."""
    import json

    letters = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # names of files, in any locale
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = _STEERING if encoding.lower().startswith("utf") else _BEYOND_ASCII
    _print(escaped.sub(lambda found: json.dumps(found[0])[1:-1], letters) + "\n")


def has_letters_of_all() -> bool:
    """Tell whether standard output takes letters beyond those of one alphabet."""
    try:
        "中é".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def open_streams() -> None:
    """Give this process three standard streams that can be written to and flushed whatever becomes of them."""
    # A file that is opened gets the lowest free number: where a stream is closed, one that is not meant to be printed.
    while (number := os.open(os.devnull, os.O_RDWR)) < FIRST_OF_OTHER_FILES:
        pass
    os.close(number)
    stdin: Any = sys.stdin  # None if it was closed
    sys.stdin = stdin or io.StringIO()
    sys.stdout = _Stream(sys.stdout, 1, "standard output")
    sys.stderr = _Stream(sys.stderr, 2, "")


class _Stream(io.TextIOWrapper):
    """A standard stream that code of the user's cannot close. Characters that the terminal lacks are replaced."""

    def __init__(self, before: Any, number: int, name: str) -> None:
        """`before` is what Python made of the stream, None if it was closed; errors name it, or are dropped."""
        is_terminal = before is not None and before.isatty()
        raw = _Raw(number if before is not None else os.open(os.devnull, os.O_WRONLY), name)
        encoding = getattr(before, "encoding", None) or "utf-8"
        super().__init__(
            io.BufferedWriter(raw), encoding, "replace", line_buffering=is_terminal or not name, write_through=not name
        )

    def close(self) -> None:
        """Only flush: align speaks to the last."""
        self.flush()


class _Raw(io.FileIO):
    """The file behind a stream. What it does not take is dropped from then on; said once if it has a name."""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self.said_of, self.is_dead = name, False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or let it be."""
        size = memoryview(data).nbytes
        if self.is_dead:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self.is_dead = True
            if error.errno in NOBODY_READS or not self.said_of:
                return size
            raise OSError(error.errno, error.strerror, self.said_of) from error


# A program that is told to end.

INTERRUPTED = 128  # format: a shell's code for a program that a signal ended is this and the signal's number


class Stopped(KeyboardInterrupt):
    """A signal to end, which is to leave no more behind than an interrupt by the user; its argument is the number."""


def interrupted(interrupt: KeyboardInterrupt) -> int:
    """Say so in one line, if there is still somebody to read it, and return the exit code."""
    number = interrupt.args[0] if isinstance(interrupt, Stopped) else signal.SIGINT
    with contextlib.suppress(OSError):
        with speaking():
            end = say("told.interrupted") if number == signal.SIGINT else say("told.terminated")
        tell(f"align: {end}", err=True)
    return INTERRUPTED + int(number)
