"""Where a call came from: the line of the user's code, whatever stands between."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import numpy as np

from align.core.traces import TensorKind
from align.errors import UserCodeError
from align.models.live_calls import called_by_user, tensor_kinds, user_line
from align.models.user_code import run_user_code


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_line_is_that_of_the_innermost_code_of_the_user() -> None:
    found, here = user_line(f"{Path(__file__).parent}{os.sep}"), line()
    assert found == f"test_call_sites.py:{here}"


def test_a_file_outside_that_folder_keeps_its_whole_path() -> None:
    assert user_line(f"{Path(__file__).parent / 'elsewhere'}{os.sep}").rpartition(":")[0] == __file__


def test_frames_of_frameworks_and_ours_are_passed_over() -> None:
    space: dict[str, object] = {"__name__": "torch.nn.modules.module", "user_line": user_line, "asked": called_by_user}
    exec("def hook():\n    return user_line(''), asked()", space)
    place, asked = space["hook"]()  # type: ignore[operator]
    assert place.rpartition(":")[0].endswith("test_call_sites.py")
    assert asked


def test_who_called_the_model_is_no_part_of_it() -> None:
    space: dict[str, object] = {"__name__": "torch.nn.modules.module", "user_line": user_line}
    exec("def hook():\n    return user_line('')", space)
    assert run_user_code(space["hook"], lambda error: UserCodeError("", error)) == ""  # type: ignore[arg-type]


def test_what_our_own_code_asks_of_a_framework_is_not_the_users() -> None:
    space: dict[str, object] = {"__name__": "align.core.anything", "asked": called_by_user}
    exec("def ours(code):\n    return code()", space)
    inner: dict[str, object] = {"__name__": "torch", "asked": called_by_user}
    exec("def detach():\n    return asked()", inner)
    assert not space["ours"](inner["detach"])  # type: ignore[operator]


def test_tensors_are_told_by_shape_and_dtype_whatever_they_are() -> None:
    given = {"0": np.ones((2, 3), np.float32), "1": 3, "mask": np.ones((), bool), "name": "text"}
    assert tensor_kinds(given.items()) == {"0": TensorKind((2, 3), "float32"), "mask": TensorKind((), "bool")}
