from __future__ import annotations

import hashlib
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
    assert kept["made_from"]["source"]["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()


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
    assert "1 name is open" in message
    assert "head (weight (4, 2))" in message
    assert "Hint: " in message
    assert "--layer" in message
    assert main([*arguments, "--layer", "head=linear"]) == 0


def test_mint_keeps_torchs_names(source, tmp_path, capsys) -> None:
    assert main(["convert", str(source), str(tmp_path / "m.ckpt"), "--target", "mint", "--json"]) == 0
    assert [tensor["target"] for tensor in json.loads(capsys.readouterr().out)["tensors"]] == ["bn.weight", "bn.bias"]


@pytest.mark.parametrize("option", [["--layer", "bn=layer-norm"], ["--target", "nn"]])
def test_an_option_that_a_map_makes_idle_ends_with_2(source, tmp_path, capsys, option) -> None:
    (tmp_path / "map.toml").write_text('[names]\n"bn.weight" = "scale"\n"bn.bias" = "shift"\n')
    arguments = ["convert", str(source), str(tmp_path / "m.ckpt"), "--map", str(tmp_path / "map.toml")]
    assert main([*arguments, *option]) == 2
    assert f"{option[0]} does not go with a map" in capsys.readouterr().err
    assert main(arguments) == 0


@pytest.mark.frameworks
def test_what_lies_beside_the_weights_is_printed_and_kept(tmp_path, capsys) -> None:
    import torch

    state = {"model": {"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2)}, "ema": [torch.ones(2)], "epoch": 7}
    torch.save(state, tmp_path / "m.pth")
    assert main(["convert", str(tmp_path / "m.pth"), str(tmp_path / "m.ckpt")]) == 0
    printed = capsys.readouterr().out
    assert "Also in the file, not converted" in printed
    assert "epoch: 7" in printed
    assert "ema (list of 1 entry) holds 1 tensor: NOT CONVERTED" in printed
    assert main(["convert", str(tmp_path / "m.pth"), str(tmp_path / "n.ckpt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"ema": "list of 1 entry", "epoch": "7"}


def test_a_transform_that_is_none_ends_with_2_and_its_fault(source, tmp_path, capsys) -> None:
    (tmp_path / "map.toml").write_text(
        '[names]\n"bn.weight" = { to = "w", op = "reshape", shape = [-3, -1] }\n'
        '"bn.bias" = { to = "b", op = "cast", type = "x" }\n'
    )
    assert main(["convert", str(source), str(tmp_path / "m.ckpt"), "--map", str(tmp_path / "map.toml")]) == 2
    message = capsys.readouterr().err
    assert "shape must be a list of whole numbers" in message
    assert "cast takes dtype, not type" in message


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
