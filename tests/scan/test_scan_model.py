"""A scan sees layers, functions and methods with their lines, and says what MindSpore has for them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from align.errors import CannotRunError, UserCodeError
from align.scan.scan_model import scan_model

pytestmark = pytest.mark.frameworks
MODEL = """
import torch
from torch import nn
import torch.nn.functional as F


def turned(x):
    return torch.roll(x, 1, 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(nn.ReLU(), nn.LPPool3d(2, 2))
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x):
        y = self.blocks[0](self.conv(x)).flatten(2).transpose(1, 2)
        return turned(F.rms_norm(self.encoder(y), (4,))) @ y.transpose(1, 2)


class Failing(nn.Module):
    def forward(self, x):
        raise RuntimeError("not today")
"""
INPUTS = {"x": np.ones((2, 3, 6, 6), np.float32)}


@pytest.fixture
def classes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    import importlib

    (tmp_path / "scanned_net.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return importlib.reload(importlib.import_module("scanned_net"))


def convolutions(model: Any, x: Any) -> list[Any]:
    return [one for one in scan_model(model, inputs={"input": x}).calls if ".Conv" in one.api]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_what_is_written_for_padding_by_a_word_computes_the_same(axes: int, kernel: int, padding: str) -> None:
    import mindspore
    import torch

    layer = getattr(torch.nn, f"Conv{axes}d")(3, 4, kernel, padding=padding)
    x = np.random.default_rng(0).standard_normal((2, 3, *(7,) * axes)).astype(np.float32)
    (call,) = convolutions(torch.nn.Sequential(layer), x)
    written = re.sub(r", (\w+=\.\.\.|stride)(?=,)", "", call.write).replace("in, out, kernel", f"3, 4, {kernel}")
    other = eval(written, {"mindspore": mindspore})
    for name in ("weight", "bias"):
        own = getattr(other, name)
        own.set_data(mindspore.Tensor(getattr(layer, name).detach().numpy().reshape(own.shape)))
    found = other(mindspore.Tensor(x)).asnumpy()
    np.testing.assert_allclose(found, layer(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_written_follows_the_settings_of_each_layer() -> None:
    from torch import nn

    layers = nn.Sequential(nn.Conv2d(3, 3, 3, padding="same"), nn.Conv2d(3, 3, 3, padding=1))
    (call,) = convolutions(layers, np.ones((1, 3, 6, 6), np.float32))
    other, same = call.write.split("; ")
    assert "pad_mode='pad'" in other
    assert same.startswith("padding='same': ")
    assert "pad_mode='same'" in same


def test_a_run_shows_what_is_called_where(classes: Any) -> None:
    result = scan_model(classes.Net(), inputs=INPUTS)
    by_name = {one.api: one for one in result.calls}
    assert result.seen_by == "run"
    assert by_name["torch.roll"].places[0].line == "scanned_net.py:8"
    assert by_name["torch.nn.Conv2d"].places[0].module == "conv"
    assert by_name["torch.nn.Conv2d"].status == "other default"
    assert by_name["torch.Tensor.transpose"].calls == 2
    assert result.calls[0].api == "torch.nn.functional.rms_norm"  # what has no counterpart comes first
    assert result.exit_code == 1
    assert "torch.nn.functional.linear" not in by_name  # how torch's own layers do their work
    assert "torch.nn.LPPool3d" not in by_name  # nothing runs it


def test_the_source_shows_the_same_names_and_what_is_not_run(classes: Any) -> None:
    seen = {one.api for one in scan_model(classes.Net(), inputs=INPUTS).calls}
    read = {one.api: one for one in scan_model(classes.Net()).calls}
    assert seen <= {*read}
    assert read["torch.nn.LPPool3d"].status == "no counterpart"
    assert read["torch.roll"].places[0].line == "scanned_net.py:8"


def test_what_the_table_lacks_is_unknown_and_no_success() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    result = scan_model(Net(), inputs={"x": np.ones(3, np.float32)})
    assert [one.status for one in result.calls] == ["unknown"]
    assert result.exit_code == 1


def test_a_model_of_plain_layers_has_all() -> None:
    import torch

    result = scan_model(torch.nn.Linear(3, 4), inputs={"input": np.ones((2, 3), np.float32)})
    assert (result.exit_code, result.counts["same"]) == (0, 1)


def test_what_is_no_torch_model_or_fails_is_refused(classes: Any) -> None:
    import mindspore

    with pytest.raises(CannotRunError, match="is a model of mindspore"):
        scan_model(mindspore.nn.Dense(3, 4))
    with pytest.raises(UserCodeError, match="not today"):
        scan_model(classes.Failing(), inputs=INPUTS)


def test_a_model_that_calls_nothing_has_nothing_to_be_found() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(CannotRunError, match="no call of torch was seen"):
        scan_model(Net(), inputs={"x": np.ones(3, np.float32)})


def test_source_that_cannot_be_read_is_refused() -> None:
    names: dict[str, Any] = {"__name__": "made_of_text"}
    exec("import torch\nclass Made(torch.nn.Module):\n    def forward(self, x):\n        return x", names)
    with pytest.raises(CannotRunError, match="cannot be read"):
        scan_model(names["Made"]())
