"""A run streamed into a trace folder: what is in it at every moment, whatever ends the process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.traces import CallStart, Capture, KeptValues, TensorKind, TensorStatistics, TraceHead
from align.errors import CannotRunError, RunFolderError
from align.traces.capture_trace import CallWriter, GivenWriter
from align.traces.manifest import MANIFEST, TENSORS
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from pathlib import Path

HEAD = TraceHead("net.py:build", "torch", {"x": {"shape": [3], "dtype": "float32", "sha256": "00"}}, seed=7)
VALUE = np.array([1, 2, 3], np.float32)


def of(module: str, order: int = 0) -> Capture:
    return Capture(order, module, 0, "", "Linear", VALUE.shape, "float32", 1)


def start(module: str, parent: str | None) -> CallStart:
    return CallStart(module, 0, parent, "Linear", "net.py:12", {"0": TensorKind((3,), "float32")})


def head(**kept: object) -> TraceHead:
    return TraceHead("", "", {}, kept=KeptValues(**kept))  # type: ignore[arg-type]


def test_what_was_told_of_a_run_comes_back(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {"torch": "2"}, HEAD) as writer:
        writer.begin(start("", None))
        writer.begin(start("fc", ""))
        writer.add(of("fc"), VALUE)
        writer.finish("fc", 0)
        writer.finish("", 0)
    trace = TraceFolder(tmp_path)
    assert (trace.complete, trace.environment, trace.manifest.head) == (True, {"torch": "2"}, HEAD)
    assert trace.manifest.starts == [start("", None), start("fc", "")]
    assert trace.captures == (of("fc"),)
    assert trace.manifest.statistics == {"fc#0": TensorStatistics(1.0, 3.0, 2.0, pytest.approx(np.sqrt(14 / 3)))}  # type: ignore[arg-type]
    assert (trace.manifest.running, trace.manifest.failure) == ([], "")


def test_a_call_that_began_is_on_the_disk_before_it_does_anything(tmp_path: Path) -> None:
    writer = CallWriter(tmp_path, {}, HEAD)
    writer.begin(start("", None))
    writer.begin(start("layers.3.conv2", ""))
    running = TraceFolder(tmp_path).manifest.running
    assert [one.module for one in running] == ["", "layers.3.conv2"]
    writer.add(of("layers.3.conv2"), VALUE)
    writer.finish("layers.3.conv2", 0)
    trace = TraceFolder(tmp_path)
    assert [one.module for one in trace.manifest.running] == [""]
    assert trace.value(trace.captures[0]).tolist() == [1, 2, 3]
    writer.__exit__(None, None, None)


def test_a_call_that_ends_ends_what_the_model_caught_inside(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}, HEAD) as writer:
        for module, parent in (("", None), ("attempt", ""), ("attempt.inner", "attempt")):
            writer.begin(start(module, parent))
        writer.finish("", 0)
    assert TraceFolder(tmp_path).manifest.running == []


def test_a_failure_is_told_and_the_trace_is_not_complete(tmp_path: Path) -> None:
    def fail() -> None:
        with CallWriter(tmp_path, {}, HEAD) as writer:
            writer.begin(start("fc", None))
            raise CannotRunError("the kernel failed", "use another")

    with pytest.raises(CannotRunError):
        fail()
    trace = TraceFolder(tmp_path)
    assert (trace.complete, trace.manifest.failure) == (False, "the kernel failed")
    assert [one.module for one in trace.manifest.running] == ["fc"]


def test_nothing_but_figures_is_written_if_nothing_is_kept(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}, head(globs=())) as writer:
        writer.add(of("fc"), VALUE)
    trace = TraceFolder(tmp_path)
    assert [trace.holds(one) for one in trace.captures] == [False]
    assert trace.manifest.statistics["fc#0"].max == 3.0


def test_some_elements_are_written_flat(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}, head(elements=2)) as writer:
        writer.add(of("fc"), VALUE)
    trace = TraceFolder(tmp_path)
    assert trace.captures[0].shape == (3,)
    assert trace.value(trace.captures[0]).tolist() == [1, 2]


def test_the_tensor_that_was_just_written_is_not_written_again(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}, HEAD) as writer:
        writer.add(of("block.act"), VALUE)
        writer.finish("block.act", 0)
        writer.again(of("block", 1), VALUE, of("block.act"))
        writer.finish("block", 0)
    trace = TraceFolder(tmp_path)
    assert [trace.value(one).tolist() for one in trace.captures] == [[1, 2, 3]] * 2
    assert len(set(map(str, trace.manifest.statistics.values()))) == 1
    assert trace.manifest.places["block#0"] == trace.manifest.places["block.act#0"]


def test_the_same_tensor_is_kept_where_only_its_second_module_is_chosen(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}, head(globs=("block",))) as writer:
        writer.add(of("block.act"), VALUE)
        writer.finish("block.act", 0)
        writer.again(of("block", 1), VALUE, of("block.act"))
    trace = TraceFolder(tmp_path)
    assert [trace.holds(one) for one in trace.captures] == [False, True]
    assert trace.value(trace.captures[1]).tolist() == [1, 2, 3]


def test_what_calls_are_given_is_kept_on_request_and_written_once(tmp_path: Path) -> None:
    with GivenWriter(tmp_path, {}, replace(HEAD, layer_inputs=True)) as writer:
        writer.add(of("fc"), VALUE)
        writer.enter("act", 0, {"0": VALUE, "slope": VALUE[:1]})
        writer.finish("act", 0)
        writer.again(of("block", 1), VALUE, of("fc"))
        writer.enter("head", 0, {"0": VALUE})
    trace = TraceFolder(tmp_path)
    assert [(one.key, one.order) for one in trace.inputs] == [("act#0<0", 1), ("act#0<slope", 1), ("head#0<0", 2)]
    assert [trace.value(one).tolist() for one in trace.inputs] == [[1, 2, 3], [1], [1, 2, 3]]
    assert trace.manifest.places["act#0<0"] == trace.manifest.places["fc#0"]


def test_memory_is_that_of_one_tensor(tmp_path: Path) -> None:
    import tracemalloc

    value = np.ones(1 << 20, np.float32)
    with CallWriter(tmp_path, {}, HEAD) as writer:
        tracemalloc.start()
        for order in range(20):
            writer.add(Capture(order, str(order), 0, "", "Linear", value.shape, "float32"), value)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (tmp_path / TENSORS).stat().st_size > 20 * value.nbytes
    assert peak < value.nbytes


@pytest.mark.parametrize(
    "line",
    [
        '{"module": "fc"}',
        '{"begin": "fc", "call": 0}',
        '{"end": "fc"}',
        '{"module": "fc", "shape": 3, "offset": 0}',
        '{"order": 0, "module": "a", "call": 0, "output": "", "class_name": "", "shape": [], '
        '"dtype": "int8", "offset": -9}',
    ],
)
def test_a_line_that_lacks_what_it_must_tell_is_one_clear_error(tmp_path: Path, line: str) -> None:
    with CallWriter(tmp_path, {}, HEAD) as writer:
        writer.begin(start("fc", None))
    with (tmp_path / MANIFEST).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(RunFolderError, match="is damaged"):
        TraceFolder(tmp_path)
