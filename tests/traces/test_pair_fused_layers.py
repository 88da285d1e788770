"""A pair ends where the port's layer does: at the reference's next layer if both are one in the port."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.traces import Capture
from align.traces.module_calls import Call, CallPair, CallPairs, UnpairedLayer
from align.traces.pair_traces import pair_fused_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray

RAW = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
RELU, TANH, SIGMOID = np.maximum(RAW, 0), np.tanh(RAW), 1 / (1 + np.exp(-RAW))


@dataclass
class Run:
    """A Trace: what modules returned, in this order; `given` is what they got."""

    returned: dict[str, NDArray[Any]]
    given: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.captures = tuple(
            Capture(order, path, 0, "", path, value.shape, "float32")
            for order, (path, value) in enumerate(self.returned.items())
        )
        self.inputs = tuple(
            Capture(0, path, 0, "0", "", value.shape, "float32", role="input") for path, value in self.given.items()
        )

    def value(self, capture: Capture) -> NDArray[Any]:
        return (self.given if capture.role == "input" else self.returned)[capture.module]

    def call(self, path: str) -> Call:
        capture = next(one for one in self.captures if one.module == path)
        return Call(path, 0, capture.order, path, "", (capture,))


def ended(reference: Run, candidate: Run, pairs: dict[str, str]) -> CallPairs:
    """All calls without counterpart are unpaired; returns the pairs with their true ends."""
    made = tuple(CallPair(reference.call(a), candidate.call(b)) for a, b in pairs.items())
    left = [UnpairedLayer("reference", path, path, 0, "") for path in reference.returned if path not in pairs]
    left += [UnpairedLayer("candidate", b, b, 0, "") for b in candidate.returned if b not in pairs.values()]
    return pair_fused_layers(CallPairs(made, tuple(left)), reference, candidate)  # type: ignore[arg-type]


def ends(found: CallPairs) -> dict[str, str]:
    """The module whose tensor stands for each pair, by the reference's path."""
    return {pair.reference.module: pair.reference.outputs[0].key for pair in found.pairs}


def alone(found: CallPairs) -> list[str]:
    return [one.module for one in found.unpaired]


def test_a_layer_that_returns_what_the_next_one_does_ends_there() -> None:
    found = ended(Run({"fc": RAW, "relu": RELU, "out": TANH}), Run({"d": RELU, "o": TANH}), {"fc": "d", "out": "o"})
    assert ends(found) == {"fc": "relu#0", "out": "out#0"}
    assert alone(found) == []


def test_it_ends_there_though_faults_of_earlier_layers_are_in_it() -> None:
    candidate = Run({"d": RELU * np.float32(1.01)})
    assert ends(ended(Run({"fc": RAW, "relu": RELU}), candidate, {"fc": "d"})) == {"fc": "relu#0"}


def test_a_layer_that_returns_its_own_output_or_neither_ends_where_it_did() -> None:
    for returned in (RAW, SIGMOID, np.zeros_like(RAW), np.full_like(RAW, np.nan)):
        found = ended(Run({"fc": RAW, "relu": RELU}), Run({"d": returned}), {"fc": "d"})
        assert ends(found) == {"fc": "fc#0"}
        assert alone(found) == ["relu"]


def test_an_activation_that_hardly_changes_anything_moves_no_end() -> None:
    positive = np.abs(RAW)
    found = ended(Run({"fc": positive, "relu": positive}), Run({"d": positive}), {"fc": "d"})
    assert ends(found) == {"fc": "fc#0"}


def test_a_next_layer_with_a_counterpart_of_its_own_stays_with_it() -> None:
    found = ended(Run({"fc": RAW, "relu": RELU}), Run({"d": RELU, "act": RELU}), {"fc": "d", "relu": "act"})
    assert ends(found) == {"fc": "fc#0", "relu": "relu#0"}


def test_a_layer_that_returns_what_the_next_ones_counterpart_inside_does_ends_there_whatever_the_values() -> None:
    """The port's activation is another one: values cannot tell."""
    candidate = Run({"d.activation": SIGMOID, "d": SIGMOID})
    found = ended(Run({"fc": RAW, "tanh": TANH}), candidate, {"fc": "d", "tanh": "d.activation"})
    assert ends(found) == {"fc": "tanh#0", "tanh": "tanh#0"}


def test_a_layer_that_goes_on_after_the_cell_inside_does_not_end_there() -> None:
    for candidate in (Run({"d.act": TANH, "d": SIGMOID}), Run({"d.act": TANH, "d.more": RAW, "d": TANH})):
        found = ended(Run({"fc": RAW, "tanh": RELU}), candidate, {"fc": "d", "tanh": "d.act"})
        assert ends(found)["fc"] == "fc#0"


def test_a_layer_of_the_reference_that_holds_its_activation_is_compared_by_what_it_gives_it() -> None:
    reference = Run({"fc.act": RELU, "fc": RELU}, given={"fc.act": RAW})
    found = ended(reference, Run({"d": RAW, "relu": RELU}), {"fc": "d"})
    assert ends(found) == {"fc": "fc.act#0<0"}
    assert found.pairs[0].certain


def test_a_layer_of_the_port_that_holds_an_activation_without_counterpart_is_not_certain() -> None:
    found = ended(Run({"fc": RAW}), Run({"d.act": SIGMOID, "d": SIGMOID}), {"fc": "d"})
    assert ends(found) == {"fc": "fc#0"}
    assert not found.pairs[0].certain


def test_layers_that_both_hold_their_activation_are_left_alone() -> None:
    reference, candidate = Run({"fc.act": RELU, "fc": RELU}), Run({"d.act": RELU, "d": RELU})
    found = ended(reference, candidate, {"fc.act": "d.act", "fc": "d"})
    assert ends(found) == {"fc.act": "fc.act#0", "fc": "fc#0"}
    assert all(pair.certain for pair in found.pairs)


def test_the_model_itself_ends_where_it_ends() -> None:
    found = ended(Run({"": RAW, "later": RELU}), Run({"": RELU}), {"": ""})
    assert ends(found) == {"": "#0"}
