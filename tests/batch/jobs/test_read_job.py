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
    files(tmp_path, "a.npz", "b.npz")
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
        "unknown placeholder host": 9,
        "unknown key compare": 11,
    }
    for words, line in expected.items():
        assert any(f"line {line}:" in part and words in part for part in said.splitlines()), (line, words)


def test_a_pattern_that_fits_nothing_and_doubled_ids_are_faults(tmp_path: Path) -> None:
    files(tmp_path, "a.npz")
    assert "line 1: nothing fits [[check]]" in faults(tmp_path, '[[check]]\nfile = "gone/rank{rank}.npz"\n')
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
