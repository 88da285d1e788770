"""What users wrote in place of layers is neither an error where it does the same nor passed over where it does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.core.verdicts import Outcome
from align.lint.lint_models import lint_models

if TYPE_CHECKING:
    from align.lint.compare_settings import LintResult

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def layers() -> Any:
    place = Path(__file__).with_name("lint_layers.py")
    spec = importlib.util.spec_from_file_location("planted_lint_layers", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def told(result: LintResult) -> list[tuple[str, str, str]]:
    return [(one.rule, one.reference, one.severity) for one in result.findings]


def test_a_layer_behind_a_padding_function_may_pad_by_itself_in_the_port(layers: Any) -> None:
    result = lint_models(layers.PadsOutside(), layers.PadsInside())
    assert told(result) == [("conv-padding", path, "note") for path in ("first", "second.layer", "tail.0")]
    assert result.verdict.outcome is Outcome.ALIGNED


def test_a_layer_that_is_given_nothing_padded_is_an_error_beside_one_that_is(layers: Any) -> None:
    result = lint_models(layers.PadsOne(), layers.PadsInside())
    assert told(result) == [("conv-padding", "second", "error"), ("conv-padding", "first", "note")]


@pytest.mark.parametrize(
    "port", ["ThenActivates", "InOneExpression", "ByOwnMethod", "ByFunction", "Annotated", "BySharedLayer"]
)
def test_padding_is_seen_through_activations_variables_and_methods(layers: Any, port: str) -> None:
    result = lint_models(layers.TwoPadded(), getattr(layers, port)())
    assert told(result) == [("conv-padding", path, "note") for path in ("first", "second")]
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("port", ["OnlyTheFirst", "OnlyTheFirstByMethod", "PadsTooLate", "Overridden"])
def test_what_was_padded_for_another_layer_is_not_padded_for_this_one(layers: Any, port: str) -> None:
    result = lint_models(layers.TwoPadded(), getattr(layers, port)())
    assert told(result) == [("conv-padding", "second", "error"), ("conv-padding", "first", "note")]


def test_borders_that_a_function_fills_are_a_note(layers: Any) -> None:
    result = lint_models(layers.Reflects(), layers.ReflectsOutside())
    assert {(rule, severity) for rule, _, severity in told(result)} == {
        ("conv-padding", "note"), ("conv-padding-mode", "note"),
    }  # fmt: skip


def test_a_transposed_layer_that_keeps_the_size_cuts_as_much_whatever_the_input(layers: Any) -> None:
    def lint(kernel: int, padding: int) -> LintResult:
        left = layers.nn.Sequential(layers.nn.ConvTranspose2d(3, 4, kernel, stride=2, padding=padding))
        right = layers.mnn.Conv2dTranspose(3, 4, kernel, stride=2, pad_mode="same", has_bias=True)
        return lint_models(left, layers.mnn.SequentialCell(right))

    assert lint(4, 1).findings == ()
    assert told(lint(4, 0)) == [("conv-transpose-padding", "0", "error")]
    assert told(lint(5, 2)) == [("conv-transpose-padding", "0", "error")]


def test_the_epsilon_of_written_norms_and_activations_is_compared(layers: Any) -> None:
    assert lint_models(layers.written(1e-6, 1e-3), layers.written_port(1e-6, 1e-3)).findings == ()
    result = lint_models(layers.written(1e-6, 1e-3), layers.written_port(1e-5, 1e-3))
    assert told(result) == [("written-epsilon", path, "error") for path in ("1", "4")]
    assert result.findings[0].change.endswith("RootNormCell(..., epsilon=1e-06)")
    other = lint_models(layers.written(1e-6, 1e-3), layers.written_port(1e-6, 1e-2))
    assert [(rule, path) for rule, path, _ in told(other)] == [("written-epsilon", "2")]
    assert other.verdict.outcome is Outcome.NOT_ALIGNED


def test_a_number_that_is_a_tensor_is_shown_as_it_was_written(layers: Any) -> None:
    def lint(epsilon: float) -> LintResult:
        port = layers.written_port(1e-6, 1e-3)
        port[2].eps = layers.mindspore.Tensor(epsilon, layers.mindspore.float32)
        return lint_models(layers.written(1e-6, 1e-3), port)

    (finding,) = lint(1e-5).findings
    assert (finding.reference_setting, finding.candidate_setting) == ("eps=0.001", "eps=1e-05")
    assert lint(1e-3).findings == ()


def test_a_written_norm_is_held_against_the_frameworks_own(layers: Any) -> None:
    class OwnNorm(layers.mnn.Cell):
        def __init__(self, epsilon: float) -> None:
            super().__init__()
            ones = layers.ops.ones(4, layers.mindspore.float32)
            self.gamma = layers.mindspore.Parameter(ones, name="gamma")
            self.beta = layers.mindspore.Parameter(ones * 0, name="beta")
            self.epsilon = epsilon

    def lint(epsilon: float) -> LintResult:
        left = layers.nn.Sequential(layers.nn.Linear(3, 4), layers.nn.LayerNorm(4))
        right = layers.mnn.SequentialCell(layers.mnn.Dense(3, 4), OwnNorm(epsilon))
        names = "[names]\n" + "".join(f'"{a}" = "{b}"\n' for a, b in NAMES)
        return lint_models(left, right, name_map=write(names))

    assert told(lint(1e-12)) == [("written-epsilon", "1", "error")]
    assert lint(1e-5).findings == ()


def test_a_matrix_product_that_is_written_as_a_convolution_is_a_note(layers: Any) -> None:
    """A run tells whether they are the same."""
    left = layers.nn.Sequential(layers.nn.Linear(64, 3))
    right = layers.mnn.SequentialCell(layers.mnn.Conv2d(16, 3, 2, pad_mode="valid", has_bias=True))
    reshaped = '"0.weight" = { to = "0.weight", op = "reshape", shape = [3, 16, 2, 2] }'
    result = lint_models(left, right, name_map=write(f'[names]\n{reshaped}\n"0.bias" = "0.bias"\n'))
    assert ("other-kind", "0", "note") in told(result)
    assert result.verdict.outcome is not Outcome.NOT_ALIGNED


NAMES = [("0.weight", "0.weight"), ("0.bias", "0.bias"), ("1.weight", "1.gamma"), ("1.bias", "1.beta")]


def write(names: str) -> Path:
    import tempfile

    place = Path(tempfile.mkdtemp()) / "map.toml"
    place.write_text(names, encoding="utf-8")
    return place
