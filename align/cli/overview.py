"""What lists all commands: the help, drawn without typer, and the completions of shells."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from align.cli.given import find_commands
from align.errors import UsageError
from align.words.catalogue import ENGLISH, phrases, reader_language, say, speaking, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPTIONS = {
    "help": "--help",
    "version": "--version",
    "completion": "--completion SHELL",
    "lang": "--lang LANGUAGE",
    "quiet": "-q, --quiet",
    "verbose": "-v, --verbose",
    "debug": "--debug",
}


def drawn_overview() -> str:
    """All commands with a sentence each, as wide as the terminal."""
    with speaking(reader_language()):
        return _overview(_translation())


def _overview(translated: Callable[[str], str]) -> str:
    indent = max(map(len, (*_OPTIONS.values(), *find_commands()))) + 4
    usage = " ".join(map(translated, ("[OPTIONS]", "COMMAND", "[ARGS]...")))
    lines = [f"{translated('Usage:')} align {usage}", "", *_wrapped(say("overview.summary"), 0)]
    group = ""
    for place in find_commands().values():
        if place.group != group:
            group = place.group
            lines += ["", word("command_group", group) if group else translated("Commands")]
        first = translated(place.text).split("\n\n")[0].replace("\n", " ")
        lines += _wrapped(f"  {place.name}".ljust(indent) + first, indent)
    lines += ["", translated("Options")]
    for name, option in _OPTIONS.items():
        lines += _wrapped(f"  {option}".ljust(indent) + say(f"overview.{name}"), indent)
    return "\n".join([*lines, "", *_wrapped(say("overview.exit_codes"), 0)])


def _translation() -> Callable[[str], str]:
    language = reader_language()
    if language == ENGLISH:
        return str
    texts = {**phrases(language, "typer"), **phrases(language, "help")}
    return lambda text: texts.get(text, text)


def _wrapped(text: str, indent: int) -> list[str]:
    """The lines of a text, further ones indented; characters of two columns each may begin a line."""
    columns = _terminal_columns()
    lines, width = [""], 0
    for piece in re.findall(r"[^\s\u2e80-\uffef]+\s*|[\u2e80-\uffef][，。；：、）]*\s*|\s+", text):
        size = _columns(piece.rstrip())
        if width + size > columns and width > indent:
            lines.append(" " * indent)
            width = indent
        lines[-1] += piece
        width += _columns(piece)
    return [line.rstrip() for line in lines]


def _terminal_columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


# What shells complete with: a script that holds all names, so that no key starts a program.


def complete_in(shell: str = "") -> str:
    """The script that completes commands and their options in a shell; for where it goes see docs/README.md.

    Raises UsageError for a shell that is not known.
    """
    if shell not in _SCRIPTS:
        key = "cli_usage.shell" if shell else "cli_usage.no_shell"
        raise UsageError.of(key, shell=shell, known=[*_SCRIPTS])
    from align.cli.command_tree import options_with_help

    return _SCRIPTS[shell](options_with_help())


def _bash(options: Mapping[str, Mapping[str, str]]) -> str:
    cases = "\n".join(f'        {name}) words="{" ".join(known)}" ;;' for name, known in options.items())
    return f"""_align() {{
    local words=""
    COMPREPLY=()
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{" ".join([*options, *re.findall("--[a-z]+", " ".join(_OPTIONS.values()))])}"
    elif [[ "$2" != -* ]]; then
        return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$2"))
}}
complete -o default -F _align align"""


def _zsh(options: Mapping[str, Mapping[str, str]]) -> str:
    def listed(texts: Mapping[str, str]) -> str:
        return " ".join("'{}:{}'".format(*(part.replace("'", "'\\''") for part in pair)) for pair in texts.items())

    cases = "\n".join(f"    {name}) names=({listed(known)}) ;;" for name, known in options.items())
    return f"""#compdef align
local -a names
names=({listed({name: find_commands()[name].text.splitlines()[0] for name in options})})
if (( CURRENT == 2 )); then
    _describe command names
    return
fi
names=()
case $words[2] in
{cases}
esac
if [[ $words[CURRENT] == -* ]]; then
    _describe option names
else
    _files
fi"""


def _fish(options: Mapping[str, Mapping[str, str]]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = []
    for name, known in options.items():
        text = find_commands()[name].text.splitlines()[0]
        lines.append(f"complete -c align -n __fish_use_subcommand -f -a {name} -d {quoted(text)}")
        lines += [
            f"complete -c align -n '__fish_seen_subcommand_from {name}' -l {option[2:]} -d {quoted(said)}"
            for option, said in known.items()
            if option.startswith("--")
        ]
    return "\n".join(lines)


_SCRIPTS: dict[str, Callable[[Mapping[str, Mapping[str, str]]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
