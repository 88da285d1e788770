from __future__ import annotations

import json

import pytest

from align.core.verdicts import Outcome
from align.errors import RunFolderError
from align.report.notebook.run_summary import summarize_run, worst_outcome


def test_a_rung_that_was_not_run_is_not_run_and_never_aligned(samples, tmp_path):
    summary = summarize_run(samples.write_sample_run(tmp_path / "run", ("map",)))
    assert {rung.name: rung.outcome for rung in summary.rungs} == {
        "map": "aligned",
        "convert": "not run",
        "forward": "not run",
        "loss": "not run",
    }
    assert summary.exit_code == 0


def test_the_worst_rung_decides(samples, tmp_path):
    assert summarize_run(samples.write_sample_run(tmp_path / "run")).exit_code == 1
    assert worst_outcome(["aligned", "could not compare", "not aligned"]) is Outcome.NOT_COMPARED
    assert worst_outcome([]) is Outcome.NOT_COMPARED


def test_a_rung_names_the_hashes_that_it_was_made_from(samples, tmp_path):
    rung = summarize_run(samples.write_sample_run(tmp_path / "run")).rungs[2]
    assert rung.made_from is not None
    assert len(rung.made_from["reference"]["sha256"]) == 64
    assert rung.made_from["candidate"] == {"text": "ports.resnet:build"}


@pytest.mark.parametrize("damage", [{"verdict": None}, {"verdict": {"outcome": "splendid"}}, {"schema": "other/1"}])
def test_a_damaged_result_is_refused_by_name(samples, tmp_path, damage):
    run = samples.write_sample_run(tmp_path / "run")
    document = json.loads((run / "forward.json").read_text(encoding="utf-8")) | damage
    (run / "forward.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"forward\.json"):
        summarize_run(run)
