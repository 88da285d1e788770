"""`align tokens` on the command line: exit codes, its table in both languages, and its document."""

from __future__ import annotations

import json

import pytest

from align.cli.main import main

COUNT = 40


def write(path, values, extra=(), first=0):
    lists = (range(number, number + COUNT) for number in range(first, first + 12))
    rows = ({"tokens": [*extra, *ids], "logprobs": values} for ids in lists)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def sides(tmp_path):
    values = [-0.1 * (place % 7) - 0.05 for place in range(COUNT)]
    return {
        "reference": write(tmp_path / "a.jsonl", values),
        "same": write(tmp_path / "b.jsonl", values),
        "shifted": write(tmp_path / "c.jsonl", [*values[1:], values[0]]),
        "template": write(tmp_path / "d.jsonl", values, (900, 901)),
        "other": write(tmp_path / "e.jsonl", values, first=5000),
    }


@pytest.mark.parametrize(
    ("candidate", "code", "said"),
    [
        ("same", 0, "aligned: both sides give the same log-probabilities"),
        ("shifted", 1, "the token 1 place later"),
        ("template", 1, "[900, 901]"),
        ("other", 2, "no token list in common"),
    ],
)
def test_a_page_of_100_columns_says_what_was_found(candidate, code, said, sides, capsys):
    assert main(["tokens", sides["reference"], sides[candidate]]) == code
    told = capsys.readouterr()
    assert said in " ".join((told.out + told.err).split())
    assert all(len(line) <= 100 for line in told.out.splitlines())


def test_the_document_has_its_schema_and_speaks_chinese(sides, tmp_path, capsys, monkeypatch):
    import jsonschema

    run = tmp_path / "run"
    assert main(["tokens", sides["reference"], sides["shifted"], "--run", str(run), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert main(["schema", "tokens"]) == 0
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert document["causes"][0]["id"] == "shift"
    assert [part["name"] for part in document["positions"]] == ["0-15", "16-31", "32-63"]
    monkeypatch.setenv("ALIGN_LANG", "zh")
    assert main(["tokens", sides["reference"], sides["shifted"]]) == 1
    assert "未对齐：错位" in capsys.readouterr().out


def test_one_side_alone_is_looked_at_for_garbled_text(sides, capsys):
    assert main(["tokens", sides["reference"]]) == 0
    assert "OK: no text is garbled" in capsys.readouterr().out
