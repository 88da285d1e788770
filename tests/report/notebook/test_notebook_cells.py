from __future__ import annotations

from align.report.notebook.notebook_cells import open_run
from align.runs.unfinished_runs import mark_begun


def test_what_stands_beside_the_ladder_is_shown_with_both_sides_and_its_verdict(samples, tmp_path):
    shown = open_run(samples.write_sample_run(tmp_path / "run", ("map", "diff"))).beside()._repr_html_()
    assert "difference of checkpoints" in shown
    assert "before.pth against after.ckpt" in shown
    assert "45 compared" in shown
    assert "None of these" in repr(open_run(samples.write_sample_run(tmp_path / "other", ("map",))).beside())


def test_an_older_result_says_so_before_anything_else(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("forward",))
    assert "older" not in repr(open_run(run).headline("forward"))
    begun = mark_begun(run, "forward")
    said = (
        f"This result is older than the last run of this rung: a run that began {begun.since} has not come to its end."
    )
    assert " ".join(repr(open_run(run).headline("forward")).split()).startswith(said)


def test_a_rung_whose_only_run_failed_is_not_called_not_run(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    assert "was not run" in repr(open_run(run).headline("loss"))
    mark_begun(run, "loss")
    assert "has not come to its end" in repr(open_run(run).headline("loss"))
