from __future__ import annotations

from align.report.open_run import open_run
from align.runs.run_folder import mark_begun
from align.words.catalogue import VARIABLE


def test_what_stands_beside_the_ladder_is_shown_with_both_sides_and_its_verdict(samples, tmp_path):
    shown = open_run(samples.write_sample_run(tmp_path / "run", ("map", "diff"))).beside()._repr_html_()
    assert "difference of checkpoints" in shown
    assert "before.pth against after.ckpt" in shown
    assert "Compared: 46" in shown
    assert "None of these" in repr(open_run(samples.write_sample_run(tmp_path / "other", ("map",))).beside())


def test_an_older_result_says_so_before_anything_else(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("forward",))
    assert "older" not in repr(open_run(run).headline("forward"))
    begun = mark_begun(run, "forward")
    said = f"This result is older than the last run of this rung: a run that began {begun.since} has not ended."
    assert " ".join(repr(open_run(run).headline("forward")).split()).startswith(said)


def test_a_rung_whose_only_run_failed_is_not_called_not_run(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    assert "was not run" in repr(open_run(run).headline("loss"))
    mark_begun(run, "loss")
    assert "has not ended" in repr(open_run(run).headline("loss"))


def test_what_is_asked_before_a_training_step_has_a_section_of_its_own(samples, tmp_path):
    kinds = ("params", "initial", "determinism")
    run = open_run(samples.write_sample_run(tmp_path / "run", (*kinds, "step", "diff")))
    shown = run.beside(*kinds)._repr_html_()
    for said in (
        "idle is never called",
        "1 is drawn otherwise",
        "drop.generator",
        "zoo.resnet:training against ports.resnet:training",
        "trained parameters",
    ):
        assert said in shown, said
    assert "before.pth" not in shown
    assert "idle is never called" not in run.beside("diff")._repr_html_()


def test_a_training_step_shows_what_is_wrong_and_folds_away_what_agrees(samples, tmp_path):
    run = open_run(samples.write_sample_run(tmp_path / "run", ("step",)))
    assert "2 places are wrong by themselves" in repr(run.headline("step"))
    assert "beside body.15.conv" in run.headline("step")._repr_html_()
    shown = run.details("step")._repr_html_()
    assert shown.index("body.15.convolution.weight") < shown.index("body.{0…14}.convolution.weight (15)")
    told, _, folded = shown.partition('<details class="ma-fold"><summary>8 parameters agree')
    assert "body.{0…23}.convolution.bias (24)" in told
    assert "body.{16…23}.convolution.weight (8)" in folded
    assert [key for key in run.frame("step").columns if key.startswith("candidate")] == [
        "candidate",
        "candidate_gradient",
        "candidate_update",
    ]


def test_a_run_shows_its_ladder_by_itself_and_what_is_at_fault(climbed):
    run = open_run(climbed.path)
    shown = run._repr_html_()
    for said in (
        "FAILED",
        "blocked",
        "stale",
        "not available",
        "NOT ALIGNED",
        "after the change, run:<br><code>align run",
    ):
        assert said in shown, said
    faults = run.faults()._repr_html_()
    assert "forward: FAILED. 5 differ" in faults
    assert "at port.py:7; write nn.LayerNorm(8, epsilon=1e-5)" in faults
    assert "weights: COULD NOT COMPARE" in faults
    assert "parameters" not in faults


def test_a_run_without_a_failure_says_so(samples, tmp_path):
    assert "No rung has failed" in repr(open_run(samples.write_sample_run(tmp_path / "run", ("map",))).faults())


def test_fused_operators_are_shown_with_what_explains_them_in_both_languages(samples, tmp_path, monkeypatch):
    run = open_run(samples.write_sample_run(tmp_path / "run", ("formula",)))
    for language, unknown in (("en", "no formula is known"), ("zh", "没有该算子的公式")):
        monkeypatch.setenv(VARIABLE, language)
        shown = run.beside("formula")._repr_html_()
        for said in ("scale=0.25", "NPU.npu_fusion_attention.0", unknown):
            assert said in shown, said


def test_tokens_stand_beside_each_other_in_the_notebook_in_both_languages(samples, tmp_path, monkeypatch):
    run = open_run(samples.write_sample_run(tmp_path / "run", ("data",)))
    for language, title, skipped in (
        ("en", "Tokens of field ids, sample 3 / 5", "12 equal tokens"),
        ("zh", "字段 ids 的 token，样本 3 / 5", "12 个相同的 token"),
    ):
        monkeypatch.setenv(VARIABLE, language)
        shown = run.beside("data")._repr_html_()
        for said in (title, skipped, "[CLS]", "&lt;script&gt;document.title", "\\x1b[31m\\u4f60", "≠"):
            assert said in shown, said
        assert "<script>document" not in shown
    monkeypatch.setenv(VARIABLE, "en")
    assert "Tokens of field" not in repr(run.details("data"))
