"""Job files: patterns find ranks and steps, and all faults are told with their lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from align.batch.read_job import read_job
from align.errors import MissingFileError, ProjectFileError

DIFF = '[[diff]]\nreference = "ref/rank{rank}/step{step}.npz"\ncandidate = "port/r{rank}-s{step}.npz"\n'


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def job(folder: Path, text: str) -> Path:
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return folder / "job.toml"


def faults(folder: Path, text: str) -> str:
    with pytest.raises(ProjectFileError) as raised:
        read_job(job(folder, text))
    assert raised.value.hint
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_a_pattern_finds_ranks_and_steps_as_numbers_in_their_order(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank00/step10.npz", "ref/rank00/step9.npz", "ref/rank01/step9.npz", "ref/rank01/step10.npz")
    files(tmp_path, *(f"port/r{rank}-s{step:04d}.npz" for rank in (0, 1) for step in (9, 10)))
    found = read_job(job(tmp_path, DIFF))
    assert [(one.step, one.rank) for one in found.tasks] == [(9, 0), (9, 1), (10, 0), (10, 1)]
    assert found.tasks[0].task.paths == (
        str(tmp_path / "ref/rank00/step9.npz"), str(tmp_path / "port/r0-s0009.npz")
    )  # fmt: skip
    assert len({one.task.id for one in found.tasks}) == 4
    assert found.missing == ()


def test_a_rank_that_one_side_lacks_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    files(tmp_path, *(f"ref/rank{rank}/step1.npz" for rank in range(3)), "port/r0-s1.npz", "port/r2-s1.npz")
    found = read_job(job(tmp_path, DIFF))
    assert [one.rank for one in found.tasks] == [0, 2]
    assert [(one.rank, one.step, one.side) for one in found.missing] == [(1, 1, "candidate")]


def test_ranks_and_steps_that_the_file_names_are_expected_on_both_sides(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank0/step1.npz", "port/r0-s1.npz", "ref/rank5/step1.npz", "port/r5-s1.npz")
    found = read_job(job(tmp_path, DIFF + "ranks = [0, 1]\n"))
    assert [one.rank for one in found.tasks] == [0]
    assert [(one.rank, one.side) for one in found.missing] == [(1, "reference"), (1, "candidate")]


def test_a_placeholder_that_stands_twice_has_one_value(tmp_path: Path) -> None:
    files(tmp_path, "a/rank0/w0.npz", "a/rank0/w1.npz", "a/rank1/w1.npz")
    found = read_job(job(tmp_path, '[[check]]\nfile = "a/rank{rank}/w{rank}.npz"\n'))
    assert [Path(one.task.paths[0]).name for one in found.tasks] == ["w0.npz", "w1.npz"]


def test_a_destination_is_written_as_the_source_names_it(tmp_path: Path) -> None:
    files(tmp_path, "in/shard-00003.npz")
    text = '[[convert]]\nsource = "in/shard-{rank}.npz"\ndestination = "out/shard-{rank}.ckpt"\n'
    (only,) = read_job(job(tmp_path, text)).tasks
    assert only.task.paths[1] == str(tmp_path / "out/shard-00003.ckpt")


def test_options_of_a_table_win_over_the_defaults_and_a_map_is_relative_to_the_file(tmp_path: Path) -> None:
    files(tmp_path, "a.npz", "b.npz", "m.json")
    text = '[defaults.diff]\nstrip = ["x."]\nmap = "m.json"\n[[diff]]\nreference = "a.npz"\ncandidate = "b.npz"\n'
    (only,) = read_job(job(tmp_path, text + 'strip = ["module."]\n')).tasks
    assert only.task.options == {"strip": ["module."], "map": str(tmp_path / "m.json")}


def test_every_fault_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    files(tmp_path, "a.npz")
    text = (
        "[ranks]\nreplicate = []\n"
        '[[diff]]\nreference = "a{rank}"\ncandidate = "b{step}"\nstrip = "module."\n'
        '[[diff]]\nreference = "a"\n'
        '[[check]]\nfile = "{host}.npz"\n'
        "[compare]\nx = 1\n"
    )
    said = faults(tmp_path, text)
    expected = {
        "ranks.replicate": 1,
        "different placeholders": 3,
        "diff.strip must be a list of texts": 3,
        "lacks candidate": 7,
        "unknown placeholder {host}": 9,
        "unknown key compare": 11,
    }
    for words, line in expected.items():
        assert any(f"line {line}:" in part and words in part for part in said.splitlines()), (line, words)


def test_a_pattern_that_fits_nothing_and_doubled_ids_are_faults(tmp_path: Path) -> None:
    files(tmp_path, "a.npz")
    assert "line 1: [[check]]: no file fits file =" in faults(tmp_path, '[[check]]\nfile = "gone/rank{rank}.npz"\n')
    assert "2 tasks have the id check" in faults(tmp_path, '[[check]]\nfile = "a.npz"\n' * 2)
    assert "names no task" in faults(tmp_path, "")
    assert "not TOML" in faults(tmp_path, "[[diff")
    with pytest.raises(MissingFileError):
        read_job(tmp_path / "gone.toml")


def test_ids_are_file_names_whatever_the_paths_hold(tmp_path: Path) -> None:
    files(tmp_path, "a b;c.npz", "..d.npz")
    found = read_job(job(tmp_path, '[[check]]\nid = "../x"\nfile = "{name}.npz"\n'))
    for one in found.tasks:
        assert os.sep not in one.task.id
        assert " " not in one.task.id


def test_two_files_of_one_rank_and_step_are_a_fault_and_none_is_left_out_silently(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank1/step2.npz", "ref/rank01/step2.npz", "ref/rank1/step02.npz", "port/r1-s2.npz")
    said = faults(tmp_path, DIFF)
    assert "reference has several files of one rank and step" in said
    assert all(name in said for name in ("rank1/step2.npz", "rank01/step2.npz", "rank1/step02.npz"))


def test_only_the_side_that_nothing_fits_is_named(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank1/step2.npz")
    said = faults(tmp_path, DIFF)
    assert "no file fits candidate =" in said
    assert "no file fits reference" not in said
    assert "* is no placeholder" in faults(tmp_path, '[[check]]\nfile = "ref/rank*/step2.npz"\n')


def test_sides_without_a_common_rank_are_a_fault(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank0/step2.npz", "port/r1-s2.npz")
    assert "no rank and step is on both sides" in faults(tmp_path, DIFF)


def test_a_table_of_ranks_or_steps_that_no_path_names_is_a_fault(tmp_path: Path) -> None:
    files(tmp_path, "a.npz", "rank0.npz")
    assert "check.ranks has no effect" in faults(tmp_path, '[[check]]\nfile = "a.npz"\nranks = [0, 1]\n')
    assert "check.steps has no effect" in faults(tmp_path, '[[check]]\nfile = "rank{rank}.npz"\nsteps = [0]\n')
    assert "one at least, not []" in faults(tmp_path, '[[check]]\nfile = "rank{rank}.npz"\nranks = []\n')


def test_a_named_rank_of_which_no_named_file_is_there_is_missing(tmp_path: Path) -> None:
    files(tmp_path, "rank0/a.npz", "rank0/b.npz")
    found = read_job(job(tmp_path, '[[check]]\nfile = "rank{rank}/{name}.npz"\nranks = [0, 1]\n'))
    assert [(one.rank, one.part) for one in found.tasks] == [(0, "check-a"), (0, "check-b")]
    assert [(one.rank, one.side, Path(one.expected).parent.name) for one in found.missing] == [(1, "file", "rank1")]


def test_the_path_that_is_missing_is_told_with_its_numbers(tmp_path: Path) -> None:
    files(tmp_path, "ref/rank00/step1.npz", "ref/rank01/step1.npz", "port/r0-s1.npz")
    (one,) = read_job(job(tmp_path, DIFF)).missing
    assert one.expected == str(tmp_path / "port/r01-s1.npz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('diff = ["a", "b"]\n', "write [[diff]]"),
        ("diff = [1]\n", "write [[diff]]"),
        ("ranks = 3\n", "write [ranks]"),
        ("[[ranks]]\n", "write [ranks]"),
        ("defaults = 4\n", "write [defaults]"),
        ("[defaults]\ndiff = 4\n", "write [defaults.diff]"),
        ('[defaults.forward]\nlimit = ["norm"]\n', "must be a list of GLOB=VALUE"),
        ('[defaults.convert]\ntarget = "ms"\ndtype = "int8"\n', "must be nn or mint or torch"),
        ('[defaults.convert]\ndtype = ["fp16"]\n', "must be fp32 or fp16 or bf16"),
        ('timeout = "1h"\n', "timeout must be a number of seconds above 0"),
        ("timeout = 0\n", "line 1: timeout must be a number of seconds above 0"),
        ("[defaults.diff]\ntimeout = -1\n", "defaults.diff.timeout must be a number"),
        ('[[check]]\nfile = "a{}.npz"\n', "unknown placeholder {}"),
        ('[[diff]]\nreference = "a.npz"\ncandidate = "a.npz"\nmap = "gone.toml"\n', "gone.toml is not a file"),
    ],
)
def test_a_mistake_is_told_before_any_task_is_run(tmp_path: Path, text: str, words: str) -> None:
    files(tmp_path, "a.npz")
    assert words in faults(tmp_path, text)


def test_two_conversions_into_one_file_are_a_fault(tmp_path: Path) -> None:
    files(tmp_path, "a.npz", "b.npz")
    table = '[[convert]]\nid = "{0}"\nsource = "{0}.npz"\ndestination = "out.ckpt"\n'
    assert "2 tasks write" in faults(tmp_path, table.format("a") + table.format("b"))


def test_names_that_differ_in_odd_signs_only_or_are_long_have_ids_of_their_own(tmp_path: Path) -> None:
    files(tmp_path, "a b.npz", "a_b.npz", "a;b.npz", f"{'x' * 240}.npz", f"{'x' * 239}y.npz")
    found = read_job(job(tmp_path, '[[check]]\nfile = "{name}.npz"\n'))
    ids = [one.task.id for one in found.tasks]
    assert len(set(ids)) == len(ids) == 5
    assert all(len(name) < 200 for name in ids)


def test_the_time_of_a_task_is_that_of_its_table_else_of_its_action_else_of_the_job(tmp_path: Path) -> None:
    files(tmp_path, "a.npz", "b.npz")
    diff = '[[diff]]\nid = "{}"\nreference = "a.npz"\ncandidate = "b.npz"\n'
    text = "timeout = 600\n[defaults.diff]\ntimeout = 60\n" + diff.format("x") + diff.format("y") + "timeout = 1.5\n"
    found = read_job(job(tmp_path, text + '[[check]]\nfile = "a.npz"\n'))
    assert {one.task.id: one.task.timeout for one in found.tasks} == {"x": 60, "y": 1.5, "check": 600}
    assert all("timeout" not in one.task.options for one in found.tasks)
