"""Tasks in processes of this machine: every one has its outcome, and a lost process costs its own only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.batch.job import Task
from align.batch.open_workers import open_pool
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEED = "deeds:deed"
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def deeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def tasks(*actions: str, paths: tuple[str, ...] = (), **options: Any) -> list[Task]:
    return [Task(f"t{place}", action, paths, options) for place, action in enumerate(actions)]


def test_each_task_is_run_once_in_processes_that_import_no_framework() -> None:
    with open_pool(2) as pool:
        found = list(pool.run(tasks(*["nothing"] * 40), DEED))
    assert sorted(outcome.task for outcome in found) == sorted(f"t{place}" for place in range(40))
    assert {(outcome.state, outcome.attempts, outcome.error) for outcome in found} == {("done", 1, "")}
    assert os.getpid() not in {outcome.figures["pid"] for outcome in found}
    assert {outcome.figures["torch"] for outcome in found} == {False}
    assert {outcome.figures["threads"] for outcome in found} == {str(max(1, len(os.sched_getaffinity(0)) // 2))}
    assert all(outcome.peak_bytes > 1_000_000 for outcome in found if outcome.peak_bytes is not None)


def test_a_task_that_fails_is_tried_once_more_and_the_rest_goes_on(tmp_path: Path) -> None:
    given = tasks("fail", "nothing", "break", "fail once", "nothing", paths=(str(tmp_path / "mark"),))
    with open_pool(1) as pool:
        found = {outcome.task: outcome for outcome in pool.run(given, DEED)}
    assert {name: (o.state, o.attempts) for name, o in found.items()} == {
        "t0": ("failed", 2),
        "t1": ("done", 1),
        "t2": ("failed", 2),
        "t3": ("done", 2),
        "t4": ("done", 1),
    }
    assert (found["t0"].error, found["t0"].hint) == ("t0 is wrong", "mend it")
    assert found["t2"].error == "ZeroDivisionError: by nothing"
    assert found["t3"].error == ""


def test_a_process_that_dies_costs_its_own_task_only(tmp_path: Path) -> None:
    given = tasks("nothing", "die", "die once", *["nothing"] * 5, paths=(str(tmp_path / "mark"),))
    with open_pool(2) as pool:
        found = {outcome.task: outcome for outcome in pool.run(given, DEED)}
    assert len(found) == 8
    assert (found["t1"].state, found["t1"].attempts) == ("failed", 2)
    assert "SIGKILL" in found["t1"].error
    assert "what it said before it died" in found["t1"].error
    assert (found["t2"].state, found["t2"].attempts) == ("done", 2)
    assert {found[f"t{place}"].attempts for place in (0, 3, 4, 5, 6, 7)} == {1}


def test_a_task_above_the_memory_of_a_worker_is_a_failure_that_says_so() -> None:
    with open_pool(1, memory_bytes=300 * 2**20) as pool:
        full, plain = sorted(pool.run(tasks("fill", "nothing"), DEED), key=lambda outcome: outcome.task)
    assert (full.state, full.attempts) == ("failed", 2)
    assert "more than the 300 MiB" in full.error
    assert plain.state == "done"


def test_tasks_are_taken_as_workers_become_free() -> None:
    taken = []

    def many() -> Iterator[Task]:
        for task in tasks(*["nothing"] * 1000):
            taken.append(task)
            yield task

    with open_pool(1) as pool:
        outcomes = pool.run(many(), DEED)
        next(outcomes)
        assert len(taken) <= 3
        outcomes.close()  # type: ignore[attr-defined]
        again = list(pool.run(tasks("nothing"), DEED))
    assert [outcome.state for outcome in again] == ["done"]


def test_a_function_that_is_not_there_ends_the_job() -> None:
    with open_pool(1) as pool, pytest.raises(UsageError, match="deeds:no_such_deed cannot be imported"):
        list(pool.run(tasks("nothing"), "deeds:no_such_deed"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(how: signal.Signals, tmp_path: Path) -> None:
    """Its last task takes an hour, for which this test would last if the worker went on."""
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from align.batch.job import Task\n"
        "from align.batch.open_workers import open_pool\n"
        "with open_pool(1) as pool:\n"
        "    given = [Task('a', 'nothing', (), {}), Task('b', 'sleep', (), {'seconds': 3600})]\n"
        "    for outcome in pool.run(given, 'deeds:deed'):\n"
        "        print(outcome.figures['pid'], flush=True)\n",
        encoding="utf-8",
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        worker = Path("/proc", parent.stdout.readline().decode().strip())
        parent.send_signal(how)
        parent.wait()
    while worker.exists():
        time.sleep(0.05)


def test_a_task_that_hangs_is_ended_after_its_time_and_holds_up_no_other() -> None:
    hanging = Task("hangs", "sleep", (), {"seconds": 3600}, 0.3)
    with open_pool(1) as pool:
        outcomes = [*pool.run([hanging, *tasks(*["nothing"] * 3)], DEED)]
    assert [(one.task, one.state, one.attempts) for one in outcomes] == [
        ("t0", "done", 1),
        ("t1", "done", 1),
        ("t2", "done", 1),
        ("hangs", "failed", 2),
    ]
    assert "not done within 0.3 seconds" in outcomes[-1].error
    assert "`timeout`" in outcomes[-1].hint


def test_a_task_that_ends_in_time_is_not_ended() -> None:
    with open_pool(1) as pool:
        found = [*pool.run([Task("t", "sleep", (), {"seconds": 0.2}, 3600), Task("u", "nothing", (), {}, 3600)], DEED)]
    assert {(one.state, one.attempts) for one in found} == {("done", 1)}


def test_workers_that_need_more_memory_than_they_may_take_to_start_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(600)\ndeed = dict\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with open_pool(1, memory_bytes=2**20) as pool, pytest.raises(CannotRunError, match="more than the 1 MiB"):
        list(pool.run(tasks("nothing", "nothing"), "slow_to_import:deed"))


def test_too_few_workers_are_refused_with_the_number() -> None:
    with pytest.raises(UsageError, match="too few: 0 workers\\n"), open_pool(0):
        pass
