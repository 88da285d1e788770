"""Generated text that is garbled, without a reference: loops, other scripts, damaged characters, missing endings.

It is told of the tokens behind the prompt, and of the text where the file has it. A model that is loaded wrongly, or a
cache that is, shows so before anything is compared.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from align.tokens.thresholds import (
    DAMAGED_SHARE,
    FEW_DIFFERENT,
    FOREIGN_SHARE,
    LEAST_IN_BUCKET,
    LEAST_JUDGED,
    LEAST_LETTERS,
    LEAST_REPEATS,
    LONG_LOOP,
    LONGEST_PERIOD,
    LOOP_SHARE,
    MANY_SCRIPTS,
    SCRIPT_SHARE,
    UNLIKELY_TOKENS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Array
    from align.tokens.read_tokens import TokenLists

TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "FULLWIDTH": "LATIN", "MODIFIER": "LATIN", "MICRO": "GREEK"}


@dataclass(frozen=True, slots=True)
class GarbledText:
    """A list of a side whose text is garbled: the `fault` by its id, and its figures."""

    side: str
    list: int
    fault: str
    message: str
    facts: dict[str, float | int | str] = field(default_factory=dict)


def find_garbled(lists: TokenLists) -> list[GarbledText]:
    """Return what is garbled in the texts of a side, at most one fault a list."""
    garbled = []
    for index in range(lists.count):
        fault = next(_faults(lists, index), None)
        if fault is not None:
            name, facts = fault
            message = _WORDS[name](facts)
            garbled.append(GarbledText(lists.label, index, name, message, facts))
    return garbled


def _faults(lists: TokenLists, index: int) -> Iterator[tuple[str, dict[str, float | int | str]]]:
    text, prompt = lists.texts[index], int(lists.prompts[index])
    tokens = lists.list_tokens(index)[max(prompt, 0) :]
    words = tokens if len(tokens) else np.array([hash(word) for word in text.split()], np.int64)
    if lists.endings[index] and not len(words) and not text.strip():
        yield "empty", {"ending": lists.endings[index]}
    if text:
        yield from _of_characters(text)
    if len(words) >= LEAST_JUDGED:
        yield from _loops(words)
    elif not len(tokens) and len(text) >= LEAST_JUDGED:
        yield from _loops(np.frombuffer(text.encode("utf-32-le"), np.int32))
    if prompt >= 0 and len(tokens) >= LEAST_IN_BUCKET:
        values = lists.logprobs[lists.starts[index] + prompt : lists.starts[index + 1]]
        values = values[np.isfinite(values)]
        if len(values) >= LEAST_IN_BUCKET and values.mean() < UNLIKELY_TOKENS:
            yield "unlikely", {"mean": float(values.mean())}


def _loops(words: Array) -> Iterator[tuple[str, dict[str, float | int | str]]]:
    """The end repeats itself, or few words are different ones."""
    best = 0, 0
    for period in range(1, min(LONGEST_PERIOD, len(words) // LEAST_REPEATS) + 1):
        unlike = np.flatnonzero(words[period:] != words[:-period])
        length = len(words) - (int(unlike[-1]) + 1 if len(unlike) else 0)
        if length >= LEAST_REPEATS * period and length > best[0]:
            best = length, period
    length, period = best
    if period and (length >= LONG_LOOP or length >= LOOP_SHARE * len(words)):
        yield "loop", {"period": period, "times": length // period, "share": length / len(words)}
    elif len(np.unique(words)) < FEW_DIFFERENT * len(words):
        yield "few-words", {"different": len(np.unique(words)), "count": len(words)}


def _of_characters(text: str) -> Iterator[tuple[str, dict[str, float | int | str]]]:
    quarter = len(text) // 4
    first, rest = _scripts(text[:quarter]), _scripts(text[quarter:])
    whole = first + rest
    letters = sum(whole.values())
    damaged = sum(text.count(char) for char in set(text) if _is_damaged(char))
    if damaged > max(DAMAGED_SHARE * len(text), 1):
        yield "damaged", {"count": damaged, "share": damaged / len(text)}
    if letters < LEAST_LETTERS:
        return
    many = [script for script, count in whole.items() if count >= SCRIPT_SHARE * letters]
    if len(many) >= MANY_SCRIPTS:
        yield "scripts", {"scripts": ", ".join(sorted(many))}
    foreign = {script: count for script, count in rest.items() if first[script] == 0 < len(first)}
    if sum(foreign.values()) >= FOREIGN_SHARE * max(sum(rest.values()), LEAST_LETTERS):
        main = first.most_common(1)[0][0]
        yield "script-change", {"before": main, "after": max(foreign, key=lambda script: foreign[script])}


def _scripts(text: str) -> Counter[str]:
    """How many letters there are of each script."""
    counts: Counter[str] = Counter()
    for char, count in Counter(text).items():
        if char.isalpha():
            counts[_script(char)] += count
    return counts


@cache
def _script(char: str) -> str:
    name = unicodedata.name(char, "UNKNOWN").partition(" ")[0].partition("-")[0]
    return TOGETHER.get(name, name)


def _is_damaged(char: str) -> bool:
    return char == "\ufffd" or (unicodedata.category(char) in ("Cc", "Co", "Cn", "Cs") and char not in "\n\r\t")


_WORDS = {
    "empty": lambda facts: sentence("garbled_text.empty", ending=facts["ending"]),
    "loop": lambda facts: sentence("garbled_text.loop", period=facts["period"], times=facts["times"]),
    "few-words": lambda facts: sentence("garbled_text.few_words", different=facts["different"], count=facts["count"]),
    "damaged": lambda facts: sentence("garbled_text.damaged", count=facts["count"], share=100 * facts["share"]),
    "scripts": lambda facts: sentence("garbled_text.scripts", scripts=facts["scripts"]),
    "script-change": lambda facts: sentence("garbled_text.change", before=facts["before"], after=facts["after"]),
    "unlikely": lambda facts: sentence("garbled_text.unlikely", mean=facts["mean"]),
}
