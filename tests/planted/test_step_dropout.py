"""Training steps with dropout on: the reference's masks in the port, and ports that drop otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from step_nets import batch, mindspore_side, torch_side

import align
from align.core.documents import to_json_data
from align.core.name_map import NameMap, Pairing
from align.report.kinds.steps import step_blocks
from align.training.open_training import open_trainings
from align.training.replay_dropout import DropoutReplay

pytestmark = pytest.mark.frameworks

SHARE = 0.3


def compared(reference: align.Training, candidate: align.Training, given: Any = None) -> Any:
    return align.compare_training_step(reference, candidate, batch=given or batch(), steps=1)


def places(result: Any) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.part, one.candidate, one.cause) for one in result.culprits]


def told(result: Any) -> list[str]:
    return [one.code for one in result.findings]


def inputs(*shape: int) -> dict[str, Any]:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return {"x": values, "label": np.arange(shape[0]) % 3}


@cache
def _classes() -> tuple[Any, Any]:
    """Nets of layers that are given, and of code that is told the layers, an input, and functions of the framework."""
    import torch
    from mindspore import nn, ops

    class Net(torch.nn.Module):
        def __init__(self, code: Any, layers: dict[str, Any]) -> None:
            super().__init__()
            self.code = code
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x: Any) -> Any:
            return self.code(self, x, torch)

    class Port(nn.Cell):
        def __init__(self, code: Any, layers: dict[str, Any]) -> None:
            super().__init__()
            self.code = code
            for name, layer in layers.items():
                setattr(self, name, layer)

        def construct(self, x: Any) -> Any:
            return self.code(self, x, ops)

    return Net, Port


def plain(net: Any, x: Any, functions: Any) -> Any:
    return net.head(net.drop(functions.relu(net.stem(x))))


def without(net: Any, x: Any, functions: Any) -> Any:
    return net.head(functions.relu(net.stem(x)))


def reference(code: Any = plain, **layers: Any) -> align.Training:
    import torch

    torch.manual_seed(0)
    given = {"stem": torch.nn.Linear(8, 16), "head": torch.nn.Linear(16, 3), "drop": torch.nn.Dropout(SHARE)}
    model = _classes()[0](code, given | layers)
    return align.Training(model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))


def port(code: Any = plain, **layers: Any) -> align.Training:
    from mindspore import nn

    given = {"stem": nn.Dense(8, 16), "head": nn.Dense(16, 3), "drop": nn.Dropout(p=SHARE)}
    model = _classes()[1](code, given | layers)
    return align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1))


def small(one: align.Training, other: align.Training) -> Any:
    return compared(one, other, inputs(12, 8))


def thinned() -> Any:
    """A layer of another name, which computes the same."""
    import torch

    class Thinned(torch.nn.Dropout):
        """Nothing but a name."""

    return Thinned(SHARE)


def assert_left_alone(one: align.Training, other: align.Training, before: dict[str, Any]) -> None:
    """Check that both layers for dropout are as they were, without hooks."""
    assert one.model.drop.p == SHARE
    assert not one.model.drop._forward_hooks
    assert not one.model._forward_hooks
    assert (other.model.drop.p, other.model.drop.keep_prob) == (before["p"], before["keep_prob"])
    assert not other.model.drop._forward_hook


def test_both_sides_drop_what_the_reference_s_masks_say_and_are_left_as_they_were() -> None:
    import torch
    from mindspore import nn

    one, other = reference(drop=thinned()), port()
    before = {**vars(other.model.drop)}
    result = small(one, other)
    assert places(result) == []
    assert told(result) == ["dropout-replayed"]
    assert_left_alone(one, other, before)
    assert result.findings[0].message.endswith("1 layer of the reference and 1 layer of the candidate")
    idle = small(reference(drop=torch.nn.Identity()), port(drop=nn.Identity()))
    assert told(idle) == []
    assert abs(result.losses[0].reference - idle.losses[0].reference) > 1e-3
    assert result.losses[0].candidate == pytest.approx(result.losses[0].reference, rel=1e-5)


def test_dropout_at_another_place_shows_only_because_masks_are_on() -> None:
    def inside(net: Any, x: Any, functions: Any) -> Any:
        hidden = functions.tanh(net.stem(x))
        return net.head(net.drop(hidden) + hidden)

    def around(net: Any, x: Any, functions: Any) -> Any:
        hidden = functions.tanh(net.stem(x))
        return net.head(net.drop(hidden + hidden))

    assert places(small(reference(inside), port(inside))) == []
    assert places(small(reference(inside), port(around))) == [("forward", "code", "", "")]


def test_another_share_is_named_and_all_else_is_compared_with_the_reference_s() -> None:
    from mindspore import nn

    def change(model: Any) -> None:
        model.drop = nn.Dropout(p=0.5)

    result = compared(torch_side(), mindspore_side(change=change))
    (culprit,) = result.culprits
    assert places(result) == [("forward", "layer", "drop", "dropout-share")]
    assert (culprit.facts["p"], culprit.change, culprit.sureness) == ("0.2 vs 0.5", "p=0.2", "confirmed")
    assert "step_nets.py:" in culprit.line
    assert (result.verdict.exit_code, told(result)) == (1, ["dropout-replayed"])
    panel = step_blocks(to_json_data(result))[0]
    assert [label.split()[-1] for label, _ in panel.facts if label.strip()][:3] == ["where", "what", "cause"]
    assert "another share is dropped" in dict(panel.facts)["   cause"]


@pytest.mark.parametrize(("settings", "share"), [({"p": 0.0}, "0"), ({"keep_prob": 0.2}, "0.8")])
def test_a_layer_that_drops_nothing_is_one_of_another_share(settings: dict[str, float], share: str) -> None:
    from mindspore import nn

    (culprit,) = small(reference(), port(drop=nn.Dropout(**settings))).culprits
    assert (culprit.cause, culprit.facts["p"]) == ("dropout-share", f"0.3 vs {share}")


def test_a_layer_that_is_not_called_is_named_on_either_side() -> None:
    from mindspore import nn

    forgotten = small(reference(), port(without, drop=nn.Identity()))
    assert places(forgotten) == [("forward", "layer", "", "dropout-missing")]
    assert (forgotten.culprits[0].reference, forgotten.verdict.exit_code) == ("drop", 1)
    assert told(forgotten) == ["dropout-off", "dropout-not-replayed"]
    assert "drop [12, 16] of the reference" in forgotten.findings[-1].message
    assert "drop (Dropout) of the reference" in dict(step_blocks(to_json_data(forgotten))[0].facts)["1  where"]
    added = small(reference(without), port())
    assert places(added) == [("forward", "layer", "drop", "dropout-missing")]
    assert added.culprits[0].facts["p"] == "none vs 0.3"


def test_a_port_that_drops_in_code_lacks_no_layer() -> None:
    def in_code(net: Any, x: Any, ops: Any) -> Any:
        return net.head(ops.dropout(ops.relu(net.stem(x)), p=net.drop_rate, training=net.training))

    dropping = port(in_code, drop_rate=SHARE)
    result = small(reference(), dropping)
    assert (places(result), told(result)) == ([], ["dropout-off"])
    silent = port(without, drop_rate=SHARE)  # it keeps a share, and does nothing with it
    assert places(small(reference(), silent)) == [("forward", "layer", "drop", "dropout-missing")]


def test_attention_of_the_port_s_own_may_drop_by_a_layer() -> None:
    import torch
    from mindspore import nn, ops

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.in_proj, self.out_proj = nn.Dense(8, 24), nn.Dense(8, 8)
            self.weights_drop = nn.Dropout(p=SHARE)

        def construct(self, x: Any) -> Any:
            query, key, value = self.in_proj(x).split(8, axis=-1)
            weights = ops.softmax(query @ key.swapaxes(-1, -2) / 8**0.5, -1)
            return self.out_proj(self.weights_drop(weights) @ value)

    def original(net: Any, x: Any, _: Any) -> Any:
        return net.head(net.drop(net.attention(x, x, x)[0])).mean(1)

    def own(net: Any, x: Any, _: Any) -> Any:
        return net.head(net.drop(net.attention(x))).mean(1)

    attention = torch.nn.MultiheadAttention(8, 1, SHARE, batch_first=True)
    one = reference(original, attention=attention, head=torch.nn.Linear(8, 3))
    result = compared(one, port(own, attention=Attention(), head=nn.Dense(8, 3)), inputs(12, 5, 8))
    assert (places(result), told(result)) == ([], ["dropout-replayed", "dropout-off"])


def test_branches_of_other_names_and_in_another_order_keep_their_masks() -> None:
    import torch
    from mindspore import nn

    def one_first(net: Any, x: Any, _: Any) -> Any:
        return net.head(net.one(x) + 2 * net.two(-x))

    def two_first(net: Any, x: Any, _: Any) -> Any:
        doubled = 2 * net.second(-x)
        return net.head(net.first(x) + doubled)

    idle = {"stem": None, "drop": None}
    branches = {name: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(SHARE)) for name in ("one", "two")}
    other = {name: nn.SequentialCell(nn.Dense(8, 16), nn.Dropout(p=SHARE)) for name in ("first", "second")}
    places_of = (("one.0", "first.0"), ("two.0", "second.0"), ("head", "head"))
    pairings = [Pairing(f"{a}.{b}", f"{c}.{b}", "user", 1.0) for a, c in places_of for b in ("weight", "bias")]
    result = align.compare_training_step(
        reference(one_first, **idle, **branches),
        port(two_first, **idle, **other),
        batch=inputs(12, 8),
        steps=1,
        name_map=NameMap("Net", "Port", tuple(pairings)),
    )
    assert (places(result), told(result)) == ([], ["dropout-replayed"])


def test_masks_are_taken_off_where_layers_for_dropout_seem_wrong() -> None:
    from mindspore import nn

    sides = open_trainings(reference(), port())
    wrong = small(reference(), port(drop=nn.Dropout(p=0.5)))
    times: list[str] = []

    def compare(time: str) -> Any:
        times.append(time)
        return wrong if time == "masks" else replace(wrong, culprits=())

    with DropoutReplay(sides, inputs(12, 8)) as dropout:
        result = dropout.compare_steps(compare)
        findings = [*dropout.findings]
    assert (times, result.culprits) == (["masks", "no-masks"], ())
    assert [one.code for one in findings] == ["dropout-off", "dropout-not-replayed"]
    assert findings[1].message.endswith("do not fit the order or the layout of drop")


def test_tensors_of_another_shape_get_no_masks() -> None:
    def turned(net: Any, x: Any, functions: Any) -> Any:
        return net.head(net.drop(functions.relu(net.stem(x)).swapaxes(0, 1)).swapaxes(0, 1))

    result = small(reference(), port(turned))
    assert places(result) == []
    assert told(result) == ["dropout-off", "dropout-not-replayed"]
    assert result.findings[1].message.endswith("these calls have different shapes: drop [12, 16] and drop [16, 12]")


def test_masks_are_written_in_place_where_the_layer_works_in_place() -> None:
    import mindspore
    import torch

    def twice(net: Any, x: Any, functions: Any) -> Any:
        hidden = functions.tanh(net.stem(x)) * 1
        dropped = net.drop(hidden)
        return net.head(dropped + (hidden if functions is torch else dropped))

    result = small(reference(twice, drop=torch.nn.Dropout(SHARE, inplace=True)), port(twice))
    assert result.losses[0].candidate == pytest.approx(result.losses[0].reference, rel=1e-5)
    mint = mindspore.mint.nn.Dropout(SHARE, inplace=True)  # of itself it has no kernel on a CPU
    assert places(small(reference(), port(drop=mint))) == []


@pytest.mark.parametrize("axes", [1, 2])
def test_whole_channels_are_dropped_alike(axes: int) -> None:
    import torch
    from mindspore import nn

    def code(net: Any, x: Any, functions: Any) -> Any:
        hidden = net.drop(functions.relu(net.conv(x)))
        return net.head(hidden.reshape(12, 6, -1).mean(2))

    def conv(framework: Any, **options: Any) -> Any:
        return getattr(framework, f"Conv{axes}d")(2, 6, 1, **options)

    given = inputs(12, 2, *(5, 3)[:axes])
    drops = [getattr(framework, f"Dropout{axes}d")(SHARE) for framework in (torch.nn, nn)]
    original = reference(code, conv=conv(torch.nn), head=torch.nn.Linear(6, 3), drop=drops[0])
    layers = {"conv": conv(nn, has_bias=True), "head": nn.Dense(6, 3)}
    result = compared(original, port(code, **layers, drop=drops[1]), given)
    assert (places(result), told(result)) == ([], ["dropout-replayed"])
    if axes == 2:
        (culprit,) = compared(original, port(code, **layers), given).culprits
        assert (culprit.cause, culprit.facts) == ("dropout-kind", {"drops": "channels vs values"})


def test_other_layers_that_drop_are_switched_off_beside() -> None:
    import torch
    from mindspore import nn, ops

    class StochasticDepth(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = SHARE

        def forward(self, x: Any) -> Any:
            return x * (torch.rand(len(x), 1) >= self.p) / (1 - self.p)

    class DropPath(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.drop_prob = SHARE

        def construct(self, x: Any) -> Any:
            return x * (ops.rand(len(x), 1) >= self.drop_prob) / (1 - self.drop_prob)

    def code(net: Any, x: Any, functions: Any) -> Any:
        return net.head(net.path(net.drop(functions.relu(net.stem(x)))))

    result = small(reference(code, path=StochasticDepth()), port(code, path=DropPath()))
    assert (places(result), told(result)) == ([], ["dropout-replayed", "dropout-off"])


def test_layers_that_are_called_outside_of_the_model_get_no_masks() -> None:
    from torch.utils.checkpoint import checkpoint

    def kept(net: Any, x: Any, torch: Any) -> Any:
        return net.head(checkpoint(lambda x: net.drop(torch.relu(net.stem(x))), x, use_reentrant=False))

    side = reference()

    def step(given: Any) -> Any:
        side.optimizer.zero_grad()
        hidden = side.model.drop(side.model.stem(given["x"]).relu())
        loss = side.loss(side.model.head(hidden), given["label"])
        loss.backward()
        side.optimizer.step()
        return loss.detach()

    for one in (reference(kept), replace(side, step=step)):
        result = small(one, port())
        assert (places(result), told(result)) == ([], ["dropout-off", "dropout-not-replayed"])
        assert "the reference calls drop outside of the model's own call" in result.findings[1].message
