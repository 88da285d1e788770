from __future__ import annotations

from types import SimpleNamespace

import pytest

from align.errors import MappingRuleError
from align.rules.layer_rules import constants, inputs_first, linear_layouts, read_constants, read_linear_layouts


def test_a_class_that_always_holds_inputs_first_is_told_by_its_name_or_a_base() -> None:
    assert inputs_first(("transformers.pytorch_utils.Conv1D",), object()) is True
    assert inputs_first(("port.Own", "transformers.pytorch_utils.Conv1D"), object()) is True
    assert inputs_first(("torch.nn.Linear",), object()) is None


@pytest.mark.parametrize(("transposed", "expected"), [(True, False), (False, True)])
def test_a_class_of_both_layouts_is_told_by_the_live_layer(transposed: bool, expected: bool) -> None:
    classes = ("mindformers.modules.layers.Linear",)
    assert inputs_first(classes, SimpleNamespace(transpose_b=transposed)) is expected
    assert inputs_first(classes, SimpleNamespace()) is None


def test_each_rule_gives_a_reason() -> None:
    assert all(layout.reason for layout in linear_layouts().values())
    assert all(constants().values())


@pytest.mark.parametrize(
    "text",
    [
        "[[layout]]\nclass = 'a'\nreason = 'b'\n",
        "[[layout]]\nclass = 'a'\nreason = 'b'\ninputs_first = true\noutputs_first_if = 'c'\n",
        "[[layout]]\nclass = 'a'\nreason = ' '\ninputs_first = true\n",
        "[[layout]]\nclass = 'a'\nreason = 'b'\ninputs_first = true\nwhy = 1\n",
        "[[layout]]\nreason = 'b'\ninputs_first = true\n",
        "layout",
    ],
)
def test_a_malformed_layout_is_refused_with_its_file(tmp_path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(MappingRuleError, match=r"x\.toml"):
        read_linear_layouts(tmp_path / "x.toml")


@pytest.mark.parametrize(
    "text",
    [
        "[[constant]]\nattributes = 'mask'\nreason = 'b'\n",
        "[[constant]]\nattributes = ['mask']\nreason = ' '\n",
        "[[constant]]\nattributes = ['mask']\nreason = 'b'\nwhy = 1\n",
        "[[constant]]\nreason = 'b'\n",
        "[[rule]]\n",
    ],
)
def test_a_malformed_constant_is_refused_with_its_file(tmp_path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(MappingRuleError, match=r"x\.toml"):
        read_constants(tmp_path / "x.toml")


@pytest.mark.frameworks
def test_the_layer_of_gpt_2_multiplies_by_its_weight_as_it_stands() -> None:
    import torch
    from transformers.pytorch_utils import Conv1D

    from align.core.load_code import model_readers

    layer = Conv1D(5, 3)
    value = torch.randn(2, 3)
    torch.testing.assert_close(layer(value), value @ layer.weight + layer.bias)
    net = torch.nn.Sequential(layer, torch.nn.Linear(5, 2))
    modules = model_readers()["torch"].read_parameters(net, "net").modules
    assert [module.inputs_first for module in modules] == [None, True, None]
