"""The commands as click runs them: made by typer from their annotations, with help in the reader's language."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from align.cli.given import CommandPlace, as_command, find_commands, interrupted
from align.core.thresholds import OPTIONS_IN_ONE_PANEL
from align.words.catalogue import (
    ENGLISH,
    breaking_between_characters,
    phrases,
    reader_language,
    say,
    speaking,
    spoken,
    table,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


# Under which heading an option of many is shown; others come first, under no heading of their own.
_KINDS_OF_OPTIONS = {
    "sides": "--reference-checkpoint --candidate-checkpoint --checkpoint --map --reference-device --candidate-device "
    "--device --reference-dtype --candidate-dtype --dtype --candidate-mode --mode --source-model --target-model "
    "--trust-pickle --family --layer --strip --key --parts --prefer",
    "inputs": "--inputs --input --seed --candidate-inputs --data --candidate-data --batches --steps --metric",
    "output": "--run --json --all --out --overwrite --no-overwrite --patch --project --verify --no-verify",
}


def command_tree(name: str = "") -> Callable[..., object]:
    """The command of this name as click runs it, all of them where there is none."""
    places = find_commands()
    chosen = (places[name],) if name in places else tuple(places.values())
    return _command_tree(chosen, reader_language())


@functools.cache  # to read the annotations of all commands takes 200 ms
def _command_tree(places: tuple[CommandPlace, ...], language: str) -> Callable[..., object]:
    """These commands as click runs them: calling the app itself would replace sys.excepthook."""
    with speaking(language):
        tree: Any = typer.main.get_command(build_app(places))
        for command in tree.commands.values():
            _put_in_panels(command.params)
    if language != ENGLISH:
        _translate_help(tree, phrases(language))
    for command in tree.commands.values():
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)  # lines are as long as the terminal is wide
    for parameter in (option for command in tree.commands.values() for option in command.params):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""  # typer would call it <bool>
        # A file that may not be read is told by what reads it, with a hint; typer, or click before it, would have none.
        described = getattr(parameter, "type_descriptor", None)
        kind = parameter.type if described is None else described.parameter_info
        if hasattr(kind, "readable"):
            kind.readable = False
    return cast("Callable[..., object]", tree)


def _put_in_panels(parameters: Sequence[Any]) -> None:
    """Show many options under a heading of their kind each; few need none."""
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    for option in options if len(options) > OPTIONS_IN_ONE_PANEL else ():
        kind = next((kind for kind, names in _KINDS_OF_OPTIONS.items() if option.opts[0] in names.split()), "")
        option.rich_help_panel = word("option_panel", kind) if kind else None


def options_with_help() -> dict[str, dict[str, str]]:
    """The options of each command as they are typed, with the first sentence of their help."""
    tree: Any = command_tree()
    return {
        name: {
            option: str(parameter.help or "").partition(". ")[0].partition("; ")[0].rstrip(".")
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("-")
        }
        for name, command in tree.commands.items()
    }


def _translate_help(tree: Any, texts: Mapping[str, str]) -> None:
    """Put what the help of the commands and their options says in another language; what has no text stays."""
    tree.subcommand_metavar = " ".join(texts.get(one, one) for one in tree.subcommand_metavar.split())
    for command in (tree, *tree.commands.values()):
        command.help = texts.get(command.help, command.help)
        command.options_metavar = texts.get(command.options_metavar, command.options_metavar)
        for parameter in command.params:
            for said in ("help", "rich_help_panel"):
                text: Any = getattr(parameter, said, None)
                setattr(parameter, said, texts.get(text, text))


def build_app(places: tuple[CommandPlace, ...] = ()) -> typer.Typer:
    """Make the app of these commands, by default all; of each the module that holds it is imported."""
    kinds: dict[str, Any] = {"cls": Command if spoken() == ENGLISH else CommandInLanguage}
    of_all: dict[str, Any] = {} if spoken() == ENGLISH else {"cls": GroupInLanguage}
    app = typer.Typer(
        name="align",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        **of_all,
    )
    app.callback()(lambda: None)
    for place in places or find_commands().values():
        panel = word("command_group", place.group) if place.group else None
        command = getattr(importlib.import_module(place.module), place.function)
        app.command(place.name, rich_help_panel=panel, epilog=_example(place), **kinds)(_exiting(command))
    return app


def _example(place: CommandPlace) -> str | None:
    """A line to begin with and the page that says more; nothing for a command that somebody adds without one."""
    key = f"example.{place.function.removesuffix('_command')}"
    if key.partition(".")[2] not in table("example"):
        return None
    return say("overview.command", line=say(f"{key}#0"), page=say(f"{key}#1"))


def _exiting(command: Callable[..., int]) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        try:
            with as_command(command.__name__.removesuffix("_command"), given):
                code = command(**given)
        except KeyboardInterrupt as interrupt:  # typer would leave without a word
            code = interrupted(interrupt)
        raise typer.Exit(code)

    return wrapped


# What typer says by itself, in the language of the reader: headings of a help, and errors of a command line.


CLICK_ERROR: Any = typer.BadParameter.__mro__[2]  # typer has no name for what all of its errors are
SAID_WITHIN = "message"  # the name of what an error says of another one


def of_typer(text: str) -> str:
    """What typer says, in the language of the reader; what is not known stays as it is."""
    for form, words in _forms(reader_language()):
        if found := form.fullmatch(text):
            facts = found.groupdict()
            return words.format(**{name: of_typer(one) if name == SAID_WITHIN else one for name, one in facts.items()})
    return text


@functools.cache
def _forms(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """What typer says, as patterns that take out its facts, each with its words in this language."""
    templates = phrases(language, "typer").items()
    named = ((re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(template)), words) for template, words in templates)
    return tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in named)


class Command(TyperCommand):
    """A command whose `--help` is called a flag, not a <bool>."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help`, which is typer's own."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


class _InLanguage:
    """What a command of typer and a group of them have in common."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw the help under headings of the language."""
        with _headings():
            super().format_help(ctx, formatter)  # type: ignore[misc]

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage, which begins with that word."""
        command: Any = self
        formatter.write_usage(ctx.command_path, " ".join(command.collect_usage_pieces(ctx)), of_typer("Usage:"))

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help`, which is typer's own."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.help = of_typer(option.help)
        return option


class CommandInLanguage(_InLanguage, Command):
    """A command of another language than English."""


class GroupInLanguage(_InLanguage, TyperGroup):
    """All commands, in another language than English."""

    def main(self, *args: Any, **extra: Any) -> None:
        """Run the command line and exit as typer does; its errors are told in the language."""
        run: Any = super().main
        try:
            code = run(*args, standalone_mode=False, **extra)
        except CLICK_ERROR as error:
            _tell_error(error)
            sys.exit(getattr(error, "exit_code", 2))
        except typer.Abort:
            from typer import rich_utils

            with _headings():
                rich_utils.rich_abort_error()
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _tell_error(error: Any) -> None:
    from typer import rich_utils

    message = of_typer(error.format_message())
    error.format_message = lambda: message
    with _headings():
        rich_utils.rich_format_error(error)


@contextlib.contextmanager
def _headings() -> Iterator[None]:
    """Give typer the headings of the language, and lines that break between characters, for as long as it draws."""
    from typer import rich_utils

    known = phrases(reader_language(), "typer")
    before = {name: text for name, text in vars(rich_utils).items() if name.isupper() and isinstance(text, str)}
    changed = {name: known[text] for name, text in before.items() if text in known}
    try:
        vars(rich_utils).update(changed)
        with breaking_between_characters():
            yield
    finally:
        vars(rich_utils).update(before)
