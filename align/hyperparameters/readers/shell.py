"""Shell scripts that start a training: options of commands, variables filled in and those of the environment.

Nothing is run. A variable that the script does not set stays as it is written, and is no value.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.settings_format import Setting, SettingsPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from align.hyperparameters.settings_format import SettingsSource

    Pieces: TypeAlias = "list[tuple[str, Quoting]]"


class ShellSettings(SettingsPlugin):
    """Scripts of sh and bash."""

    name = "shell"
    summary = "shell scripts: --lr 1e-4, exported variables, ${X:-3}"
    suffixes = (".sh", ".bash", ".slurm", ".sbatch")

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by its name, or by a first line that names a shell."""
        first = source.head.split(b"\n")[0]
        return super().recognizes(source) or (first.startswith(b"#!") and first.rstrip().endswith(b"sh"))

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read what the script gives its programs; nothing is run."""
        return ShellScript(source).settings()


PLUGIN = ShellSettings()


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_VARIABLE = re.compile(r"\$\(\((?P<sum>[^()]*)\)\)|\$\{(?P<inside>[^{}]*(?:\{[^{}]*\})?[^{}]*)\}|\$(?P<name>\w+)")
_DEFAULT = re.compile(r"(?P<name>\w+)(?:\[[@*0-9]*\])?(?::?(?P<how>[-=])(?P<default>.*))?$", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*$|--?[A-Za-z][\w.-]*=")
_OVERRIDE = re.compile(r"\+?[A-Za-z_][\w.]*=")
DECLARING = ("export", "declare", "local", "readonly", "typeset", "set")
NO_PROGRAMS = {
    "echo", "mkdir", "cd", "pip", "pip3", "wget", "curl", "tar", "rm", "cp", "ls", "kill", "pkill", "tee", "grep",
    "sed", "awk", "git", "nohup.out", "source", ".", "conda", "module", "[", "[[", "test",
}  # fmt: skip
TESTS = ("[", "[[")
_REDIRECTION = re.compile(r"(?:[0-9]?>>?|<)[^<>()]*$")  # not `<path>`, which stands for a path
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_NUMBER = re.compile(r"[-+]?\.?[0-9][\w.+-]*$")
SCRIPTS = (".py", ".sh")
TESTING = {
    "test", "eval", "evaluate", "evaluation", "infer", "inference", "predict", "export", "demo", "convert",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
}  # fmt: skip
_JOB = re.compile(r"^#SBATCH\s+--(?P<name>nodes|ntasks-per-node|gpus-per-node)[= ](?P<value>\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Token:
    """A word with everything filled in, and its line."""

    text: str
    line: int


class ShellScript:
    """A script, read from its beginning to its end."""

    def __init__(self, source: SettingsSource) -> None:
        self._source = source
        self._variables: dict[str, list[Token]] = {}
        self._line = 1
        self._plain: dict[str, Setting] = {}

    def settings(self) -> list[Setting]:
        """The options of all commands in order, and the environment; of a script without options its variables."""
        text = self._source.whole_text()
        commands = [(_trains(words), [*self._statement(words)]) for words in self._reached(text)]
        has_training = any(trains and settings for trains, settings in commands)
        jobs = ((match, 1 + text.count("\n", 0, match.start())) for match in _JOB.finditer(text))
        given = [Setting(match["name"], match["value"], self._source.place(line)) for match, line in jobs]
        for trains, settings in commands:
            given.extend(settings if trains is not False or not has_training else [])
        options = [one for one in given if not one.name.startswith("environment.")]
        return given if options else [*given, *self._plain.values()]

    def _reached(self, text: str) -> Iterator[list[Word]]:
        """The statements of a script, without those behind a test that does not hold, `[ a = b ] && ...`."""
        closed = 0
        for words in _ScriptWords(text).statements():
            if words and words[0].line == closed:
                continue
            closed = words[0].line if words and self._fails(words) else 0 if words else closed
            yield words

    def _fails(self, words: list[Word]) -> bool:
        """Tell a test of two texts that are known and not the same."""
        if words[0].raw not in TESTS or len(words) != len(["[", "a", "=", "b", "]"]) or words[2].raw not in ("=", "=="):
            return False
        one, other = ("".join(token.text for token in self._filled(words[at], split=False)) for at in (1, 3))
        return "$" not in one + other and one != other

    def _statement(self, words: list[Word]) -> Iterator[Setting]:
        words = _without_redirections(_behind_a_pattern(words))
        exported = bool(words) and words[0].raw in DECLARING
        rest = words[1:] if exported else words
        while rest and (match := _ASSIGNMENT.match(rest[0].raw)):
            rest = self._assign(match[1], rest)
            tokens = self._variables[match[1]] if exported or rest else []
            if tokens:
                text = " ".join(token.text for token in tokens)
                yield Setting(f"environment.{match[1]}", text, self._source.place(tokens[0].line))
        if rest and not exported and rest[0].raw not in NO_PROGRAMS:
            yield from self._options([token for word in rest for token in self._filled(word)])

    def _assign(self, name: str, words: list[Word]) -> list[Word]:
        """Keep a variable, or an array up to its closing parenthesis; return the words behind."""
        first, *rest = words
        before = self._variables.get(name, []) if first.raw[len(name)] == "+" else []
        if first.raw.endswith("=("):
            end = next((at for at, word in enumerate(rest) if word.raw == ")"), len(rest))
            self._variables[name] = [*before, *(token for word in rest[:end] for token in self._filled(word))]
            return rest[end + 1 :]
        value = type(first)(first.line, _without_name(first.pieces))
        tokens = [*before, *self._filled(value, split=False)]
        self._variables[name] = tokens
        if tokens and "$" not in tokens[0].text:
            text = " ".join(one.text for one in tokens)
            self._plain[name] = Setting(name.lower(), text, self._source.place(first.line))
        return rest

    def _filled(self, word: Word, *, split: bool = True) -> list[Token]:
        """The words that a word becomes: an unquoted variable may be many."""
        text, only = "", len(word.pieces) == 1
        self._line = word.line
        pieces = _joined(word.pieces)
        if split and len(pieces) == 1 and pieces[0][1] != "'":
            whole = _VARIABLE.fullmatch(pieces[0][0])
            known = self._variables.get(self._name_of(whole)) if whole else None
            if known is not None and not (pieces[0][1] and only and "@" not in pieces[0][0]):
                return list(known) if pieces[0][1] else [piece for token in known for piece in _pieces(token)]
        for piece, quote in pieces:
            text += piece if quote == "'" else _VARIABLE.sub(self._value, piece)
        return [Token(text, word.line)]

    def _name_of(self, match: re.Match[str]) -> str:
        if match["name"]:
            return match["name"]
        inside = _DEFAULT.match(match["inside"] or "")
        return inside["name"] if inside else ""

    def _value(self, match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return _computed(_VARIABLE.sub(self._value, match["sum"]), self._variables) or match[0]
        name = self._name_of(match)
        if tokens := self._variables.get(name):
            return " ".join(one.text for one in tokens)
        parts = _DEFAULT.match(match["inside"] or "")
        if parts is None or parts["default"] is None:
            return match[0]
        filled = _VARIABLE.sub(self._value, parts["default"].strip("\"'"))
        if parts["how"] == "=":  # `${X:=3}` sets it, too
            self._variables[name] = [Token(filled, self._line)]
        return filled

    def _options(self, tokens: list[Token]) -> Iterator[Setting]:
        """`--name value ...`, `--name=value`, a switch without a value; `name=value` behind the program."""
        tokens = [piece for token in tokens for piece in (_pieces(token) if " --" in token.text else [token])]
        place, behind = 0, False
        while place < len(tokens):
            token = tokens[place]
            place += 1
            behind = behind or token.text.endswith(SCRIPTS)
            if not _OPTION.match(token.text):
                if behind and _OVERRIDE.match(token.text):
                    name, _, value = token.text.partition("=")
                    yield from self._setting(name.lstrip("+"), [value], token.line)
                continue
            name, equals, value = token.text.partition("=")
            values = [value] if equals else []
            while not equals and place < len(tokens) and not _OPTION.match(tokens[place].text):
                if values and _is_behind(tokens[place].text, name, values[0]):
                    break
                values.append(tokens[place].text)
                place += 1
            yield from self._setting(name.lstrip("-"), values, token.line)

    def _setting(self, name: str, values: list[str], line: int) -> Iterator[Setting]:
        known = [one for one in values if "$" not in one]
        if len(known) == len(values):
            value = True if not values else values[0] if len(values) == 1 else tuple(values)
            yield Setting(name, value, self._source.place(line))


def _behind_a_pattern(words: list[Word]) -> list[Word]:
    """A statement without the pattern of a `case` before it: `--model )` asks for an option and gives none."""
    if not words or not words[0].raw.startswith("-"):
        return words
    end = next((at for at, word in enumerate(words) if word.raw.endswith(")") and "(" not in word.raw), -1)
    return words[end + 1 :]


def _without_redirections(words: list[Word]) -> list[Word]:
    """A statement without `> file`: what stands behind an option before it is no value of it."""
    signs = {at for at, word in enumerate(words) if word.pieces[0][1] == "" and _REDIRECTION.match(word.raw)}
    files = {at + 1 for at in signs if words[at].raw[-1] in "<>"}
    return [word for at, word in enumerate(words) if at not in signs | files]


def _trains(words: list[Word]) -> bool | None:
    """Tell a command that runs a program of Python from one that only tests a model, and both from all others."""
    programs = [re.split(r"[^a-z]+", word.raw.rpartition("/")[2].lower()) for word in words if word.raw.endswith(".py")]
    if not programs:
        return None
    return not any({*words} & TESTING and "train" not in words for words in programs)


def _is_behind(text: str, option: str, first: str) -> bool:
    """Tell an argument of the program from one more value: a script, or a path or name behind a number.

    Options of data mix numbers and names: `--data-path 0.3 A 0.7 B`.
    """
    named = _NAME.fullmatch(text) is not None and "data" not in option
    return text.endswith(SCRIPTS) or (("/" in text or named) and _NUMBER.match(first) is not None)


def _joined(pieces: Pieces) -> Pieces:
    """Pieces of one quoting together."""
    joined: Pieces = []
    for text, quote in pieces:
        if joined and joined[-1][1] == quote:
            joined[-1] = joined[-1][0] + text, quote
        else:
            joined.append((text, quote))
    return joined


def _without_name(pieces: Pieces) -> Pieces:
    """The pieces of `NAME=value` behind the sign."""
    joined = _joined(pieces)
    first, quote = joined[0]
    rest = first.partition("=")[2]
    return [*([(rest, quote)] if rest else []), *joined[1:]]


def _pieces(token: Token) -> Iterator[Token]:
    """The words of a text, each with its line."""
    for match in re.finditer(r"\S+", token.text):
        text = match[0].strip("\"'")
        if text and text != "\\":
            yield Token(text, token.line + token.text.count("\n", 0, match.start()))


def _computed(text: str, variables: dict[str, list[Token]]) -> str:
    """A sum or product of whole numbers, "" for anything else; names stand for variables."""

    def value(name: re.Match[str]) -> str:
        return "".join(token.text for token in variables.get(name[0], [])) or name[0]

    try:
        return str(_number(ast.parse(re.sub(r"[A-Za-z_]\w*", value, text).strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return ""


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and (operation := OPERATORS.get(type(node.op))):
        return operation(_number(node.left), _number(node.right))
    raise ValueError(ast.dump(node))


# The words of a shell script with their lines: quotes, comments, continued lines, here-documents; nothing is run.

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


class _ScriptWords:
    """The statements of a script, each a list of words; those of an array in parentheses stay one statement."""

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
            elif letter.isspace() or (letter in ENDS and not (letter == "|" and self._depth)):
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
