"""What names leave open is paired by the code of both models, where it tells."""

from __future__ import annotations

import pytest

import align
from align.names.dataflow.seen_rows import NOTHING, plain_attribute
from align.names.dataflow.written_flow import read_written_flow

torch = pytest.importorskip("torch")
mindspore = pytest.importorskip("mindspore")


class Original(torch.nn.Module):
    """Two norms of one shape, and a product that is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        self.query, self.key = torch.nn.Linear(8, 12), torch.nn.Linear(8, 12)
        self.value = torch.nn.Linear(8, 12)
        self.merge, self.last = torch.nn.Linear(12, 8), torch.nn.Linear(8, 5)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.merge(torch.softmax(self.query(y) * self.key(y), -1) * self.value(y))
        return self.last(self.norm2(x))


class Port(mindspore.nn.Cell):
    """The same under other names, defined in another order."""

    turned = False

    def __init__(self) -> None:
        super().__init__()
        self.ending, self.joined = mindspore.nn.Dense(8, 5), mindspore.nn.Dense(12, 8)
        self.attend_qkv = mindspore.nn.Dense(8, 36)
        self.calm, self.quiet = mindspore.nn.LayerNorm((8,)), mindspore.nn.LayerNorm((8,))

    def construct(self, x):
        steps = []
        steps.append(self.calm)
        steps.insert(0, self.quiet)
        if self.turned:
            steps.reverse()
        fused = self.attend_qkv(steps[0](x))
        q, k, v = mindspore.ops.split(fused, 12, -1)
        x = x + self.joined(mindspore.ops.softmax(q * k, -1) * v)
        return self.ending(steps[1](x))


class TurnedPort(Port):
    """Its norms are called the other way round."""

    turned = True


class InterleavedPort(Port):
    """Its product holds queries, keys and values head by head."""

    def construct(self, x):
        fused = self.attend_qkv(self.quiet(x)).reshape(x.shape[0], 4, 3, 3).transpose(2, 0, 1, 3)
        q, k, v = fused
        rows = mindspore.ops.softmax(q * k, -1) * v
        return self.ending(self.calm(x + self.joined(rows.reshape(x.shape[0], 12))))


def sure_pairs(port) -> set[tuple[str, str]]:
    found = align.map_parameters(Original(), port).name_map.pairings
    return {(one.source, one.target) for one in found if one.sure}


def test_norms_of_one_shape_are_told_by_what_they_feed():
    found = sure_pairs(Port())
    assert {("norm1.weight", "quiet.gamma"), ("norm2.weight", "calm.gamma"), ("norm2.bias", "calm.beta")} <= found


def test_a_setting_that_the_code_reads_decides_which_norm_comes_first():
    assert {("norm1.weight", "calm.gamma"), ("norm2.weight", "quiet.gamma")} <= sure_pairs(TurnedPort())


def test_pieces_are_sure_where_the_code_divides_them_one_behind_the_other():
    pieces = {(f"{name}.weight", "attend_qkv.weight") for name in ("query", "key", "value")}
    assert pieces <= sure_pairs(Port())
    assert not pieces & sure_pairs(InterleavedPort())


def test_code_that_follows_a_tensor_both_ways_tells_nothing_apart():
    class Unclear(Port):
        def construct(self, x):
            first, second = (self.calm, self.quiet) if x.sum() > 0 else (self.quiet, self.calm)
            q, k, v = mindspore.ops.split(self.attend_qkv(first(x)), 12, -1)
            x = x + self.joined(mindspore.ops.softmax(q * k, -1) * v)
            return self.ending(second(x))

    assert not {name for name, _ in sure_pairs(Unclear()) if name.startswith("norm")}


def test_features_that_are_divided_are_named_by_their_variables():
    port, interleaved = read_written_flow(Port()), read_written_flow(InterleavedPort())
    assert port is not None
    assert interleaved is not None
    assert port.cuts["attend_qkv"] == ("q", "k", "v")
    assert not interleaved.cuts.get("attend_qkv")


def test_a_loop_of_too_many_calls_is_given_up():
    class Long(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def step(self, x):
            return self.layer(x)

        def forward(self, x):
            for _ in range(1000):
                x = [self.step(x) for _ in range(1000)]
            return x

    assert read_written_flow(Long()) is None


def test_no_property_of_the_users_runs_while_code_is_read() -> None:
    class Loud:
        @property
        def width(self) -> int:
            raise RuntimeError("a property of the user's was run")

    assert plain_attribute(Loud(), "width") is NOTHING
    assert plain_attribute(Loud(), "lacking") is NOTHING
    assert plain_attribute([1, 2], "index")(2) == 1
