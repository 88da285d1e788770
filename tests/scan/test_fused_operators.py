"""Calls of fused operators in source files and models, which are read and not run."""

from __future__ import annotations

import math
from typing import Any

import mindspore
import pytest
from mindspore import nn, ops

import align
from align.cli.main import main
from align.errors import AlignError
from align.measure.fused_formulas import FORMULAS
from align.rules.fused_rules import fused_rules
from align.words.catalogue import say

SOURCE = """
import torch_npu as t
import mindspore.ops as ops
from torch_npu import npu_swiglu as gate

def attend(q, k, v, mask, heads, options):
    out = t.npu_fusion_attention(q, k, v, heads, "BSH", keep_prob=0.1, sparse_mode=2)[0]
    out = t.npu_fusion_attention(q, k, v, heads, "BSH", scale=0.1, atten_mask=mask)[0]
    out = t.npu_rms_norm(out, **options)[0]
    t.npu_of_tomorrow(gate(out))
    t.npu.set_device(0)
    return ops.flash_attention_score(q, k, v, heads, scalar_value=0.1, input_layout="BNSD")
"""


def scanned(tmp_path, source: str = SOURCE) -> Any:
    (tmp_path / "attention.py").write_text(source, encoding="utf-8")
    return align.scan_model(f"{tmp_path / 'attention.py'}:attend", target="torch_npu")


def test_calls_are_listed_with_formula_counterpart_and_pitfalls(tmp_path):
    result = scanned(tmp_path)
    listed = {one.api: (one.status, one.calls, one.counterpart) for one in result.calls}
    assert listed == {
        "torch_npu.npu_fusion_attention": ("other name", 2, "mindspore.ops.flash_attention_score"),
        "torch_npu.npu_rms_norm": ("other name", 1, "mindspore.ops.rms_norm"),
        "torch_npu.npu_swiglu": ("other name", 1, "mindspore.ops.swiglu"),
        "torch_npu.npu_of_tomorrow": ("unknown", 1, ""),
        "mindspore.ops.flash_attention_score": ("same", 1, "mindspore.ops.flash_attention_score"),
    }
    assert result.calls[0].write.startswith("dropout(softmax(")
    assert result.exit_code == 1
    found = {(one.subject, one.code) for one in result.findings}
    assert {code for line, code in found if line.endswith(":7")} == {
        "scale-one", "keep-prob", "compressed-mask", "first-of-several"
    }  # fmt: skip
    assert {code for line, code in found if line.endswith(":8")} == {"mask-hides", "first-of-several"}
    assert {code for line, code in found if line.endswith(":9")} == {"tuple-of-norm"}  # **options may hold an epsilon


def test_a_folder_is_read_and_every_rule_has_its_words(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "layer.py").write_text("import torch_npu\ny = torch_npu.npu_swiglu(1)\n", encoding="utf-8")
    (place,) = align.scan_model(str(tmp_path), target="torch_npu").calls[0].places
    assert place.line.endswith("layer.py:2")
    rules = fused_rules()
    assert all(say(f"fused_pitfall.{name}") for name in rules.pitfalls)
    assert {name for one in rules.operators for name in one.pitfalls} == set(rules.pitfalls)
    assert {one.formula for one in rules.operators} == set(FORMULAS)
    assert set(rules.tries) <= set(FORMULAS)


@pytest.mark.parametrize("source", ["x = 1\n", "def (\n"])
def test_what_calls_none_or_is_no_python_is_one_message(tmp_path, source):
    with pytest.raises(AlignError) as caught:
        scanned(tmp_path, source)
    assert caught.value.hint


def test_the_command_runs_nothing(tmp_path, capsys):
    (tmp_path / "attention.py").write_text(SOURCE, encoding="utf-8")
    assert main(["scan", str(tmp_path / "attention.py"), "--target", "torch_npu"]) == 1
    assert "npu_of_tomorrow" in capsys.readouterr().out
    assert main(["scan", str(tmp_path / "attention.py"), "--target", "torch_npu", "--input", "x=float32[1]"]) == 2


class Attention(nn.Cell):
    """A port that leaves the scale at its default."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Dense(8, 8)

    def construct(self, q: mindspore.Tensor) -> mindspore.Tensor:
        return self.out(ops.flash_attention_score(q, q, q, 2, input_layout="BSH"))


class Scaled(Attention):
    """The same with its scale."""

    def construct(self, q: mindspore.Tensor) -> mindspore.Tensor:
        return self.out(ops.flash_attention_score(q, q, q, 2, scalar_value=1 / math.sqrt(4), input_layout="BSH"))


def test_lint_names_the_pitfalls_of_a_port():
    result = align.lint_models(Scaled(), Attention())
    assert result.fused
    assert {one.code for one in result.fused} == {"scalar-value-one"}
    assert all("test_fused_operators.py" in one.subject for one in result.fused)
