"""Each call of a port is judged on the reference's values, whatever the layers before it do wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.load_code import model_readers
from align.forward.isolated_calls import Isolation, IsolationOptions, NoiseIsolation, expected_calls
from align.measure.limits import RoundingNoise
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.module_calls import Call, CallPair

if TYPE_CHECKING:
    from align.core.traces import Capture

X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
UNCHANGED = IsolationOptions()


@dataclass
class Kept:
    """A Trace in memory that is its own sink."""

    captures: list[Capture] = field(default_factory=list)
    inputs: list[Capture] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def enter(self, module: str, call: int, inputs: Any) -> None:
        from align.core.traces import Capture

        for name, value in inputs.items():
            order, dtype = len(self.captures), value.dtype.name
            capture = Capture(order, module, call, name, "", value.shape, dtype, role="input")
            self.inputs.append(capture)
            self.values[capture.key] = np.array(value)

    def add(self, capture: Capture, value: Any) -> None:
        self.captures.append(capture)
        self.values[capture.key] = np.array(value)

    def value(self, capture: Capture) -> Any:
        return self.values[capture.key]


def chain(**layers: Any) -> ArrayModel:
    """Layers by path, each one function of its input."""
    return ArrayModel(tuple(ArrayLayer(path, "torch.nn.Odd", function, {}) for path, function in layers.items()))


def run(model: ArrayModel, sink: Any, x: Any = X) -> Any:
    adapter: Any = model_readers()["arrays"]
    adapter.run(model, {"x": x}, sink)
    return sink


def isolated(
    reference: ArrayModel,
    port: ArrayModel,
    names: dict[str, str],
    *,
    way: IsolationOptions = UNCHANGED,
    uncertain: tuple[str, ...] = (),
    kind: str = "linear",
) -> Isolation:
    """The port's calls alone, beside those of the reference; `names` are the port's by the reference's."""
    mine, theirs = run(reference, Kept()), run(port, Kept())
    pairs = []
    for a, b in names.items():
        calls = [
            Call(path, 0, one.order, "Odd", kind, (one,))
            for kept, path in ((mine, a), (theirs, b))
            for one in kept.captures
            if one.module == path
        ]
        pairs.append(CallPair(*calls, certain=a not in uncertain))
    noise = NoiseIsolation(mine)
    adapter: Any = model_readers()["arrays"]
    run(adapter.widened(reference), noise, X.astype(np.float64))
    found: Isolation = run(port, Isolation(expected_calls(mine, pairs, RoundingNoise(noise.noise)), way))
    return found


def factors(found: Isolation) -> dict[str, tuple[bool | None, bool | None]]:
    """For each call, whether what it was given and what it returned is right."""
    return {
        path: tuple(None if one is None else one <= 1.0 for one in (call.inputs_factor, call.factor))  # type: ignore[misc]
        for (path, _), call in found.calls.items()
        if path
    }


def double(x: Any) -> Any:
    return x * 2


def negative(x: Any) -> Any:
    return -x


def third(x: Any) -> Any:
    return x / 3


def turned(x: Any) -> Any:
    return np.ascontiguousarray(x.T)


def test_a_fault_is_seen_at_its_layer_and_carried_to_no_other() -> None:
    found = isolated(
        chain(a=np.exp, b=np.tanh, c=third), chain(x=np.exp, y=np.sin, z=third), {"a": "x", "b": "y", "c": "z"}
    )
    assert factors(found) == {"x": (True, True), "y": (True, False), "z": (True, True)}
    off = found.calls["y", 0].outputs["b#0"]
    np.testing.assert_array_equal(off.value, np.sin(np.exp(X)))  # type: ignore[arg-type]


def test_what_a_later_layer_cancels_is_seen_all_the_same() -> None:
    found = isolated(chain(a=np.exp, b=np.sign), chain(x=np.cosh, y=np.sign), {"a": "x", "b": "y"})
    assert factors(found) == {"x": (True, False), "y": (True, True)}


def test_what_code_between_makes_wrong_is_an_input_and_gives_way_only_where_it_is_forced() -> None:
    models = chain(a=np.exp, b=np.tanh), chain(x=np.exp, extra=double, y=np.tanh)
    first = isolated(*models, {"a": "x", "b": "y"})
    assert factors(first) == {"x": (True, True), "extra": (None, None), "y": (False, False)}
    assert not first.overwrites
    second = isolated(*models, {"a": "x", "b": "y"}, way=IsolationOptions(frozenset({("y", 0)})))
    assert factors(second) == {"x": (True, True), "extra": (None, None), "y": (False, True)}
    assert second.overwrites


def test_of_a_call_without_counterpart_samples_are_kept_of_what_it_was_given_and_returned() -> None:
    found = isolated(chain(a=np.exp, b=np.tanh), chain(x=np.exp, extra=double, y=np.tanh), {"a": "x", "b": "y"})
    extra = found.calls["extra", 0]
    assert extra.class_name == "Odd"
    np.testing.assert_array_equal(extra.given, [np.exp(X).ravel()])
    np.testing.assert_array_equal(extra.samples, [2 * np.exp(X).ravel()])
    assert found.calls["x", 0].samples == []


def test_an_output_at_another_place_of_the_model_stays_unless_it_is_right() -> None:
    """Of a pair that is not certain nobody knows that both end at the same place."""
    names = {"a": "x", "b": "y", "c": "z"}
    off = isolated(chain(a=np.exp, b=np.tanh, c=third), chain(x=np.exp, y=np.sin, z=third), names, uncertain=("b",))
    assert factors(off) == {"x": (True, True), "y": (True, False), "z": (False, False)}
    right = isolated(chain(a=np.exp, b=np.tanh), chain(x=np.exp, y=np.tanh), {"a": "x", "b": "y"}, uncertain=("b",))
    assert factors(right)["y"] == (True, True)


def test_an_output_of_another_size_is_off_beyond_any_limit_and_gives_way() -> None:
    names = {"a": "x", "b": "y"}
    models = chain(a=np.exp, b=np.tanh), chain(x=lambda x: np.exp(x[:3]), y=np.tanh)
    found = isolated(*models, names)
    assert found.calls["x", 0].factor == inf
    assert factors(found)["y"] == (True, True)
    kept = isolated(*models, names, way=IsolationOptions(resizes=False))
    assert kept.calls["x", 0].factor == inf
    assert kept.calls["y", 0].inputs_factor == inf


def test_another_layout_is_compared_in_the_references_and_given_on_in_the_ports() -> None:
    port = chain(x=lambda x: turned(np.exp(x)), y=lambda x: np.tanh(x) * (2 if x.shape == (8, 6) else 9), z=turned)
    found = isolated(chain(a=np.exp, b=np.tanh, c=negative), port, {"a": "x", "b": "y"})
    assert factors(found)["x"] == (True, True)
    assert factors(found)["y"] == (True, False)
    off = found.calls["y", 0].outputs["b#0"]
    assert off.view is not None
    assert off.view.candidate == (8, 6)
    np.testing.assert_array_equal(off.value, 2 * np.tanh(np.exp(X)))  # type: ignore[arg-type]


def test_another_layout_that_values_do_not_tell_is_not_compared() -> None:
    port = chain(x=lambda x: turned(np.exp(x)), y=lambda x: turned(np.sin(x) * 7))
    found = isolated(chain(a=np.exp, b=lambda x: np.tanh(x).reshape(2, 24)), port, {"a": "x", "b": "y"})
    assert found.calls["y", 0].factor is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_of_the_port_alone_pass_no_limit(value: float) -> None:
    def poisoned(x: Any) -> Any:
        y = np.tanh(x)
        y[0, 0] = value
        return y

    found = isolated(chain(a=np.tanh, b=np.exp), chain(x=poisoned, y=np.exp), {"a": "x", "b": "y"})
    assert found.calls["x", 0].factor == inf
    assert factors(found)["y"] == (True, True)


def test_calls_inside_others_are_told_from_leaves() -> None:
    found = isolated(chain(a=np.exp, b=np.tanh), chain(x=np.exp, y=np.tanh), {"a": "x", "b": "y", "": ""})
    root, first, second = (found.calls[path, 0] for path in ("", "x", "y"))
    assert first.is_leaf
    assert second.is_leaf
    assert not root.is_leaf
    assert (root.begun, first.begun, second.begun) == (0, 0, 1)
    assert (first.ended, second.ended, root.ended) == (1, 2, 3)


def test_the_noise_of_a_layer_is_that_on_its_ordinary_inputs() -> None:
    """Not what has gathered: the second layer multiplies the first one's rounding by a thousand."""

    def steep(x: Any) -> Any:
        return x * x.dtype.type(1024)

    ordinary = run(chain(a=np.tanh, b=steep), Kept())
    alone = NoiseIsolation(ordinary)
    run(chain(a=np.tanh, b=steep), alone, X.astype(np.float64))
    noise = alone.noise
    assert noise["a#0"].rmse > 0.0
    assert noise["b#0"].rmse == 0.0  # a power of two rounds nothing
    assert noise["b#0<0"].rmse == 0.0
    assert {ordinary.captures[0].key, ordinary.inputs[-1].key} <= noise.keys()


def test_a_layer_that_does_not_run_in_float64_has_no_noise() -> None:
    def single(x: Any) -> Any:
        return np.tanh(x.astype(np.float32))

    alone = NoiseIsolation(run(chain(a=single), Kept()))
    run(chain(a=single), alone, X.astype(np.float64))
    assert not alone.noise.keys() & {"a#0", "#0"}
