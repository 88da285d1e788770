"""docs/advise.md prints what its command prints, and names every rule and option; reports show its result."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from pathlib import Path

import pytest

from align.advice.advise import Advice, AdviceResult, AdvisedSide, GapPart, ReadProfile, SpeedGap
from align.advice.evidence import StepPart
from align.cli.main import main
from align.rules.advice_rules import advice_rules


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of the page: the port waits for data."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    for name, usual, wait in (("torch.log", 0.2, 0.002), ("port.log", 0.21, 0.15)):
        times = [usual * (1 + 0.04 * draw.random()) for _ in range(60)]
        rows = (
            f"step {at} loss {2 / at:.4f} time_s {one + wait:.4f} data_time_s {wait:.4f}"
            for at, one in enumerate(times, 1)
        )
        Path(name).write_text("\n".join(rows) + "\n")


def test_the_page_quotes_what_the_command_prints(page, logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    (quoted,) = (block for block in page.blocks("console") if "--baseline" in block)
    command, *lines = quoted.splitlines()
    assert main(command.split()[2:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = printed.index(" ".join(lines[0].split()))
    assert printed[at : at + len(lines)] == [" ".join(line.split()) for line in lines]


def test_the_page_names_every_rule_and_option(page) -> None:
    assert set(re.findall(r"^\| `(--[a-z-]+)", page.text, re.MULTILINE)) == page.known_options()
    table = page.text.split("## The rules")[1]
    assert re.findall(r"^\| `([a-z0-9-]+)` ", table, re.MULTILINE).sort() == [rule.id for rule in advice_rules()].sort()
    assert {rule.id for rule in advice_rules()} == set(re.findall(r"^\| `([a-z0-9-]+)` ", table, re.MULTILINE))


@pytest.mark.parametrize("value", [AdviceResult, AdvisedSide, Advice, ReadProfile, StepPart, SpeedGap, GapPart])
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    section = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text("utf-8").split("## advise.json")[1]
    named = set(re.findall(r"`([^`\s]+)`", section.split("\n## ")[0]))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_a_result_is_kept_shown_and_drawn(logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "port.log", "--baseline", "torch.log", "--run", "run", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(Path("run/advise.json").read_text("utf-8"))
    assert document["advice"][0]["rule"] == "training-waits-for-data"
    assert main(["report", "run"]) in (0, 1, 2)
    html = Path("run/report.html").read_text("utf-8")
    assert "plot-step_parts" in html
    assert "waiting for data" in html
    assert "等待数据" in html


def test_the_rung_judges_the_ratio_of_the_steps(logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    sides = '[reference]\nlog = "torch.log"\n[candidate]\nlog = "port.log"\n'
    for at_most, state in ((1.2, "failed"), (2.0, "passed")):
        Path("align.toml").write_text(f'{sides}[speed]\nat_most = {at_most}\n[run]\nrungs = ["speed"]\n')
        main(["run"])
        ladder = json.loads(Path("align-run/ladder.json").read_text("utf-8"))
        (rung,) = (one for one in ladder["rungs"] if one["name"] == "speed")
        assert rung["state"] == state
    capsys.readouterr()


def test_a_slower_port_is_sent_here_by_the_comparison_of_logs(logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["loss", "torch.log", "port.log"])
    assert "align advise port.log --baseline torch.log" in " ".join(capsys.readouterr().out.split())
