"""Files of settings that attack: bombs, objects, depth, size, circles. Each ends in one message, and nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.cli.main import main
from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_format import read_settings_of
from align.hyperparameters.thresholds import LONGEST_SETTINGS_BYTES, LONGEST_YAML_BYTES

if TYPE_CHECKING:
    from pathlib import Path

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 12))
HOSTILE = {
    "laughs.yaml": (LAUGHS, "more than 20,000 settings"),
    "merges.yaml": (MERGES, "more than 20,000 settings"),
    "object.yaml": ("lr: !!python/object/apply:os.system ['touch ran']\n", "no is built|none is built"),
    "own.yaml": ("- !evil 1\n", "no named settings"),
    "deep.yaml": ("[" * 700 + "]" * 700, "nested deeper|no YAML|no named settings"),
    "self.yaml": ("a: &a [*a]\n", "nested deeper|no YAML|more than"),
    "long.yaml": ("lr: 1 #" + "x" * LONGEST_YAML_BYTES, "are read at most"),
    "cut.yaml": ("lr: {a: 1\nb", "no YAML"),
    "list.yaml": ("- 1\n- 2\n", "no named settings"),
    "deep.json": ('{"a":' * 3000 + "1" + "}" * 3000, "nested deeper"),
    "cut.json": ('{"lr": 1', "no JSON"),
    "long.json": ('{"lr": "' + "x" * LONGEST_SETTINGS_BYTES + '"}', "are read at most"),
    "list.json": ("[1, 2]", "no named settings"),
    "deep.py": ("a = " + "[" * 90 + "]" * 90, "nested deeper|no Python"),
    "sum.py": ("a = 1" + "+1" * 5000, "nested deeper|no Python"),
    "cut.py": ("lr = (", "no Python"),
    "cut.toml": ("lr = ", "not TOML"),
    "circle.py": ("_base_ = 'circle.py'", "base of itself"),
    "circle.yaml": ("_base_: circle.yaml", "base of itself"),
    "lost.py": ("_base_ = 'nowhere.py'", "does not exist"),
    "empty.sh": ("#!/bin/sh\n", "no setting"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("guarded")
def test_a_hostile_file_ends_in_one_message(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, said = HOSTILE[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableSettingsError, match=said):
        read_settings_of(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for name, data in {
        "x.yaml": b"\xff\xfe\x00a",
        "x.json": b"\x80",
        "x.zip": b"PK\x03\x04junk",
        "x.dat": b"\0\0\0",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnreadableSettingsError):
            read_settings_of(tmp_path / name)


def test_the_command_ends_with_2_and_one_message(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "laughs.yaml"
    path.write_text(LAUGHS, encoding="utf-8")
    assert main(["hyperparameters", str(path), str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("align: cannot read settings from")
    assert "Traceback" not in said
