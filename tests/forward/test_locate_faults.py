"""From calls seen alone to what is at fault: the layer, what it is given, or the code of a module around."""

from __future__ import annotations

from math import inf
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from align.core.traces import Capture, Limit
from align.forward.isolated_calls import IsolatedCall, IsolatedTensor, IsolationOptions
from align.forward.locate_faults import (
    Fault,
    applied_inside,
    calls_to_force,
    find_faults,
    isolated_comparisons,
    unpaired_before,
)
from align.measure.measure_arrays import measure
from align.traces.module_calls import Call, CallPair

RIGHT, OFF = 0.5, 5.0
FREE = IsolationOptions()
ZEROS = np.zeros(20, np.float32)


def tensor(path: str, factor: float, *, role: Any = "output", value: Any = None) -> IsolatedTensor:
    capture = Capture(0, path.upper(), 0, "0" if role == "input" else "", "Odd", (20,), "float32", role=role)
    if factor == inf:
        return IsolatedTensor(capture, None, None, inf, value)
    distinct = crc32(f"{path} {role}".encode()) % 97 / 1000
    measurement = measure(ZEROS, ZEROS + np.float32(factor + distinct))
    return IsolatedTensor(capture, measurement, Limit(1.0, 1.0, "noise"), factor, value)


class Seen:
    """The calls of a run, one after the other or inside each other; the reference's paths are in capitals."""

    def __init__(self) -> None:
        self.pairs: list[CallPair] = []
        self.calls: dict[tuple[str, int], IsolatedCall] = {}
        self._ended = 0

    def leaf(
        self, path: str, given: float | None = RIGHT, out: float | None = RIGHT, *, certain: bool = True, **more: Any
    ) -> Seen:
        return self.around(path, self._ended, given, out, certain=certain, **more)

    def around(
        self, path: str, begun: int, given: float | None, out: float | None, *, certain: bool = True, **more: Any
    ) -> Seen:
        """A call that began when `begun` tensors had been returned."""
        self._ended += 1
        call = self.calls[path, 0] = IsolatedCall(begun, self._ended, 1)
        for role, factor, kept in (("input", given, call.inputs), ("output", out, call.outputs)):
            if factor is not None:
                one = tensor(path, factor, role=role, value=more.get(role))
                kept[one.reference.key] = one
        mine = Call(path.upper(), 0, self._ended, "Odd", more.get("kind", ""), ())
        theirs = Call(path, 0, self._ended, "Odd", more.get("kind", ""), ())
        self.pairs.append(CallPair(mine, theirs, certain))
        return self

    def alone(self, path: str, *samples: Any, given: Any = ()) -> Seen:
        """A call without counterpart."""
        self._ended += 1
        kept = [np.asarray(one, np.float64) for one in samples], [np.asarray(one, np.float64) for one in given]
        self.calls[path, 0] = IsolatedCall(self._ended - 1, self._ended, 1, "Odd", given=kept[1], samples=kept[0])
        return self

    def faults(self, *forced: str) -> list[tuple[str, str]]:
        return [(one.path, one.part) for one in self.found(*forced)]

    def found(self, *forced: str) -> list[Fault]:
        return find_faults(self.pairs, self.calls, IsolationOptions(frozenset((path, 0) for path in forced)))

    def to_force(self, *helpless: str) -> set[str]:
        keys = frozenset((path, 0) for path in helpless)
        return {path for path, _ in calls_to_force(self.pairs, self.calls, FREE, keys)}


def test_nothing_off_is_no_fault() -> None:
    seen = Seen().leaf("a").leaf("b", given=None).leaf("c", out=None)
    assert seen.faults() == []
    assert seen.to_force() == set()


def test_every_layer_that_is_off_on_right_inputs_is_at_fault_in_order() -> None:
    seen = Seen().leaf("a", out=OFF).leaf("b").leaf("c", out=inf)
    assert seen.faults() == [("a", "layer"), ("c", "layer")]
    assert seen.to_force() == set()


def test_a_layer_that_stands_what_it_is_given_is_not_at_fault() -> None:
    """The same thing in another form: a mask."""
    seen = Seen().leaf("a", given=OFF, out=RIGHT)
    assert seen.to_force() == set()
    assert seen.faults() == []


def test_a_layer_that_is_off_on_wrong_inputs_is_given_right_ones_first() -> None:
    assert Seen().leaf("a", given=OFF, out=OFF).leaf("b", out=OFF).to_force() == {"a"}


def test_what_right_inputs_mend_is_at_fault_in_its_inputs() -> None:
    assert Seen().leaf("a").leaf("b", given=OFF, out=RIGHT).faults("b") == [("b", "inputs")]


def test_what_right_inputs_do_not_mend_is_at_fault_itself() -> None:
    assert Seen().leaf("a", given=OFF, out=OFF).faults() == [("a", "layer")]


def test_of_calls_inside_each_other_the_outermost_is_given_right_inputs() -> None:
    seen = Seen().leaf("net.block.fc", given=OFF, out=OFF)
    seen.around("net.block", 0, OFF, RIGHT).around("net", 0, OFF, RIGHT).leaf("next")
    assert seen.to_force() == {"net"}
    assert seen.to_force("net") == {"net.block"}  # it did not help
    assert seen.to_force("net", "net.block") == {"net.block.fc"}
    assert Seen().leaf("block.fc", given=OFF, out=OFF).around("block", 0, RIGHT, RIGHT).to_force() == {"block.fc"}


def test_a_call_of_another_module_is_not_around_though_it_takes_as_long() -> None:
    seen = Seen().leaf("other.fc", given=OFF, out=OFF).around("block", 0, OFF, RIGHT)
    assert seen.to_force() == {"other.fc"}


def test_a_module_that_is_off_though_its_layers_are_right_is_at_fault_by_its_code() -> None:
    seen = Seen().leaf("block.a").leaf("block.b").around("block", 0, RIGHT, OFF)
    assert seen.faults() == [("block", "code")]
    layer = Seen().leaf("conv.act").around("conv", 0, RIGHT, OFF, kind="conv")
    assert layer.faults() == [("conv", "layer")]  # a layer of a known kind, with a part inside


def test_an_uncertain_module_is_at_fault_only_if_what_comes_next_is_given_something_wrong() -> None:
    fine = Seen().leaf("block.a").around("block", 0, RIGHT, OFF, certain=False).leaf("next")
    assert fine.faults() == []
    wrong = Seen().leaf("block.a").around("block", 0, RIGHT, OFF, certain=False).leaf("next", given=OFF, out=RIGHT)
    assert wrong.faults("next") == [("block", "code")]


def test_an_uncertain_module_before_the_last_right_layer_is_not_accused() -> None:
    seen = Seen().leaf("block", out=OFF, certain=False).leaf("a").leaf("b", given=OFF, out=RIGHT)
    assert seen.faults("b") == [("b", "inputs")]


def test_a_layer_without_counterpart_that_returned_the_wrong_input_made_it() -> None:
    wrong = np.arange(20.0)
    seen = Seen().leaf("a").alone("pool", wrong, given=[wrong * 2]).leaf("b", given=OFF, input=wrong)
    (fault,) = seen.found("b")
    assert (fault.path, fault.part) == ("pool", "inputs")
    assert fault.made_by is not None
    assert fault.made_by.class_name == "Odd"


@pytest.mark.parametrize("given", [[np.arange(20.0)], []])
def test_a_layer_that_only_passes_on_what_it_was_given_made_nothing(given: list[Any]) -> None:
    wrong = np.arange(20.0)
    seen = Seen().leaf("a").alone("pool", wrong, given=given)
    seen.alone("drop", wrong, given=[wrong]).leaf("b", given=OFF, input=wrong)
    (fault,) = seen.found("b")
    assert fault.path == ("b" if given else "pool")


def test_a_doubtful_layer_is_not_accused_of_what_a_layer_without_counterpart_gave_it() -> None:
    wrong = np.arange(20.0)
    seen = Seen().leaf("a").alone("fc", wrong).leaf("act", given=OFF, out=OFF, certain=False, input=wrong)
    assert seen.leaf("b", given=OFF, out=OFF).faults("b") == [("fc", "inputs"), ("b", "layer")]
    larger = Seen().leaf("a").alone("pad", wrong).leaf("pool", given=inf, out=OFF, certain=False, input=wrong)
    assert larger.leaf("b", given=OFF).faults("b") == [("pool", "layer")]  # a port may pad in a layer of its own


def test_what_may_have_made_wrong_inputs_is_any_layer_without_counterpart_before_the_latest_first() -> None:
    one = [np.zeros(20)]
    seen = Seen().alone("q", one).alone("right.act", one).around("right", 1, RIGHT, RIGHT).alone("k", one)
    seen.leaf("b", given=OFF).alone("later", one)
    (fault,) = seen.found("b")
    assert unpaired_before(fault, seen.calls) == ["k", "q"]


def test_what_may_have_made_wrong_code_is_any_layer_without_counterpart_inside() -> None:
    one = [np.zeros(20)]
    seen = Seen().alone("before", one).alone("block.pool", one).leaf("block.fc").around("block", 1, RIGHT, OFF)
    (fault,) = seen.found()
    assert (fault.part, unpaired_before(fault, seen.calls)) == ("code", ["block.pool"])


def test_a_layer_at_fault_by_itself_was_given_what_it_should() -> None:
    (fault,) = (seen := Seen().alone("before", [np.zeros(20)]).leaf("a", out=OFF)).found()
    assert unpaired_before(fault, seen.calls) == []


@pytest.mark.parametrize(("given", "found"), [(np.arange(20.0), "block.act"), (np.ones(20), None)])
def test_a_function_is_applied_by_the_layer_that_was_given_its_input_and_returned_what_is_wrong(
    given: Any, found: str | None
) -> None:
    wrong = np.arange(20.0) ** 2
    seen = Seen().leaf("block.fc").alone("block.act", wrong, given=[given]).around("block", 0, RIGHT, OFF, output=wrong)
    (fault,) = seen.found()
    maker = applied_inside(fault, np.arange(20.0), seen.calls)
    assert (maker.module if maker else None) == found


def test_a_later_layer_without_counterpart_did_not_make_an_earlier_input() -> None:
    wrong = np.arange(20.0)
    seen = Seen().leaf("a").leaf("b", given=OFF, input=wrong).alone("pool", wrong)
    assert seen.faults("b") == [("b", "inputs")]


def test_the_worst_tensor_shows_a_fault() -> None:
    seen = Seen().leaf("a", out=OFF)
    worse = tensor("other", 7.0)
    seen.calls["a", 0].outputs[worse.reference.key] = worse
    (fault,) = seen.found()
    assert fault.tensor is worse
    assert fault.key == ("a", 0)


def test_every_output_has_its_outcome_alone() -> None:
    seen = Seen().leaf("a").leaf("b", out=OFF).leaf("block", out=OFF, certain=False).leaf("c", given=None, out=RIGHT)
    found = isolated_comparisons(seen.pairs, seen.calls, seen.found())
    assert {key: one.outcome for key, one in found.items()} == {
        "A#0": "aligned",
        "B#0": "not aligned",
        "BLOCK#0": "not comparable",
        "C#0": "aligned",
    }
    assert "do not end at the same place" in found["BLOCK#0"].note
    assert found["BLOCK#0"].factor is None
    assert found["B#0"].factor == OFF
    assert (found["A#0"].inputs_factor, found["C#0"].inputs_factor) == (RIGHT, None)


def test_a_call_that_a_run_did_not_come_to_is_left_out() -> None:
    seen = Seen().leaf("a", out=OFF).leaf("b", out=OFF)
    del seen.calls["b", 0]
    assert seen.faults() == [("a", "layer")]
    assert isolated_comparisons(seen.pairs, seen.calls, seen.found()).keys() == {"A#0"}
