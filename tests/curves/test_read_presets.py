"""The user's own limits of loss curves, as the project file writes them."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest

from align.curves.presets import CurveLimits, find_preset, limits_for
from align.errors import ProjectFileError
from align.runs.project_file import Project, read_project

PAGE = (Path(__file__).parents[2] / "docs" / "loss-statistics.md").read_text(encoding="utf-8")


def _read(folder: Path, text: str) -> Project:
    (folder / "align.toml").write_text(text, encoding="utf-8")
    return read_project(folder / "align.toml")


def test_own_limits_are_found_by_their_name(tmp_path: Path) -> None:
    own = _read(
        tmp_path,
        """
        [loss.presets.strict]
        source = "our acceptance test"
        first_abs = 1e-4
        mean_rel = 0.002
        points = 500
        drift = true
        [loss.presets.strict.metrics.learning_rate]
        every_rel = 0
        """,
    ).loss_presets
    strict = find_preset("strict", own)
    expected = CurveLimits(
        "our acceptance test", first_abs=1e-4, first_rel=0, mean_abs=0, mean_rel=0.002, points=500, drift=True
    )
    assert limits_for("loss", 1.0, strict) == expected
    assert limits_for("lr", 1.0, strict) == CurveLimits("preset strict of the project file", every_abs=0, every_rel=0)
    assert (limits_for("grad_norm", 1.0, strict).mean_rel, limits_for("tokens", 1.0, strict).mean_rel) == (0.1, 0.01)
    assert expected.every_abs == inf


def test_a_project_without_presets_has_none(tmp_path: Path) -> None:
    assert _read(tmp_path, "").loss_presets == {}


def test_all_faults_of_presets_are_listed_together(tmp_path: Path) -> None:
    text = """
        [loss]
        metric = "loss"
        [loss.presets.guide]
        mean_abs = 0.01
        [loss.presets.bad]
        first_abs = "small"
        mean_abs = -1
        every_rel = inf
        points = 0
        drift = 1
        source = " "
        meen_rel = 0.1
        [loss.presets.empty]
        first_rel = 0.1
        [loss.presets.other]
        mean_rel = 0.1
        metrics.lr = 0.1
        metrics.time.rel = 1
    """
    with pytest.raises(ProjectFileError) as caught:
        _read(tmp_path, text)
    for fault in (
        "[loss] unknown key 'metric'; known: presets",
        "[loss.presets.guide] is the name of a known preset",
        "[loss.presets.bad] first_abs cannot be 'small'",
        "[loss.presets.bad] mean_abs cannot be -1",
        "[loss.presets.bad] every_rel cannot be inf",
        "[loss.presets.bad] points cannot be 0",
        "[loss.presets.bad] drift cannot be 1",
        "[loss.presets.bad] source cannot be ' '",
        "[loss.presets.bad] unknown key 'meen_rel'",
        "[loss.presets.empty] needs a bound of the mean",
        "[loss.presets.other.metrics.lr] must be a table",
        "[loss.presets.other.metrics.time] unknown key 'rel'",
    ):
        assert fault in caught.value.message


@pytest.mark.parametrize(
    "text", ["loss = 1", "[loss]\npresets = 1", "[loss.presets]\nown = 1", "[loss.presets.own]\nmetrics = 1"]
)
def test_what_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectFileError, match=r"must be (a )?table"):
        _read(tmp_path, text)


def test_the_example_on_the_page_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert _read(tmp_path, example).loss_presets
