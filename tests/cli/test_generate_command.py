"""`align generate` from the command line, with models of plain arrays."""

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

TABLE = np.random.default_rng(0).standard_normal((23, 8)).astype(np.float32)
HEAD = np.random.default_rng(1).standard_normal((23, 8)).astype(np.float32)


def model(embedding, dense, head=HEAD):
    look_up = ArrayLayer("embed", embedding, lambda ids, weight: weight[ids].cumsum(1), {"weight": TABLE.copy()})
    return ArrayModel((look_up, ArrayLayer("head", dense, lambda x, weight: x @ weight.T, {"weight": head.copy()})))


def reference():
    return model("torch.nn.Embedding", "torch.nn.Linear")


def port():
    return model("mindspore.nn.Embedding", "mindspore.nn.Dense")


def wrong():
    return model("mindspore.nn.Embedding", "mindspore.nn.Dense", HEAD[::-1])


def remembering(network, forgets=0):
    def step(ids, cache):
        text = ids if cache is None else np.concatenate([cache, ids], axis=1)
        return network(text)[:, -ids.shape[1] :], text[:, : text.shape[1] - forgets]

    return step


def forgetful(network):
    return remembering(network, 1)
"""
PROMPTS = "ids=int64[2,4]<23"


@pytest.fixture(autouse=True)
def _sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sides.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def generate(candidate: str, *options: str, prompts: str = PROMPTS) -> int:
    return main(["generate", "sides.py:reference", f"sides.py:{candidate}", "--input", prompts, *options])


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    return [line.split() for line in out.splitlines()]


def test_a_clean_port_ends_with_0_and_no_table_of_positions(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("port") == 0
    out = capsys.readouterr().out
    assert "aligned: the logits of all positions are within their limits" in out
    assert "by the token that they choose" not in out


def test_all_gives_every_position_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("port", "--all", "--tokens", "3") == 0
    shown = rows(capsys)
    assert [row[:2] for row in shown if row[:1] in (["prompt"], ["new"])] == [
        *(["prompt", str(number)] for number in (1, 2, 3)),
        *(["new", str(number)] for number in (0, 1, 2)),
    ]


def test_a_cache_that_forgets_ends_with_1_and_the_positions_around_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = "--reference-step", "sides.py:remembering", "--candidate-step", "sides.py:forgetful"
    assert generate("port", *both, "--tokens", "20") == 1
    shown = rows(capsys)
    (summary,) = (row for row in shown if row[:6] == ["candidate", "with", "cache", "candidate", "without", "23"])
    assert summary[6:8] == ["new", "1"]
    places = [
        row[:2] for row in shown if row and row[0] in ("prompt", "new") and row[-1].isupper() | (row[-1] == "aligned")
    ]
    assert places == [["prompt", "3"], ["new", "0"], *(["new", str(n)] for n in range(1, 7))]


def test_other_weights_are_told_beside_the_tokens_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("wrong", "--tokens", "3") == 1
    shown = rows(capsys)
    assert [row[1] for row in shown if row[-2:] == ["another", "token"]] == ["0", "1"]
    warned = [row for row in shown if row[:2] == ["warning:", "sides.py:wrong:"]]
    assert [row[5:8] for row in warned] == [["other", "values", "than"]]


def test_json_and_the_run_folder_hold_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("wrong", "--json", "--run", "run", "--tokens", "3") == 1
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "generate.json").read_text(encoding="utf-8"))
    assert printed["comparisons"] == kept["comparisons"]
    assert printed["schema"] == "mindalign.generate/2"
    assert (printed["prompts"], printed["tokens"]) == ([2, 4], 3)
    assert printed["inputs"]["ids"]["shape"] == [2, 4]


@pytest.mark.parametrize(
    ("options", "prompts", "said"),
    [
        ((), "x=float32[2,4]", "the prompts must be one array of whole numbers, not x float32[2, 4]"),
        ((), "ids=int64[2,4]<1000", "failed: IndexError"),
        (("--tokens", "0"), PROMPTS, "the number of new tokens is 0"),
        (("--candidate-step", "sides.py:nothing"), PROMPTS, "'nothing' does not exist"),
        (("--candidate-step", "sides.py:port"), PROMPTS, "the adapter of sides.py:port failed: TypeError"),
    ],
)
def test_what_cannot_be_used_ends_with_2_and_one_message(
    options: tuple[str, ...], prompts: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate("port", *options, prompts=prompts) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Hint:" in captured.err
    assert captured.out == ""
