"""Tasks on real Dask clusters: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.batch.job import Task
from align.batch.open_workers import open_dask
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEED = "deeds:deed"
HERE = Path(__file__).parent


@contextmanager
def started(*arguments: str, path: Path = HERE, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask, ended with all that it started."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{HERE}", **settings}
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
    process = subprocess.Popen(command, env=env, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def scheduler(folder: Path, **settings: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and process of a scheduler."""
    file = folder / "scheduler.json"
    arguments = ("--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    with started("dask_scheduler", *arguments, **settings) as process:
        while not (file.exists() and file.read_text(encoding="utf-8").strip().endswith("}")):
            assert process.poll() is None
            time.sleep(0.05)
        yield json.loads(file.read_text(encoding="utf-8"))["address"], process


def worker(stack: ExitStack, address: str, name: str, path: Path = HERE) -> subprocess.Popen[bytes]:
    arguments = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", name)
    return stack.enter_context(started("dask_worker", address, *arguments, path=path))


def joined(dask: Any, process: subprocess.Popen[bytes]) -> None:
    """Wait until a worker takes tasks: one that starts slowly would be given none of those that others do at once."""
    while process.pid not in dask.client.run(os.getpid).values():
        assert process.poll() is None
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time to start a scheduler and its workers."""
    for name in ("CONNECT_SECONDS", "WORKERS_SECONDS"):
        monkeypatch.setattr(f"align.batch.open_workers.{name}", 600)


def sleeps(seconds: float = 0.05) -> Iterator[Task]:
    """Short tasks without end."""
    return (Task(f"t{place}", "sleep", (), {"seconds": seconds}) for place in count())


def tasks(*actions: str, paths: tuple[str, ...] = (), **options: Any) -> list[Task]:
    return [Task(f"t{place}", action, paths, options) for place, action in enumerate(actions)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ExitStack]]:
    """A scheduler with two workers of one thread each; tests add workers to the stack."""
    with scheduler(tmp_path_factory.mktemp("dask")) as (address, _), ExitStack() as stack:
        processes = [worker(stack, address, name) for name in "ab"]
        with open_dask(address) as dask:
            for process in processes:
                joined(dask, process)
        yield address, stack


def test_tasks_run_on_all_workers_and_failures_are_tried_once_more(
    cluster: tuple[str, ExitStack], tmp_path: Path
) -> None:
    given = tasks("fail", "fail once", *["sleep"] * 30, paths=(str(tmp_path / "mark"),), seconds=0.02)
    with open_dask(cluster[0]) as dask:
        found = {outcome.task: outcome for outcome in dask.run(given, DEED)}
    assert len(found) == len(given)
    assert (found["t0"].state, found["t0"].attempts, found["t0"].error) == ("failed", 2, "t0 is wrong")
    assert (found["t1"].state, found["t1"].attempts) == ("done", 2)
    assert len({outcome.figures["pid"] for outcome in found.values() if outcome.figures}) == 2


def test_a_task_that_hangs_is_given_up_after_its_time_and_frees_its_worker(cluster: tuple[str, ExitStack]) -> None:
    hanging = [Task(f"hangs{place}", "sleep", (), {"seconds": 3600}, 0.2) for place in range(3)]
    with open_dask(cluster[0]) as dask:
        found = {outcome.task: outcome for outcome in dask.run([*hanging, *tasks(*["nothing"] * 5)], DEED)}
    assert [found[one.id].state for one in hanging] == ["failed"] * 3
    assert {found[one.id].attempts for one in hanging} == {2}
    assert "not done within 0.2 seconds" in found["hangs0"].error
    assert [found[f"t{place}"].state for place in range(5)] == ["done"] * 5


def test_a_worker_killed_in_the_middle_costs_no_task(cluster: tuple[str, ExitStack]) -> None:
    address, stack = cluster
    with open_dask(address) as dask:
        victim = worker(stack, address, "victim")
        joined(dask, victim)
        outcomes = dask.run(tasks(*["sleep"] * 80, seconds=0.05), DEED)
        found = []
        for outcome in outcomes:
            found.append(outcome)
            if outcome.figures["pid"] == victim.pid:
                victim.kill()
    assert victim.wait(600) == -signal.SIGKILL
    assert victim.pid in {outcome.figures["pid"] for outcome in found}
    assert sorted(outcome.task for outcome in found) == sorted(f"t{place}" for place in range(80))
    assert {outcome.state for outcome in found} == {"done"}


def test_a_slow_worker_holds_up_its_own_tasks_only(cluster: tuple[str, ExitStack]) -> None:
    with open_dask(cluster[0]) as dask:
        first = next(dask.run(tasks("nothing"), DEED)).figures["pid"]
        os.kill(first, signal.SIGSTOP)
        try:
            outcomes = dask.run(tasks(*["sleep"] * 40, seconds=0.01), DEED)
            found = [next(outcomes) for _ in range(35)]
        finally:
            os.kill(first, signal.SIGCONT)
        rest = list(outcomes)
    assert first not in {outcome.figures["pid"] for outcome in found}
    assert {outcome.state for outcome in (*found, *rest)} == {"done"}
    assert len(found) + len(rest) == 40


def test_a_function_that_is_not_there_ends_the_job(cluster: tuple[str, ExitStack]) -> None:
    with open_dask(cluster[0]) as dask, pytest.raises(UsageError, match="deeds:none cannot be imported"):
        list(dask.run(tasks("nothing"), "deeds:none"))


def test_a_worker_with_another_version_is_refused_whenever_it_joins(
    cluster: tuple[str, ExitStack], tmp_path: Path
) -> None:
    address, _ = cluster
    other = tmp_path / "mindalign-0.0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: mindalign\nVersion: 0.0.1\n", encoding="utf-8")
    with ExitStack() as stack:
        with open_dask(address) as dask:
            worker(stack, address, "old", tmp_path)
            with pytest.raises(CannotRunError, match=r"mindalign 0\.0\.1"):
                deque(dask.run(sleeps(), DEED), maxlen=0)
        with pytest.raises(CannotRunError, match=r"1 worker of the cluster .*mindalign 0\.0\.1"), open_dask(address):
            pass


def test_a_task_that_kills_workers_is_given_up_and_a_scheduler_that_is_gone_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with scheduler(tmp_path, **failures) as (address, process), ExitStack() as stack:
        for name in "abc":
            worker(stack, address, name)
        with open_dask(address) as dask:
            (lost,) = dask.run(tasks("die"), DEED)
            assert (lost.state, lost.attempts) == ("failed", 2)
            assert "lost with 1 worker that died" in lost.error
            outcomes = dask.run(sleeps(), DEED)
            assert next(outcomes).state == "done"
            monkeypatch.setattr("align.batch.open_workers.CONNECT_SECONDS", 1)  # nobody is there to answer
            process.kill()
            with pytest.raises(CannotRunError, match="is gone") as caught:
                deque(outcomes, maxlen=0)
        assert "finished tasks are kept" in caught.value.hint
    with pytest.raises(CannotRunError, match="no Dask scheduler answers"), open_dask(address):
        pass
    assert caplog.records == []


def test_a_scheduler_that_stands_still_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler(tmp_path) as (address, process), ExitStack() as stack:
        worker(stack, address, "a")
        with open_dask(address) as dask:
            outcomes = dask.run(sleeps(), DEED)
            next(outcomes)
            monkeypatch.setattr("align.batch.open_workers.CONNECT_SECONDS", 1)
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(CannotRunError, match="is gone"):
                deque(outcomes, maxlen=0)


@pytest.mark.parametrize("address", ["", "nonsense", "http://node1:8786", "tcp://node1"])
def test_what_is_no_address_is_refused_at_once_and_leaves_nothing_behind(address: str) -> None:
    code = (
        "from align.batch.open_workers import open_dask\n"
        "from align.errors import UsageError\n"
        "try:\n"
        f"    with open_dask({address!r}): pass\n"
        "except UsageError as error:\n"
        "    print(error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{address!r} is not an address of a Dask scheduler" in done.stdout
    assert done.stderr == ""
