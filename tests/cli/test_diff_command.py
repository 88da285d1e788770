from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from align.cli.main import main


@pytest.fixture
def sides(tmp_path):
    """Two files: three of eight tensors differ, one is missing and one extra."""
    reference = {f"layers.{i}.weight": np.full((2, 3), i, np.float32) for i in range(6)}
    reference |= {"norm": np.ones(3, np.float32), "gone": np.ones(2)}
    candidate = {name: value.copy() for name, value in reference.items() if name != "gone"} | {"new": np.ones(2)}
    candidate["layers.2.weight"] += np.float32(1e-6)
    candidate["layers.4.weight"] += 1
    candidate["norm"][1] = np.nan
    paths = tmp_path / "a.npz", tmp_path / "b.npz"
    for path, values in zip(paths, (reference, candidate), strict=True):
        np.savez(path, **values)
    return [str(path) for path in paths]


def test_equal_files_end_with_0(sides, capsys) -> None:
    assert main(["diff", sides[0], sides[0]]) == 0
    assert "aligned: all 8 tensors are equal bit for bit" in capsys.readouterr().out


def test_what_differs_is_shown_folded_worst_first_and_ends_with_1(sides, capsys) -> None:
    assert main(["diff", *sides]) == 1
    printed = capsys.readouterr().out
    table = printed[printed.index("Values differ, worst first") :]
    names = [line.split()[0] for line in table.splitlines()[3:5]]
    assert names == ["norm", "layers.{2…4}.weight"]
    assert "Only in the reference\n  gone" in printed
    assert "Only in the candidate\n  new" in printed
    assert "NOT ALIGNED: 3 of 7 tensors differ, 1 missing, 1 extra; 4 equal bit for bit" in printed
    assert "NaN: 0 in the reference, 1 in the candidate" in printed
    assert "Unchanged" not in printed


def test_all_unfolds(sides, capsys) -> None:
    assert main(["diff", *sides, "--all"]) == 1
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("layers")]
    assert lines == ["layers.4.weight", "layers.2.weight"]


def test_unchanged_lists_what_did_not_move_and_counts_what_did(sides, capsys) -> None:
    assert main(["diff", *sides, "--unchanged"]) == 1
    printed = capsys.readouterr().out
    assert "4 unchanged, 3 moved\n  layers.{0…5}.weight (4)" in printed


def test_nothing_in_common_ends_with_2_and_names_the_option(tmp_path, capsys) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **{f"{name}.weight": np.ones(2)})
    assert main(["diff", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 2
    printed = capsys.readouterr().out
    assert "COULD NOT COMPARE" in printed
    assert "--map" in printed


def test_json_is_the_document_that_the_run_folder_keeps_with_hashes(sides, tmp_path, capsys) -> None:
    assert main(["diff", *sides, "--json", "--run", str(tmp_path / "run")]) == 1
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "diff.json").read_text())
    assert printed["tensors"] == kept["tensors"]
    assert kept["schema"] == "mindalign.diff/2"
    assert len(kept["made_from"]["candidate"]["sha256"]) == 64
    by_name = {tensor["reference"]: tensor for tensor in kept["tensors"]}
    assert by_name["layers.4.weight"]["measurement"]["max_abs"] == 1.0
    assert sum(by_name["layers.4.weight"]["measurement"]["decades"]) == 6
    assert kept["unchanged"] is None


def test_a_map_pairs_other_names(tmp_path, capsys) -> None:
    np.savez(tmp_path / "a.npz", w=np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", weight=np.ones((3, 2)))
    (tmp_path / "map.toml").write_text('[names]\nw = { to = "weight", op = "permute", axes = [1, 0] }\n')
    arguments = ["diff", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
    assert main([*arguments, "--map", str(tmp_path / "map.toml")]) == 0
    assert main(arguments) == 2


@pytest.mark.frameworks
def test_keys_choose_entries_on_each_side(tmp_path, capsys) -> None:
    import torch

    torch.save({"model": {"w": torch.ones(3)}, "ema": {"w": torch.zeros(3)}}, tmp_path / "m.pth")
    arguments = ["diff", str(tmp_path / "m.pth"), str(tmp_path / "m.pth")]
    assert main([*arguments, "--key-a", "model", "--key-b", "model"]) == 0
    assert main([*arguments, "--key-a", "model", "--key-b", "ema"]) == 1
    assert main(arguments) == 2
    assert "choose one with --key-a, or" in capsys.readouterr().err
    assert main([*arguments, "--key-a", "model"]) == 2
    assert "choose one with --key-b, or" in capsys.readouterr().err


@pytest.mark.frameworks
def test_what_only_its_code_opens_is_opened_on_request_and_that_is_said(tmp_path, capsys) -> None:
    import torch

    net = torch.nn.Linear(2, 3)
    torch.save(net, tmp_path / "module.pth")
    torch.save(net.state_dict(), tmp_path / "plain.pth")
    arguments = ["diff", str(tmp_path / "module.pth"), str(tmp_path / "plain.pth")]
    assert main(arguments) == 2
    assert "--trust-pickle" in capsys.readouterr().err
    assert main([*arguments, "--trust-pickle"]) == 0
    assert "module.pth was opened by torch.load, which ran the code" in " ".join(capsys.readouterr().out.split())


def test_what_the_map_leaves_out_is_listed_by_reason(tmp_path, capsys) -> None:
    counters = {f"bn{i}.count": np.array(i) for i in range(30)}
    np.savez(tmp_path / "a.npz", w=np.ones(2), **counters)
    np.savez(tmp_path / "b.npz", w=np.ones(2))
    (tmp_path / "map.toml").write_text('[names]\nw = "w"\n[dropped.source]\n"*.count" = "only torch counts"\n')
    arguments = ["diff", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--map", str(tmp_path / "map.toml")]
    assert main(arguments) == 0
    assert "Left out by the map\n  bn{0…29}.count (30): only torch counts\n" in capsys.readouterr().out
    assert main([*arguments[:1], *arguments[2:0:-1], *arguments[3:]]) == 0


def test_the_unchanged_are_all_listed(tmp_path, capsys) -> None:
    np.savez(tmp_path / "a.npz", **{f"{chr(97 + i)}.weight": np.ones(1) for i in range(26)})
    assert main(["diff", str(tmp_path / "a.npz"), str(tmp_path / "a.npz"), "--unchanged"]) == 0
    assert "z.weight" in capsys.readouterr().out


def test_a_file_that_is_not_there_ends_with_2_and_a_hint(sides, capsys) -> None:
    assert main(["diff", sides[0], "gone.pth"]) == 2
    message = capsys.readouterr().err
    assert "gone.pth" in message
    assert "Hint: " in message


def test_a_small_diff_imports_no_heavy_package(sides) -> None:
    heavy = ("torch", "mindspore", "pandas", "scipy", "numba", "llvmlite")
    code = (
        f"import sys; from align.cli.main import main; code = main(['diff', *{sides!r}]); "
        f"print(code, [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1 []"
