"""What a long run takes is told, and what does not fit is refused before it begins."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

import align
from align.core import memory
from align.core.memory import Forecast, Needs, available_bytes, refuse_beyond, unannounced
from align.core.thresholds import LARGE_MODELS_BYTES
from align.errors import CannotRunError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.user_code import run_user_code

HELD = "import numpy, resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))"


def test_large_models_are_refused_where_memory_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * 10**9)
    refuse_beyond(2 * 10**9, LARGE_MODELS_BYTES)
    refuse_beyond(4 * 10**9, LARGE_MODELS_BYTES - 1)
    with pytest.raises(CannotRunError, match=r"takes 4\.0 GB of memory beside them, and 3\.0 GB are left") as error:
        refuse_beyond(4 * 10**9, LARGE_MODELS_BYTES)
    assert "--any-memory" in error.value.hint


def test_a_limit_of_the_process_is_a_limit() -> None:
    code = f"{HELD}; from align.core.memory import available_bytes; print(available_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 1 << 32
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY or available_bytes() >= 0


def test_only_what_takes_long_or_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Needs] = []
    Forecast(1, 1.0, told.append).tell()
    assert told == []
    Forecast(2 * LARGE_MODELS_BYTES, 1.0, told.append).tell()
    monkeypatch.setattr(memory, "LONG_RUN_SECONDS", 0.0)
    Forecast(1, 1.0, told.append).tell()
    assert [one.memory >= 2 * LARGE_MODELS_BYTES for one in told] == [True, False]
    unannounced(told[0])


def test_a_comparison_tells_what_it_takes_behind_both_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(path: str) -> ArrayModel:
        weights = {"weight": np.ones((2, 3), np.float32)}
        return ArrayModel((ArrayLayer(path, "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))

    told: list[Needs] = []
    given = {"x": np.ones((4, 3), np.float32)}
    align.compare_forward(model("fc"), model("head"), inputs=given, announce=told.append)
    assert told == []
    monkeypatch.setattr(memory, "LONG_RUN_SECONDS", 0.0)
    align.compare_forward(model("fc"), model("head"), inputs=given, announce=told.append)
    assert len(told) == 1


def test_memory_that_ends_in_a_run_is_told_as_such() -> None:
    def full(_: np.ndarray) -> np.ndarray:
        raise MemoryError

    layer = ArrayLayer("fc", "torch.nn.ReLU", full, {})
    given = {"x": np.ones((4, 3), np.float32)}
    with pytest.raises(CannotRunError, match="there is no memory left"):
        align.compare_forward(ArrayModel((layer,)), ArrayModel((layer,)), inputs=given)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "code", ["import torch; torch.empty(1 << 46)", "import mindspore; mindspore.ops.zeros((1 << 46,)).asnumpy()"]
)
def test_a_framework_that_finds_no_memory_is_told_as_such(code: str) -> None:
    with pytest.raises(CannotRunError, match="there is no memory left"):
        run_user_code(lambda: exec(code), lambda error: CannotRunError(str(error)))
