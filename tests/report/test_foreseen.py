"""What a chip is expected to do, and bisections, are shown in every report; no verdict over a port rests on them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from align.core.verdicts import Coverage, Outcome, Verdict
from align.forward.bisect_precision import Bisection, PrecisionBisection, SwitchBisection
from align.forward.emulate_model import EmulationResult, ExpectedError, Overflow
from align.measure.measure_arrays import measure
from align.report.judged_run import judged_run
from align.report.open_run import open_run, summarize_run
from align.report.page_html import page_html
from align.report.write_report import as_junit, as_markdown
from align.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from align.core.traces import Measurement

NOTHING = {"findings": (), "inputs": {}, "environment": {}}
OVERFLOW = Overflow("head", "addmm", "matmul-float16", 613000.0, 43, 16.0, "")


def moved(share: float) -> Measurement:
    import numpy as np

    plain = np.ones((2, 3), np.float32)
    return measure(plain, plain * np.float32(1 + share))


def emulation(*overflows: Overflow) -> EmulationResult:
    row = ExpectedError(0, "head", "Linear", 0, "", "float32", (2, 3), 1, ("addmm",), moved(5e-4), moved(4e-4))
    return EmulationResult(
        model="model.py:build", target="ascend:310p", product="Atlas inference products", framework="mindspore",
        switches={}, rules=(), layers=(row,), at_risk=(row.key,), overflows=overflows, headroom=100.0, scales=None,
        **NOTHING,
    )  # fmt: skip


def switches(outcome: Outcome) -> SwitchBisection:
    return SwitchBisection(
        model="model.py:build", target="ascend:910b", framework="mindspore", judged="output", switches=(),
        all_moved=1e-4, all_factor=0.2, widest_moved=0.0, widest_factor=0.0, widest_lines=(), runs=2,
        verdict=Verdict(outcome, "it stays within the limit", Coverage("switches", 2)), **NOTHING,
    )  # fmt: skip


def precision(outcome: Outcome) -> PrecisionBisection:
    return PrecisionBisection(
        model="model.py:build", precision="float16", device="", judged="output", tried=3, all_moved=1e-4,
        all_factor=0.2, layers=(), rest_moved=0.0, rest_factor=0.0, complete=True, not_run={}, runs=2,
        verdict=Verdict(outcome, "no layer suffers", Coverage("layers", 3)), **NOTHING,
    )  # fmt: skip


def bisection(outcome: Outcome) -> Bisection:
    return Bisection(
        reference="a.py:build", candidate="b.py:build", points=(), stretches=(), factor=3.0, runs=4,
        verdict=Verdict(outcome, "one stretch goes wrong", Coverage("points", 3)), **NOTHING,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def test_a_folder_with_an_emulation_alone_is_shown_and_proves_nothing(folder):
    folder.write(emulation(OVERFLOW), {"model": "model.py:build", "target": "ascend:310p"})
    run = judged_run(folder.path)
    (told,) = [one for one in run.rungs if one.state != "not run"]
    assert (told.name, told.state) == ("emulate", "foreseen")
    assert "1 place of ascend:310p expected to overflow, first head" in told.reason
    assert run.verdict.outcome is Outcome.NOT_COMPARED
    assert "emulate" in run.verdict.reason
    (rung,) = [one for one in summarize_run(folder.path).rungs if one.state == "foreseen"]
    assert rung.coverage is not None
    assert (rung.coverage["compared"], rung.coverage["unit"]) == (1, "layers")
    page = page_html(folder)
    for said in ("Layers most at risk on ascend:310p", "emulated chip", "0.0005", "is 100 times smaller"):
        assert said in page
    assert "Layers most at risk" in open_run(folder.path).beside("emulate")._repr_html_()
    assert "expected to overflow" in as_markdown(run)
    assert 'message="1 place of ascend:310p' in as_junit(run)


def test_where_nothing_overflows_the_layer_most_at_risk_is_named(folder):
    folder.write(emulation(), {})
    (told,) = [one for one in judged_run(folder.path).rungs if one.state != "not run"]
    assert told.reason.startswith("nothing is expected to overflow on ascend:310p; most at risk is head, by 0.0005")


@pytest.mark.parametrize(
    ("compared", "outcome"), [("clean_step", Outcome.ALIGNED), ("sample_step", Outcome.NOT_ALIGNED)]
)
def test_what_is_foreseen_changes_no_verdict_over_a_port(folder, samples, compared, outcome):
    folder.write(getattr(samples, compared)(), {})
    alone = judged_run(folder.path).verdict
    assert alone.outcome is outcome
    folder.write(emulation(OVERFLOW), {})
    folder.write(switches(Outcome.NOT_ALIGNED), {})
    folder.write(precision(Outcome.NOT_ALIGNED), {})
    together = judged_run(folder.path)
    assert dataclasses.replace(together.verdict, caveats=()) == dataclasses.replace(alone, caveats=())
    assert {one.name: one.state for one in together.rungs if one.state != "not run"} == {
        "step": "passed" if outcome is Outcome.ALIGNED else "failed",
        "precision": "failed",
        "switches": "foreseen",
        "emulate": "foreseen",
    }


def test_a_bisection_of_a_port_is_judged_as_any_comparison_of_one(folder):
    folder.write(bisection(Outcome.NOT_ALIGNED), {})
    folder.write(switches(Outcome.PREDICTED), {})
    run = judged_run(folder.path)
    assert run.verdict.outcome is Outcome.NOT_ALIGNED
    assert "one stretch goes wrong" in run.verdict.reason
    page = page_html(folder)
    assert "bisection" in page
    assert "switches of a chip" in page
    shown = json.dumps([dataclasses.asdict(one) for one in summarize_run(folder.path).rungs], default=str)
    assert "it stays within the limit" in shown
