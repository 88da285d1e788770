"""Checkpoints of other versions fill a torch model as torch loads them; others are refused by what they lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.errors import CannotRunError, InputsError
from align.models.open_side import open_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.frameworks


def values_of(model: Any) -> dict[str, Any]:
    return {name: tensor.detach().clone().numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.filterwarnings("ignore")  # torch's own, of the old weight_norm
def test_names_of_older_versions_fill_a_model_as_torch_does(tmp_path: Path, assert_each: Any) -> None:
    import torch
    from torch import nn
    from torch.nn.utils import parametrizations, weight_norm

    def normed(wrap: Callable[..., Any], **options: Any) -> Any:
        return nn.Sequential(wrap(nn.Conv1d(4, 4, 3), **options), wrap(nn.Linear(3, 2)))

    def batch_norm() -> Any:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4))

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
            for name in [one for one in state if one.startswith(f"{prefix}classifier.")]:
                state[name.replace("classifier.", "head.")] = state.pop(name)
            super()._load_from_state_dict(state, prefix, *others)

    def check(build: Callable[[], Any], state: dict[str, Any]) -> None:
        torch.save(state, tmp_path / "old.pth")
        torch.manual_seed(1)
        expected, model = build(), build()
        expected.load_state_dict(torch.load(tmp_path / "old.pth"))
        open_side(model, tmp_path / "old.pth")
        found = values_of(model)
        assert found.keys() == values_of(expected).keys()
        assert all(np.array_equal(found[name], value) for name, value in values_of(expected).items())

    torch.manual_seed(0)
    norm = {name: value for name, value in batch_norm().state_dict().items() if "num_batches" not in name}
    wrapped = {f"module.{name}": value for name, value in norm.items()}
    head = {name.replace("head.", "classifier."): value for name, value in Renamed().state_dict().items()}
    check(batch_norm, norm)
    examples: list[tuple[Callable[[], Any], dict[str, Any]]] = [
        (lambda: normed(parametrizations.weight_norm), dict(normed(weight_norm).state_dict())),
        (lambda: normed(parametrizations.weight_norm, dim=2), dict(normed(weight_norm, dim=2).state_dict())),
        (batch_norm, norm),
        (Renamed, head),
    ]
    assert_each(check, examples)
    torch.save(wrapped, tmp_path / "wrapped.pth")
    side = open_side(batch_norm(), tmp_path / "wrapped.pth")
    assert np.array_equal(values_of(side.model)["1.running_mean"], wrapped["module.1.running_mean"].numpy())


def test_a_checkpoint_that_torch_does_not_load_is_refused_and_changes_nothing(tmp_path: Path, assert_each: Any) -> None:
    import torch
    from torch import nn

    def check(state: dict[str, Any], words: str) -> None:
        torch.save(state, tmp_path / "other.pth")
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        before = values_of(model)
        with pytest.raises(InputsError) as caught:
            open_side(model, tmp_path / "other.pth")
        assert words in caught.value.message
        assert all(np.array_equal(before[name], value) for name, value in values_of(model).items())

    torch.manual_seed(0)
    full = dict(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict())
    examples = [
        ({name: value for name, value in full.items() if name != "0.bias"}, "missing: 0.bias [4]"),
        ({**full, "2.weight": torch.ones(2)}, "unexpected: 2.weight [2]"),
        ({name: value for name, value in full.items() if "running_mean" not in name}, "missing: 1.running_mean [4]"),
        ({**{n: v for n, v in full.items() if "batches" not in n}, "0.weight": torch.ones(5, 3)}, "0.weight"),
        ({f"net.{name}": value for name, value in full.items()}, "missing: 0.weight"),
    ]
    assert_each(check, examples)


def test_what_a_checkpoint_holds_in_the_place_of_weights_is_named(tmp_path: Path, assert_each: Any) -> None:
    import torch
    from torch import nn

    def check(name: str, state: dict[str, Any], words: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        torch.save(state, path)
        with pytest.raises(CannotRunError, match=words):
            open_side(nn.Linear(4, 4), path)

    empty = torch.empty(0).half()
    torch.save({"weight": torch.ones(2, 4)}, tmp_path / "consolidated.01.pth")
    examples = [
        ("zero.pt", {"weight": empty, "bias": empty}, "does not hold the weights"),
        (
            "int8.pt",
            {"weight": torch.ones(4, 4).to(torch.int8), "SCB": torch.ones(4), "bias": torch.ones(4)},
            "quantized",
        ),
        ("consolidated.00.pth", {"weight": torch.ones(2, 4), "bias": torch.ones(2)}, "one rank of a model-parallel"),
    ]
    assert_each(check, examples)


def test_averaged_copies_fill_no_model_and_are_told(tmp_path: Path) -> None:
    import torch
    from torch import nn

    own = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).state_dict()
    torch.save(
        {**own, **{f"ema_{name.replace('.', '_')}": value * 2 for name, value in own.items()}}, tmp_path / "a.pth"
    )
    side = open_side(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), tmp_path / "a.pth")
    assert all(np.array_equal(values_of(side.model)[name], value.numpy()) for name, value in own.items())
    assert "4 tensors (ema_0_weight" in side.not_loaded
