"""The Chinese texts: each English one has its twin, with the same facts and the field's terms; results are equal."""

from __future__ import annotations

import io
import json
import re
import string
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import align
from align.cli.command_tree import build_app
from align.cli.main import main
from align.core.documents import in_words
from align.errors import UsageError
from align.words.catalogue import (
    catalogue,
    few,
    first_few,
    in_language,
    listed,
    phrase,
    phrases,
    reader_language,
    say,
    speaking,
    spoken,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORDS = Path(align.__file__).parent / "words"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
# What stands in a text beside its sentence: facts, code, options, paths, patterns.
BESIDE = re.compile(r"\{[^{}]*\}|`[^`]*`|--?[\w-]+|[\w./\\\\]*[._/=\[\]()][\w./=\[\]()]*")
CHINESE = re.compile("[\u4e00-\u9fff]")
# An English term of one meaning, which every Chinese text says in one way.
TERMS = {
    "gradient": "梯度", "optimizer": "优化器", "learning rate": "学习率", "weight decay": "权重衰减", "tensor": "张量",
    "run folder": "运行目录", "project file": "工程文件", "map file": "映射文件", "shard": "分片", "momentum": "动量",
    "checkpoint": "权重文件",
}  # fmt: skip


def texts_of(language: str) -> dict[str, str]:
    """All texts of a language by key, errors in their two parts."""
    found = {}
    for section, table in catalogue(language).items():
        for name, text in table.items():
            found |= parts_by_place(f"{section}.{name}", text)
    return found


def parts_by_place(key: str, text: Any) -> dict[str, str]:
    if isinstance(text, str):
        return {key: text}
    return {at: part for place, one in enumerate(text) for at, part in parts_by_place(f"{key}#{place}", one).items()}


ENGLISH, ZH = texts_of("en"), texts_of("zh")


def facts_of(text: str) -> set[str]:
    """The facts that a text names, but for those that only choose a plural."""
    found = set()
    for _, name, form, _ in string.Formatter().parse(text):
        if name is not None:
            found |= ({name} if (form or "").partition(" ")[0] != "one" else set()) | facts_of(form or "")
    return found


def test_both_languages_have_the_same_keys_in_the_same_files() -> None:
    files = {language: {path.name for path in (WORDS / language).glob("*.toml")} for language in ("en", "zh")}
    assert files["en"] == files["zh"]
    assert ENGLISH.keys() == ZH.keys()


def test_each_twin_names_the_same_facts() -> None:
    assert len(ENGLISH) > 3000
    assert {
        key: facts_of(text) ^ facts_of(ZH[key]) for key, text in ENGLISH.items() if facts_of(text) != facts_of(ZH[key])
    } == {}


def test_no_english_sentence_is_left() -> None:
    def is_sentence(text: str) -> bool:
        return len(re.findall(r"[A-Za-z]{3,}", BESIDE.sub("", text))) > 3

    sentences = [key for key, text in ENGLISH.items() if is_sentence(text) and not text.startswith(("align ", "from "))]
    assert [key for key in sentences if not CHINESE.search(ZH[key])] == []
    run = re.compile(r"(?:\b[a-z]{2,}\b[ ,]+){4}")
    found = [key for key, text in ZH.items() if run.search(BESIDE.sub("", text)) and not text.startswith("align ")]
    assert found == []


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_always_the_same_word(term: str) -> None:
    assert f"{term}" in PAGE.split("## Chinese terms")[1]
    said = re.compile(rf"\b{term}s?\b", re.IGNORECASE)
    keys = [key for key, text in ENGLISH.items() if said.search(BESIDE.sub("", text))]
    assert keys
    missing = [key for key in keys if TERMS[term] not in ZH[key] and term not in ZH[key].lower()]
    assert len(missing) <= len(keys) // 10, missing  # a pronoun, or a shorter way to say it


def test_each_help_text_has_a_twin_and_none_is_left_over() -> None:
    tree = typer.main.get_command(build_app())
    commands = [tree, *tree.commands.values()]
    shown = {one.help for one in commands} | {tree.epilog}
    options = [one for command in commands for one in command.params]
    shown |= {getattr(one, said, None) for one in options for said in ("help", "rich_help_panel")}
    folder = WORDS / "phrases" / "zh"
    kept = [one["en"] for one in tomllib.loads((folder / "help.toml").read_text(encoding="utf-8"))["text"]]
    assert shown - {None, "", "Show this message and exit."} - {*kept} == set()
    assert {*kept} - shown == set()
    assert len(kept) == len(set(kept))


def test_each_text_of_the_notebook_has_a_twin_and_none_is_left_over() -> None:
    cells = json.loads((ROOT / "notebooks" / "report_template.ipynb").read_text(encoding="utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    kept = tomllib.loads((WORDS / "phrases" / "zh" / "notebook.toml").read_text(encoding="utf-8"))["text"]
    assert [one["en"] for one in kept] == prose
    for one in kept:
        assert in_language(one["en"], "zh") == one["zh"]
        assert re.match("#* ?", one["zh"])[0] == re.match("#* ?", one["en"])[0]
        assert re.findall("`[^`]+`", one["zh"]) == re.findall("`[^`]+`", one["en"])


def test_a_side_is_named_in_chinese() -> None:
    bare = re.compile(r"(?<!--)(?<!\[)(?<!\[dropped\.)\{sides?(?::(?:join|few)[^{}]*)?\}(?![\]-])")
    others = {  # a key of the user's file, names of both sides, a sentence, a text that is to name a file
        "job_fault.no_match", "job_fault.one_place", "map.ambiguous_group", "map_direction.sides_then",
        "settings_usage.no_name#0",
    }  # fmt: skip
    assert {key for key, text in ZH.items() if bare.search(text)} == others


def test_each_table_of_words_that_a_text_names_is_there() -> None:
    tables = {table for text in ZH.values() for table in re.findall(r":words? (?:\S )?([a-z_]+)\}", text)}
    assert len(tables) > 8
    assert tables <= catalogue("zh").keys()


WORDS_AS_THEY_ARE = (
    "certainty", "fact", "framework_fact", "memory_end", "module_state", "operator_class", "plugin_state", "reduction",
    "run_form", "scan_status", "separator", "short_step_kind", "sign", "switch_state",
)  # fmt: skip


@pytest.mark.parametrize("table", WORDS_AS_THEY_ARE)
def test_a_word_of_data_is_as_it_is_in_english(table: str) -> None:
    texts = catalogue("en")[table]
    assert {name: text.replace(" ", "_") for name, text in texts.items()} == {name: name for name in texts}


def test_measure_words_have_no_plural() -> None:
    with speaking("zh"):
        assert re.fullmatch(r"3,000 \S+", say("word.and_more", count=3000).strip()) is None
        assert "s" not in say("step_verdict.faults", count=3000, place="…", kind="").replace("…", "")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("ALIGN_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(variable, raising=False)
    np.savez("a.npz", **{"fc.weight": np.ones((2, 3), "f4"), "fc.bias": np.zeros(2, "f4")})
    np.savez("b.npz", **{"fc.weight": np.full((2, 3), 1.5, "f4"), "fc.bias": np.zeros(2, "f4")})
    for name, shift in (("a.log", 0.0), ("b.log", 0.5)):
        lines = (f"step {step} loss {2 / (step + 1) + shift * step / 100:.6f}\n" for step in range(100))
        Path(name).write_text("".join(lines), encoding="utf-8")


LINES = ["diff a.npz b.npz", "loss a.log b.log", "inspect a.npz", "inspect nothing.npz", "diff a.npz", "plugins"]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("line", LINES)
def test_a_result_and_its_exit_code_are_equal_in_both_languages(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*more: str) -> tuple[int, str, str]:
        code = main([*line.split(), *more])
        return code, *capsys.readouterr()

    def without_time(text: str) -> str:
        return re.sub(r'"created": "[^"]*"', "", text)

    english, chinese = said("--lang", "en"), said("--lang=zh")
    assert english[0] == chinese[0]
    assert CHINESE.search("".join(chinese[1:]))
    assert not CHINESE.search("".join(english[1:]))
    if line != "plugins":
        documents = said("--json", "--lang", "en"), said("--json", "--lang", "zh")
        assert without_time(documents[0][1]) == without_time(documents[1][1])


@pytest.mark.usefixtures("files")
def test_a_run_that_was_made_in_one_language_is_shown_in_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loss", "a.log", "b.log", "--run", "english", "--lang", "en"]) == 1
    assert main(["loss", "a.log", "b.log", "--run", "chinese", "--lang", "zh"]) == 1
    kept = [json.loads(Path(name, "loss.json").read_text(encoding="utf-8")) for name in ("english", "chinese")]
    assert kept[0] | {"created": ""} == kept[1] | {"created": ""}
    capsys.readouterr()
    for name in ("english", "chinese"):
        assert main(["report", name, "--markdown", f"{name}.md", "--lang", "zh"]) in (0, 1)
        assert CHINESE.search(Path(f"{name}.md").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("files")
def test_the_language_is_that_of_the_line_the_variable_the_project_and_the_locale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_chinese(*more: str) -> bool:
        main(["inspect", "a.npz", *more])
        return CHINESE.search(capsys.readouterr().out) is not None

    assert reader_language() == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert is_chinese()
    monkeypatch.setenv("LC_ALL", "C")
    assert not is_chinese()
    Path("align.toml").write_text('language = "zh"\n[reference]\nmodel = "a:b"\n', encoding="utf-8")
    assert is_chinese()
    Path("align.toml").write_text('[reference]\nlanguage = "zh"\n', encoding="utf-8")
    assert not is_chinese()  # a key of a table is another one
    Path("other.toml").write_text(' language = "zh"\n', encoding="utf-8")
    main(["lint", "a:b", "a:c", "--project", "other.toml"])
    assert CHINESE.search(capsys.readouterr().err)
    Path("align.toml").write_text('language = "zh"\n', encoding="utf-8")
    monkeypatch.setenv("ALIGN_LANG", "en")
    assert not is_chinese()
    assert is_chinese("--lang", "zh")
    assert main(["inspect", "a.npz", "--lang", "fr"]) == 2
    assert "en, zh" in capsys.readouterr().err


def test_a_phrase_of_a_rule_is_told_in_the_language_of_the_sentence_around_it() -> None:
    english, chinese = next((en, zh) for en, zh in phrases("zh").items() if en.count(" ") > 1)
    assert in_language(english, "zh") == chinese
    assert in_language(english, "en") == english
    assert in_language("no such phrase", "zh") == "no such phrase"


def test_a_title_of_one_word_is_told_where_a_text_says_that_it_is_one() -> None:
    assert in_language("global batch", "zh") == phrase("global batch") == "global batch"
    with speaking("zh"):
        assert (phrase("global batch"), phrase("no such title")) == ("全局 batch", "no such title")
        assert say("hyperparameters.why_line", title="global batch", why="…") == "全局 batch：…"


def test_a_thread_that_shows_leaves_the_language_of_others_alone() -> None:
    entered, left = threading.Event(), threading.Event()

    def show() -> None:
        with speaking("zh"):
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=show)
    thread.start()
    entered.wait(10)
    with speaking("en"):
        assert spoken() == "en"
    assert spoken() == "en"
    left.set()
    thread.join()
    assert spoken() == "en"


@pytest.mark.usefixtures("files")
def test_an_export_returns_the_same_result_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    main(["loss", "a.log", "b.log", "--run", "run"])
    capsys.readouterr()
    printed = []
    for language in ("en", "zh"):
        main(["report", "run", "--markdown", f"{language}.md", "--json", "--lang", language])
        printed.append(re.sub(r'"created": "[^"]*"', "", capsys.readouterr().out))
    assert printed[0] == printed[1]
    told = Path("zh.md").read_text(encoding="utf-8")
    assert "failed:" not in told
    assert "loss" in told


def test_names_in_files_are_no_phrases() -> None:
    assert in_words({"metrics": ["learning rate", "loss scale"]}, "zh") == {"metrics": ["learning rate", "loss scale"]}


def test_an_error_is_made_in_english_and_told_in_the_language_of_the_reader() -> None:
    with speaking("zh"):
        error = UsageError.of("cli_usage.language", language="fr", known=["en"])
    assert str(error) == "--lang fr is not known\nHint: write one of: en"
    assert CHINESE.search(error.in_language("zh"))


@pytest.mark.usefixtures("files")
def test_a_terminal_without_chinese_letters_is_told_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("ascii", "latin-1", "cp437"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict")
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["inspect", "a.npz", "--lang", "zh"]) == 0
        stream.flush()
        assert "Checkpoint" in stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("key", "facts", "english", "chinese"),
    [
        ("sentence.few", {"names": ["a", "b"], "more": True}, "a, b, ...", "a、b 等"),
        ("sentence.joined", {"parts": ["a", "b"], "separator": "; "}, "a; b", "a；b"),
        ("sentence.joined", {"parts": ["a", "b"], "separator": " or "}, "a or b", "a 或 b"),
        ("sentence.joined", {"parts": ["a", "b"], "separator": " | "}, "a | b", "a | b"),
        ("lint_effect.frozen", {"count": 2, "side": "reference"}, None, "2 个参数仅在标杆中被冻结，另一侧参与训练"),
        ("lint_effect.frozen", {"count": 2, "side": "a.py:Net"}, None, "2 个参数仅在a.py:Net中被冻结，另一侧参与训练"),
        ("forward_note.not_kept", {"sides": ["reference", "candidate"]}, None, "标杆和待比对侧的运行数据中未保存其值"),
    ],
)
def test_words_of_data_and_lists_are_those_of_the_language(
    key: str, facts: dict[str, object], english: str | None, chinese: str
) -> None:
    assert english in (None, in_language({"key": key, "facts": facts}, "en"))
    assert in_language({"key": key, "facts": facts}, "zh") == chinese


def test_lists_are_those_of_the_language_that_speaks() -> None:
    names = ["a", "b", "c", "d"]
    assert few(names) == first_few(names) == "a, b, c, ..."
    assert few(names, 4) == first_few(names, 4) == listed(names) == "a, b, c, d"
    with speaking("zh"):
        assert (few(names), few(names, 4), listed(names[:2], "; ")) == ("a、b、c 等", "a、b、c、d", "a；b")
