"""`align`: the commands are the modules of these folders; each holds one `NAME_command` that returns the exit code.

Errors that a user can cause end here, in one message with a hint; `--debug`, anywhere on the line, keeps the
traceback. No command imports its capability before it runs, so that help needs no framework and little time.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import pkgutil
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from align.cli.given import (
    claimed_folder,
    language_of_project,
    local_paths,
    own_hints,
    refuse_twice,
    require_given_files,
    typed_options,
)
from align.cli.output import has_letters_of_all, open_streams, tell
from align.core.about import __version__
from align.core.atomic_files import NO_SPACE
from align.errors import AlignError, UsageError, UserCodeError
from align.words.catalogue import ENGLISH, LANGUAGES, VARIABLE, phrases, reader_language, say, speak, speaking, word
from align.words.message_words import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType, TracebackType

EPILOG = (
    "Exit codes: 0 aligned, 1 not aligned, 2 could not compare or could not run. "
    "--debug shows tracebacks, --lang zh speaks Chinese."
)
# What a call without a file is refused with where the system is at fault: no disk space, no folder for temporary files.
OF_THE_SYSTEM = NO_SPACE | {errno.ENOENT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
# The commands in the order of a port's way.
GROUPS = {
    "begin": "init run fix report",
    "weights": "map convert diff inspect",
    "forward": "forward lint bisect repro capture trace validate generate",
    "training": "step params initial check-determinism nonfinite hyperparameters",
    "curves": "loss",
    "devices": "doctor scan emulate export plugins",
    "many": "batch",
}
TAKES_SEVERAL = frozenset({"--reference-runs"})
LEAVE = os._exit  # align's own way out, whatever the user's code makes of that name
INTERRUPTED = 128  # format: a shell's code for a program that a signal ended is this and the signal's number


class Stopped(KeyboardInterrupt):
    """A signal to end, which is to leave no more behind than an interrupt by the user; its argument is the number."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    before = speak(ENGLISH if _open_calls else "")  # what a command of a command says is read by align, not by a user
    _open_calls.append(arguments)
    try:
        arguments = _in_language([argument for argument in arguments if argument != "--debug"])
        if reader_language() != ENGLISH and not has_letters_of_all():
            speak(ENGLISH)  # of question marks nobody can read a word
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # a disk that is full says so now
    except AlignError as error:
        if debug:
            raise
        tell(f"align: {error.in_language(reader_language())}", err=True)
        return error.exit_code
    except OSError as error:
        if debug or (error.filename is None and error.errno not in OF_THE_SYSTEM):
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        with speaking():
            hint = say("error.of_a_file")
        tell(f"align: {place}{error.strerror}\n{hint}", err=True)
        return AlignError.exit_code
    finally:
        _open_calls.pop()
        speak(before)
    return code


_open_calls: list[list[str]] = []  # the command lines of the calls of `main` that run now


def _in_language(arguments: list[str]) -> list[str]:
    """The arguments without `--lang`, which chooses the reader's language, else that which `align.toml` names."""
    for place, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if argument == "--":
            break
        if name != "--lang":
            continue
        end = place + (1 if given else 2)
        language = value if given else "".join(arguments[place + 1 : end])
        if language not in LANGUAGES:
            raise UsageError.of("cli_usage.language", language=language, known=[*LANGUAGES])
        speak(language)
        return [*arguments[:place], *arguments[end:]]
    if len(_open_calls) == 1 and not os.environ.get(VARIABLE):
        speak(language_of_project(arguments))
    return arguments


def _run(arguments: list[str]) -> int:
    """Run the command and return its exit code; raises what it raises."""
    command = _command_tree(tuple(importlib.import_module(str(__package__)).__path__), reader_language())
    typed = spread(arguments)
    try:
        with own_hints(*typed_options(command, typed)):
            refuse_twice(command, typed)
            command(typed, prog_name="align")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option that takes all values up to the next option before each of them, as click takes one only."""
    found: list[str] = []
    option = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = argument if argument in TAKES_SEVERAL else ""
            found += [] if option else [argument]
        else:
            found += [option, argument] if option else [argument]
    return found


def run() -> None:
    """Entry point of the `align` command: whatever happens, exit code 1 means "not aligned" and nothing else.

    The exit code is the command's to the last: threads and exit handlers of the user's code outlive the calls that
    made them, and end no process either.
    """
    from align.models.user_code import refuse_sudden_ends  # a small module: it imports nothing but Python's own

    open_streams()
    refuse_sudden_ends()
    if "--debug" not in sys.argv:
        sys.excepthook = _say_and_leave
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        code = main()
    except KeyboardInterrupt as interrupt:
        code = _interrupted(interrupt)
    sys.exit(code)


def _stop(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: a second one must not disturb the cleaning up
    raise Stopped(number)


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    """Say so in one line, if there is still somebody to read it, and return the exit code."""
    number = interrupt.args[0] if isinstance(interrupt, Stopped) else signal.SIGINT
    with contextlib.suppress(OSError):
        with speaking():
            end = say("told.interrupted") if number == signal.SIGINT else say("told.terminated")
        tell(f"align: {end}", err=True)
    return INTERRUPTED + int(number)


def _say_and_leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report a fault of mindalign itself (or of the terminal) and leave with the code of "could not run"."""
    with contextlib.suppress(OSError):
        sys.stderr.write(internal_error(kind, error, trace))
    LEAVE(AlignError.exit_code)


def internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """What is said of a fault of mindalign itself: two lines."""
    place = traceback.extract_tb(trace)[-1]
    message = f"align: internal error in {place.name}: {kind.__name__}: {error}"
    return harmless(f"{message}\nHint: add --debug to see the traceback, and report it please\n")


@functools.cache  # to read the annotations of all commands takes 80 ms
def _command_tree(_folders: tuple[str, ...], language: str) -> Callable[..., object]:
    """The commands in these folders as click runs them: calling the app itself would replace sys.excepthook."""
    with speaking(language):
        tree: Any = typer.main.get_command(build_app())
    if language != ENGLISH:
        _translate_help(tree, phrases(language))
    for parameter in (one for command in tree.commands.values() for one in command.params):
        # A file that may not be read is told by what reads it, with a hint; typer, or click before it, would have none.
        described = getattr(parameter, "type_descriptor", None)
        kind = parameter.type if described is None else described.parameter_info
        if hasattr(kind, "readable"):
            kind.readable = False
    return cast("Callable[..., object]", tree)


def _translate_help(tree: Any, texts: Mapping[str, str]) -> None:
    """Put what the help of the commands and their options says in another language; what has no text stays."""
    tree.epilog = texts.get(tree.epilog, tree.epilog)
    for command in (tree, *tree.commands.values()):
        command.help = texts.get(command.help, command.help)
        for parameter in command.params:
            parameter.help = texts.get(parameter.help, parameter.help)


def build_app() -> typer.Typer:
    """Make the command tree out of the modules of this room, in groups; one that no group names stands by itself."""
    app = typer.Typer(
        name="align",
        help="Prove that a port computes what its original computes: names, weights, layers, losses.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_options)
    commands = dict(sorted(_commands()))
    for group, names in GROUPS.items():
        for name in names.split():
            panel = word("command_group", group)
            app.command(name, rich_help_panel=panel)(_exiting(commands.pop(name.replace("-", "_"))))
    for name, command in commands.items():
        app.command(name.replace("_", "-"))(_exiting(command))
    return app


def _commands() -> Iterator[tuple[str, Callable[..., int]]]:
    """The name and the function of each command: `NAME_command` in a module beside this one."""
    package = str(__package__)
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name != "main":
            module = importlib.import_module(f"{package}.{info.name}")
            yield from (
                (name.removesuffix("_command"), value)
                for name, value in vars(module).items()
                if name.endswith("_command") and value.__module__ == module.__name__
            )


def _exiting(command: Callable[..., int]) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapped(*args: object, **kwargs: object) -> None:
        try:
            name = command.__name__.removesuffix("_command")
            with local_paths(name, kwargs), claimed_folder(name, kwargs):
                require_given_files(kwargs)
                code = command(*args, **kwargs)
        except KeyboardInterrupt as interrupt:  # typer would leave without a word
            code = _interrupted(interrupt)
        except SystemExit as end:  # of the user's code, such as a method that a reader of models calls
            raise UserCodeError(say("cli_usage.code_of_a_side"), end) from end
        raise typer.Exit(code)

    return wrapped


def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        tell(f"align {__version__}")
        raise typer.Exit


if __name__ == "__main__":
    run()
