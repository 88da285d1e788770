"""`align`: one command line from its words to its exit code.

Errors that a user can cause end here, in one message with a hint; `--debug`, anywhere on the line, keeps the
traceback. What stands before a command (`--version`, `--help`, `--completion`) is answered without typer, and a command
line imports the module of its own command alone, whose capability is imported when it runs: a start takes little time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

from align.cli.given import (
    Stopped,
    has_letters_of_all,
    interrupted,
    language_of_project,
    named_as_typed,
    named_project,
    open_streams,
    own_hints,
    print_json,
    refuse_twice,
    speak_only_first,
    tell,
)
from align.cli.overview import complete_in, drawn_overview
from align.core.about import __version__, choose_project, refuse_sudden_ends
from align.errors import AlignError, CannotRunError, UsageError
from align.words.catalogue import ENGLISH, LANGUAGES, VARIABLE, harmless, reader_language, say, speak

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType


# What a call without a file is refused with where the system is at fault: no disk space, no folder for temporary files.
OF_THE_SYSTEM = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT, errno.EROFS),
        *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)
_OF_ALL = frozenset({"--debug", "-q", "--quiet", "-v", "--verbose"})  # options of every command, anywhere on the line
TAKES_SEVERAL = frozenset({"--reference-runs", "--baseline"})
_FRAMEWORKS = r"(torch|torchvision|mindspore|numpy|onnx|onnxruntime|transformers)(\.|$)"
ONLY_ERRORS = "3"  # format: a level of MindSpore's GLOG_v, which shows warnings at 2, its default
LEAVE = os._exit  # align's own way out, whatever the user's code makes of that name


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    before = speak(ENGLISH if _open_calls else "")  # what a command of a command says is read by align, not by a user
    loud = speak_only_first("-q" in arguments or "--quiet" in arguments)
    if not _open_calls:
        choose_project(named_project(arguments))
    _open_calls.append(arguments)
    try:
        code = _run(_in_language([argument for argument in arguments if argument not in _OF_ALL]))
        if sys.stdout is not None:
            sys.stdout.flush()  # a disk that is full says so now
    except (AlignError, OSError) as error:
        shown_error = as_told(error)
        if debug or shown_error is None:
            raise
        if "--json" in arguments:
            print_json(_as_json(shown_error))
        tell(f"align: {shown_error.in_language(reader_language())}", err=True)
        return shown_error.exit_code
    finally:
        _open_calls.pop()
        speak_only_first(loud)
        speak(before)
    return code


_open_calls: list[list[str]] = []  # the command lines of the calls of `main` that run now


def _as_json(error: AlignError) -> str:
    """The document of an error, for whoever asked for JSON."""
    from align.core.documents import json_text
    from align.core.verdicts import Failure
    from align.runs.run_folder import as_document

    failure = Failure(error.exit_code, type(error).__name__, error.message, error.hint)
    return json_text(as_document(failure, {}))


def as_told(error: Exception) -> AlignError | None:
    """An error as it is told, also one of the system; None for a fault of mindalign itself."""
    if isinstance(error, OSError) and (error.filename is not None or error.errno in OF_THE_SYSTEM):
        place = "" if error.filename is None else f"{error.filename}: "
        return CannotRunError(f"{place}{error.strerror}", say("error.of_a_file"))
    return error if isinstance(error, AlignError) else None


def _in_language(arguments: list[str]) -> list[str]:
    """The arguments without `--lang`, which chooses the reader's language, else that which `align.toml` names."""
    rest, languages = _apart_from_language(arguments)
    try:
        _choose_language(languages, arguments)
    finally:
        if reader_language() != ENGLISH and not has_letters_of_all():
            speak(ENGLISH)  # of question marks nobody can read a word
    return rest


def _choose_language(languages: list[str], arguments: list[str]) -> None:
    if any(not language or language.startswith("-") for language in languages):
        raise UsageError.of("cli_usage.no_language", known=[*LANGUAGES])
    for language in languages:
        if language not in LANGUAGES:
            raise UsageError.of("cli_usage.language", language=language, known=[*LANGUAGES])
    if len({*languages}) > 1:
        raise UsageError.of("cli_usage.given_twice", name="--lang", count=len(languages), values=languages)
    if languages:
        speak(languages[0])
    elif len(_open_calls) == 1 and not os.environ.get(VARIABLE):
        speak(language_of_project(arguments))


def _apart_from_language(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--lang VALUE`, and the values; "" where there is none."""
    rest, languages = [], []
    following = iter(arguments)
    for argument in following:
        name, equals, value = argument.partition("=")
        if argument == "--":
            rest += [argument, *following]
        elif name == "--lang":
            languages.append(value if equals else next(following, ""))
        else:
            rest.append(argument)
    return rest, languages


def _run(arguments: list[str]) -> int:
    """Run the command and return its exit code; raises what it raises."""
    if _is_answered(arguments):
        return _ANSWERS["".join(arguments[:1])](arguments)
    typed = spread(arguments)
    name = next((word for word in typed if not word.startswith("-")), "")
    from align.cli.command_tree import command_tree

    tree: Any = command_tree(name)
    try:
        with own_hints(named_as_typed(lambda: tree, typed)):
            refuse_twice(tree, typed)
            tree(typed, prog_name="align")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


def _is_answered(arguments: Sequence[str]) -> bool:
    """Tell whether a command line asks for what stands before a command."""
    return "".join(arguments[:1]) in _ANSWERS


def _overview(typed: list[str]) -> int:
    tell(drawn_overview())
    return 0 if typed else AlignError.exit_code


def _version(_typed: list[str]) -> int:
    tell(f"align {__version__}")
    return 0


def _completion(typed: list[str]) -> int:
    tell(complete_in(*typed[1:2]))
    return 0


_ANSWERS: dict[str, Callable[[list[str]], int]] = {
    "": _overview,
    "--help": _overview,
    "--version": _version,
    "--completion": _completion,
}


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option that takes all values up to the next option before each of them, as click takes one only."""
    repeated: list[str] = []
    option = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = argument if argument in TAKES_SEVERAL else ""
            repeated += [] if option else [argument]
        else:
            repeated += [option, argument] if option else [argument]
    return repeated


def run() -> None:
    """Entry point of the `align` command: whatever happens, exit code 1 means "not aligned" and nothing else.

    The exit code is the command's to the last: threads and exit handlers of the user's code outlive the calls that
    made them, and end no process either.
    """
    open_streams()
    refuse_sudden_ends()
    if "--debug" not in sys.argv:
        sys.excepthook = _say_and_leave
    if "-v" in sys.argv or "--verbose" in sys.argv:
        logging.basicConfig(level=logging.INFO)
    else:
        _quieten_frameworks()
    for number in (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        code = main()
    except KeyboardInterrupt as interrupt:
        code = interrupted(interrupt)
    sys.exit(code)


def _quieten_frameworks() -> None:
    """Keep out what frameworks warn of about themselves; their errors and the warnings of the user's code stay."""
    warnings.filterwarnings("ignore", module=_FRAMEWORKS)
    os.environ.setdefault("GLOG_v", ONLY_ERRORS)


def _stop(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: a second one must not disturb the cleaning up
    raise Stopped(number)


def _say_and_leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report a fault of mindalign itself (or of the terminal) and leave with the code of "could not run"."""
    with contextlib.suppress(OSError):
        sys.stderr.write(harmless(f"align: {internal_error(kind, error, trace)}\n"))
    LEAVE(AlignError.exit_code)


def internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> CannotRunError:
    """What is said of a fault of mindalign itself."""
    import traceback

    from align.models.user_code import is_out_of_memory

    if is_out_of_memory(error):
        return CannotRunError.of("memory_error.all")
    place = traceback.extract_tb(trace)[-1].name
    return CannotRunError.of("error.of_mindalign", place=place, kind=kind.__name__, error=str(error))


if __name__ == "__main__":
    run()
