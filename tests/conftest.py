"""What all tests share: MindSpore set up before its first operation, many examples held in one test, bounds on work.

Each document that a test writes or prints in its own process is held to the published schema of its kind.

No test looks at a clock. Work that grows faster than it may is found by counting what Python runs or reads; work
without end by a limit on the processor's time, far above what the test needs, which only ends what would not end.
"""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

GUARD_SECONDS = 60
SEED = 20
# Facts that are words of data, and such words as no user would give a name in the place of them.
NAMED_IN_CHINESE = ("side", "other", "subject", "state", "outcome", "direction")
WORDS_OF_DATA = {"reference", "candidate", "could not compare", "not aligned", "not run", "stale", "backward"}
LIST_ENDS = 20
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


def pytest_configure() -> None:
    """Give each of several workers a core of its own; keep compiled modules, and be interrupted, even if told not to.

    The threads of torch, of MindSpore and of BLAS wait in loops: on the same cores, two workers take twice the time.
    Where Python is told to keep none, each of the programs that tests start would compile the package again. A shell
    lets what it runs in the background, and all that this starts, ignore interrupts, which tests send to it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["ALIGN_LANG"] = "en"  # whatever the locale of whoever runs them
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that hold slow tests: begun last, one would keep one worker busy while the other waits."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector: it lives to the end, and each full pass would read it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set MindSpore up as the adapter does, and seed all that draws random numbers without a seed of its own.

    MindSpore reports errors where they happen only if it is told so at first, and starts from another state in each
    process: a limit that drawn numbers pass nearly always would fail one day. What a test draws, a shared fixture that
    it is the first to ask for included, depends on the test alone.
    """
    random.seed(SEED)
    if item.get_closest_marker("frameworks"):
        import mindspore
        import torch

        from align.models.adapter_parts.mindspore.layers import launched

        launched()
        torch.manual_seed(SEED)
        mindspore.manual_seed(SEED)
        mindspore.set_seed(SEED)  # NumPy too, and operators that are built from now on
    elif numpy := sys.modules.get("numpy"):
        numpy.random.seed(SEED)


@pytest.fixture(autouse=True, scope="session")
def _worded_in_both_languages() -> Iterator[None]:
    """Word each text in Chinese too, with the very facts that a test gives it: it must be possible.

    A side or a state among the facts of a result or an error is to be named in Chinese.
    """
    from align.words import catalogue

    filled = catalogue._filled

    def in_both(key: str, facts: Any, language: str) -> str:
        if language == catalogue.ENGLISH:
            chinese = filled(key, facts, "zh")
            maker = sys._getframe(1).f_code.co_name  # `say` is given words that are English by now
            said = [facts[name] for name in NAMED_IN_CHINESE if name in facts] if maker != "say" else []
            for word in (one for one in said if isinstance(one, str) and one in WORDS_OF_DATA):
                assert not re.search(rf"(?<![\w\-./\[`]){word}(?![\w\-./\]`:])", chinese), (key, chinese)
        return filled(key, facts, language)

    catalogue._filled = in_both
    yield
    catalogue._filled = filled


@pytest.fixture(autouse=True)
def _not_flushed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk, 8 ms a file, but in the tests of whole files themselves: no test cuts the power."""
    if request.path.name != "test_atomic_files.py":
        monkeypatch.setattr("align.core.atomic_files.flush_to_disk", lambda _: None)


@pytest.fixture(autouse=True)
def _nothing_opened_yet() -> None:
    """Forget what earlier tests of this worker have opened: a climb would hold each rung against all of it."""
    from align.core import load_code as opened_files

    opened_files._NOTED.read.clear()
    opened_files._NOTED.written.clear()


@pytest.fixture(autouse=True, scope="session")
def _documents_follow_their_schemas() -> Iterator[None]:
    from align.runs import run_folder

    as_document = run_folder.as_document

    def validated(result: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        document = as_document(result, *arguments, **options)
        if hasattr(type(result), "to_frame"):  # tests have results of their own
            validator(result.result_kind)(shortened(document))
        return document

    run_folder.as_document = validated
    yield
    run_folder.as_document = as_document


@cache
def validator(kind: str) -> Callable[[Any], object]:
    """What holds documents of a kind to their schema, compiled: what interprets one takes half of a climb's time."""
    import fastjsonschema

    import align

    path = Path(align.__file__).parent / "runs" / "schemas" / f"{kind}.schema.json"
    hold: Callable[[Any], object] = fastjsonschema.compile(draft_7(json.loads(path.read_text(encoding="utf-8"))))
    return hold


def draft_7(schema: Any) -> Any:
    """A schema as the last draft that is compiled has it: this calls lists of fixed length otherwise."""
    if isinstance(schema, list):
        return [draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: draft_7(one) for key, one in schema.items() if key not in ("$schema", "$id")}
    if isinstance(fixed := inside.pop("prefixItems", None), list):
        inside |= {"items": fixed, "additionalItems": inside.get("items", True)}
    return inside


def shortened(value: Any) -> Any:
    """A document with the ends of long lists only, whose middle is like them and would take long."""
    if isinstance(value, dict):
        return {key: shortened(one) for key, one in value.items()}
    ends = value[:LIST_ENDS] + value[LIST_ENDS:][-LIST_ENDS:] if isinstance(value, list) else value
    return [shortened(one) for one in ends] if isinstance(value, list) else value


@pytest.fixture
def assert_each(subtests: pytest.Subtests) -> Callable[[Callable[..., None], Collection[Any]], None]:
    """Hold a check against each of the examples, tuples being its arguments: a fault does not hide the next one."""

    def assert_each(check: Callable[..., None], examples: Collection[Any]) -> None:
        assert examples, "there is no example"
        for example in examples:
            with subtests.test(str(example)):
                check(*example) if isinstance(example, tuple) else check(example)

    return assert_each


@pytest.fixture(scope="session")
def guard() -> Callable[[float], AbstractContextManager[None]]:
    """Fail, rather than go on without end, what has used the processor for so many seconds.

    The garbage of other tests is not collected in that time, which could take as long as what is guarded.
    """

    @contextmanager
    def guard(seconds: float) -> Iterator[None]:
        def end(number: int, frame: object) -> None:
            pytest.fail(f"still running after {seconds} seconds of processor time")

        before = signal.signal(signal.SIGPROF, end)
        gc.disable()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            gc.enable()
            signal.signal(signal.SIGPROF, before)

    return guard


@pytest.fixture
def guarded(guard: Callable[[float], AbstractContextManager[None]]) -> Iterator[None]:
    """Hold the whole test to a minute of processor time."""
    with guard(GUARD_SECONDS):
        yield


@pytest.fixture(scope="session")
def growth() -> Callable[[Callable[[int], object], int], float]:
    """How many times as many lines run for twice the size: 2 if the work is proportional to it, 4 if to its square."""

    def growth(work: Callable[[int], object], size: int) -> float:
        work(size)  # what is read or imported once does not count
        return lines_run(work, 2 * size) / lines_run(work, size)

    return growth


def lines_run(work: Callable[[int], object], size: int) -> int:
    """Lines of Python that ran, each as often as it did; what C does in them does not show."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(size)
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="session")
def bytes_read() -> Callable[[], int]:
    """Bytes that this process has read so far, from whatever file."""
    return lambda: int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


# Takes a step for each line: one that leaks keeps a megabyte.
IN_STEP = """
import sys
kept, mode = [], sys.argv[1]
for _ in sys.stdin:
    noise = bytearray(300_000)
    if mode == "leak":
        kept.append(b"x" * 1_000_000)
    print(len(kept), flush=True)
"""


@pytest.fixture
def process_in_step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]:
    """Start a process that takes a step whenever who follows its memory waits, and ends after so many.

    The time of who follows it is the sum of what they waited, so that no load of the machine shows.
    """

    @contextmanager
    def process_in_step(mode: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
        from align.lint import examine_environment

        now, waits = 0.0, 0

        def wait(seconds: float) -> None:
            nonlocal now, waits
            now, waits = now + seconds, waits + 1
            assert process.stdin is not None
            assert process.stdout is not None
            if waits <= steps:
                process.stdin.write(b"\n")
                process.stdout.readline()
            else:
                process.stdin.close()
                process.wait()

        monkeypatch.setattr(examine_environment, "time", SimpleNamespace(sleep=wait, monotonic=lambda: now))
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", IN_STEP, mode], stdin=pipe, stdout=pipe, bufsize=0) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdout.readline()  # it has begun
            yield process

    return process_in_step


@pytest.fixture
def settings_put_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is set for a whole process must not reach other tests."""
    import numpy as np  # not before each worker has a core of its own, for it starts threads

    states = random.getstate(), np.random.get_state()
    imported = {"torch", "mindspore"} <= sys.modules.keys()
    with _frameworks_put_back() if imported or request.node.get_closest_marker("frameworks") else nullcontext():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@contextmanager
def _frameworks_put_back() -> Iterator[None]:
    import mindspore
    import torch

    states = torch.random.get_rng_state(), mindspore.get_rng_state()
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    workers, seed = mindspore.dataset.config.get_num_parallel_workers(), mindspore.dataset.config.get_seed()
    yield
    torch.random.set_rng_state(states[0])
    mindspore.set_rng_state(states[1])
    torch.use_deterministic_algorithms(before[0])
    torch.set_num_threads(before[1])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    mindspore.dataset.config.set_num_parallel_workers(workers)
    mindspore.dataset.config.set_seed(seed)
    mindspore.set_context(deterministic="OFF")
