"""Ports as an engineer writes them: all names are found, all is right, and faults in their code at their places.

Other names, other nesting, functions for layers, convolutions as matrices, fused projections cut, bags as tables.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward
from align.names.map_parameters import map_parameters

pytestmark = pytest.mark.frameworks
PORTS = Path(__file__).parent / "ports"
NAMES = ("conformer", "diffusion_unet", "pyramid_detector", "recommender")


def load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def original(name: str) -> Any:
    return load(PORTS / name / "original.py", f"original_{name}").build()


def inputs(name: str) -> dict[str, np.ndarray]:
    given: dict[str, np.ndarray] = sys.modules[type(original(name)).__module__].inputs()
    return given


@cache
def found_map(name: str, *, trial: bool = False) -> Any:
    port = load(PORTS / name / "port.py", f"port_{name}").build()
    return map_parameters(original(name), port, inputs=inputs(name), trial=trial).name_map


def filled(name: str, path: Path, name_map: Any) -> Any:
    """Build a port and give it the original's values by the map."""
    import mindspore

    net, values = load(path, path.stem).build(), original(name).state_dict()
    made = {one.target: one.transform.apply(values[one.source].numpy()) for one in name_map.pairings}
    for one in net.get_parameters():
        one.set_data(mindspore.Tensor(np.ascontiguousarray(made[one.name])))
    return net


@pytest.mark.parametrize("name", NAMES)
def test_all_names_are_found_and_with_them_all_outputs_are_right(name: str) -> None:
    found = found_map(name)
    assert (found.ambiguous, found.unmatched) == ((), ())
    port = filled(name, PORTS / name / "port.py", found)
    result = compare_forward(original(name), port, inputs=inputs(name), name_map=found, power=False)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.culprits == ()


@pytest.mark.parametrize("name", ["conformer", "diffusion_unet"])
def test_a_trial_makes_all_pairs_sure(name: str) -> None:
    tried = found_map(name, trial=True)
    pairs = {(one.source, one.target, one.transform) for one in tried.pairings}
    assert pairs == {(one.source, one.target, one.transform) for one in found_map(name).pairings}
    assert min(one.confidence for one in tried.pairings) == 1


# Faults of one port together, for each is to be found by itself: what stands in the port, and instead of it; where it
# is to be told, and the cause or what the call inside does otherwise.
Fault = tuple[str, str, str, str]
FAULTS: dict[str, list[dict[str, Fault]]] = {
    "conformer": [
        {
            "flatten_order": (
                "y.transpose(0, 2, 1, 3).reshape(b, t, c",
                "y.transpose(0, 2, 3, 1).reshape(b, t, c",
                "input_proj",
                "interleaved",
            ),
            "glu_halves": (
                "a, gate = ops.chunk(x, 2, -1)",
                "gate, a = ops.chunk(x, 2, -1)",
                "encoders.0.conv_module.dw",
                "halves-swapped",
            ),
            "no_mask": (
                "k.transpose(0, 1, 3, 2)) + mask",
                "k.transpose(0, 1, 3, 2))",
                "encoders.0.self_attn.proj",
                "attention-mask",
            ),
            "mean_over_padding": (
                "pooled = (y * keep.expand_dims(-1)).sum(1) / keep.sum(1, keepdims=True)",
                "pooled = y.mean(1)",
                "classifier",
                "padding-differs",
            ),
        },
        {
            "scale": ("self.head_size**-0.5", "d**-0.5", "encoders.0.self_attn.proj", "attention-scale"),
            "no_half": (
                "self.macaron(self.norms[0](x)) / 2",
                "self.macaron(self.norms[0](x))",
                "encoders.0.norms.1",
                "term-scaled",
            ),
            "other_activation": (
                "swish(self.batch_norm(self.dw(x)))",
                "ops.relu(self.batch_norm(self.dw(x)))",
                "encoders.0.conv_module.pw_out",
                "activation-differs",
            ),
        },
        {
            "mask_step": (
                "padding[:, ::2]",
                "padding[:, : (padding.shape[1] + 1) // 2]",
                "",  # used in three places
                "attention-mask",
            ),
            "no_norm": (
                "self.conv_module(self.norms[2](x))",
                "self.conv_module(x)",
                "encoders.0.conv_module.pw_in",
                "other-tensor",
            ),
        },
    ],
    "diffusion_unet": [
        {
            "sine_first": (
                "ops.cos(args), ops.sin(args)",
                "ops.sin(args), ops.cos(args)",
                "embedder.dense0",
                "parts-reordered",
            ),
            "no_activation": ("ops.silu(emb)", "emb", "encoder.0.emb_proj", "activation-differs"),
            "tiled": (
                "y.repeat_interleave(2, 2).repeat_interleave(2, 3)",
                "ops.tile(y, (1, 1, 2, 2))",
                "unpool",
                "reordered",
            ),
            "not_turned_back": (
                "x + y.swapaxes(1, 2).reshape(b, c, h, w)",
                "x + y.reshape(b, c, h, w)",
                "mid",
                "reordered",
            ),
        },
        {
            "another_base": ("math.log(10000)", "math.log(1000)", "embedder.dense0", "other table"),
            "other_first": ("(y, second), 1", "(second, y), 1", "decoder.0", "parts-reordered"),
        },
    ],
    "pyramid_detector": [
        {
            "tiled": (
                "ops.tile(x.reshape(b, c, h, 1, w, 1), (1, 1, 1, 2, 1, 2))",
                "ops.tile(x, (1, 1, 2, 2))",
                "neck.layer1",
                "reordered",
            ),
            "not_turned": (
                "self.logits(y).transpose(0, 2, 3, 1).reshape(",
                "self.logits(y).reshape(",
                "bbox_head",
                "reordered",
            ),
        },
        {
            "level_skipped": ("self.inner1(c1) + upsample(p2)", "self.inner1(c1)", "neck.layer1", "input-returned"),
            "no_half": ("ops.exp(deltas[..., 2:]) * 0.5", "ops.exp(deltas[..., 2:])", "", "term-scaled"),
        },
        {
            "top_level": ("+ upsample(p2)", "+ upsample(upsample(p3))", "neck.layer1", "other input"),
            "no_sigmoid": (
                "return ops.sigmoid(logits), corners",
                "return logits, corners",
                "bbox_head",
                "activation-missing",
            ),
        },
    ],
    "recommender": [
        {
            "negative_features": ("ops.relu(features)", "ops.abs(features)", "numeric", "activation-differs"),
            "lower_triangle": ("np.triu_indices(5, 1)", "np.tril_indices(5, -1)", "cross", "permuted"),
            "another_slope": ("0.1 * y", "0.01 * y", "deep.fc1", "activation-differs"),
            "mean_of_words": ("return rows.sum(1)", "return rows.mean(1)", "bags.1", "scaled"),
        },
        {
            "mean_over_padding": (
                "ops.maximum(filled.sum(1), Tensor(1.0, ms.float32))",
                "ids.shape[1]",
                "bags.0",
                "slices-scaled",
            ),
            "no_wide": ("logit = logit + self.score", "logit = self.score", "", "missing step"),
        },
        {
            "no_norm": ("y = self.bn(self.fc0(x))", "y = self.fc0(x)", "deep.fc1", "other-tensor"),
            "order_of_fields": (
                "self.bags[0](history), self.bags[1](words), self.item_table(item)",
                "self.bags[1](words), self.bags[0](history), self.item_table(item)",
                "",  # used in two places
                "swapped",
            ),
        },
    ],
}


# Where changes of the code are tried as well, which takes most of the time; test_forward_edits.py holds what they find.
EDITED = {("diffusion_unet", 1), ("pyramid_detector", 2), *(("recommender", number) for number in range(3))}


@pytest.mark.parametrize(("name", "number"), [(name, place) for name in NAMES for place in range(len(FAULTS[name]))])
def test_each_fault_in_the_code_is_found_at_its_place(
    name: str, number: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if (name, number) not in EDITED:
        request.getfixturevalue("changes_untried")
    faults = FAULTS[name][number]
    text = (PORTS / name / "port.py").read_text(encoding="utf-8")
    for right, wrong, _, _ in faults.values():
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    path = tmp_path / f"{name}_{number}.py"
    path.write_text(text, encoding="utf-8")
    found = found_map(name)
    port = filled(name, path, found)
    result = compare_forward(original(name), port, inputs=inputs(name), name_map=found, power=False, functions=True)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    told = {
        place: (one.cause, one.inside and one.inside.difference)
        for one in reversed(result.culprits)
        for place in [one.candidate]
    }
    for _, _, place, cause in faults.values():
        assert cause in told[place]
    assert all(one.line.rpartition(":")[0].endswith(path.name) for one in result.culprits)
