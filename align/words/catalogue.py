"""Texts by key, one folder of catalogues a language, all with the same keys; and what messages share.

Code names a key such as `forward.title` and gives the facts: `[forward]` is a table of one of the files, `title` a text
of it. So another language is another folder. Texts are filled in by `str.format`, with formats of their own:

    - `{n:count layer}` is `1 layer`, `2 layers`; `{n:count entry/entries}` names the plural;
    - `{n:one is/are}` is `is` for 1, else `are`;
    - `{names:few}` are the first few of a list, `{names:join ; }` all of them with `; ` between;
    - `{x:figure}` is a number of six digits, `NaN`, `Inf` or `-Inf`;
    - `{name:if , with {name}}` is the text behind `if ` where there is something, else nothing;
    - `{side:word}` is a word of data such as `reference` as the table `[word]` of the language has it, `{state:word
      rung_state}` as another table; `{sides:words 、}` and `{kinds:words 、 counting}` are several, with a mark
      between; `{title:phrase}` is what a rule calls a thing, in a word or two. Languages other than English need them;
    - `{--map}` is an option as the running command calls it, `{--map:given  (--map)}` the text behind `given ` where it
      has that option, else nothing.

A hint is a text, or a list of clauses, of which each is a text or a list of alternatives. Code that several commands
share raises one error for all of them: what names an option that the running command lacks is left out.

What is measured is worded in English, and keeps its keys and facts. It is worded anew in the language of the reader
(`speak`) where it leaves the program: in the terminal, a report, a notebook. So results do not hang on a language.
"""

from __future__ import annotations

import contextlib
import os
import re
import string
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from itertools import islice
from math import isfinite, isnan
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import rich.text
    from typing_extensions import Self

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES_IN_SENTENCE: Final = 3
"""A sentence lists this many names before it breaks off with dots.
Choice: more would push what the sentence says out of sight, fewer would show no pattern in the names."""
MOST_NAMES_COMPARED: Final = 50_000
"""So many pairs of names are compared to propose names that are close to a wrong one.
Measured: that many take a few seconds, which is as long as a message about wrong names may take."""
LONGEST_SHOWN_LINE: Final = 2_000
"""A line that is printed is cut to this many characters.
Choice: twenty lines of a page; names of files may be megabytes long, and no reader goes on so far."""

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
VARIABLE = "ALIGN_LANG"
ELLIPSIS = "…"  # where a text is cut
Note = tuple[str, dict[str, Any]]  # the key of a text, and its facts: what to say, before it is worded
NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # what documents hold in the place of such numbers


def say(key: str, **facts: object) -> str:
    """Return the text of a key such as `forward.title` with the facts filled in; raises KeyError for an unknown key.

    It is in English, and in the reader's language inside of `speaking`.
    """
    return Text(_filled(key, facts, _now.get()), key, facts)


def texts(key: str, **facts: object) -> tuple[str, str]:
    """Return the two texts of a key, an error's message (or reason) and its hint, with the facts filled in.

    They are in English wherever the error is made; it is worded anew where it is told.
    """
    message, hint = (Text(_filled(f"{key}#{place}", facts, ENGLISH), f"{key}#{place}", facts) for place in (0, 1))
    return message, hint


_HEADING = re.compile(r"^\[(\w+)", re.MULTILINE)  # of a table, in a catalogue
_now: ContextVar[str] = ContextVar("spoken", default=ENGLISH)  # of `say`, in each thread its own
# Of the command that is told of an error: what it calls an option of some command, "" for one that it lacks.
_option: ContextVar[Callable[[str], str]] = ContextVar("options", default=str)
_reader = [""]  # of the process; "": not chosen, that of the environment


def speak(language: str) -> str:
    """Choose the reader's language; "" leaves it to the environment. Returns what was chosen before."""
    before, _reader[0] = _reader[0], language
    return before


def reader_language() -> str:
    """The language that was chosen, else that of `ALIGN_LANG`, else that of messages in the locale, else English."""
    wanted = (_reader[0], os.environ.get(VARIABLE, ""), *map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG")))
    first = next(filter(None, wanted), "")
    return next((one for one in LANGUAGES if first.lower().startswith(one)), ENGLISH)


def spoken() -> str:
    """The language that `say` uses now."""
    return _now.get()


@contextlib.contextmanager
def speaking(language: str = "") -> Iterator[str]:
    """Have `say` use a language, by default the reader's, for as long as the block runs, and give it."""
    token = _now.set(language or reader_language())
    try:
        yield _now.get()
    finally:
        _now.reset(token)


def sentence(key: str, **facts: Any) -> Sentence:
    """Return the text of a key as `say` does, with its key and facts, which results keep beside it.

    >>> sentence("verdict.line", outcome="aligned", reason="all agree").key
    'verdict.line'
    """
    return Sentence(_filled(key, facts, ENGLISH), key, facts)


def joined(separator: str, parts: Sequence[str]) -> str:
    """Return sentences one after another; the one part where there is only one.

    >>> joined("; ", ["one", "other"])
    'one; other'
    """
    return parts[0] if len(parts) == 1 else sentence("sentence.joined", parts=parts, separator=separator)


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """Return names or clauses one after another, with the marks that the language of `say` has between them.

    >>> listed(["one", "other"], "; ")
    'one; other'
    """
    if _now.get() == ENGLISH:
        return separator.join(items)
    return say("sentence.joined", parts=[*items], separator=separator)


def few(names: Sequence[str], most: int = NAMES_IN_SENTENCE) -> str:
    """Return the first `most` names, in the same way, and a sign that there are more.

    >>> few(["a", "b", "c", "d"])
    'a, b, c, ...'
    """
    return say("sentence.few", names=[*names[:most]], more=len(names) > most)


def word(section: str, name: str) -> str:
    """Return the text of a word that comes from data (an outcome, a source of limits); the word itself if unknown."""
    return _word(name, section, _now.get())


def _word(name: str, section: str, language: str) -> str:
    return str(table(section, language).get(name.replace(" ", "_"), name))


def in_language(given: str | Mapping[str, Any], language: str) -> str:
    """Return a text, or the `key` and `facts` of one that a document keeps, in another language.

    What no catalogue knows, as that of another version, stays as it is.
    """
    if isinstance(given, HintOfCommand):
        return given.in_language(language)
    if isinstance(given, ChangedText):
        return given.change(in_language(given.source, language))
    if isinstance(given, Text):
        return str(given) if language == ENGLISH and _option.get() is str else _reworded(given, language)
    if isinstance(given, Mapping):
        return _filled(given["key"], given["facts"], language)
    if language == ENGLISH or given.count(" ") < 2:  # shorter ones may be names in the user's files
        return given
    return phrases(language).get(given, given)


def _reworded(given: Text, language: str) -> str:
    try:
        if not given.facts and (template := _filled(given.key, {}, ENGLISH)) != given and "{" in template:
            return str(given)  # its facts are lost
        return _filled(given.key, given.facts, language)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):  # of a document that another version wrote
        return str(given)


def phrase(text: str) -> str:
    """Return what a rule calls a thing, in the language of `say`; of texts of three words `in_language` knows it."""
    return text if _now.get() == ENGLISH else phrases(_now.get()).get(text, text)


@cache
def phrases(language: str, file: str = "*") -> dict[str, str]:
    """English texts that stand in no catalogue (help, and the reasons of rules in `mappings/`) in another language."""
    folder = Path(__file__).parent / "phrases" / language
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{file}.toml"))]
    return {one["en"]: one[language] for table in tables for one in table["text"]}


def catalogue(language: str = ENGLISH) -> dict[str, dict[str, Any]]:
    """All texts of one language by table and name; a table stands in one file."""
    return {name: table for path in dict.fromkeys(_places(language).values()) for name, table in _read(path).items()}


def table(name: str, language: str = ENGLISH) -> dict[str, Any]:
    """One table; files are parsed as they are asked for, since all of them take as long as importing NumPy."""
    place = _places(language).get(name)
    return {} if place is None else _read(place)[name]


@cache
def _places(language: str) -> dict[str, Path]:
    """The file in which each table stands."""
    files = sorted(Path(__file__).with_name(language).glob("*.toml"))
    return {name: path for path in files for name in _HEADING.findall(path.read_text(encoding="utf-8"))}


@cache
def _read(path: Path) -> dict[str, dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _filled(key: str, facts: Mapping[str, Any], language: str) -> str:
    section, _, rest = key.partition(".")
    name, _, place = rest.partition("#")
    template = table(section, language)[name]
    if place:
        template = template[int(place)]
    formatter = _Formatter(language)
    if isinstance(template, str):
        return formatter.vformat(template, (), facts) if facts or "{--" in template else template
    return _hint(template, lambda text: formatter.vformat(text, (), facts), language)


def _hint(clauses: Sequence[str | Sequence[str]], fill: Callable[[str], str], language: str) -> str:
    """The clauses, and of each the alternatives, that name no option which the command lacks."""
    between_clauses = _filled("hint_mark.between_clauses", {}, language)
    between_alternatives = _filled("hint_mark.between_alternatives", {}, language)
    filled = (
        between_alternatives.join(filter(None, _of_command([clause] if isinstance(clause, str) else clause, fill)))
        for clause in clauses
    )
    return between_clauses.join(filter(None, filled))


def _of_command(parts: Iterable[Any], fill: Callable[[Any], Any]) -> Iterator[Any]:
    """The parts, filled in, that name no option which the command lacks."""
    for part in parts:
        with contextlib.suppress(_LacksOptionError):
            yield fill(part)


class _LacksOptionError(Exception):
    """The running command lacks the option that a part of a hint names."""


class _Formatter(string.Formatter):
    """Fills a text in, with the formats of this module."""

    def __init__(self, language: str) -> None:
        self._language = language

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Look a fact up, or what the running command calls an option."""
        if isinstance(key, str) and key.startswith("--"):
            return _OptionName(key)
        return super().get_value(key, args, kwargs)

    def _worded(self, value: Any) -> Any:
        return in_language(value, self._language) if isinstance(value, (str, dict)) else value

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one fact; sentences among the facts are those of the language."""
        if isinstance(value, _OptionName):
            return format(value, format_spec)
        value = self._worded(value)
        if isinstance(value, (list, tuple)):
            value = [*_of_command(value, self._worded)]
        name, _, rest = format_spec.partition(" ")
        formatter = _FORMATS.get(name)
        if value is None and formatter is not _if:  # stands within an `if`, whose text is made before it is left out
            return str(value)
        if self._language != ENGLISH and (other := _OF_OTHER_LANGUAGES.get(name)):
            return other(value, rest, self._language)
        if formatter is None and format_spec and value in NOT_FINITE:
            value = float(value)
        return str(super().format_field(value, format_spec)) if formatter is None else formatter(value, rest)


class _OptionName(str):
    """An option that a hint names, formatted as the running command has it."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Its name, or the text of `given TEXT` with it; "" for such a text where the command lacks it."""
        name = _option.get()(str(self))
        if spec:
            return spec.removeprefix("given ").replace(self, name) if name else ""
        if not name:
            raise _LacksOptionError
        return name


def _counted(value: Any, nouns: str) -> str:
    noun, _, plural = nouns.partition("/")
    return counted(value, noun, plural)


def _one(value: Any, words: str) -> str:
    one, _, several = words.partition("/")
    return one if value == 1 else several


def _few(value: Any, _rest: str) -> str:
    return first_few(value)


def _joined(value: Any, separator: str) -> str:
    return separator.join(map(str, value))


def _if(value: Any, text: str) -> str:
    return text if value else ""


def _figure(value: Any, _rest: str) -> str:
    number = float(value)
    return f"{number:.6g}" if isfinite(number) else "NaN" if isnan(number) else "Inf" if number > 0 else "-Inf"


_FORMATS: dict[str, Callable[[Any, str], str]] = {
    "count": _counted,
    "one": _one,
    "few": _few,
    "join": _joined,
    "if": _if,
    "figure": _figure,
}


def _measured(value: Any, nouns: str, _language: str) -> str:
    return f"{value:,} {nouns.partition('/')[0]}"  # a measure word has no plural


def _few_of(value: Any, _rest: str, language: str) -> str:
    facts = {"names": value[:NAMES_IN_SENTENCE], "more": len(value) > NAMES_IN_SENTENCE}
    return _filled("sentence.few", facts, language)


def _word_of(value: Any, section: str, language: str) -> str:
    return _word(str(value), section or "word", language)


def _words_of(value: Any, rest: str, language: str) -> str:
    separator, _, section = rest.partition(" ")
    return separator.join(_word(str(one), section or "word", language) for one in value)


def _phrase_of(value: Any, _rest: str, language: str) -> str:
    return phrases(language).get(str(value), str(value))


_OF_OTHER_LANGUAGES: dict[str, Callable[[Any, str, str], str]] = {
    "count": _measured,
    "few": _few_of,
    "word": _word_of,
    "words": _words_of,
    "phrase": _phrase_of,
}


# What messages share: a number with its noun, a list cut to a readable length, a sentence that keeps its facts.


class Text(str):
    """Text with the `key` and the `facts` that give it, so that it can be made anew in another language.

    Facts are numbers, strings, texts, and lists of these.

    >>> one = Text("2 layers differ", "forward_verdict.layers_differ", {"count": 2})
    >>> one, one.key, one.facts
    ('2 layers differ', 'forward_verdict.layers_differ', {'count': 2})
    """

    __slots__ = ("facts", "key")
    key: str
    facts: Mapping[str, Any]

    def __new__(cls, text: str, key: str, facts: Mapping[str, Any]) -> Self:
        """Keep the key and the facts beside the text."""
        self = super().__new__(cls, text)
        self.key, self.facts = key, facts
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """For copies and pickles."""
        return str(self), self.key, self.facts


class Sentence(Text):
    """A text of a result, whose document keeps the key and the facts beside it; one that code acts on has a class."""

    __slots__ = ()

    @classmethod
    def of(cls, text: Sentence) -> Self:
        """The same as a sentence of this class."""
        return cls(str(text), text.key, text.facts)


class ChangedText(Text):
    """A text as a function leaves it, which is called anew on the text in another language."""

    __slots__ = ("change", "source")
    change: Callable[[str], str]
    source: Text

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles, of which other languages have the text without the change."""
        return Text, (str(self), self.key, self.facts)


class HintOfCommand(Text):
    """A hint without what names options that the running command lacks; whole, if nothing would be left of it."""

    __slots__ = ("named", "source")
    named: Callable[[str], str]
    source: Text

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles, of which other languages have the whole hint."""
        return Text, (str(self), self.key, self.facts)

    def in_language(self, language: str) -> str:
        """What is left of it in a language."""
        token = _option.set(self.named)
        try:
            left = in_language(self.source, language)
        except _LacksOptionError:
            left = ""
        finally:
            _option.reset(token)
        return left or in_language(self.source, language)


def as_sentence(text: str) -> str:
    """A text as a sentence that documents keep, if its facts are data that they can hold; else as it is."""
    whole = text.source if isinstance(text, ChangedText) and text == text.source else text
    if isinstance(whole, Text) and not isinstance(whole, ChangedText) and all(map(_is_data, whole.facts.values())):
        return Sentence(str(whole), whole.key, whole.facts)
    return text


def _is_data(fact: object) -> bool:
    if isinstance(fact, (list, tuple)):
        return all(map(_is_data, fact))
    return fact is None or isinstance(fact, (str, int, float, PurePath))


def text_of(error: ValueError) -> str:
    """What an error of Python's own says; `str` of it would lose what it was worded from."""
    return error.args[0] if len(error.args) == 1 and isinstance(error.args[0], str) else str(error)


def changed(text: str, change: Callable[[str], str]) -> str:
    """The text as `change` leaves it, in any language.

    >>> one = changed(Text("give --key", "some.hint", {}), lambda hint: hint.replace("--key", "--reference-key"))
    >>> one, one.key
    ('give --reference-key', 'some.hint')
    """
    if not isinstance(text, Text):
        return change(text)
    made = ChangedText(change(str(text)), text.key, text.facts)
    made.change, made.source = change, text
    return made


def hint_of_command(hint: str, named: Callable[[str], str]) -> str:
    """The hint as a command can follow it, in any language; `named` gives what it calls an option, "" for one it lacks.

    >>> hint = texts("cli_usage.no_project")[1]
    >>> hint, hint_of_command(hint, lambda option: "")
    ('write one with `align init`, or name it with --project FILE', 'write one with `align init`')
    """
    if isinstance(hint, HintOfCommand):  # of a command that another one runs
        return hint_of_command(hint.source, lambda option: (name := hint.named(option)) and named(name))
    if not isinstance(hint, Text):
        return hint
    whole = HintOfCommand(hint, hint.key, hint.facts)
    whole.named, whole.source = named, hint
    left = HintOfCommand(whole.in_language(ENGLISH), hint.key, hint.facts)
    left.named, left.source = named, hint
    return left


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 tensor`, `2 tensors`, `3,000 entries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """Text of a file with its control characters, which could steer a terminal, escaped."""
    return text if text.isprintable() else "".join(map(_visible, text))


def harmless(text: str, longest: int = LONGEST_SHOWN_LINE) -> str:
    """Text with every line printable and cut to `longest` characters; of control characters only its line breaks stay.

    >>> harmless("a long line", 6)
    'a long ...'
    """
    if len(text) <= longest and text.isprintable():
        return text
    return "\n".join(printable(line if len(line) <= longest else f"{line[:longest]} ...") for line in text.split("\n"))


def close_names(names: Iterable[str], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The known names that come closest to each of the first names; to look up more would take long."""
    from difflib import get_close_matches

    first = islice(names, max(MOST_NAMES_COMPARED // max(len(known), 1), 1))
    return {name: tuple(get_close_matches(name, known, NAMES_IN_SENTENCE)) for name in first}


def first_few(names: Sequence[str], most: int = NAMES_IN_SENTENCE) -> str:
    """The first `most` names, and dots if there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")


# Where a line may break: between Chinese characters too, for rich breaks it at spaces alone.


_OPENING = "（《〈「『【〔［｛"
_CLOSING = "，。、；：！？）》〉」』】〕］｝～"
_LETTERS = (
    "\u1100-\u115f\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WIDE = f"{_LETTERS}\u3000-\u3020\ufe10-\ufe6f\uff01-\uff60\uffe0-\uffe6"
# What stays on one line: a wide letter or a word of others, with the marks that open before it and close behind it.
# It is compiled when it is first used: that takes milliseconds.
UNIT = rf"\s*(?:[{_OPENING}“‘]*(?:[{_LETTERS}]|[^\s{_WIDE}]+)[{_CLOSING}”’…—%]*|[{_WIDE}“‘]+?)\s*"


@contextlib.contextmanager
def breaking_between_characters() -> Iterator[None]:
    """Have rich break lines between these units for as long as the block runs."""
    from rich import _wrap, text

    lines: Any = text.Text
    unit, strip = _wrap.re_word, lines.rstrip_end
    _wrap.re_word, lines.rstrip_end = re.compile(UNIT), _without_last_spaces
    try:
        yield
    finally:
        _wrap.re_word, lines.rstrip_end = unit, strip


def _without_last_spaces(line: rich.text.Text, width: int) -> None:
    """Take spaces off the end of a line that is wider than this; rich counts its letters, and cuts one off instead."""
    beyond = line.cell_len - width
    if beyond > 0:
        line.right_crop(min(beyond, len(line.plain) - len(line.plain.rstrip())))
