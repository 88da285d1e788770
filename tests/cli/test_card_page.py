"""docs/card.md quotes what `align report --card` and `align verify` print; a card holds as long as its files do."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from align.cli.main import main
from align.core.atomic_files import sha256_of
from align.report.card import CardVerification, read_card

ROWS = [7 - step / 10 for step in range(1, 31)]


def write_logs(*spikes):
    for name, steps in (("torch", ()), ("mindspore", spikes)):
        rows = (f"{step},{loss * (3 if step in steps else 1)}\n" for step, loss in enumerate(ROWS, 1))
        Path(f"{name}.csv").write_text("step,loss\n" + "".join(rows))


def test_the_example_is_what_the_commands_print_and_the_card_holds_what_the_page_lists(page):
    write_logs()
    assert page.run_commands(0) == [0, 0, 0]
    text = Path("card.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    listed = re.findall(r"^\| ([a-z ,]+) \|", page.text.split("## What a card says")[1], re.MULTILINE)[1:9]
    assert {title.lower() for title in sections} - {"to verify it"} == {*listed} - {"at fault"}
    card = json.loads(Path("card.json").read_text(encoding="utf-8"))
    below = {one["name"]: one["sha256"] for one in card["sources"] if "/" not in one["name"]}  # others are these tests
    assert below == {name: sha256_of(Path(name)) for name in ("align.toml", "torch.csv", "mindspore.csv")}
    assert all(one["sha256"] in text for one in card["sources"])
    assert card["sides"] == {"reference": {"log": "torch.csv"}, "candidate": {"log": "mindspore.csv"}}
    assert "align loss torch.csv mindspore.csv --project align.toml --run align-run" in text
    write_logs(*range(11, 21))
    assert page.run_commands(1) == [1]


def test_a_card_of_a_port_that_is_not_aligned_holds_too_and_says_what_was_not_verified(page, capsys):
    write_logs(*range(11, 21))
    Path("align.toml").write_text(page.blocks("toml")[0].replace('["curve"]', '["data", "curve"]'))
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "port"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    assert main(["run", "--keep-going"]) == 1
    Path("cards").mkdir()
    assert main(["report", "align-run", "--card", "cards/port.json"]) == 1
    text = Path("cards/port.md").read_text(encoding="utf-8")
    commit = json.loads(Path("cards/port.json").read_text(encoding="utf-8"))["record"]["commit"]
    assert (len(commit), f"| commit | {commit} |" in text) == (40, True)
    assert "## At fault" in text
    assert "| curve | `step 11` | spike |" in text
    assert "- data: not available. the project file lacks" in text
    stated = read_card(Path("cards/port.md"))
    assert (stated.rungs, stated.project.resolve()) == (("curve",), Path("align.toml").resolve())
    capsys.readouterr()
    assert main(["verify", "cards/port.md", "--json", "--folder", "again"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stated"], found["differs"], found["files"], found["made"]) == ("not aligned", [], [], [])
    Path("torch.csv").unlink()
    assert main(["verify", "cards/port.md"]) == 2


def test_no_card_of_a_folder_without_its_project(page, capsys):
    write_logs()
    assert main(["run"]) == 0
    Path("align.toml").unlink()
    assert main(["report", "align-run", "--card", "card.md"]) == 2
    assert "no card can be made of align-run" in capsys.readouterr().err
    assert main(["verify", "card.md"]) == 2
    assert "card not found: card.json" in capsys.readouterr().err


@pytest.mark.parametrize(("field", "code"), [("files", 1), ("made", 0), ("versions", 0)])
def test_other_files_break_a_card_and_other_versions_do_not(field, code):
    given = dict.fromkeys(("differs", "files", "made", "versions"), ()) | {field: ("x",)}
    assert CardVerification(card="c", stated="aligned", verdict=None, **given).exit_code == code
