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


@cache
def inputs(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    if name == "conformer":
        padding = np.arange(20) >= np.array([[20], [14], [9]])
        return {"x": rng.standard_normal((3, 20, 16)).astype(np.float32), "padding": padding}
    if name == "diffusion_unet":
        return {"x": rng.standard_normal((2, 3, 8, 8)).astype(np.float32), "t": np.array([3, 410])}
    if name == "pyramid_detector":
        return {"x": rng.standard_normal((2, 3, 32, 32)).astype(np.float32)}
    history = rng.integers(1, 80, (6, 7)) * (np.arange(7) < np.array([[7], [7], [4], [7], [1], [7]]))
    drawn = {key: rng.integers(0, size, shape) for key, size, shape in (("user", 50, 6), ("words", 120, (6, 5)))}
    features = 3 * rng.standard_normal((6, 5)).astype(np.float32)
    return drawn | {"history": history, "item": rng.integers(0, 80, 6), "features": features}


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


# What stands in the port, and instead of it; the layer at which it is told, its cause or what is otherwise inside.
FAULTS = {
    "conformer": {
        "flatten_order": (
            "y.transpose(0, 2, 1, 3).reshape(b, t, c",
            "y.transpose(0, 2, 3, 1).reshape(b, t, c",
            "input_proj",
            "interleaved",
        ),
        "mean_over_padding": (
            "pooled = (y * keep.expand_dims(-1)).sum(1) / keep.sum(1, keepdims=True)",
            "pooled = y.mean(1)",
            "classifier",
            "missing step",
        ),
    },
    "diffusion_unet": {
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
        "other_first": ("(y, second), 1", "(second, y), 1", "decoder.0", "parts-reordered"),
        "another_base": ("math.log(10000)", "math.log(1000)", "embedder.dense0", "other table"),
    },
    "pyramid_detector": {
        "no_half": ("ops.exp(deltas[..., 2:]) * 0.5", "ops.exp(deltas[..., 2:])", "bbox_head", "activation-missing"),
        "no_sigmoid": (
            "return ops.sigmoid(logits), corners",
            "return logits, corners",
            "bbox_head",
            "activation-missing",
        ),
    },
    "recommender": {
        "negative_features": ("ops.relu(features)", "ops.abs(features)", "numeric", "activation-differs"),
        "lower_triangle": ("np.triu_indices(5, 1)", "np.tril_indices(5, -1)", "cross", "permuted"),
        "another_slope": ("0.1 * y", "0.01 * y", "deep.fc1", "activation-differs"),
        "mean_of_words": ("return rows.sum(1)", "return rows.mean(1)", "cross", "slices-scaled"),
    },
}


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults])
def test_each_fault_in_the_code_is_found_at_its_place(name: str, fault: str, tmp_path: Path) -> None:
    right, wrong, place, cause = FAULTS[name][fault]
    text = (PORTS / name / "port.py").read_text(encoding="utf-8")
    assert text.count(right) == 1
    path = tmp_path / f"{name}_{fault}.py"
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    found = found_map(name)
    result = compare_forward(
        original(name), filled(name, path, found), inputs=inputs(name), name_map=found, power=False
    )
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    first = result.culprits[0]
    assert first.candidate == place
    assert cause in (first.cause, first.inside and first.inside.difference)
    assert first.line.rpartition(":")[0].endswith(path.name)
