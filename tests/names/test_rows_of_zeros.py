"""A fused projection with a bias against layers of which k has none: found, proven, converted both ways, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

WIDTH, HEADS = 8, 2
X = np.random.default_rng(0).standard_normal((2, 5, WIDTH)).astype(np.float32)
ORDERS = ("qkv", "kvq")


def split_rows(y: Any, order: str) -> dict[str, Any]:
    """What one product holds, by the letters of its pieces."""
    return {name: y[..., at * WIDTH : (at + 1) * WIDTH] for at, name in enumerate(order)}


def in_heads(y: Any) -> Any:
    return y.reshape(*y.shape[:2], HEADS, WIDTH // HEADS)


def torch_model(order: str = "", names: str = "qkv") -> Any:
    """Attention of torch: one projection with a bias, its pieces in an order, or three of which k has none."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if order:
                self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
            else:
                for piece, name in zip("qkv", names, strict=True):
                    setattr(self, f"{name}_proj", torch.nn.Linear(WIDTH, WIDTH, bias=piece != "k"))
            self.out = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            pieces = [] if order else [getattr(self, f"{name}_proj")(x) for name in names]
            parts = split_rows(self.qkv(x), order) if order else dict(zip("qkv", pieces, strict=True))
            q, k, v = (in_heads(parts[name]).transpose(1, 2) for name in "qkv")
            mixed = (q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attn, self.fc = torch.nn.LayerNorm(WIDTH), Attention(), torch.nn.Linear(WIDTH, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(x + self.attn(self.norm(x)))

    torch.manual_seed(0)
    return Net()


def mindspore_model(order: str = "") -> Any:
    """The same for MindSpore."""
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attn = nn.LayerNorm((WIDTH,), epsilon=1e-5), Attention()
            self.fc = nn.Dense(WIDTH, 3)

        def construct(self, x: Any) -> Any:
            return self.fc(x + self.attn(self.norm(x)))

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            if order:
                self.qkv = nn.Dense(WIDTH, 3 * WIDTH, bias_init="uniform")
            else:
                self.q_proj, self.v_proj = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
                self.k_proj = nn.Dense(WIDTH, WIDTH, has_bias=False)
            self.out = nn.Dense(WIDTH, WIDTH)

        def construct(self, x: Any) -> Any:
            parts = split_rows(self.qkv(x), order) if order else {n: getattr(self, f"{n}_proj")(x) for n in "qkv"}
            q, k, v = (in_heads(parts[name]).swapaxes(1, 2) for name in "qkv")
            mixed = ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) * 0.5, -1), v)
            return self.out(mixed.swapaxes(1, 2).reshape(x.shape))

    return Net()


@pytest.mark.parametrize("order", ORDERS)
def test_a_port_that_fuses_layers_of_which_k_has_no_bias(tmp_path: Path, order: str) -> None:
    import mindspore
    import torch

    model, port, path = torch_model(), mindspore_model(order), tmp_path / "map.toml"
    found = align.map_parameters(model, port, inputs={"x": X}, trial=True, out=path)
    assert found.verdict.exit_code == 0, found.verdict
    at = order.index("k") * WIDTH
    assert f"zeros = [[{at}, {at + WIDTH}]]" in path.read_text(encoding="utf-8")

    torch.save(model.state_dict(), tmp_path / "model.pth")
    there = align.convert_checkpoint(tmp_path / "model.pth", tmp_path / "port.ckpt", name_map=path)
    assert "rows that no tensor of the source makes are zeros in attn.qkv.bias, as the map says" in there.warnings
    mindspore.load_checkpoint(str(tmp_path / "port.ckpt"), port)
    np.testing.assert_allclose(port(mindspore.Tensor(X)).asnumpy(), model(torch.tensor(X)).detach(), atol=1e-6)
    assert align.compare_forward(model, port, inputs={"x": X}, name_map=path).verdict.exit_code == 0
    align.convert_checkpoint(tmp_path / "port.ckpt", tmp_path / "back.pth", name_map=path)
    back = torch.load(tmp_path / "back.pth")
    assert back.keys() == model.state_dict().keys()
    assert all(torch.equal(back[name], value) for name, value in model.state_dict().items())

    trained = {one.name: one.data for one in port.get_parameters()}
    bias = trained["attn.qkv.bias"].asnumpy().copy()
    bias[at + 2] = 0.5
    trained["attn.qkv.bias"] = mindspore.Tensor(bias)
    data = [{"name": name, "data": value} for name, value in trained.items()]
    mindspore.save_checkpoint(data, str(tmp_path / "trained.ckpt"))
    with pytest.raises(
        align.errors.MapError, match=rf"attn.qkv.bias, rows {at}:{at + WIDTH}: 1 of 8 values is not zero"
    ):
        align.convert_checkpoint(tmp_path / "trained.ckpt", tmp_path / "no.pth", name_map=path)
    assert not (tmp_path / "no.pth").exists()
    unlike = align.diff_checkpoints(tmp_path / "model.pth", tmp_path / "trained.ckpt", name_map=path)
    assert unlike.verdict.exit_code == 1


@pytest.mark.parametrize("order", ORDERS)
def test_a_port_that_has_layers_of_a_fused_one_and_no_bias_for_k(tmp_path: Path, order: str) -> None:
    import mindspore
    import torch

    model, port, path = torch_model(order), mindspore_model(), tmp_path / "map.toml"
    found = align.map_parameters(model, port, inputs={"x": X}, trial=True, out=path)
    assert found.verdict.exit_code == 0, found.verdict
    at = order.index("k") * WIDTH
    assert f"zeros = [[{at}, {at + WIDTH}]]" in path.read_text(encoding="utf-8")
    torch.save(model.state_dict(), tmp_path / "trained.pth")
    with pytest.raises(
        align.errors.MapError, match=f"attn.qkv.bias, rows {at}:{at + WIDTH}: 8 of 8 values are not zero"
    ):
        align.convert_checkpoint(tmp_path / "trained.pth", tmp_path / "port.ckpt", name_map=path)
    with torch.no_grad():
        model.attn.qkv.bias[at : at + WIDTH] = 0
    torch.save(model.state_dict(), tmp_path / "model.pth")
    align.convert_checkpoint(tmp_path / "model.pth", tmp_path / "port.ckpt", name_map=path)
    mindspore.load_checkpoint(str(tmp_path / "port.ckpt"), port)
    np.testing.assert_allclose(port(mindspore.Tensor(X)).asnumpy(), model(torch.tensor(X)).detach(), atol=1e-6)
    align.convert_checkpoint(tmp_path / "port.ckpt", tmp_path / "back.pth", name_map=path)
    back = torch.load(tmp_path / "back.pth")
    assert all(torch.equal(back[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("order", ORDERS)
def test_pieces_that_no_name_tells_are_found_in_the_flow_of_the_data(order: str) -> None:
    found = align.map_parameters(torch_model(names="abc"), mindspore_model(order), inputs={"x": X}, trial=True)
    assert found.verdict.exit_code == 0, found.verdict
    changes = [pair.transform for pair in found.name_map.pairings if pair.target == "attn.qkv.bias"]
    at = order.index("k") * WIDTH
    assert [span for change in changes for step in change.steps for span in step.zeros] == [(at, at + WIDTH)]


@pytest.mark.parametrize("fused", ["port", "reference"])
def test_a_step_from_rows_of_zeros_raises_no_alarm(tmp_path: Path, fused: str) -> None:
    import torch
    from mindspore import nn

    models = (torch_model(), mindspore_model("qkv")) if fused == "port" else (torch_model("qkv"), mindspore_model())
    path = tmp_path / "map.toml"
    align.map_parameters(*models, out=path)
    assert "zeros = [[8, 16]]" in path.read_text(encoding="utf-8")
    optimizers = torch.optim.SGD(models[0].parameters(), 0.1), nn.SGD(models[1].trainable_params(), 0.1)
    sides = (
        align.Training(model, lambda outputs: (outputs**2).mean(), optimizer)
        for model, optimizer in zip(models, optimizers, strict=True)
    )
    result = align.compare_training_step(*sides, batch={"x": X}, name_map=path, steps=2)
    assert result.verdict.exit_code == 0, result.verdict
