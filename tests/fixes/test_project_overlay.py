"""The key `overlay` in a project file: written under its table, once, with everything else as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.fixes.fix_port import with_overlay
from align.runs.project_file import read_project

if TYPE_CHECKING:
    from pathlib import Path

FORMS = {
    "plain": '# mine\n[reference]\nmodel = "a.py:f"\n\n[candidate]  # ours\nmodel = "b.py:f"\n[run]\nfolder = "run"\n',
    "windows line ends": '[candidate]\r\nmodel = "b.py:f"\r\n[run]\r\n',
    "the last line": '[reference]\nmodel = "a.py:f"\n[candidate]',
    "spaces": '[ candidate ]\nmodel = "b.py:f"\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_one_line_is_added_and_the_file_means_the_same_otherwise(form: str, tmp_path: Path) -> None:
    file, text = tmp_path / "align.toml", FORMS[form]
    file.write_bytes(text.encode())
    before = read_project(file)
    added = with_overlay(text, file, tmp_path / "run" / "overlay")
    assert added is not None
    lines = added.splitlines(keepends=True)
    assert [line for line in lines if not line.startswith("overlay")] in (
        text.splitlines(keepends=True),
        [*text.splitlines(keepends=True)[:-1], text.splitlines()[-1] + "\n"],
    )
    file.write_bytes(added.encode())
    after = read_project(file)
    assert after.candidate.overlay == tmp_path / "run" / "overlay"
    assert (after.reference, after.candidate.model, after.run_folder) == (
        before.reference,
        before.candidate.model,
        before.run_folder,
    )
    assert with_overlay(added, file, tmp_path / "run" / "overlay") == added


def test_a_file_without_the_table_is_left_to_its_owner(tmp_path: Path) -> None:
    for text in ('candidate = { model = "b.py:f" }\n', '[reference]\nmodel = "a.py:f"\n'):
        assert with_overlay(text, tmp_path / "align.toml", tmp_path) is None
