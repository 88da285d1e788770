"""A run in either language: the same folder, and each sentence of it in the language of whoever reads it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from align.cli.main import main
from align.words.catalogue import Sentence, Text, as_sentence, changed, in_language, say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = '[reference]\nlog = "a.log"\n[candidate]\nlog = "{log}"\n[run]\nrungs = ["curve"]\n'
CHINESE = re.compile("[\u4e00-\u9fff]")
OF_A_MOMENT = ("created", "seconds", "since", "pid", "host", "sha256", "size", "mtime_ns", "ctime_ns")


@pytest.fixture(autouse=True)
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, slope in (("a.log", 0.0), ("b.log", 0.5)):
        lines = (f"step {step} loss {2 / (step + 1) + slope * step / 100:.6f}\n" for step in range(100))
        Path(name).write_text("".join(lines), encoding="utf-8")


def lasting(data: Any) -> Any:
    """A document without what is of one moment."""
    if isinstance(data, list):
        return [lasting(one) for one in data]
    if isinstance(data, dict):
        return {name: lasting(one) for name, one in data.items() if name not in OF_A_MOMENT}
    return data


def files_of(folder: str) -> dict[str, Any]:
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace(folder, "RUN")
            found[path.relative_to(folder).as_posix()] = lasting(json.loads(text)) if path.suffix == ".json" else text
    return found


@pytest.mark.parametrize(("log", "code"), [("b.log", 1), ("a.log", 2)])
def test_a_run_folder_is_the_same_in_both_languages(log: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("align.toml").write_text(PROJECT.format(log=log), encoding="utf-8")
    for language in ("en", "zh"):
        assert main(["run", "--lang", language, "--folder", f"run-{language}"]) == code
        assert (CHINESE.search(capsys.readouterr().out) is not None) is (language == "zh")
    english, chinese = files_of("run-en"), files_of("run-zh")
    assert "shown/curve.txt" in english
    assert english == chinese
    assert not CHINESE.search(str(chinese))


def test_why_a_rung_could_not_run_is_told_in_the_language_of_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    Path("align.toml").write_text(PROJECT.format(log="a.log"), encoding="utf-8")
    assert main(["run", "--lang", "en"]) == 2
    assert "both logs are one file: a.log" in capsys.readouterr().out
    assert main(["run", "--lang", "zh"]) == 2
    told = capsys.readouterr().out
    assert "是同一个文件：a.log" in told
    assert "提示：" in told
    assert "one file" not in told


def test_a_text_is_kept_as_a_sentence_where_its_facts_can_be_kept() -> None:
    text = say("ladder.part_agrees")
    assert isinstance(text, Text)
    kept = as_sentence(text)
    assert isinstance(kept, Sentence)
    assert in_language(kept, "zh") == in_language(text, "zh")
    assert isinstance(as_sentence(changed(text, lambda one: one)), Sentence)
    assert not isinstance(as_sentence(changed(text, lambda one: one + "!")), Sentence)
    assert not isinstance(as_sentence(Text("x", "some.key", {"fact": object()})), Sentence)
    assert as_sentence("a plain text") == "a plain text"


ORIGINAL = (
    "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
)
PORT = ORIGINAL.replace("torch", "mindspore").replace("Module", "Cell")


def test_what_init_writes_has_comments_in_the_language_and_equal_keys_values_and_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("original.py").write_text(ORIGINAL + "\n\nnet = Net(3)\n", encoding="utf-8")
    Path("port.py").write_text(PORT, encoding="utf-8")
    written = {}
    for language in ("en", "zh"):
        assert main(["init", "--overwrite", "--lang", language]) == 0
        written[language] = [Path(name).read_text(encoding="utf-8") for name in ("align.toml", "sides.py")]
        Path("sides.py").unlink()
        capsys.readouterr()
    (english, its_code), (chinese, code) = written["en"], written["zh"]
    assert not CHINESE.search(english + its_code)
    assert len(re.findall("#.*[\u4e00-\u9fff]", chinese)) > 10
    assert tomllib.loads(english) == tomllib.loads(chinese)
    assert [line.partition("#")[0] for line in english.splitlines()][1:] == [
        line.partition("#")[0] for line in chinese.splitlines()
    ][1:]
    texts = re.compile(r'""".*?"""|\(".*?"\)')
    assert CHINESE.search(code)
    assert texts.sub("", code) == texts.sub("", its_code)
