"""How two sides draw their initial values: each way to differ is planted and named, clean twins are drawn alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.name_map import NameMap, Pairing
from align.core.transforms import Permute
from align.core.verdicts import Outcome
from align.errors import CannotRunError, NothingInCommonError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.training.compare_initial_values import InitialParameter, InitialValues

pytestmark = pytest.mark.usefixtures("settings_put_back")


def model(**draws: Callable[[], Any]) -> Callable[[], ArrayModel]:
    """A factory of one layer whose parameters are drawn by these functions."""

    def build() -> ArrayModel:
        values = {name: np.asarray(draw(), np.float32) for name, draw in draws.items()}
        return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, **_: x, values),))

    return build


def compared(reference: Callable[[], Any], candidate: Callable[[], Any], **options: Any) -> InitialParameter:
    """The one parameter `weight` of both."""
    (row,) = align.compare_initial_values(model(weight=reference), model(weight=candidate), **options).parameters
    return row


def uniform(bound: float, *shape: int) -> Any:
    return np.random.uniform(-bound, bound, shape or (40, 30))


def normal(std: float, *shape: int) -> Any:
    return np.random.normal(0, std, shape or (40, 30))


def cut(std: float) -> Any:
    drawn = np.random.normal(0, 1, (40, 60)).ravel()
    return std * drawn[np.abs(drawn) < 2][:1200].reshape(40, 30)


def orthogonal(gain: float) -> Any:
    return gain * np.linalg.qr(np.random.normal(0, 1, (40, 30)))[0]


WAYS: dict[str, tuple[Callable[[], Any], float]] = {
    "uniform": (lambda: uniform(0.07), 0.07),
    "normal": (lambda: normal(0.02), 0.02),
    "truncated normal": (lambda: cut(0.1), 0.1),
    "orthogonal": (lambda: orthogonal(1.0), 1.0),
    "constant": (lambda: np.full((40, 30), 0.5), 0.5),
}


@pytest.mark.parametrize("family", WAYS)
def test_a_family_is_named_with_its_scale_and_is_like_itself(family: str) -> None:
    draw, scale = WAYS[family]
    row = compared(draw, draw, seeds=6)
    assert row.outcome == "same"
    for own in (row.reference_values, row.candidate_values):
        assert (own.family, own.scheme) == (family, "")
        assert own.scale == pytest.approx(scale, rel=0.01)


@pytest.mark.parametrize("family", WAYS)
def test_each_family_is_told_from_the_others(family: str) -> None:
    outcomes = {other: compared(WAYS[family][0], WAYS[other][0], seeds=6).outcome for other in WAYS if other != family}
    expected = {"constant": "random on one side", "orthogonal": "structures differ"}
    assert outcomes == {
        other: next((expected[one] for one in ("constant", "orthogonal") if one in (family, other)),
                    "distributions differ")
        for other in outcomes
    }  # fmt: skip


def test_a_normal_that_is_cut_is_told_from_one_of_its_width() -> None:
    row = compared(lambda: normal(0.088), lambda: cut(0.1), seeds=15)
    assert (row.outcome, row.reference_values.family) == ("distributions differ", "normal")
    assert row.samples == 1200 * 15


def test_values_that_no_seed_changes_are_compared_exactly() -> None:
    table = np.sin(np.arange(1200.0)).reshape(40, 30)
    drawn = model(weight=lambda: table, bias=lambda: np.zeros(40), other=lambda: normal(1, 5, 5))

    def against(weight: Any, bias: Any) -> dict[str, str]:
        result = align.compare_initial_values(
            drawn, model(weight=lambda: weight, bias=lambda: bias, other=lambda: normal(1, 5, 5))
        )
        return {one.reference: one.outcome for one in result.parameters}

    assert set(against(table * (1 + 1e-7), np.zeros(40)).values()) == {"same"}
    moved = table.copy()
    moved[3, 3] += 1e-3
    assert against(moved, np.ones(40)) == {
        "fc.weight": "values differ", "fc.bias": "values differ", "fc.other": "same",
    }  # fmt: skip


def test_a_row_that_is_held_is_no_part_of_the_distribution() -> None:
    def padded() -> Any:
        drawn = normal(1.0)
        drawn[0] = 0
        return drawn

    row = compared(padded, padded)
    assert (row.outcome, row.reference_values.family, row.reference_values.held) == ("same", "normal", 0.025)
    row = compared(padded, lambda: normal(1.0))
    assert row.outcome == "structures differ"
    assert "30 of 1,200" in row.note


def test_copies_count_once() -> None:
    """Experts that start as copies of one: as many samples as there are values, and no false alarm."""

    def stacked() -> Any:
        return np.tile(normal(1.0, 1, 30), (40, 1))

    rows = [compared(stacked, stacked, first_seed=100 * number, seeds=10) for number in range(10)]
    assert {row.outcome for row in rows} == {"same"}
    assert {row.samples for row in rows} == {300}
    row = compared(stacked, lambda: normal(1.0))
    assert (row.outcome, row.note) == ("structures differ", "values repeat within the parameter on one side only")


def test_more_seeds_than_usual_are_still_apart() -> None:
    row = compared(lambda: normal(1.0, 4, 4), lambda: normal(1.0, 4, 4), seeds=40)
    assert row.samples == 640
    assert row.statistic > 0.01


def test_the_maps_transform_comes_first_and_sizes_are_each_sides_own() -> None:
    """A weight kept as (in, out): the scale follows from other sizes there, so a number is written."""
    reference = model(weight=lambda: uniform(30**-0.5, 40, 30))
    candidate = model(kernel=lambda: uniform(30**-0.5, 30, 40))
    name_map = NameMap("a", "b", (Pairing("fc.weight", "fc.kernel", "user", 1.0, Permute((1, 0))),))
    (row,) = align.compare_initial_values(reference, candidate, name_map=name_map).parameters
    assert (row.outcome, row.shape) == ("same", (30, 40))
    assert row.reference_values.scheme == "torch's default of Linear and Conv"
    assert row.candidate_values.scheme == ""


def test_what_is_open_in_the_map_is_told() -> None:
    reference = model(weight=lambda: normal(1), bias=lambda: normal(1, 40))
    name_map = align.map_parameters(reference(), model(weight=lambda: normal(1))()).name_map
    result = align.compare_initial_values(reference, model(weight=lambda: normal(1)), name_map=name_map)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.coverage.unmatched_reference == 1
    assert [one.code for one in result.findings] == ["names-open"]
    assert "1 parameter that the map leaves open was not compared" in result.verdict.caveats[0]
    with pytest.raises(NothingInCommonError):
        align.compare_initial_values(reference, model(weight=lambda: normal(1)), name_map=NameMap("a", "b"))


def test_as_many_seeds_as_the_smallest_parameter_needs() -> None:
    assert _seeds(lambda: normal(1)) == 3
    assert _seeds(lambda: normal(1, 40, 2)) == 5
    assert _seeds(lambda: normal(1, 2, 2)) == 32


def _seeds(draw: Callable[[], Any]) -> int:
    result = align.compare_initial_values(model(weight=draw), model(weight=draw))
    assert result.verdict.outcome is Outcome.ALIGNED
    return result.seeds


def test_reseeded_pairs_give_no_false_alarm() -> None:
    """benchmarks/initial_values.py has 200 pairs of real nets."""
    one = model(weight=lambda: uniform(0.1), bias=lambda: uniform(0.1, 40), scale=lambda: normal(0.02, 40, 3))
    results: list[InitialValues] = [
        align.compare_initial_values(one, one, first_seed=100 * number, seeds=4) for number in range(20)
    ]
    assert all(result.verdict.outcome is Outcome.ALIGNED for result in results)
    assert min(row.p_value or 1.0 for result in results for row in result.parameters) > results[0].level
    assert len({row.p_value for result in results for row in result.parameters}) > 25


def test_sides_that_do_not_react_on_the_seed_are_refused() -> None:
    fresh = model(weight=lambda: normal(1))
    cached = fresh()
    values = normal(1)

    def seeded() -> ArrayModel:
        np.random.seed(3)
        return fresh()

    for faulty, told in (
        (lambda: cached, "returns one model each time"),
        (model(weight=lambda: values), "same values for every seed"),
        (seeded, "same values for every seed"),
    ):
        for sides in ((fresh, faulty), (faulty, fresh)):
            with pytest.raises(CannotRunError) as caught:
                align.compare_initial_values(*sides)
            assert told in str(caught.value)
            assert caught.value.hint
    with pytest.raises(UsageError):
        align.compare_initial_values(fresh, fresh, seeds=2)


def torch_net() -> Any:
    from torch import nn

    return nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.Linear(64, 40), nn.LSTM(10, 12))


def mindspore_net(weight: Any = None, gamma: str = "ones") -> Any:
    from mindspore import nn

    dense = nn.Dense(64, 40) if weight is None else nn.Dense(64, 40, weight_init=weight)
    norm = nn.BatchNorm1d(8, gamma_init=gamma)
    return nn.SequentialCell(nn.Conv1d(3, 8, 3, has_bias=True), norm, dense, nn.LSTM(10, 12))


@pytest.mark.frameworks
def test_a_net_and_its_port_are_drawn_alike() -> None:
    result = align.compare_initial_values(torch_net, mindspore_net, seeds=6)
    assert result.verdict.outcome is Outcome.ALIGNED
    schemes = {one.candidate: one.candidate_values.scheme for one in result.parameters}
    assert schemes["2.weight"] == schemes["0.weight"] == "torch's default of Linear and Conv"
    assert schemes["3.weight_ih_l0"] == "default of recurrent layers"


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", ["mindspore", "torch"])
def test_what_a_port_draws_otherwise_is_named_and_the_line_to_write_mends_it(framework: str) -> None:
    import mindspore
    import torch
    from mindspore.common import initializer as init

    def planted() -> Any:
        return mindspore_net(init.Normal(0.02), "zeros")

    def planted_torch() -> Any:
        net = torch_net()
        torch.nn.init.normal_(net[2].weight, std=0.02)
        torch.nn.init.zeros_(net[1].weight)
        return net

    sides = {"mindspore": (torch_net, planted), "torch": (mindspore_net, planted_torch)}[framework]
    result = align.compare_initial_values(*sides, seeds=6)
    unlike = {one.candidate: one for one in result.parameters if one.outcome != "same"}
    assert {name: one.outcome for name, one in unlike.items()} == {
        "1.gamma" if framework == "mindspore" else "1.weight": "values differ",
        "2.weight": "distributions differ",
    }
    row = unlike["2.weight"]
    assert row.reference_values.scheme == "torch's default of Linear and Conv"
    assert (row.candidate_values.family, row.candidate_values.scale) == ("normal", 0.02)

    def mended() -> Any:
        net = sides[1]()
        if framework == "torch":
            eval(row.write, {"torch": torch, "weight": net[2].weight})
            torch.nn.init.ones_(net[1].weight)
        else:
            net[2].weight.set_data(eval(row.write, vars(init)))
            net[1].gamma.set_data(mindspore.ops.ones(8))
        return net

    assert align.compare_initial_values(sides[0], mended, seeds=6).verdict.outcome is Outcome.ALIGNED


@pytest.fixture(autouse=True)
def _numpy_put_back() -> Iterator[None]:
    state = np.random.get_state()
    yield
    np.random.set_state(state)
