"""Texts by key: every key has a text, every text is used, and every fact that a text names is given."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

import align
from align.core.documents import in_words, to_json_data
from align.errors import UsageError
from align.words.catalogue import LANGUAGES, Sentence, catalogue, in_language, joined, say, sentence, word

TEXTS = [path.read_text(encoding="utf-8") for path in sorted(Path(align.__file__).parent.rglob("*.py"))]
FILES = (".toml", ".json", ".csv")  # names of files are no keys
# Two or more say it by their nature, or a text of its own says it of one; the totals are those of whole tensors.
NEVER_ONE = {
    "job_fault.doubled", "json_file.too_many_values",
    "culprit.unseen", "step.several", "step.several_apart", "step.agreeing",
    "plot.identical_elements",
}  # fmt: skip
CATALOGUES = sorted((Path(align.__file__).parent / "words" / "en").glob("*.toml"))


def in_the_code(pattern):
    return {found for text in TEXTS for found in re.findall(pattern, text)}


def used_keys():
    naming = [text for text in TEXTS if re.search(r"words\.catalogue import|def sentence\(|Error\.of\(", text)]
    keys = {key for text in naming for key in re.findall(r'(?<!names\[)(?<!known\.has\()"([a-z_]+\.[a-z_0-9]+)"', text)}
    keys |= {header.partition(":")[0] for text in naming for header in headers_of_columns(text)}
    return {key for key in keys if key.partition(".")[0] in catalogue() and not key.endswith(FILES)}


def headers_of_columns(text):
    """What calls of `table_columns` are given; "#" names itself."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    named = (call for call in calls if getattr(call.func, "id", "") == "table_columns")
    return {header for call in named for header in ast.literal_eval(call.args[0]).split()}


def sections_read_by_names_from_data():
    in_texts = {
        table for _, _, text in every_text("zh") for table in re.findall(r"\{\w+:words? (?:\S )?([a-z_]+)\}", text)
    }
    return in_the_code(r'word\("([a-z_]+)"') | in_the_code(r'f"([a-z_]+)\.\{') | in_texts


def test_every_key_in_the_code_has_a_text():
    keys = used_keys()
    assert len(keys) > 60
    for key in keys:
        section, _, name = key.partition(".")
        assert name in catalogue()[section], key


def test_every_text_is_used():
    keys, open_sections = used_keys(), sections_read_by_names_from_data()
    unused = [
        f"{section}.{name}"
        for section, texts in catalogue().items()
        if section not in open_sections
        for name in texts
        if f"{section}.{name}" not in keys
    ]
    assert unused == []


def test_every_fact_that_a_text_names_is_given():
    naming = [text for text in TEXTS if re.search(r"words\.catalogue import|Error\.of\(", text)]
    calls = [call for text in naming for call in calls_with_a_key(ast.parse(text))]
    assert len(calls) > 300
    for key, given in calls:
        section, _, name = key.partition(".")
        texts = catalogue()[section][name]
        named = set().union(*map(named_facts, parts_of(texts)))
        named = {one for one in named if one.isidentifier()}
        assert named == given, key


def calls_with_a_key(tree):
    """Keys in calls of `say`, `sentence`, `said`, `texts`, `of` of an error, with their facts; none with `**facts`."""
    for node in ast.walk(tree):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if name in ("say", "sentence", "said", "texts", "of"):
            key, given = node.args[0], {one.arg for one in node.keywords}
            if isinstance(key, ast.Constant) and None not in given:
                yield str(key.value), given


def named_facts(template):
    found = set()
    for _, name, spec, _ in string.Formatter().parse(template):
        if name is not None:
            found |= {name} | named_facts(spec or "")
    return found


def test_an_error_is_worded_by_a_key_of_two_texts():
    error = UsageError.of("names_usage.family_says_nothing", path="a.pth")
    assert error.message == "--family says nothing of a.pth: its names stay as they are"
    assert error.hint == "leave --family out, or name a destination of the other framework"


def test_a_table_of_texts_stands_in_one_file():
    tables = [
        line for path in CATALOGUES for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("[")
    ]
    assert len(tables) == len(set(tables)) == len(catalogue())


def test_no_article_stands_before_a_fact():
    lone = re.compile(r"\b[Aa]n? ['\"`(]*\{(?!\w+:(?:one|if) )")
    worded = [f"{section}.{name}" for section, name, text in every_text() if lone.search(text)]
    assert worded == []
    assert [found for text in TEXTS for found in re.findall(r"f\"(?:[^\"]* )?an? \{[^\"]*\"", text)] == []


def test_a_count_that_may_be_1_has_no_plural_verb_behind_it():
    text = " ".join(text for _, _, text in every_text())
    plurals = {plural for plural in re.findall(r":one \w+/(\w+)\}", text) if plural.islower()} - {"them", "they"}
    assert {"are", "were", "have", "differ"} <= plurals
    clause = r":count [^}]*\}(?:(?! that | may | and \{)[^.:;,(])*(?:, which)? "
    behind = re.compile(clause + "(?:" + "|".join(sorted(plurals)) + r")\b(?!\})")
    assert [(section, name) for section, name, text in every_text() if behind.search(text)] == []
    plain = (
        r"\{(?:count|total|faults|unlike)(?::,)?\} (?:[a-z]+ ){0,3}?[a-z]+s (?:" + "|".join(sorted(plurals)) + r")\b"
    )
    found = [f"{section}.{name}" for section, name, text in every_text() if re.search(plain, text)]
    assert [name for name in found if name not in NEVER_ONE] == []
    assert set(found) >= NEVER_ONE


def every_text(language="en"):
    for section, table in catalogue(language).items():
        for name, given in table.items():
            yield from ((section, name, text) for text in parts_of(given))


def parts_of(given):
    """A text, or those of an error: its message, and the clauses of its hint with their alternatives."""
    return [given] if isinstance(given, str) else [text for part in given for text in parts_of(part)]


def test_an_unknown_key_is_an_error_and_an_unknown_word_stays_itself():
    with pytest.raises(KeyError):
        say("word.nonsense")
    assert word("limit_source", "a new source") == "a new source"
    assert word("outcome", "not aligned") == "NOT ALIGNED"


def test_a_sentence_keeps_what_it_was_made_from():
    faults = sentence("step_verdict.faults", count=2, place="the loss", kind="loss")
    assert faults == "2 places are at fault; the first is the loss (loss)"
    origin = {"key": "step_verdict.faults", "facts": {"count": 2, "place": "the loss", "kind": "loss"}}
    assert to_json_data({"reason": faults, "notes": [faults, "a word of the user's"]}) == {
        "reason": str(faults),
        "reason_from": origin,
        "notes": [str(faults), "a word of the user's"],
        "notes_from": [origin, "a word of the user's"],
    }
    assert to_json_data({"facts": {"loss": faults, "x": "a name"}}) == {
        "facts": {"loss": str(faults), "x": "a name"},
        "facts_from": {"loss": origin},
    }
    assert in_language(origin, "en") == in_language(faults, "en") == faults
    assert in_language("a word of the user's", "en") == "a word of the user's"


def test_sentences_are_joined_and_made_anew_together():
    one = sentence("step_verdict.faults", count=1, place="x", kind="loss")
    both = joined("; ", [one, "said elsewhere"])
    assert both == "1 place is at fault: x (loss); said elsewhere"
    assert isinstance(both, Sentence)
    assert in_language(to_json_data({"a": both})["a_from"], "en") == both
    assert joined("; ", [one]) is one


@pytest.mark.parametrize(
    ("template", "facts", "text"),
    [
        ("{n:count entry/entries}", {"n": 1}, "1 entry"),
        ("{n:count entry/entries}", {"n": 3000}, "3,000 entries"),
        ("{n:one is/are}", {"n": 1}, "is"),
        ("{n:one is/are}", {"n": 0}, "are"),
        ("{names:few}", {"names": ["a", "b", "c", "d"]}, "a, b, c, ..."),
        ("{names:join ; }", {"names": ["a", "b"]}, "a; b"),
        ("all{name:if , with {name}}", {"name": "a cache"}, "all, with a cache"),
        ("all{name:if , with {name}}", {"name": ""}, "all"),
        ("{x:.3g} of {n:,}", {"x": 0.12345, "n": 1000}, "0.123 of 1,000"),
        ("{n:join , }", {"n": [1, 2]}, "1, 2"),
        ("all{n:if  behind {n:,}, {n:count step}}", {"n": None}, "all"),
        ("all{n:if  behind {n:,}, {n:count step}}", {"n": 2000}, "all behind 2,000, 2,000 steps"),
        ("{x:figure}, {y:figure}", {"x": 0.12345678, "y": float("inf")}, "0.123457, Inf"),
        ("{x:figure}, {y:.3g}", {"x": "NaN", "y": "-Infinity"}, "NaN, -inf"),
    ],
)
def test_formats_of_texts(template, facts, text, monkeypatch):
    for language in LANGUAGES:
        monkeypatch.setitem(catalogue(language)["sentence"], "tried", template)
    assert sentence("sentence.tried", **facts) == text


@pytest.mark.parametrize("facts", [{}, {"count": "many"}, {"count": 1, "place": {"key": "x", "facts": {}}}, []])
@pytest.mark.parametrize("key", ["step_verdict.faults", "step_verdict.of_another_version", "x", 3])
def test_what_no_catalogue_knows_stays_as_it_is(key, facts):
    document = {"reason": "2 places at fault", "reason_from": {"key": key, "facts": facts}}
    assert in_words(document, "en") == document
    assert in_words(document, "zh")["reason"] == "2 places at fault"
    assert in_words({"reason": "a text", "reason_from": {}}, "zh")["reason"] == "a text"
