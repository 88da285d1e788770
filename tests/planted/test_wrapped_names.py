"""Real wrappers around real models: what they put into names hinders no command, on whichever side it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
import numpy as np
import pytest
import torch
from mindspore import nn as mnn
from torch import nn

import align
from align.core.verdicts import Outcome
from align.errors import InputsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = {"x": np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)}


def original() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Sequential(nn.Linear(12, 6), nn.ReLU()), nn.Linear(6, 4))


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


def compiled_inside(model: nn.Sequential) -> nn.Module:
    model[2] = compiled(model[2])
    return model


def parallel_inside(model: nn.Sequential) -> nn.Module:
    model[2] = nn.DataParallel(model[2])
    return model


def port() -> mnn.Cell:
    inner = mnn.SequentialCell(mnn.Dense(12, 6), mnn.ReLU())
    return mnn.SequentialCell(mnn.Dense(8, 12), mnn.ReLU(), inner, mnn.Dense(6, 4))


WRAPPERS: list[Callable[[nn.Sequential], nn.Module]] = [
    nn.DataParallel, compiled, lambda model: nn.DataParallel(compiled(model)),
    compiled_inside, parallel_inside,
]  # fmt: skip


@pytest.fixture
def port_checkpoint(tmp_path: Path) -> Path:
    """The weights of the original, as the port names them."""
    torch.save(original().state_dict(), tmp_path / "net.pth")
    align.convert_checkpoint(tmp_path / "net.pth", tmp_path / "net.ckpt", layers=["*=linear"])
    return tmp_path / "net.ckpt"


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_wrapped_checkpoint_fills_a_bare_model(
    wrap: Callable[[nn.Sequential], nn.Module], tmp_path: Path, port_checkpoint: Path
) -> None:
    torch.save(wrap(original()).state_dict(), tmp_path / "wrapped.pth")
    reference = align.SideRequest(nn.Sequential(*map(reset, original())), tmp_path / "wrapped.pth")
    result = align.compare_forward(reference, align.SideRequest(port(), port_checkpoint), inputs=X, power=False)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [finding.subject for finding in result.findings if finding.code == "names-unwrapped"] == ["Sequential"]


def reset(layer: nn.Module) -> nn.Module:
    """The same layer with other weights."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_wrapped_model_is_mapped_as_the_bare_one(wrap: Callable[[nn.Sequential], nn.Module]) -> None:
    bare, wrapped = align.map_parameters(original(), port()), align.map_parameters(wrap(original()), port())
    assert wrapped.name_map.complete
    assert [one.target for one in wrapped.name_map.pairings] == [one.target for one in bare.name_map.pairings]
    assert set(wrap(original()).state_dict()) == {one.source for one in wrapped.name_map.pairings}
    if wrap is not parallel_inside:  # a `module` in the middle may be the user's own
        assert "without the parts that a wrapper added" in wrapped.warnings[0]
    assert bare.warnings == ()


def test_a_map_of_the_bare_model_fits_the_wrapped_one(tmp_path: Path, port_checkpoint: Path) -> None:
    align.map_parameters(original(), port(), out=tmp_path / "map.toml")
    candidate = align.SideRequest(port(), port_checkpoint)
    result = align.compare_forward(
        nn.DataParallel(original()), candidate, inputs=X, name_map=tmp_path / "map.toml", power=False
    )
    assert result.verdict.outcome is Outcome.ALIGNED


def test_a_checkpoint_of_another_model_is_still_refused(tmp_path: Path) -> None:
    torch.save(nn.DataParallel(nn.Sequential(nn.Linear(8, 12))).state_dict(), tmp_path / "other.pth")
    with pytest.raises(InputsError, match=r"missing: 3\.weight"):
        align.open_side(original(), tmp_path / "other.pth")


def test_a_wrapped_mindspore_checkpoint_fills_the_port(tmp_path: Path, port_checkpoint: Path) -> None:
    loaded = mindspore.load_checkpoint(str(port_checkpoint))
    mindspore.save_checkpoint([{"name": f"module.{k}", "data": v} for k, v in loaded.items()], str(tmp_path / "w.ckpt"))
    candidate = align.SideRequest(port(), tmp_path / "w.ckpt")
    assert align.compare_forward(original(), candidate, inputs=X, power=False).verdict.outcome is Outcome.ALIGNED
