from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from align.cli.main import main


@pytest.fixture
def file(tmp_path):
    values = {f"layers.{n}.weight": np.ones((4, 3), np.float32) for n in range(3)}
    np.savez(tmp_path / "m.npz", **values, note=np.array("by hand"))
    return tmp_path / "m.npz"


def test_a_readable_file_is_shown_and_ends_with_0(file, capsys):
    assert main(["inspect", str(file)]) == 0
    printed = capsys.readouterr()
    assert "layers.{0…2}.weight" in printed.out
    assert printed.err == ""


def test_all_lists_every_tensor(file, capsys):
    assert main(["inspect", str(file), "--all"]) == 0
    assert "layers.1.weight" in capsys.readouterr().out


def test_json_is_what_the_run_folder_keeps_and_names_the_file_without_hashing_it(file, tmp_path, capsys):
    assert main(["inspect", str(file), "--json", "--run", str(tmp_path / "run")]) == 0
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "inspect.json").read_text(encoding="utf-8"))
    assert printed["tensors"] == kept["tensors"]
    assert kept["schema"] == "mindalign.inspect/2"
    assert kept["made_from"] == {"file": {"text": str(file)}}
    assert kept["tensors"][0] == {
        "name": "layers.0.weight", "shape": [4, 3], "dtype": "float32", "nbytes": 48, "contiguous": True
    }  # fmt: skip
    assert kept["other"] == {"note": "text array of shape ()"}


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04", b"\x80\x02}."])
def test_what_cannot_be_read_ends_with_2_in_one_message(content, tmp_path, capsys):
    (tmp_path / "m.pth").write_bytes(content)
    assert main(["inspect", str(tmp_path / "m.pth")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("align: ")
    assert "Hint: " in printed.err


def test_a_key_that_is_not_there_ends_with_2(file, capsys):
    assert main(["inspect", str(file), "--key", "ema"]) == 2
    assert "'ema'" in capsys.readouterr().err


def test_nothing_slow_is_imported(file):
    code = "import sys; from align.cli.main import main; main(sys.argv[1:]); print('MODULES', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, "inspect", str(file)], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.partition("MODULES")[2].split()}
    assert "numpy" in loaded
    assert loaded & {"pandas", "scipy", "torch", "mindspore", "onnx", "numba", "tomlkit"} == set()
