"""The comparison of models without a framework: what is run, what is recorded, and what it says of maps and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.name_map import NameMap, Pairing, Unmatched
from align.core.operating_system import LOCK, folder_lock
from align.core.verdicts import Outcome
from align.errors import CannotRunError, FolderInUseError, NothingInCommonError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from pathlib import Path

X = {"x": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}
WEIGHT = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def linear(path: str, weight: Any = WEIGHT, family: str = "torch.nn.Linear", function: Any = None) -> ArrayLayer:
    return ArrayLayer(path, family, function or (lambda x, weight: x @ weight.T), {"weight": np.array(weight)})


def dense(path: str, weight: Any = WEIGHT, function: Any = None) -> ArrayLayer:
    return linear(path, weight, "mindspore.nn.Dense", function)


def model(*layers: ArrayLayer) -> ArrayModel:
    return ArrayModel(layers)


def test_traces_that_another_run_writes_are_left_alone(tmp_path: Path) -> None:
    traces = tmp_path / "run" / "traces"
    align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X, traces=traces)
    part = tmp_path / "run" / "traces.part"
    part.mkdir()
    with (
        folder_lock(tmp_path / "run" / f".traces{LOCK}", tmp_path, "trace"),
        pytest.raises(FolderInUseError, match=f"the trace folder {traces} is in use by process"),
    ):
        align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X, traces=traces)
    assert part.is_dir()
    assert TraceFolder(traces / "reference").complete
    align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X, traces=traces)
    assert [path.name for path in traces.parent.iterdir()] == ["traces"]


def test_a_pair_of_live_models_is_compared_layer_by_layer() -> None:
    result = align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X)
    assert [(layer.reference, layer.candidate, layer.outcome) for layer in result.layers] == [
        ("fc", "head", "aligned"),
        ("", "", "aligned"),
    ]
    assert result.verdict.outcome is Outcome.ALIGNED
    assert (result.reference, result.candidate) == ("ArrayModel", "ArrayModel")
    assert result.environment["arrays"]["numpy"] == np.__version__


def test_limits_come_from_the_references_own_noise() -> None:
    result = align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X)
    assert {layer.limit.source for layer in result.layers if layer.limit} <= {"noise", "rounding"}
    assert not result.findings


def test_a_reference_that_cannot_run_in_float64_is_judged_by_the_table_and_says_so() -> None:
    def only_float32(x: Any, weight: Any) -> Any:
        if weight.dtype != np.float32:
            raise TypeError("float32 only")
        return x @ weight.T

    result = align.compare_forward(model(linear("fc", function=only_float32)), model(dense("head")), inputs=X)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {layer.limit.source for layer in result.layers if layer.limit} == {"dtype"}
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("noise-unmeasured", "note")
    assert "float32 only" in finding.message


def test_a_reference_that_casts_inside_is_judged_by_the_table() -> None:
    def casts(x: Any, weight: Any) -> Any:
        return x.astype(np.float32) @ weight.astype(np.float32).T

    result = align.compare_forward(model(linear("fc", function=casts)), model(dense("head")), inputs=X)
    assert {layer.limit.source for layer in result.layers if layer.limit} == {"dtype"}


def test_both_traces_are_kept_where_asked(tmp_path: Path) -> None:
    align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X, traces=tmp_path)
    traces = [TraceFolder(tmp_path / side) for side in ("reference", "candidate")]
    assert [trace.captures[0].module for trace in traces] == ["fc", "head"]
    assert np.array_equal(*(trace.value(trace.captures[0]) for trace in traces))


def test_progress_goes_from_first_to_last() -> None:
    seen: list[tuple[int, int]] = []
    align.compare_forward(
        model(linear("fc")), model(dense("head")), inputs=X, progress=lambda _, done, total: seen.append((done, total))
    )
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1][0] == seen[-1][1]


def test_models_are_left_as_they_were() -> None:
    mine, theirs = model(linear("fc")), model(dense("head"))
    align.compare_forward(mine, theirs, inputs=X)
    assert np.array_equal(mine.values()["fc.weight"], WEIGHT)
    assert theirs.values()["head.weight"].dtype == np.float32


def test_parameters_that_the_map_leaves_open_are_told() -> None:
    pairings = (Pairing("one.weight", "x.weight", "user", 1.0),)
    name_map = NameMap("a", "b", pairings, unmatched=(Unmatched("two.weight", "source", "no rule"),))
    both = model(linear("one"), linear("two")), model(dense("x"), dense("y"))
    result = align.compare_forward(*both, inputs=X, name_map=name_map)
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.subject) == ("names-open", "warning", "a")
    assert finding.message == "1 parameter not paired: two.weight"
    assert {one.module for one in result.unpaired} == {"two", "y"}
    assert result.verdict.coverage.unmatched_reference == 1


def test_a_map_of_other_models_is_refused() -> None:
    name_map = NameMap("a", "b", (Pairing("old.weight", "gone.weight", "user", 1.0),))
    with pytest.raises(CannotRunError, match=r"lack parameters that the name map has: old\.weight"):
        align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X, name_map=name_map)


def test_nothing_in_common_is_said_before_anything_runs() -> None:
    def never(x: Any, weight: Any) -> Any:
        raise AssertionError

    with pytest.raises(NothingInCommonError, match="no parameter in common"):
        align.compare_forward(
            model(linear("fc", function=never)), model(dense("head", np.ones((2, 9)), function=never)), inputs=X
        )


def test_an_empty_batch_could_not_be_compared() -> None:
    result = align.compare_forward(
        model(linear("fc")), model(dense("head")), inputs={"x": np.empty((0, 4), np.float32)}
    )
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.verdict.exit_code == 2


def test_nan_everywhere_could_not_be_compared() -> None:
    nothing = np.full((4, 4), np.nan, np.float32)
    result = align.compare_forward(model(linear("fc", nothing)), model(dense("head", nothing)), inputs=X)
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert not [finding for finding in result.findings if finding.severity == "error"]


def test_nan_in_the_candidate_alone_is_not_aligned() -> None:
    def poisoned(x: Any, weight: Any) -> Any:
        y = x @ weight.T
        y[0, 0] = np.nan
        return y

    result = align.compare_forward(model(linear("fc")), model(dense("head", function=poisoned)), inputs=X)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.layers[0].factor == np.inf


def test_a_verdict_has_no_truth_value() -> None:
    result = align.compare_forward(model(linear("fc")), model(dense("head")), inputs=X)
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(result.verdict)
