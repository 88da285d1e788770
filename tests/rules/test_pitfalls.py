"""A file of pitfalls that breaks the schema is refused, with all that is wrong in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.errors import PitfallFileError
from align.rules.pitfalls import pitfalls, read_pitfalls

if TYPE_CHECKING:
    from pathlib import Path

SOUND = """
[[pitfall]]
id = "slope"
setting = "slope"
severity = "error"
effect = "scaled otherwise"
forms = [
    { classes = ["torch.nn.LeakyReLU"], reads = "negative_slope" },
    { classes = ["mindspore.nn.LeakyReLU"], reads = "alpha" },
]
[pitfall.examples]
inputs = ["2,3"]
differ = [["torch.nn.LeakyReLU()", "mindspore.nn.LeakyReLU()"]]
agree = [["torch.nn.LeakyReLU(0.2)", "mindspore.nn.LeakyReLU()"]]
"""


def faults_of(folder: Path, text: str) -> list[str]:
    path = folder / "activations.toml"
    path.write_text(text, encoding="utf-8")
    rules, faults = read_pitfalls(path)
    assert bool(rules) != bool(faults)
    return faults


def test_a_sound_file_gives_its_rules_with_the_file_as_topic(tmp_path: Path) -> None:
    assert faults_of(tmp_path, SOUND) == []
    (rule,), _ = read_pitfalls(tmp_path / "activations.toml")
    assert (rule.id, rule.topic, rule.unrun) == ("slope", "activations", False)
    form = rule.form_of(("my.Act", "mindspore.nn.LeakyReLU"))
    assert form is not None
    assert form.reads == "alpha"
    assert rule.form_of(("torch.nn.ReLU",)) is None


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('severity = "error"', 'severity = "grave"', "rule 'slope': severity 'grave' is none of error, warning, note"),
        ('severity = "error"', "severity = 3", "rule 'slope': severity is no text: 3"),
        ('effect = "scaled otherwise"', "", "rule 'slope': effect is no text: None"),
        ('id = "slope"', 'id = ""', "rule '': id is no text: ''"),
        ('setting = "slope"', 'setting = "slope"\ncode = "eval"', "rule 'slope': unknown key 'code'"),
        ('id = "slope"', 'id = "slope"\ntraining_only = 1', "rule 'slope': training_only is neither true nor false: 1"),
        ('id = "slope"', 'id = "slope"\ntraining_only = true\nabsent = "0"', "rule 'slope': absent is no number: '0'"),
        ('id = "slope"', 'id = "slope"\nabsent = 0', "rule 'slope': absent is for settings that are training_only"),
        ('reads = "alpha"', 'reads = "alpha", means = "eval"', "rule 'slope': form 1: means 'eval' is none of plain, "),
        ('reads = "alpha"', 'reads = "alpha", run = "x"', "rule 'slope': form 1: unknown key 'run'"),
        ('reads = "alpha"', "reads = 3", "rule 'slope': form 1: reads is no attribute and no list of them: 3"),
        (', reads = "alpha"', "", "rule 'slope': form 1: expected either reads, "),
        ('reads = "alpha"', "always = 1", "rule 'slope': form 1: a setting that cannot be changed, or not"),
        ('reads = "alpha"', 'reads = "a", values = [1]', "rule 'slope': form 1: values is no list of pairs"),
        ('reads = "alpha"', 'reads = "a", beside = ["x"]', "rule 'slope': form 1: beside is no list of pairs"),
        (
            'reads = "alpha"',
            'reads = "a", takes = [1]',
            "rule 'slope': form 1: a setting that cannot be changed, or not",
        ),
        ('["mindspore.nn.LeakyReLU"]', "[]", "rule 'slope': form 1: classes is no list of names"),
        ("agree = [[", "agree = [] #", "rule 'slope': examples that agree are no list of pairs of layers"),
        ("differ = [[", "differ = [] #", "rule 'slope': examples that differ are no list of pairs of layers"),
        ('inputs = ["2,3"]', 'judge = "eye"', "rule 'slope': judge 'eye' is none of output, "),
        ('inputs = ["2,3"]', "inputs = [2]", "rule 'slope': inputs of examples is no list of texts"),
        ('inputs = ["2,3"]', "seed = 2", "rule 'slope': unknown key 'seed' of examples"),
    ],
)
def test_each_fault_is_named_with_its_rule(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in SOUND
    assert any(found.startswith(fault) for found in faults_of(tmp_path, SOUND.replace(old, new)))


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    broken = SOUND.replace('"error"', '"grave"').replace('reads = "alpha"', "reads = 3")
    assert len(faults_of(tmp_path, broken + SOUND.replace('id = "slope"', 'id = ""'))) == 3


@pytest.mark.parametrize("text", ["", "x = 1", "pitfall = []", "pitfall = [3]", SOUND + "[other]\nx = 1"])
def test_a_file_without_rules_is_refused(tmp_path: Path, text: str) -> None:
    assert faults_of(tmp_path, text) == ["expected [[pitfall]] tables and nothing else"]


@pytest.mark.parametrize("content", [b"[[pitfall]\n", b"\xff\xfe"])
def test_what_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    assert read_pitfalls(path)[1][0].startswith("not TOML")


def test_a_form_without_examples_and_forms_is_refused(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, '[[pitfall]]\nid = "x"\nsetting = "s"\nseverity = "note"\neffect = "e"\nidle = 3\n')
    assert faults == [
        "rule 'x': forms is no list of tables",
        "rule 'x': idle is no table of attributes and values",
        "rule 'x': examples are missing",
    ]


def test_faults_of_all_files_and_doubled_ids_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pitfalls"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.toml").write_text(SOUND, encoding="utf-8")
    (folder / "c.toml").write_text("pitfall = 3", encoding="utf-8")
    (folder / "d.toml").write_text(SOUND.replace('"error"', '"grave"'), encoding="utf-8")
    monkeypatch.setattr("align.rules.pitfalls.mappings_folder", lambda: tmp_path)
    with pytest.raises(PitfallFileError, match="two rules are called 'slope'") as caught:
        pitfalls.__wrapped__()
    assert len(caught.value.faults) == 3
    assert str(folder) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_rule_is_unrun_if_no_pair_that_differs_could_be_run(tmp_path: Path) -> None:
    assert faults_of(tmp_path, SOUND + 'unrun = ["mindspore.nn.LeakyReLU"]') == []
    (rule,), _ = read_pitfalls(tmp_path / "activations.toml")
    assert rule.unrun


def test_the_rules_that_ship_are_sound_and_sorted_by_topic() -> None:
    rules = pitfalls()
    assert [(rule.topic, rule.id) for rule in rules] == sorted((rule.topic, rule.id) for rule in rules)
