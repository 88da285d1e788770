"""A comparison that looks for culprits leaves both models as they were: values, modes, attributes, names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.load_code import model_readers
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

State = dict[str, Any]


def state_of(model: Any) -> State:
    """All that a module or cell keeps, tensors as bytes, layers by identity."""
    name = "mindspore" if hasattr(model, "cells_and_names") else "torch"
    values = model_readers()[name].read_values(model)
    named = model.named_modules() if name == "torch" else model.cells_and_names()
    state: State = {f"value of {key}": (value.dtype, value.tobytes()) for key, value in values.items()}
    for path, module in named:
        state[f"layer {path}"] = id(module)
        state[f"mode of {path}"] = module.training
        own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        plain = {key: value for key, value in own.items() if isinstance(value, (bool, int, float, str, tuple, list))}
        state[f"attributes of {path}"] = repr(sorted(plain.items()))
        state[f"names of {path}"] = sorted(own)
        state[f"parameters of {path}"] = [id(one) for one in own.values() if hasattr(one, "requires_grad")]
        hooks = [value for key, value in vars(module).items() if "hook" in key and hasattr(value, "__len__")]
        state[f"hooks of {path}"] = sum(len(value) for value in hooks)
    return state


def changed(before: State, after: State) -> set[str]:
    """What is no longer as it was."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def settings(pairs: Any, port: Any) -> None:
    port.stack[0].act = type(port.stack[0].act)(approximate=True)


def weights(pairs: Any, port: Any) -> None:
    settings(pairs, port)
    pairs.change(port, "stack.1.merge.weight", lambda value: value.T)
    pairs.change(port, "final.gamma", np.ones_like)


@pytest.mark.parametrize("disturb", [settings, weights])
@pytest.mark.parametrize("training", [True, False])
def test_models_are_left_as_they_were_after_settings_and_weights_were_tried(
    pairs: Any, disturb: Callable[[Any, Any], None], training: bool
) -> None:
    inputs = pairs.tokens(batch=2, length=8)
    reference, port = pairs.TorchEncoder(), pairs.PortEncoder(defect="residual dropped")
    name_map = pairs.make_alike(reference, port, inputs)
    disturb(pairs, port)
    reference.train(training)
    reference.layers[0].train(not training)
    port.set_train(training)
    port.stack[1].set_train(not training)
    before = state_of(reference), state_of(port)
    result = compare_forward(reference, port, inputs=inputs, name_map=name_map, power=False)
    assert len(result.culprits) >= 2
    assert changed(before[0], state_of(reference)) == set()
    assert changed(before[1], state_of(port)) == set()


def test_statistics_and_their_counters_are_left_as_they_were(pairs: Any) -> None:
    inputs = pairs.images(size=12)
    reference, port = pairs.TorchConvNet(), pairs.PortConvNet(defect="activation")
    name_map = pairs.make_alike(reference, port, inputs)
    pairs.change(port, "layers.1.b_norm.moving_mean", np.zeros_like)
    reference.train()
    port.set_train()
    before = state_of(reference), state_of(port)
    result = compare_forward(reference, port, inputs=inputs, name_map=name_map, power=False)
    assert [one.candidate for one in result.culprits] == ["layers.1.act", "layers.1.b_norm"]
    assert changed(before[0], state_of(reference)) == set()
    assert changed(before[1], state_of(port)) == set()


def test_a_port_is_left_as_it_was_though_it_failed_on_right_values(pairs: Any, faulty: Any) -> None:
    inputs = {"x": np.random.default_rng(0).standard_normal((32, faulty.WIDTH)).astype(np.float32)}
    reference, clean = faulty.TorchPicky(), faulty.PortPicky()
    name_map = pairs.make_alike(reference, clean, inputs)
    port = faulty.PortPicky(defect="refuses")
    pairs.transfer(reference, port, name_map)
    pairs.change(port, "a.weight", lambda value: value * 1.5)
    port.set_train()
    before = state_of(reference), state_of(port)
    result = compare_forward(reference, port, inputs=inputs, name_map=name_map, power=False)
    assert [one.code for one in result.findings if one.code == "not-isolated"]
    assert result.culprits[0].cause == "weights-differ"
    assert changed(before[0], state_of(reference)) == set()
    assert changed(before[1], state_of(port)) == set()


def test_what_is_seen_here_would_tell_a_change(pairs: Any) -> None:
    port = pairs.PortEncoder()
    changes = {
        "value of final.gamma": partial(pairs.change, port, "final.gamma", lambda value: value * 2),
        "mode of stack.0": port.stack[0].set_train,
        "attributes of stack.1": partial(setattr, port.stack[1], "heads", 1),
    }
    for told, change in changes.items():
        before = state_of(port)
        change()
        assert told in changed(before, state_of(port))
