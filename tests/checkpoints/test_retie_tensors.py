from __future__ import annotations

import numpy as np

from align.checkpoints.extents import retie_tensors
from align.convert.plan_conversion import plan_conversion
from align.core.name_map import Fill, NameMap, Pairing
from align.core.parameters import StoredTensor


def plan(values, ties, fills=()):
    tensors = {n: StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in values.items()}
    name_map = NameMap("a", "b", tuple(Pairing(n, n, "user", 1.0) for n in values))
    return plan_conversion(tensors, name_map, fills, ties)


def test_equal_values_that_were_one_are_one_again() -> None:
    made = plan({"a": np.arange(4.0), "b": np.arange(4.0), "c": np.arange(4.0)}, [("a", "b")])
    assert made.ties == (("a", "b"),)
    identities = {target.name: target.identity for target in made.targets}
    assert identities["a"] == identities["b"] != identities["c"]
    assert made.warnings == ()


def test_values_that_were_one_and_have_parted_stay_apart_and_this_is_said() -> None:
    for other in (np.arange(4.0) + 1, np.arange(4.0, dtype=np.float32), np.arange(4.0).reshape(2, 2)):
        made = plan({"a": np.arange(4.0), "b": other}, [("a", "b")])
        assert made.ties == ()
        (warning,) = made.warnings
        assert warning == "a, b were one tensor and differ now: they are written apart"


def test_values_differ_by_their_bits() -> None:
    assert plan({"a": np.zeros(1), "b": -np.zeros(1)}, [("a", "b")]).ties == ()
    assert plan({"a": np.full(1, np.nan), "b": np.full(1, np.nan)}, [("a", "b")]).ties == (("a", "b"),)


def test_a_tie_with_a_name_that_is_not_there_is_none() -> None:
    made = plan({"a": np.zeros(1)}, [("a", "gone")])
    assert made.ties == ()
    assert made.warnings == ()


def test_fills_come_last_and_clash_with_nothing() -> None:
    fill = Fill("n", np.array(0, np.int64), "0 is the default")
    made = plan({"a": np.zeros(1)}, [], [fill])
    assert [(p.source, p.target.name, p.target.shape) for p in made.tensors] == [("a", "a", (1,)), ("", "n", ())]
    (problem,) = plan({"n": np.zeros(1)}, [], [fill]).problems
    assert problem == "n is the target of 2 tensors: n, a fill (0 is the default)"


def test_values_are_compared_whatever_the_blocks_in_which_they_come() -> None:
    def tensor(name, value, size):
        raw = memoryview(value.tobytes())

        def blocks(_):
            return (raw[start : start + size] for start in range(0, len(raw), size))

        return StoredTensor(name, value.shape, "float32", lambda: value, blocks=blocks)

    value = np.arange(1000, dtype=np.float32)
    tensors = [tensor("a", value, 24), tensor("b", value, 7)]
    assert retie_tensors(tensors, [("a", "b")])[1] == []
    tensors[1] = tensor("b", np.where(value == 999, 0, value), 7)
    assert len(retie_tensors(tensors, [("a", "b")])[1]) == 1
