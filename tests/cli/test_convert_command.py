from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from align.cli.main import main


@pytest.fixture
def source(tmp_path):
    np.savez(tmp_path / "m.npz", **{"bn.weight": np.ones(3, np.float32), "bn.bias": np.zeros(3, np.float32)})
    return tmp_path / "m.npz"


def test_a_conversion_is_printed_and_ends_with_0(source, tmp_path, capsys) -> None:
    assert main(["convert", str(source), str(tmp_path / "m.ckpt")]) == 0
    assert "aligned" in capsys.readouterr().out
    assert (tmp_path / "m.ckpt").is_file()


def test_json_is_the_record_that_the_run_folder_keeps(source, tmp_path, capsys) -> None:
    arguments = ["convert", str(source), str(tmp_path / "m.ckpt"), "--json", "--run", str(tmp_path / "run")]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "convert.json").read_text())
    assert printed["tensors"] == kept["tensors"]
    assert [tensor["target"] for tensor in kept["tensors"]] == ["bn.gamma", "bn.beta"]
    assert kept["made_from"]["source"]["sha256"] == kept["source_sha256"]


def test_a_map_file_names_the_targets(source, tmp_path, capsys) -> None:
    (tmp_path / "map.toml").write_text(
        '[names]\n"bn.weight" = "scale"\n"bn.bias" = { to = "shift", op = "reshape", shape = [1, 3] }\n'
    )
    arguments = ["convert", str(source), str(tmp_path / "out.npz"), "--map", str(tmp_path / "map.toml"), "--json"]
    assert main(arguments) == 0
    tensors = json.loads(capsys.readouterr().out)["tensors"]
    assert [(tensor["target"], tensor["shape"]) for tensor in tensors] == [("scale", [3]), ("shift", [1, 3])]


def test_a_map_that_does_not_mention_a_tensor_ends_with_2(source, tmp_path, capsys) -> None:
    (tmp_path / "map.toml").write_text('[names]\n"bn.weight" = "scale"\n')
    assert main(["convert", str(source), str(tmp_path / "m.ckpt"), "--map", str(tmp_path / "map.toml")]) == 2
    assert "bn.bias" in capsys.readouterr().err
    assert not (tmp_path / "m.ckpt").exists()


def test_an_open_layer_ends_with_2_and_the_option_settles_it(tmp_path, capsys) -> None:
    np.savez(tmp_path / "m.npz", **{"head.weight": np.ones((4, 2), np.float32)})
    arguments = ["convert", str(tmp_path / "m.npz"), str(tmp_path / "m.ckpt")]
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "head (weight (4, 2))" in message
    assert "Hint: " in message
    assert "--layer" in message
    assert main([*arguments, "--layer", "head=linear"]) == 0


def test_mint_keeps_torchs_names(source, tmp_path, capsys) -> None:
    assert main(["convert", str(source), str(tmp_path / "m.ckpt"), "--target", "mint", "--json"]) == 0
    assert [tensor["target"] for tensor in json.loads(capsys.readouterr().out)["tensors"]] == ["bn.weight", "bn.bias"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("gone.pth", None), ("text.pth", b"some text"), ("empty.ckpt", b""), ("cut.pth", b"PK\x03\x04")],
)
def test_bad_input_is_one_message_with_a_hint(tmp_path, capsys, name, content) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["convert", str(tmp_path / name), str(tmp_path / "out.ckpt")]) == 2
    message = capsys.readouterr().err
    assert name in message
    assert "Hint: " in message
    assert "Traceback" not in message
    assert not (tmp_path / "out.ckpt").exists()


def test_converting_a_small_file_imports_no_heavy_package(source, tmp_path) -> None:
    heavy = ("torch", "mindspore", "pandas", "scipy", "tomlkit", "safetensors")
    code = (
        "import sys; from align.cli.main import main; "
        f"code = main(['convert', {str(source)!r}, {str(tmp_path / 'm.ckpt')!r}]); "
        f"print(code, [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
