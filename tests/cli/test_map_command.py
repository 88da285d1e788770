"""`align map` as a user runs it: exit codes, files, JSON, and every wrong input in one message that names it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.cli.main import main
from align.errors import UserCodeError

if TYPE_CHECKING:
    from pathlib import Path

NETS = """
import numpy as np

from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def layer(path, class_name, **shapes):
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return ArrayLayer(path, class_name, lambda x, **parameters: x, weights)


def original():
    return ArrayModel((
        layer("conv", "torch.nn.Conv2d", weight=(4, 3, 3, 3)),
        layer("norm", "torch.nn.LayerNorm", weight=(4,), bias=(4,)),
        layer("q", "torch.nn.Linear", weight=(4, 4)),
        layer("k", "torch.nn.Linear", weight=(4, 4)),
    ))


def port(names=("query", "key")):
    return ArrayModel((
        layer("stem.conv", "mindspore.nn.Conv2d", weight=(4, 3, 3, 3)),
        layer("stem.norm", "mindspore.nn.LayerNorm", gamma=(4,), beta=(4,)),
        *(layer(name, "mindspore.nn.Dense", weight=(4, 4)) for name in names),
    ))


def vague_port():
    return port(("red", "green"))


def stranger():
    return ArrayModel((layer("x", "torch.nn.Linear", weight=(17, 19)),))


def bare():
    return ArrayModel(())


def fails():
    raise ValueError("no weights here")


def forgets():
    port()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_a_complete_map_ends_with_0_and_writes_both_files_into_the_run_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["map", "nets.py:original", "nets.py:port", "--run", "run"]) == 0
    assert files(folder) == ["nets.py", "run", "run/map.json", "run/map.toml"]
    assert "Map file: run/map.toml" in capsys.readouterr().out
    kept = json.loads((folder / "run" / "map.json").read_text(encoding="utf-8"))
    assert kept["schema"] == "mindalign.map/2"
    pairs = {pair["source"]: pair["target"] for pair in kept["name_map"]["pairings"]}
    assert pairs == {
        "conv.weight": "stem.conv.weight",
        "norm.weight": "stem.norm.gamma",
        "norm.bias": "stem.norm.beta",
        "q.weight": "query.weight",
        "k.weight": "key.weight",
    }


def test_an_incomplete_map_ends_with_1_and_is_written_all_the_same(folder: Path) -> None:
    assert main(["map", "nets.py:original", "nets.py:vague_port", "--out", "map.toml"]) == 1
    text = (folder / "map.toml").read_text(encoding="utf-8")
    assert '"norm.weight" = "stem.norm.gamma"' in text
    assert "#= AMBIGUOUS" in text
    assert "#=   source q.weight" in text


def test_two_models_with_nothing_in_common_have_a_map_in_which_all_is_unmatched(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["map", "nets.py:original", "nets.py:stranger", "--out", "map.toml"]) == 1
    assert "NOT ALIGNED: 5 parameters of nets.py:original and 1 of nets.py:stranger" in capsys.readouterr().out
    text = (folder / "map.toml").read_text(encoding="utf-8")
    assert "#=   target x.weight (nothing is left of shape [17, 19]" in text


def test_a_map_edited_by_hand_and_fed_back_is_honoured(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["map", "nets.py:original", "nets.py:vague_port"]
    main([*sides, "--out", "map.toml"])
    text = (folder / "map.toml").read_text(encoding="utf-8")
    edited = text.replace("[names]\n", '[names]\n"q.weight" = "green.weight"\n')
    (folder / "edited.toml").write_text(edited, encoding="utf-8")
    capsys.readouterr()
    assert main([*sides, "--rules", "edited.toml", "--json", "--run", "run"]) == 0
    result = json.loads(capsys.readouterr().out)
    found = {p["source"]: (p["target"], p["evidence"]) for p in result["name_map"]["pairings"]}
    assert found["q.weight"] == ("green.weight", "user")
    assert found["k.weight"] == ("red.weight", "structure")
    assert result["made_from"]["rules"]["path"] == "edited.toml"
    assert '"q.weight" = "green.weight"  #= user 1.00' in (folder / "run" / "map.toml").read_text(encoding="utf-8")


def test_what_align_found_is_no_rule_in_another_file_either_which_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["map", "nets.py:original", "nets.py:port"]
    main([*sides, "--out", "map.toml"])
    capsys.readouterr()
    main([*sides, "--rules", "map.toml", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert {pair["evidence"] for pair in result["name_map"]["pairings"]} == {"structure"}
    assert result["warnings"] == ["map.toml holds no rule of yours: what align found is found again (docs/map.md)"]


def test_unused_rules_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rules.toml").write_text('[names]\n"gone.weight" = "x"\n', encoding="utf-8")
    assert main(["map", "nets.py:original", "nets.py:port", "--rules", "rules.toml"]) == 0
    assert "[names] gone.weight" in capsys.readouterr().out


def test_json_is_all_that_stands_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "nets.py:original", "nets.py:port", "--json", "--out", "map.toml"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["outcome"] == "aligned"
    made_from = document["made_from"]["reference"]
    assert (made_from["text"], made_from["path"], len(made_from["sha256"])) == ("nets.py:original", "nets.py", 64)


def test_the_order_of_execution_pairs_what_names_do_not_but_does_not_make_it_sure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data.py").write_text("import numpy\ndef x(): return {'x': numpy.ones(2)}\n", encoding="utf-8")
    sides = ["map", "nets.py:original", "nets.py:vague_port"]
    assert main([*sides, "--inputs", "data.py:x", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert "only the likeliest" in document["verdict"]["reason"]
    assert {p["source"]: p["target"] for p in document["name_map"]["pairings"]}["q.weight"] == "red.weight"
    assert document["made_from"]["inputs"]["text"] == "data.py:x"


def test_the_sides_may_stand_in_the_project_file(folder: Path) -> None:
    (folder / "align.toml").write_text(
        '[reference]\nmodel = "nets.py:original"\n[candidate]\nmodel = "nets.py:port"\n', encoding="utf-8"
    )
    assert main(["map"]) == 0
    assert main(["map", "nets.py:original", "nets.py:vague_port"]) == 1
    (folder / "align.toml").rename(folder / "other.toml")
    assert main(["map", "--project", "other.toml"]) == 0


def test_one_side_is_mapped_to_the_names_of_a_framework(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "nets.py:original", "--target", "nn", "--out", "map.toml"]) == 0
    assert '"norm.weight" = "norm.gamma"  #= rule 1.00' in (folder / "map.toml").read_text(encoding="utf-8")
    np.savez("file.npz", **{"embed.weight": np.ones((5, 4)), "fc.weight": np.ones((5, 4)), "fc.bias": np.ones(5)})
    capsys.readouterr()
    file = ["map", "file.npz", "--target", "nn", "--out", "file.toml", "--run", "run"]
    assert main(file) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "say which by --layer 'embed=embedding' or ...=linear: embed.weight" in said
    assert "NOT ALIGNED: 1 name is open: no map file is written" in said
    assert "Map file" not in said
    assert not (folder / "file.toml").exists()
    assert main([*file, "--layer", "embed=embedding"]) == 0
    assert "Map file: file.toml" in capsys.readouterr().out


BAD = {
    "one side": (["nets.py:original"], ["no candidate model is given", "--target nn, mint or torch"]),
    "two sides and a target": (["nets.py:original", "nets.py:port", "--target", "nn"], ["CANDIDATE", "--target"]),
    "a trial of one side": (
        ["nets.py:original", "--target", "nn", "--trial"],
        ["--trial cannot be given with --target"],
    ),
    "a layer of two sides": (["nets.py:original", "nets.py:port", "--layer", "q=linear"], ["--layer", "CANDIDATE"]),
    "a missing file": (["gone.py:build", "nets.py:port"], ["model file not found: gone.py"]),
    "no such function": (["nets.py:orignal", "nets.py:port"], ["'orignal' does not exist in nets.py", "original"]),
    "a factory that raises": (["nets.py:fails", "nets.py:port"], ["nets.py:fails failed: ValueError: no weights here"]),
    "a factory without a return": (["nets.py:original", "nets.py:forgets"], ["nets.py:forgets", "NoneType"]),
    "no such module": (["gone.net:build", "nets.py:port"], ["'gone.net:build'", "there is no module 'gone'"]),
    "a model without parameters": (
        ["nets.py:original", "nets.py:bare"],
        ["there is nothing to map: no parameter in nets.py:bare"],
    ),
    "missing rules": (["nets.py:original", "nets.py:port", "--rules", "gone.toml"], ["map file not found: gone.toml"]),
    "broken rules": (["nets.py:original", "nets.py:port", "--rules", "broken.toml"], ["broken.toml", "not TOML"]),
    "faulty rules": (
        ["nets.py:original", "nets.py:port", "--rules", "faulty.toml"],
        ["faulty.toml", "both lead to stem.norm.gamma", "conv.weight (line 4) -> nowhere", "the target has [4, 4]"],
    ),
    "no side": ([], ["no reference model is given"]),
    "a missing project file": (["--project", "gone.toml"], ["project file not found: gone.toml"]),
    "a faulty project file": (
        ["--project", "bad_project.toml"],
        ["bad_project.toml", "unknown key 'modle'", "[candidate] model must be text", "colour"],
    ),
    "missing inputs": (["nets.py:original", "nets.py:port", "--inputs", "gone.npz"], ["gone.npz"]),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_one_message_with_a_hint_and_nothing_is_written(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.toml").write_text("[names", encoding="utf-8")
    (folder / "faulty.toml").write_text(
        '[names]\n"norm.weight" = "stem.norm.gamma"\n"norm.bias" = "stem.norm.gamma"\n"conv.weight" = "nowhere"\n'
        '"q.weight" = { to = "query.weight", op = "reshape", shape = [16] }\n',
        encoding="utf-8",
    )
    (folder / "bad_project.toml").write_text(
        '[reference]\nmodle = "nets.py:original"\n[candidate]\nmodel = 3\n[colour]\n', encoding="utf-8"
    )
    before = files(folder)
    arguments, words = BAD[case]
    assert main(["map", *arguments, "--run", "run", "--out", "map.toml"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("align: ")
    assert output.err.count("\nHint: ") == 1
    assert "Traceback" not in output.err
    for word in words:
        assert word in output.err
    assert files(folder) == before


def test_a_map_file_in_a_missing_folder_is_refused_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(folder)
    assert main(["map", "nets.py:original", "nets.py:port", "--out", "nowhere/map.toml", "--run", "run"]) == 2
    assert "nowhere/map.toml" in capsys.readouterr().err
    assert files(folder) == before


def test_debug_shows_the_users_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserCodeError) as caught:
        main(["map", "nets.py:fails", "nets.py:port", "--debug"])
    assert isinstance(caught.value.__cause__, ValueError)
    command = [sys.executable, "-m", "align.cli.main", "map", "nets.py:fails", "nets.py:port"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (plain.returncode, plain.stdout, plain.stderr.count("\n")) == (2, "", 2)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, check=False)
    assert debug.returncode != 0
    assert 'raise ValueError("no weights here")' in debug.stderr


@pytest.mark.parametrize("package", ["torch", "mindspore"])
def test_a_framework_that_is_not_installed_is_one_message_with_its_install_line(folder: Path, package: str) -> None:
    (folder / "needs.py").write_text(f"import {package}\ndef build(): ...\n", encoding="utf-8")
    code = (
        "import sys, importlib.machinery as m\n"
        "find = m.PathFinder.find_spec\n"
        f"m.PathFinder.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)\n"
        "from align.cli.main import main\n"
        "sys.exit(main(['map', 'needs.py:build', 'nets.py:port', '--run', 'run']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"align: {package} is not installed\nHint: install it with: pip install")
    assert not (folder / "run").exists()


def test_check_judges_a_map_and_makes_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["map", "nets.py:original", "nets.py:port"]
    main([*sides, "--out", "map.toml"])
    before = files(folder)
    assert main([*sides, "--check", "map.toml"]) == 0
    text = (folder / "map.toml").read_text(encoding="utf-8")
    (folder / "map.toml").write_text(text.replace('= "query.weight"', '= "key.weight"'), encoding="utf-8")
    capsys.readouterr()
    assert main([*sides, "--check", "map.toml"]) == 1
    said = capsys.readouterr().out
    assert "Targets that are made twice, or only in part: 1" in said
    assert "query.weight: the map neither pairs nor drops it" in said
    assert main([*sides, "--check", "map.toml", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mindalign.check/2"
    assert document["made_from"]["map"]["path"] == "map.toml"
    assert main([*sides, "--check", "gone.toml"]) == 2
    assert main([*sides, "--check", "map.toml", "--out", "other.toml"]) == 2
    assert "--out cannot be given with --check" in capsys.readouterr().err
    assert files(folder) == before


def test_strict_rules_refuse_a_rule_that_matches_nothing_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rules.toml").write_text('[names]\n\n"gone.weight" = "x"\n', encoding="utf-8")
    before = files(folder)
    arguments = ["map", "nets.py:original", "nets.py:port", "--rules", "rules.toml", "--out", "map.toml"]
    assert main([*arguments, "--strict-rules"]) == 2
    assert "[names] gone.weight matches nothing (line 3)" in capsys.readouterr().err
    assert files(folder) == before


def test_a_map_made_again_in_place_keeps_what_the_user_wrote(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["map", "nets.py:original", "nets.py:vague_port", "--run", "run"]
    assert main(arguments) == 1
    path = folder / "run" / "map.toml"
    text = path.read_text(encoding="utf-8").replace(
        "[names]\n", '[names]\n# seen in the code\n"k.weight" = "red.weight"\n'
    )
    path.write_text(text, encoding="utf-8")
    assert main(arguments) == 0
    once = path.read_text(encoding="utf-8")
    assert '# seen in the code\n"k.weight" = "red.weight"\n' in once
    assert '"q.weight" = "green.weight"  #= structure' in once
    assert main([*arguments, "--out", "map.csv"]) == 0
    assert path.read_text(encoding="utf-8") == once


def test_all_shows_the_parameters_of_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "nets.py:original", "nets.py:port", "--all"]) == 0
    said = capsys.readouterr().out
    assert "Parameters of nets.py:original" in said
    assert "Parameters of nets.py:port" in said


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_the_suffix_chooses_the_form(folder: Path, suffix: str) -> None:
    assert main(["map", "nets.py:original", "nets.py:port", "--out", f"map.{suffix}"]) == 0
    assert "stem.norm.gamma" in (folder / f"map.{suffix}").read_text(encoding="utf-8")


def test_expand_writes_a_line_for_each_pair(folder: Path) -> None:
    (folder / "many.py").write_text(
        "from nets import layer, ArrayModel\n"
        "def build():\n"
        "    return ArrayModel(tuple(layer(f'l.{i}', 'torch.nn.Linear', weight=(2, 2)) for i in range(3)))\n",
        encoding="utf-8",
    )
    sides = ["map", "many.py:build", "many.py:build", "--out", "map.toml"]
    assert main(sides) == 0
    assert '"l.{0..2}.weight" = "l.{0..2}.weight"' in (folder / "map.toml").read_text(encoding="utf-8")
    assert main([*sides, "--expand"]) == 0
    assert '"l.1.weight" = "l.1.weight"' in (folder / "map.toml").read_text(encoding="utf-8")


def test_two_checkpoints_need_no_framework(folder: Path) -> None:
    import numpy as np

    weights = {"fc.weight": np.arange(6.0).reshape(2, 3), "fc.bias": np.arange(2.0)}
    np.savez(folder / "a.npz", **weights)
    np.savez(folder / "b.npz", **{name.replace("fc", "head"): value for name, value in weights.items()})
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['mindspore'] = None\n"
        "from align.cli.main import main\n"
        "sys.exit(main(['map', 'a.npz', 'b.npz', '--out', 'map.toml']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"fc.weight" = "head.weight"' in (folder / "map.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("trial", [[], ["--trial"]])
def test_inputs_are_drawn_as_for_a_comparison(
    folder: Path, trial: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["map", "nets.py:original", "nets.py:vague_port"]
    assert main([*sides, *trial, "--input", "x=float32[2,4]", "--seed", "3", "--json"]) in (0, 1)
    drawn = capsys.readouterr().out
    main([*sides, "--json"])
    assert drawn != capsys.readouterr().out  # the order of calls, or the trial, tells more than names do
    assert main([*sides, *trial, "--input", "x=float32"]) == 2
    assert "x=float32: not of this form" in capsys.readouterr().err
    assert main([*sides, "--input", "x=float32[2]", "--inputs", "data.py:x"]) == 2
    assert main([*sides, "--input", "x=float32[2]", "--check", "map.toml"]) == 2
