"""Texts by key, one folder of catalogues a language, all with the same keys.

Code names a key such as `forward.title` and gives the facts: `[forward]` is a table of one of the files, `title` a text
of it. So another language is another folder. Texts are filled in by `str.format`, with formats of their own:

    - `{n:count layer}` is `1 layer`, `2 layers`; `{n:count entry/entries}` names the plural;
    - `{n:one is/are}` is `is` for 1, else `are`;
    - `{names:few}` are the first few of a list, `{names:join ; }` all of them with `; ` between;
    - `{x:figure}` is a number of six digits, `NaN`, `Inf` or `-Inf`;
    - `{name:if , with {name}}` is the text behind `if ` where there is something, else nothing.

What is measured is worded in English, and keeps its keys and facts. It is worded anew in the language of the reader
(`speak`) where it leaves the program: in the terminal, a report, a notebook. So results do not hang on a language.
"""

from __future__ import annotations

import contextlib
import os
import string
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.words.message_words import ChangedText, Sentence, Text, counted, first_few

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
VARIABLE = "ALIGN_LANG"
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


_now: ContextVar[str] = ContextVar("spoken", default=ENGLISH)  # of `say`, in each thread its own
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


def word(section: str, name: str) -> str:
    """Return the text of a word that comes from data (an outcome, a source of limits); the word itself if unknown."""
    return str(catalogue(_now.get()).get(section, {}).get(name.replace(" ", "_"), name))


def in_language(given: str | Mapping[str, Any], language: str) -> str:
    """Return a text, or the `key` and `facts` of one that a document keeps, in another language.

    What no catalogue knows, as that of another version, stays as it is.
    """
    if isinstance(given, ChangedText):
        return given.change(in_language(given.source, language))
    if isinstance(given, Text):
        return str(given) if language == ENGLISH else _reworded(given, language)
    if isinstance(given, Mapping):
        return _filled(given["key"], given["facts"], language)
    if language == ENGLISH or given.count(" ") < 2:  # shorter ones may be names in the user's files
        return given
    return phrases(language).get(given, given)


def _reworded(given: Text, language: str) -> str:
    try:
        return _filled(given.key, given.facts, language)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):  # of a document that another version wrote
        return str(given)


@cache
def phrases(language: str) -> dict[str, str]:
    """English texts that stand in no catalogue (help, and the reasons of rules in `mappings/`) in another language."""
    folder = Path(__file__).parent / "phrases" / language
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    return {one["en"]: one[language] for table in tables for one in table["text"]}


def keys_of(text: str) -> set[str]:
    """Return the keys of a sentence and of all sentences among its facts; of other texts none.

    >>> keys_of(joined("; ", ["one", "other"]))
    {'sentence.joined'}
    """
    return {text.key}.union(*map(_keys_of_fact, text.facts.values())) if isinstance(text, Text) else set()


def _keys_of_fact(fact: object) -> set[str]:
    if isinstance(fact, (list, tuple)):
        return set().union(*map(_keys_of_fact, fact))
    return keys_of(fact) if isinstance(fact, str) else set()


def catalogue(language: str = ENGLISH) -> dict[str, dict[str, Any]]:
    """All texts of one language by table and name; a table stands in one file."""
    return _read(language)


@cache
def _read(language: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(__file__).with_name(language).glob("*.toml")):
        found |= tomllib.loads(path.read_text(encoding="utf-8"))
    return found


def _filled(key: str, facts: Mapping[str, Any], language: str) -> str:
    section, _, rest = key.partition(".")
    name, _, place = rest.partition("#")
    template = catalogue(language)[section][name]
    if place:
        template = template[int(place)]
    return _Formatter(language).vformat(template, (), facts) if facts else template


class _Formatter(string.Formatter):
    """Fills a text in, with the formats of this module."""

    def __init__(self, language: str) -> None:
        self._language = language

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one fact; sentences among the facts are those of the language."""
        if isinstance(value, (str, dict)):
            value = in_language(value, self._language)
        if isinstance(value, (list, tuple)):
            value = [in_language(one, self._language) if isinstance(one, (str, dict)) else one for one in value]
        name, _, rest = format_spec.partition(" ")
        own = _FORMATS.get(name)
        if value is None and own is not _if:  # stands within an `if`, whose text is made before it is left out
            return str(value)
        if own is _counted and self._language != ENGLISH:
            return f"{value:,} {rest.partition('/')[0]}"  # a measure word has no plural
        if own is None and format_spec and value in NOT_FINITE:
            value = float(value)
        return str(super().format_field(value, format_spec)) if own is None else own(value, rest)


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
