"""The changes of a port in the report: the patch as text, the layers of each place, and what remained."""

from __future__ import annotations

import re
from html import unescape

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
from align.report.page_html import fix_section
from align.runs.run_folder import RunFolder, as_document

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
