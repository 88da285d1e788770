from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.name_map import NameMap, Pairing
from align.traces.open_trace import compare_weights, weights_never_given

if TYPE_CHECKING:
    from align.core.parameters import Array
    from align.core.verdicts import Finding

SHAPES = {"conv.weight": (8, 4, 3, 3), "fc.weight": (16, 16), "fc.bias": (16,)}


def drawn(seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def found(mine: dict[str, Array], theirs: dict[str, Array], **options: tuple[bool, bool] | set[str]) -> Finding | None:
    name_map = NameMap("original", "port", tuple(Pairing(name, name, "structure", 1.0) for name in mine))
    return weights_never_given(compare_weights(mine, theirs, name_map), (mine, theirs), name_map, **options)


def test_independent_weights_are_one_finding_with_both_counts() -> None:
    finding = found(drawn(0) | {"norm.weight": np.ones(16)}, drawn(1) | {"norm.weight": np.ones(16)})
    assert finding is not None
    assert (finding.code, finding.severity, finding.subject) == ("weights-never-given", "error", "port")
    assert finding.message == (
        "the port was never given weights: 3 of 4 parameters differ, and nothing relates them; "
        "--candidate-checkpoint fills it, --map says which parameter is which"
    )
    assert finding.facts == {"differ": 3, "parameters": 4}


@pytest.mark.parametrize(
    ("filled", "subject", "said"),
    [
        ((True, False), "port", "the port was never given weights"),
        ((False, True), "original", "the reference was never given weights"),
        ((True, True), "port", "the two checkpoints hold weights of different trainings"),
    ],
)
def test_the_side_that_no_checkpoint_filled_is_named(filled: tuple[bool, bool], subject: str, said: str) -> None:
    finding = found(drawn(0), drawn(1), filled=filled)
    assert finding is not None
    assert finding.subject == subject
    assert finding.message.startswith(said)


def test_a_port_that_starts_from_zeros_was_given_nothing() -> None:
    assert found(drawn(0), {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}) is not None


def test_what_a_model_computes_for_itself_may_agree() -> None:
    table = {"positions": np.arange(9)}
    assert found(drawn(0) | table, drawn(1) | table) is None
    assert found(drawn(0) | table, drawn(1) | table, buffers={"positions"}) is not None


@pytest.mark.parametrize(
    "carried",
    [
        lambda name, value: value,
        lambda name, value: value * 1.01,
        lambda name, value: -value,
        lambda name, value: value[::-1],
        lambda name, value: value.T.reshape(value.shape),
        lambda name, value: value if name == "fc.bias" else np.roll(value, 1) * 0.5,
        lambda name, value: value + np.random.default_rng(9).normal(size=value.shape) * 0.5,
    ],
)
def test_weights_that_were_carried_over_somehow_are_told_one_by_one(carried) -> None:
    mine = drawn(0)
    assert found(mine, {name: carried(name, value).astype(np.float32) for name, value in mine.items()}) is None


def test_a_single_parameter_or_a_handful_of_values_tells_nothing() -> None:
    one, two = drawn(0), drawn(1)
    assert found({"fc.weight": one["fc.weight"]}, {"fc.weight": two["fc.weight"]}) is None
    small = [{name: value.ravel()[:5] for name, value in side.items()} for side in (one, two)]
    assert found(*small) is None
