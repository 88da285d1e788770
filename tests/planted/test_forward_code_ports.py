"""Wrong code where one side does in one call what the other does in several: the cause, or the lines that are left."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward
from align.names.map_parameters import map_parameters

pytestmark = pytest.mark.frameworks
PORTS = Path(__file__).parent / "code_ports"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def originals() -> list[Any]:
    return [load(PORTS / "original.py"), load(PORTS / "other_original.py")]


@pytest.fixture
def compared(tmp_path, originals):
    """Compare the port of a class with a text replaced; return the result, and the port's lines."""
    import mindspore

    def compare(kind: str, file: str, old: str = "", new: str = "") -> tuple[Any, list[str]]:
        original = next(one for one in originals if hasattr(one, kind))
        text = (PORTS / f"{original.__name__.replace('original', 'port')}.py").read_text(encoding="utf-8")
        begin = text.index(f"class {kind}(")
        path = tmp_path / f"{file}.py"
        path.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
        model, net = original.build(kind), load(path).build(kind)
        name_map = map_parameters(model, net).name_map
        values = {name: value.detach().numpy() for name, value in model.state_dict().items()}
        made = {pair.target: pair.transform.apply(values[pair.source]) for pair in name_map.pairings}
        for one in net.get_parameters():
            one.set_data(mindspore.Tensor(np.array(made[one.name])))
        result = compare_forward(model, net, inputs=original.inputs(kind), name_map=name_map, power=False)
        return result, path.read_text(encoding="utf-8").splitlines()

    return compare


KINDS = ["Router", "Spectrogram", "Packed", "Resized", "Grouped", "Windows", "Boxes", "Relative", "Graphed", "Squeezed"]


@pytest.mark.parametrize("kind", KINDS)
def test_ports_that_do_all_in_another_way_are_right(kind, compared):
    result, _ = compared(kind, f"right_{kind.lower()}")
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.culprits == ()


def told_lines(culprit: Any, lines: list[str]) -> list[str]:
    return [lines[int(one.rpartition(":")[2]) - 1].strip() for one in culprit.inside.lines]


def test_a_window_is_named_though_the_reference_frames_and_transforms_in_one_call(compared):
    result, lines = compared("Spectrogram", "symmetric", "np.arange(32) / 32)", "np.arange(32) / 31)")
    (culprit,) = result.culprits
    inside = culprit.inside
    assert (inside.function, inside.reference_function, inside.difference) == ("Mul", "stft", "other table")
    assert inside.sureness == "confirmed"
    assert told_lines(culprit, lines) == ["frames = frames * self.window"]


def test_code_whose_right_results_the_reference_has_nowhere_is_told_by_all_its_lines(compared):
    result, lines = compared("Spectrogram", "no_mirror", 'mode="reflect"', 'mode="constant"')
    (culprit,) = result.culprits
    assert culprit.inside.difference == "result or before"
    told = told_lines(culprit, lines)
    assert told[-1].startswith("x = ops.pad(")
    assert not any(one.startswith("angles") for one in told)


def test_the_lines_between_what_both_sides_have_are_named_where_top_k_is_before_the_softmax(compared):
    old = "shares = ops.softmax(scores, axis=-1)\n        top, index = ops.topk(shares, 2, dim=-1)"
    new = "top, index = ops.topk(scores, 2, dim=-1)\n        top = ops.softmax(top, axis=-1)"
    result, lines = compared("Router", "top_k_first", old, new)
    (culprit,) = result.culprits
    assert culprit.inside.reference_function == "topk"  # of which the values alone are meant
    told = told_lines(culprit, lines)
    assert told == ["top = ops.softmax(top, axis=-1)", "top, index = ops.topk(scores, 2, dim=-1)"]


def test_a_layer_that_makes_what_the_reference_lacks_is_among_the_lines(compared):
    result, lines = compared("Packed", "no_lengths", ", seq_length=lengths.astype(ms.int32)", "")
    (culprit,) = result.culprits
    assert "out, _ = self.rnn(x)" in told_lines(culprit, lines)


def test_another_scale_of_attention_is_named_though_the_reference_attends_in_one_call(compared):
    result, _ = compared("Grouped", "by_width", "8**-0.5\n        k =", "8**-1.0\n        k =")
    (culprit,) = result.culprits
    assert culprit.cause == "attention-scale"
    assert culprit.facts["candidate"] == "1/features of a head"
    assert culprit.inside.reference_function == "scaled_dot_product_attention"


def test_keys_and_values_that_are_both_tiled_are_named_with_both_lines(compared):
    old = "k = ops.repeat_interleave(k, 2, 1)\n        v = ops.repeat_interleave(v, 2, 1)"
    new = "k = ops.tile(k, (1, 2, 1, 1))\n        v = ops.tile(v, (1, 2, 1, 1))"
    result, lines = compared("Grouped", "tiled_both", old, new)
    (culprit,) = result.culprits
    assert (culprit.inside.reference_function, culprit.inside.difference) == ("repeat_interleave", "result")
    assert told_lines(culprit, lines) == ["k = ops.tile(k, (1, 2, 1, 1))", "v = ops.tile(v, (1, 2, 1, 1))"]


def test_a_function_that_is_right_elsewhere_is_told_by_the_line_that_calls_it(compared):
    result, lines = compared("Windows", "rolled_on", "return rolled(y, 2)", "return rolled(y, -2)")
    (culprit,) = result.culprits
    assert told_lines(culprit, lines)[0] == "return rolled(y, -2)"


def test_joined_lists_of_tensors_are_seen(compared):
    result, lines = compared("Boxes", "sizes", "[center - 0.5 * size, center + 0.5 * size]", "[center, size]")
    (culprit,) = result.culprits
    assert (culprit.inside.function, culprit.inside.reference_function) == ("Concat", "stack")
    assert told_lines(culprit, lines)[0] == "boxes = ops.concat([center, size], axis=-1)"


def test_unlike_dilation_is_found_behind_padding_at_another_place(compared):
    result, _ = compared("Dilated", "no_dilation", "padding=2, dilation=2", "padding=1, dilation=1")
    (culprit,) = result.culprits
    assert (culprit.cause, culprit.sureness) == ("conv-dilation", "confirmed")
    assert culprit.arguments == {"dilation": 2, "pad_mode": "pad", "padding": 2}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("Graphed", "near.expand_dims(2) + far.expand_dims(1)", "near.expand_dims(1) + far.expand_dims(2)"),
        ("Chained", "alpha.expand_dims(2) + self.moves", "alpha.expand_dims(2) + self.moves.T"),
        ("Buckets", ".transpose(2, 0, 1)\n        scores", ".transpose(2, 1, 0)\n        scores"),
    ],
)
def test_what_is_only_turned_is_followed_back_to_the_line_that_turned_it(compared, kind, old, new):
    result, lines = compared(kind, f"turned_{kind.lower()}", old, new)
    (culprit,) = result.culprits
    told = told_lines(culprit, lines)
    assert len(told) <= 3
    assert any(new.partition("\n")[0] in one for one in told)


def test_a_mask_that_hides_nothing_is_named_where_the_reference_hides_something(compared):
    result, lines = compared("Graphed", "hides_nothing", "ops.where(a > 0, scores", "ops.where(a > -1, scores")
    (culprit,) = result.culprits
    assert any("ops.where(a > -1, scores" in one for one in told_lines(culprit, lines))


@pytest.mark.parametrize("value", ["0.0", "0.1", "0.5"])
def test_a_pool_that_returns_its_places_too_is_held_against_one_that_does_not(compared, value):
    result, lines = compared("Squeezed", f"padded_{value[-1]}{len(value)}", "value=-1e9", f"value={value}")
    (culprit,) = result.culprits
    assert culprit.inside.reference_function == "max_pool2d"
    assert told_lines(culprit, lines)[-1] == f"y = ops.pad(y * scale, (1, 1, 1, 1), value={value})"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max=0.5)", "max=4.135)"),
        ("center - 0.5 * size, center + 0.5 * size", "center, size"),
        ("center + deltas[..., :2] * size", "center + deltas[..., 2:] * size"),
    ],
)
def test_numbers_that_the_reference_has_one_by_one_are_known_in_one_tensor(compared, old, new):
    result, lines = compared("Boxes", f"boxes_{len(old)}", old, new)
    (culprit,) = result.culprits
    told = told_lines(culprit, lines)
    assert len(told) <= 3
    assert any(new in one for one in told)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(1 - attention_mask.astype(x.dtype)) * -1e9", "attention_mask.astype(x.dtype) * -1e9"),
        ("scores + hidden.reshape(b, 1, 1, t)", "scores + 0.0"),
        ("hidden.reshape(b, 1, 1, t)", "ops.flip(hidden, (1,)).reshape(b, 1, 1, t)"),
    ],
)
def test_a_mask_is_named_though_the_reference_attends_in_one_call(compared, old, new):
    result, lines = compared("Crossed", f"mask_{len(new)}", old, new)
    (culprit,) = result.culprits
    assert culprit.inside.reference_function == "masked_fill"
    told = told_lines(culprit, lines)
    assert len(told) <= 2
    assert any(one.startswith("scores = scores + ") for one in told)
