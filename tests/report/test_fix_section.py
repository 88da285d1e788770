"""The changes of a port in the report: the patch as text, the layers of each place, and what remained."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from align.core.documents import to_json_data
from align.core.verdicts import Coverage, Outcome, Verdict
from align.fixes.fix_result import (
    FaultAfterFix,
    FixedPlace,
    FixResult,
    RefusedChange,
    RunAfterFix,
    RungAfterFix,
    SourcePatch,
)
from align.fixes.plan_changes import unified_diff
from align.report.page_html import fix_section, page_html
from align.runs.baseline import keep_last_run
from align.runs.project_file import Project
from align.runs.run_folder import RunFolder, as_document

climbed = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["climb"]
PATCH = "--- a/port.py\n+++ b/port.py\n@@ -1 +1 @@\n-act = f(x < 1)\n+act = f(x < 2)\n"


@pytest.fixture
def applied() -> FixResult:
    """One change that was made, one that was refused, and a rung that is still off."""
    return FixResult(
        reference="original.py:build",
        candidate="port.py:build",
        state="applied",
        faults=4,
        unconfirmed=0,
        places=(
            FixedPlace("port.py", "project", "", 1, "f(x < 1)", "f(x < 2)", ("a.0", "a.1", "a.2"), "relu", {"x": 2}),
        ),
        refused=(RefusedChange(("head",), "relu", "it is computed elsewhere"),),
        patches=(SourcePatch("project", "", PATCH),),
        after=RunAfterFix(
            "align run",
            (FaultAfterFix("head", "layer", "relu", "port.py:9", "left"), *(
                FaultAfterFix(f"a.{number}", "layer", "relu", "port.py:1", "gone") for number in range(3)
            )),
            (RungAfterFix("forward", "failed", "failed", "1 of 5 layer outputs differ"),),
        ),
        backup="run/fix/1",
        overlay="",
        restored=(),
        next_commands=("align run", "align fix --undo"),
        verdict=Verdict(Outcome.NOT_ALIGNED, "3 faults gone, 1 left", Coverage("layer outputs", 5)),
    )  # fmt: skip


def section(result: FixResult, tmp_path) -> str:
    RunFolder(tmp_path).write(result, {})
    return fix_section(RunFolder(tmp_path))


def test_the_section_has_the_patch_the_layers_and_what_remained(applied: FixResult, tmp_path) -> None:
    page = section(applied, tmp_path)
    assert unescape(re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)[0]) == PATCH
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
    for said in (
        "Changes that were made",
        "3 faults changed at 1 place, 1 refused",
        "3: a.{0…2} (3)",
        "it is computed elsewhere",
        "head (relu): left, at port.py:9",
        "a.{0…2} (3) (relu): gone",
        "1 of 5 layer outputs differ",
        "run/fix/1",
        "align fix --undo",
    ):
        assert said in text, said


def test_what_was_undone_or_had_nothing_to_change_has_no_section(applied: FixResult, tmp_path) -> None:
    from dataclasses import replace

    assert section(replace(applied, state="undone", verdict=None), tmp_path) == ""
    assert section(replace(applied, faults=0), tmp_path) == ""
    assert fix_section(RunFolder(tmp_path / "empty")) == ""


def test_the_rows_of_a_frame_are_the_places(applied: FixResult) -> None:
    frame = applied.to_frame()
    assert frame["file"].tolist() == ["port.py"]
    assert frame["after"].tolist() == ["f(x < 2)"]
    assert to_json_data(applied)["places"][0]["layers"] == ["a.0", "a.1", "a.2"]
    assert as_document(applied, {})["schema"] == "mindalign.fix/2"


def rows_of(page: str) -> list[tuple[str, str]]:
    """The rows of code on the first card: what kind each is, and its text."""
    code = re.search(r'<pre class="code">(.*?)</pre>', page, re.DOTALL)
    rows = re.findall(r'<span class="row (\w*)">(.*?)\n</span>', code[1] if code else "", re.DOTALL)
    return [(kind, " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())) for kind, text in rows]


def test_a_card_shows_its_line_of_code_or_the_patch_that_was_planned_since(samples, applied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "forward")))
    ladder = climbed(run)
    assert rows_of(page_html(run)) == [], "nobody kept the code"
    Path("resnet.py").write_text("".join(f"x = {number} < 9\n" for number in range(1, 215)))
    keep_last_run(ladder, run, Project())
    kept = [("", "213 x = 213 < 9"), ("at", "214 x = 214 < 9")]
    assert rows_of(page_html(run)) == kept
    (known,) = {one["candidate"] for one in run.read("forward")["culprits"] if one["cause"] == "max-pool-padding"}
    place = replace(applied.places[0], file="resnet.py", line=214, layers=(known,), cause="max-pool-padding")
    diff = unified_diff(
        "resnet.py", Path("resnet.py").read_text(), Path("resnet.py").read_text().replace("214 <", "0 <")
    )
    patch = replace(applied.patches[0], text=PATCH + diff)
    planned = replace(applied, state="planned", places=(place,), patches=(patch,), after=None, backup="")
    run.write(planned, {})
    changed = [("out", "214 - x = 214 < 9"), ("in", "+ x = 0 < 9")]
    assert rows_of(page_html(run)) == [kept[0], *changed]
    run.write(replace(planned, places=(replace(place, cause="other"),)), {})
    assert rows_of(page_html(run)) == kept, "it is a change of another cause"
    run.keep("fix", as_document(planned, {}) | {"created": "2000-01-01T00:00:00+00:00"})
    assert rows_of(page_html(run)) == kept, "the comparison is newer than the plan"
