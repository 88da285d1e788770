"""docs/doctor.md says what its command finds, and names every option and finding that there is."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import align
from align.cli.main import main
from align.lint import examine_environment as examined
from align.lint.examine_environment import CrashAdvice, MemoryFollowed, MemoryTrend
from align.report.kinds.advice import doctor_blocks
from align.runs.run_folder import as_document


@pytest.mark.frameworks
def test_the_slow_convolution_is_said_where_the_processor_has_it(page, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    machine = examined.machine_facts() | {"processor": "AuthenticAMD avx avx2 avx512f"}
    monkeypatch.setattr(examined, "machine_facts", lambda: machine)
    shown = " ".join(str(doctor_blocks(as_document(examined.examine_environment(), {}, hashed=False))).split())
    quoted = page.blocks("console")[0].partition("\n")[2]
    assert " ".join(quoted.split()) in shown
    assert "ready: " in shown
    assert "aligned" not in shown
    assert "('numpy', '" in shown
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "mindspore-convolution: it is" not in str(
        doctor_blocks(as_document(examined.examine_environment(), {}, hashed=False))
    )


def test_the_page_names_every_option_and_finding(page):
    table = page.text.split("## In detail")[1]
    assert set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE)) == page.known_options()
    source = (Path(align.__file__).parent / "lint" / "examine_environment.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z][a-z-]+)` ", table, re.MULTILINE)) == set(
        re.findall(r'Finding\("([a-z-]+)"', source)
    )


@pytest.mark.parametrize("value", [CrashAdvice, MemoryFollowed, MemoryTrend])
def test_the_page_of_the_run_folder_names_every_field(value):
    page = Path(__file__).parents[2] / "docs" / "run-folder.md"
    named = set(re.findall(r"`([^`\s]+)`", page.read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_the_page_quotes_what_to_run_after_a_crash(page, capsys):
    (quoted,) = (block for block in page.blocks("console") if "--crash" in block)
    command, *lines = quoted.splitlines()
    assert main(command.split()[2:]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if " ".join(line.split()) not in printed] == []
    assert main(["doctor", "--crash", "npu", "--all"]) == 0
    assert "www.hiascend.com" in capsys.readouterr().out
    assert main(["doctor", "--crash", "tpu"]) == 2
    assert "write one of: cpu, cuda, mlu, npu" in capsys.readouterr().err


def test_a_process_is_followed_and_what_was_seen_is_kept(page, capsys, process_in_step):
    with process_in_step("leak", 40) as process:
        line = ["doctor", "--follow", str(process.pid), "--every", "0.03", "--run", "run"]
        assert main(line) == 1
    printed = capsys.readouterr().out
    assert "LEAKS: host memory grows steadily by" in printed
    assert "MB a minute" in printed
    document = json.loads(Path("run/followed.json").read_text(encoding="utf-8"))
    assert document["trend"]["low"] > 0
    assert main(["doctor", "--follow", str(process.pid)]) == 2
    assert "runs here" in capsys.readouterr().err
    assert main(["doctor", "--follow", "1", "--every", "0"]) == 2


def test_two_results_in_one_json_are_refused_before_anything_is_printed(capsys):
    assert main(["doctor", "--crash", "cpu", "--follow", "1", "--for", "0.1", "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["schema"] == "mindalign.error/2"
    assert "align doctor --crash cpu --json" in shown.err
