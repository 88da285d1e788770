"""`align validate` from the command line, with models of plain arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SIDES = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

WEIGHT = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def model(path, family, shift=0):
    layer = ArrayLayer(path, family, lambda x, weight: np.roll(x @ weight.T, shift, -1), {"weight": WEIGHT.copy()})
    return ArrayModel((layer,))


def reference():
    return model("fc", "torch.nn.Linear")


def port():
    return model("head", "mindspore.nn.Dense")


def wrong():
    return model("head", "mindspore.nn.Dense", 1)


def data(size=16, parts=2, scale=1.0):
    generator = np.random.default_rng(1)
    for _ in range(parts):
        x = generator.standard_normal((size, 4)).astype(np.float32)
        yield {"x": x * np.float32(scale)}, (x @ WEIGHT.T).argmax(-1)


def darker():
    return data(scale=0.5)


def nothing():
    return []


def unlabelled():
    yield np.ones((2, 4), np.float32)


def breaks():
    yield from data(parts=1)
    raise OSError("disk gone")


def lying(outputs, labels):
    raise RuntimeError("no such class")


def percent(outputs, labels):
    return 100.0 * (outputs.argmax(-1) == labels)
"""


@pytest.fixture(autouse=True)
def _sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sides.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def validate(candidate: str, *options: str, data: str = "data") -> int:
    return main(["validate", "sides.py:reference", f"sides.py:{candidate}", "--data", f"sides.py:{data}", *options])


def test_a_clean_port_ends_with_0_and_shows_no_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("port") == 0
    out = capsys.readouterr().out
    assert "aligned: accuracy is 1 against 1, all outputs are within their limits" in out
    assert "Samples that differ most" not in out


def test_a_wrong_port_ends_with_1_and_its_worst_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("wrong") == 1
    out = capsys.readouterr().out
    assert "32 of 32 samples (100 %)" in out
    assert "another class" in out
    assert "in samples             0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 20 more" in out
    assert "compute different outputs, 32 of 32 predictions differ" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100


def test_all_lists_every_sample_that_flipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("wrong", "--all") == 1
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ", ".join(map(str, range(32))) in out
    assert " more" not in out


def test_the_exchanges_are_rows_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--candidate-data", "sides.py:darker", "--candidate-metric", "sides.py:percent"
    assert validate("port", *options) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["candidate", "same", "candidate", "candidate", "100", "99", "NO"] in rows
    assert ["candidate", "same", "reference", "reference", "1", "0", "yes"] in rows
    assert validate("port", *options) == 1
    assert "the cause is the data and metric" in " ".join(capsys.readouterr().out.split())


def test_json_and_the_run_folder_hold_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("wrong", "--json", "--run", "run", "--limit-samples", "20") == 1
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "validate.json").read_text(encoding="utf-8"))
    assert printed["outputs"] == kept["outputs"]
    assert printed["schema"] == "mindalign.validate/2"
    assert printed["outputs"]["flipped"] == printed["outputs"]["samples"] == 20
    assert printed["causes"] == ["model"]
    assert printed["made_from"]["data"]["text"] == "sides.py:data"


@pytest.mark.parametrize(
    ("options", "data", "said"),
    [
        ((), "nothing", "sides.py:nothing has no samples"),
        ((), "unlabelled", "batch 0 of sides.py:unlabelled has no labels"),
        ((), "breaks", "reading sides.py:breaks failed: OSError: disk gone"),
        ((), "missing", "'missing' does not exist"),
        (("--metric", "sides.py:lying"), "data", "the metric sides.py:lying failed: RuntimeError: no such class"),
        (("--metric", "f1"), "data", "no metric is called 'f1'"),
        (("--metric", "mean-squared-error"), "data", "the metric needs equal shapes"),
        (("--limit-samples", "0"), "data", "the number of samples is 0"),
    ],
)
def test_what_cannot_be_used_ends_with_2_and_one_message(
    options: tuple[str, ...], data: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate("port", *options, data=data) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Hint:" in captured.err
    assert captured.out == ""
