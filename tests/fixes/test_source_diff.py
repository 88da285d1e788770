"""A diff of a file is what `git apply` and `patch -p1` make the new file of, byte for byte."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from align.fixes.plan_changes import unified_diff
from align.fixes.plan_edits import as_in_file, decoded, encoded, whole_text

if TYPE_CHECKING:
    from pathlib import Path

LINES = [f"value_{number} = {number}" for number in range(12)]
FORMS = {
    "plain": ("port.py", "\n".join(LINES).encode() + b"\n"),
    "windows line ends": ("port.py", "\r\n".join(LINES).encode() + b"\r\n"),
    "mixed line ends": ("port.py", b"a = 1\r\nvalue_5 = 5\nb = 2\r\n"),
    "no line end at the end": ("port.py", "\n".join(LINES).encode()),
    "the last line changes": ("port.py", b"a = 1\nvalue_5 = 5"),
    "latin-1": ("port.py", "# coding: latin-1\nname = '\xe9t\xe9'\nvalue_5 = 5\n".encode("latin-1")),
    "a mark of the encoding": ("port.py", b"\xef\xbb\xbf# \xc3\xa9\nvalue_5 = 5\n"),
    "tabs and a form feed": ("port.py", b"if True:\n\tvalue_5 = 5\n\x0c\nc = 3\n"),
    "a space in its name": ("models/my port.py", b"value_5 = 5\n"),
    "a line separator that is no line end": ("port.py", "t = 'a\u2028b\x85c'\nvalue_5 = 5\n".encode()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", [["git", "apply"], ["patch", "-p1", "-i"]], ids=["git", "patch"])
def test_real_programs_make_the_new_file_of_it(form: str, program: list[str], tmp_path: Path) -> None:
    name, before = FORMS[form]
    after = encoded(decoded(before).replace("value_5 = 5", "value_5 = 'five'"), before)
    assert after != before
    file = tmp_path / "work" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(before)
    diff = unified_diff(name, whole_text(before), whole_text(after))
    (tmp_path / "change.patch").write_bytes(as_in_file(diff, before))
    done = subprocess.run([*program, "../change.patch"], cwd=tmp_path / "work", capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_bytes() == after


def test_equal_texts_have_no_diff() -> None:
    assert unified_diff("port.py", "a\n", "a\n") == ""


def test_a_content_that_is_encoded_again_is_as_it_was() -> None:
    for _, content in FORMS.values():
        assert encoded(decoded(content), content) == content
