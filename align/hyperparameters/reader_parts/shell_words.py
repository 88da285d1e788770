"""The words of a shell script with their lines: quotes, comments, continued lines, here-documents; nothing is run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Quoting = Literal["", "'", '"']
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
ENDS = "\n;&|"


@dataclass(slots=True)
class Word:
    """A word as it is written: its pieces with their quotes, and the line that it begins on."""

    line: int
    pieces: list[tuple[str, Quoting]] = field(default_factory=list)

    @property
    def raw(self) -> str:
        """The word without its quotes, before anything is filled in."""
        return "".join(text for text, _ in self.pieces)


def shell_statements(text: str) -> Iterator[list[Word]]:
    """The statements of a script, each a list of words; those of an array in parentheses stay one statement."""
    yield from _Reader(text).statements()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1
        self._here: list[str] = []
        self._depth = 0

    def statements(self) -> Iterator[list[Word]]:
        words: list[Word] = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in ENDS and not self._depth:
                yield words
                words = []
                self._step()
                if letter == "\n":
                    self._skip_documents()
            elif letter.isspace() or letter in ENDS:
                self._step()
            elif letter == "\\" and self._text[self._at + 1 : self._at + 2] == "\n":
                self._step(2)
            elif letter == "#":
                self._skip_line()
            else:
                words.append(self._word())
        yield words

    def _word(self) -> Word:
        word = Word(self._line)
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in "'\"":
                word.pieces.append((self._quoted(letter), letter))  # type: ignore[arg-type]
            elif letter.isspace() or (letter in ENDS and not self._in_here(letter)):
                break
            elif letter == "\\":
                if self._text[self._at + 1 : self._at + 2] == "\n":
                    break
                word.pieces.append((self._text[self._at + 1 : self._at + 2], "'"))
                self._step(2)
            else:
                word.pieces.append((self._plain(), ""))
                if self._array_edge(word):
                    break
        return word

    def _plain(self) -> str:
        """Letters without a meaning of their own; `${...}`, `$(...)` and `<<WORD` stay whole."""
        if self._text[self._at] == "$" and self._text[self._at + 1 : self._at + 2] in ("{", "("):
            return self._bracketed()
        if here := _HERE.match(self._text, self._at):
            self._here.append(here[1])
            self._at = here.end()
            return here[0]
        letter = self._text[self._at]
        self._step()
        return letter

    def _bracketed(self) -> str:
        """A substitution up to its closing bracket."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            letter = self._text[self._at]
            depth += (letter in "({") - (letter in ")}")
            self._step()
            if not depth and letter in ")}":
                break
        return self._text[begin : self._at]

    def _quoted(self, quote: str) -> str:
        """What stands in quotes; a continued line in double quotes keeps its line break, which counts lines."""
        self._step()
        begin, parts = self._at, []
        while self._at < len(self._text) and self._text[self._at] != quote:
            if quote == '"' and self._text[self._at] == "\\":
                parts.append(self._text[begin : self._at])
                begin = self._at + 1
                self._step()
            self._step()
        parts.append(self._text[begin : self._at])
        self._step()
        return "".join(parts)

    def _array_edge(self, word: Word) -> bool:
        """Note where `NAME=(` opens an array, and where `)` closes it."""
        raw = word.raw
        if raw.endswith("=(") and not self._depth:
            self._depth = 1
            return True
        if self._depth and raw == ")":
            self._depth = 0
            return True
        return bool(self._depth) and self._text[self._at : self._at + 1] == ")"

    def _in_here(self, letter: str) -> bool:
        return letter == "|" and bool(self._depth)

    def _skip_documents(self) -> None:
        while self._here:
            mark = self._here.pop(0)
            while self._at < len(self._text):
                line = self._text[self._at :].partition("\n")[0]
                self._step(len(line) + 1)
                if line.strip() == mark:
                    break

    def _skip_line(self) -> None:
        while self._at < len(self._text) and self._text[self._at] != "\n":
            self._at += 1

    def _step(self, count: int = 1) -> None:
        self._line += self._text.count("\n", self._at, self._at + count)
        self._at += count
