"""Commands that pages show indented, beside their examples, do what the pages say."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest

from align.cli.main import main
from align.core.about import PACKAGE

DOCS = Path(__file__).parents[2] / "docs"
ROWS = "step,loss\n" + "".join(f"{step},{7 - step / 10}\n" for step in range(1, 31))


def commands_of(page: str, start: str = "align") -> list[list[str]]:
    """The words of each indented command of a page, without what a shell or a reader adds; placeholders are none."""
    lines = re.findall(rf"^    ({start} .*)$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    typed = [re.split(r"\s(?:2?>|#)", line)[0] for line in lines if not re.search(r"\b[A-Z]{3,}\b", line)]
    return [shlex.split(line)[1:] for line in typed]


def test_the_commands_of_the_page_of_the_command_line_end_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = {}
    for words in commands_of("command-line"):
        expected = 2 if "no.pth" in words else 0
        assert main(words) == expected, words
        printed[" ".join(words)] = capsys.readouterr().out
    assert len(printed) == 6
    for shell in ("bash", "zsh", "fish"):
        assert "inspect" in printed[f"--completion {shell}"]
    error, schema = json.loads(printed["inspect no.pth --json"]), json.loads(printed["schema error"])
    jsonschema.validate(error, schema)
    assert schema == json.loads((PACKAGE / "runs" / "schemas" / "error.schema.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**error, "code": "two"}, schema)


def test_the_codes_that_the_page_of_causes_explains_have_a_meaning(capsys):
    for words in commands_of("causes", "align explain"):
        assert main(words) == 0
        assert words[1] in capsys.readouterr().out


def test_the_page_of_the_report_writes_the_files_that_its_commands_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for side in ("torch", "mindspore"):
        Path(f"{side}.csv").write_text(ROWS)
    Path("align.toml").write_text(
        '[reference]\nlog = "torch.csv"\n[candidate]\nlog = "mindspore.csv"\n[run]\nrungs = ["curve"]\n'
    )
    assert main(["run"]) == 0
    commands = commands_of("report", "align report align-run")
    assert len(commands) == 2
    assert [main(words) for words in commands] == [0, 0]
    for words in commands:
        for option, name in pairwise(words):
            assert not option.startswith("--") or Path(name).exists(), name
