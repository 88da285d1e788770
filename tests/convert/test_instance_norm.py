"""InstanceNorm: MindSpore's always has statistics, torch's only on request."""

from __future__ import annotations

from typing import Any

import pytest

from align.convert.convert_checkpoint import convert_checkpoint

pytestmark = pytest.mark.frameworks
KEPT = "torch's InstanceNorm keeps statistics only with track_running_stats=True"


def torch_net(**options: Any) -> Any:
    from torch import nn

    return nn.ModuleDict({"conv": nn.Conv2d(3, 4, 3), "inn": nn.InstanceNorm2d(4, affine=True, **options)})


def torch_net_with_statistics() -> Any:
    return torch_net(track_running_stats=True)


def port() -> Any:
    from mindspore import nn

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.inn = nn.Conv2d(3, 4, 3, has_bias=True), nn.InstanceNorm2d(4)

    return Port()


def side(name: str) -> str:
    return f"{__file__}:{name}"


@pytest.fixture
def saved(tmp_path):
    import mindspore

    mindspore.save_checkpoint(port(), str(tmp_path / "port.ckpt"))
    return tmp_path / "port.ckpt"


@pytest.mark.parametrize("said", [{"source_model": side("port")}, {"layers": ["inn=instance-norm"]}])
def test_statistics_that_torch_may_refuse_are_said_where_the_class_is_known(saved, tmp_path, said) -> None:
    import torch

    record = convert_checkpoint(saved, tmp_path / "out.pth", **said)
    (warning,) = [line for line in record.warnings if KEPT in line]
    assert warning.startswith("1 layer (inn): ")
    with pytest.raises(RuntimeError, match="Unexpected running stats"):
        torch_net().load_state_dict(torch.load(tmp_path / "out.pth", weights_only=True))
    torch_net_with_statistics().load_state_dict(torch.load(tmp_path / "out.pth", weights_only=True))


def test_a_batch_norm_is_not_doubted(saved, tmp_path) -> None:
    record = convert_checkpoint(saved, tmp_path / "out.pth")
    assert not any(KEPT in line for line in record.warnings)


@pytest.mark.parametrize("target", ["torch_net", "torch_net_with_statistics"])
def test_the_target_model_decides_whether_there_are_statistics(saved, tmp_path, target) -> None:
    import torch

    said = {"source_model": side("port"), "target_model": side(target)}
    record = convert_checkpoint(saved, tmp_path / "out.pth", **said)
    globals()[target]().load_state_dict(torch.load(tmp_path / "out.pth", weights_only=True), strict=True)
    dropped = {"inn.moving_mean": KEPT, "inn.moving_variance": KEPT} if target == "torch_net" else {}
    assert record.dropped == dropped


def test_a_port_keeps_the_statistics_that_torch_lacks(tmp_path) -> None:
    import torch

    torch.save(torch_net().state_dict(), tmp_path / "net.pth")
    said = {"source_model": side("torch_net"), "target_model": side("port")}
    record = convert_checkpoint(tmp_path / "net.pth", tmp_path / "out.ckpt", **said)
    assert [tensor.target for tensor in record.tensors] == ["conv.weight", "conv.bias", "inn.gamma", "inn.beta"]
    assert record.dropped == {"inn.moving_mean": KEPT, "inn.moving_variance": KEPT}
