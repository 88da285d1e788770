"""Weights that a file has twice, or in parts: asked for, never taken unasked. Real files of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import MissingEntryError, SeveralEntriesError, UsageError, WholeModuleError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks


def layer(value: float) -> Any:
    import torch

    return {"fc.weight": torch.full((2, 2), value), "fc.bias": torch.full((2,), value)}


def saved(path: Path, contents: Any) -> Path:
    import torch

    torch.save(contents, path)
    return path


def bias(path: Path, name: str = "fc.bias") -> float:
    return float(open_checkpoint(path).tensors[name].load()[0])


def test_of_two_entries_the_preferred_one_is_taken(tmp_path: Path, assert_each: Any) -> None:
    def check(live: str, average: str) -> None:
        source = saved(tmp_path / "a.pth", {live: layer(1), average: layer(2), "epoch": 3})
        with pytest.raises(SeveralEntriesError) as asked:
            convert_checkpoint(source, tmp_path / "a.ckpt", overwrite=True)
        assert "--prefer live or --prefer ema" in asked.value.hint
        for prefer, value in (("live", 1.0), ("ema", 2.0)):
            record = convert_checkpoint(source, tmp_path / "a.ckpt", prefer=prefer, overwrite=True)  # type: ignore[arg-type]
            assert bias(tmp_path / "a.ckpt") == value
            assert any("holds 2 tensors: NOT CONVERTED" in str(line) for line in record.warnings)

    names = [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("params", "params_ema"), ("model", "ema")]
    assert_each(check, [*names, ("state_dict", "ema_state_dict"), ("net", "swa_model")])


def test_an_average_that_lies_deeper_or_has_no_names(tmp_path: Path) -> None:
    deeper = saved(tmp_path / "a.pth", {"model": layer(1), "ema": {"module": layer(2), "decay": 0.99}})
    convert_checkpoint(deeper, tmp_path / "a.ckpt")
    assert bias(tmp_path / "a.ckpt") == 1.0
    convert_checkpoint(deeper, tmp_path / "a.ckpt", prefer="ema", overwrite=True)
    assert bias(tmp_path / "a.ckpt") == 2.0
    listed = saved(tmp_path / "b.pth", {"model": layer(1), "ema": {"shadow_params": [*layer(2).values()]}})
    with pytest.raises(UsageError, match="no averaged copies") as refused:
        convert_checkpoint(listed, tmp_path / "b.ckpt", prefer="ema")
    assert "`align inspect` lists" in refused.value.hint


def test_a_pickled_module_of_averages_is_no_reason_to_refuse_the_live_weights(tmp_path: Path) -> None:
    import torch

    source = saved(tmp_path / "a.pt", {"model": layer(1), "ema": torch.nn.Linear(2, 2)})
    convert_checkpoint(source, tmp_path / "a.ckpt", prefer="live")
    assert bias(tmp_path / "a.ckpt") == 1.0
    with pytest.raises(WholeModuleError, match="Linear under 'ema'"):
        convert_checkpoint(source, tmp_path / "b.ckpt", prefer="ema")


def test_buffers_without_dots_are_the_average_of_the_parameters(tmp_path: Path) -> None:
    """As LDM keeps them: a buffer for each parameter, whose name lost its dots, beside a decay and a count."""
    import torch

    net = torch.nn.Module()
    net.model = torch.nn.Module()
    net.model.diffusion_model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    net.first_stage_model = torch.nn.Linear(2, 3)
    net.model_ema = torch.nn.Module()
    net.model_ema.register_buffer("decay", torch.tensor(0.9))
    net.model_ema.register_buffer("num_updates", torch.tensor(7, dtype=torch.int))
    for name, one in net.model.named_parameters():
        net.model_ema.register_buffer(name.replace(".", ""), torch.full_like(one, 5.0))
    source = saved(tmp_path / "ldm.ckpt", {"state_dict": net.state_dict(), "global_step": 7})
    with pytest.raises(UsageError, match=r"has 4 weights twice: model_ema\.diffusion_model0weight is an averaged copy"):
        convert_checkpoint(source, tmp_path / "a.ckpt")
    record = convert_checkpoint(source, tmp_path / "a.ckpt", prefer="ema")
    found = open_checkpoint(tmp_path / "a.ckpt").tensors
    assert (found["model.diffusion_model.1.gamma"].load() == 5.0).all()
    assert "first_stage_model.weight" in found
    assert len(found) == 4 + 2 + 2  # with the running statistics, which have no average
    assert {"model_ema.decay", "model_ema.num_updates", "model.diffusion_model.0.weight"} <= record.dropped.keys()
    kept = convert_checkpoint(source, tmp_path / "a.safetensors", target="torch")
    assert any("averaged copies (EMA) of other weights, and stay" in str(line) for line in kept.warnings)


def test_parts_are_joined_behind_their_names(tmp_path: Path) -> None:
    optimizer = {"state": {}, "param_groups": [{"lr": 0.1}]}
    source = saved(tmp_path / "gan.pth", {"netG": layer(1), "netD": layer(2), "optimG": optimizer, "epoch": 3})
    with pytest.raises(SeveralEntriesError) as asked:
        convert_checkpoint(source, tmp_path / "a.ckpt")
    assert "--parts all` joins them" in asked.value.hint
    record = convert_checkpoint(source, tmp_path / "a.ckpt", parts="all")
    names = ["netG.fc.weight", "netG.fc.bias", "netD.fc.weight", "netD.fc.bias"]
    assert [one.source for one in record.tensors] == names == [*open_checkpoint(tmp_path / "a.ckpt").tensors]
    assert (bias(tmp_path / "a.ckpt", names[1]), bias(tmp_path / "a.ckpt", names[3])) == (1.0, 2.0)
    assert record.warnings == ()
    one = convert_checkpoint(source, tmp_path / "b.ckpt", parts=["netD"])
    assert [tensor.target for tensor in one.tensors] == names[2:]
    assert any("netG (mapping of 2 entries) holds 2 tensors: NOT CONVERTED" in str(line) for line in one.warnings)


def test_parts_that_are_not_there_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path / "gan.pth", {"netG": layer(1), "netD": layer(2)})
    with pytest.raises(MissingEntryError, match="no tensors under the key 'netX'"):
        convert_checkpoint(source, tmp_path / "a.ckpt", parts=["netG", "netX"])
    with pytest.raises(UsageError, match="has no parts to join"):
        convert_checkpoint(saved(tmp_path / "plain.pth", layer(1)), tmp_path / "a.ckpt", parts=["all"])
    both = ["--parts", "netG", "--key", "netD", "--prefer", "live"]
    assert main(["convert", str(source), str(tmp_path / "a.ckpt"), *both]) == 2
    assert "--key and --parts each say" in capsys.readouterr().err


def test_averages_of_parts_are_taken_by_their_names(tmp_path: Path) -> None:
    net, average = (
        {**layer(value), "head.weight": layer(value)["fc.weight"], "head.bias": layer(value)["fc.bias"]}
        for value in (1.0, 5.0)
    )
    source = saved(tmp_path / "a.pth", {"netG": net, "netG_ema": average, "netD": layer(2)})
    convert_checkpoint(source, tmp_path / "a.ckpt", parts=["all"], prefer="ema")
    found = open_checkpoint(tmp_path / "a.ckpt").tensors
    assert {name: float(one.load().flat[0]) for name, one in found.items() if name.endswith("bias")} == {
        "netG.fc.bias": 5.0,
        "netG.head.bias": 5.0,
        "netD.fc.bias": 2.0,
    }
