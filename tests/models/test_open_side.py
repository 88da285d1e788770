"""A side is built from the user's code: whatever that does ends in one error that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.errors import (
    AlignError,
    CannotRunError,
    FrameworkMissingError,
    InputsError,
    MissingFileError,
    SideError,
    UserCodeError,
)
from align.models.frameworks.arrays import ArrayModel
from align.models.open_side import Side, open_side
from align.models.user_code import load_function

if TYPE_CHECKING:
    from pathlib import Path

FACTORIES = """
import sys

import numpy as np

from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def build():
    weights = {"weight": np.ones((2, 3), np.float32)}
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))


def fails():
    raise ValueError("no weights here")


def leaves():
    sys.exit(0)


def wants(argument):
    return build()


def forgets():
    build()


def misses():
    import a_package_that_is_not_there


def raises_without_a_name():
    raise ModuleNotFoundError("try another time")


class _Callable(ArrayModel):
    def __call__(self):
        raise ValueError("a model, and no function that makes one")


_made = _Callable(build().layers)
number = 3
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "net.py").write_text(FACTORIES, encoding="utf-8")
    return str(tmp_path / "net.py")


def test_a_function_of_a_file_makes_the_model(net: str) -> None:
    side = open_side(f"{net}:build")
    assert (side.label, side.reader.name, side.runner.name) == (f"{net}:build", "arrays", "arrays")


def test_a_function_of_a_module_in_the_current_folder_makes_the_model(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_port").mkdir()
    (tmp_path / "a_port" / "net.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_side("a_port.net:build").model, ArrayModel)


def test_a_model_that_stands_in_a_file_is_taken_and_not_called(net: str) -> None:
    side = open_side(f"{net}:_made")
    assert [parameter.name for parameter in side.reader.read_parameters(side.model, "net").parameters] == ["fc.weight"]


def test_a_live_model_and_an_open_side_are_taken_as_they_are() -> None:
    model = ArrayModel(())
    side = open_side(model)
    assert side == Side("ArrayModel", model, side.reader)
    assert open_side(side) is side


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("build_", SideError, "'build_' does not exist in .*net.py; functions there: build, fails"),
        ("number", SideError, "'number' is no function in"),
        ("forgets", SideError, "it returned an object of type NoneType, expected one of: .*PyTorch models"),
        ("fails", UserCodeError, "net.py:fails failed: ValueError: no weights here"),
        ("leaves", UserCodeError, r"net.py:leaves failed: it ends the program: sys.exit\(0\)"),
        ("wants", UserCodeError, "net.py:wants failed: TypeError: .*argument"),
        ("misses", UserCodeError, "No module named 'a_package_that_is_not_there'"),
        ("raises_without_a_name", UserCodeError, "try another time"),
        ("not a name", SideError, "it is not of the form `module:function`"),
    ],
)
def test_a_function_that_gives_no_model_is_an_error_that_names_it(
    net: str, name: str, error: type[AlignError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        open_side(f"{net}:{name}")
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["fails", "leaves", "misses"])
def test_the_users_own_error_is_the_cause(net: str, name: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        open_side(f"{net}:{name}")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("side", ["", "net.py", ":build", "net:", "net.py:1"])
def test_a_side_of_another_form_is_refused(side: str) -> None:
    with pytest.raises(SideError, match="not of the form"):
        load_function(side)


def test_a_missing_file_and_a_missing_module_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"model file not found: .*gone\.py"):
        open_side(f"{tmp_path}/gone.py:build")
    with pytest.raises(SideError, match="there is no module 'gone_package'"):
        open_side("gone_package.models.net:build")
    with pytest.raises(SideError, match=r"there is no module 'json\.gone'"):
        open_side("json.gone:build")


def test_a_file_with_a_syntax_error_is_the_users_code_that_failed(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build(:\n", encoding="utf-8")
    with pytest.raises(UserCodeError, match="SyntaxError"):
        open_side(f"{tmp_path}/broken.py:build")


def test_a_file_that_failed_is_run_again_once_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "mended.py").write_text("raise RuntimeError", encoding="utf-8")
    with pytest.raises(UserCodeError):
        load_function(f"{tmp_path}/mended.py:build")
    (tmp_path / "mended.py").write_text("def build(): return 1  # now it is another text", encoding="utf-8")
    assert load_function(f"{tmp_path}/mended.py:build")() == 1


def test_a_model_of_no_known_framework_says_what_it_is() -> None:
    with pytest.raises(SideError, match="it is an object of type dict, expected one of"):
        open_side({"fc.weight": np.ones(3)})


def test_two_files_of_one_name_are_two_modules_with_their_own_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("original", "port"):
        (tmp_path / folder / "parts").mkdir(parents=True)
        (tmp_path / folder / "model.py").write_text(
            "import names_of_layers\nfrom parts.inner import INNER\ndef build(): return names_of_layers.NAME, INNER\n",
            encoding="utf-8",
        )
        (tmp_path / folder / "names_of_layers.py").write_text(f"NAME = '{folder}'\n", encoding="utf-8")
        (tmp_path / folder / "parts" / "__init__.py").write_text("", encoding="utf-8")
        (tmp_path / folder / "parts" / "inner.py").write_text(f"INNER = '{folder} inside'\n", encoding="utf-8")
    first = load_function(f"{tmp_path}/original/model.py:build")
    assert first() == ("original", "original inside")
    assert load_function(f"{tmp_path}/port/model.py:build")() == ("port", "port inside")
    assert first() == ("original", "original inside")


def test_a_package_may_import_the_file_of_a_side_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "parcel").mkdir()
    (tmp_path / "parcel" / "__init__.py").write_text("from .inside import build\n", encoding="utf-8")
    (tmp_path / "parcel" / "sizes.py").write_text("SIZE = 3\n", encoding="utf-8")
    (tmp_path / "parcel" / "inside.py").write_text(
        "from .sizes import SIZE\ndef build(): return SIZE\n", encoding="utf-8"
    )
    assert load_function(f"{tmp_path}/parcel/inside.py:build")() == 3


def test_a_file_may_be_called_like_an_imported_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "json.py").write_text("def build(): return 'mine'\n", encoding="utf-8")
    assert load_function(f"{tmp_path}/json.py:build")() == "mine"
    assert sys.modules["json"].__name__ == "json"
    assert hasattr(sys.modules["json"], "dumps")


def test_a_file_is_run_once_for_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "pair.py").write_text("RUNS = []\ndef build(): RUNS.append(1); return len(RUNS)\n", encoding="utf-8")
    assert load_function(f"{tmp_path}/pair.py:build")() == 1
    assert load_function(f"{tmp_path}/pair.py:build")() == 2


def test_a_checkpoint_fills_the_model_and_must_fit_it_exactly(net: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{"fc.weight": np.full((2, 3), 7, np.float32)})
    side = open_side(f"{net}:build", tmp_path / "w.npz")
    assert side.reader.read_values(side.model)["fc.weight"].tolist() == [[7.0] * 3] * 2
    np.savez(tmp_path / "bad.npz", **{"fc.weight": np.ones((3, 2), np.float32), "stranger": np.ones(1)})
    with pytest.raises(InputsError) as caught:
        open_side(f"{net}:build", tmp_path / "bad.npz")
    assert "unexpected: stranger" in str(caught.value)
    assert "shape: fc.weight is [3, 2], the model has [2, 3]" in str(caught.value)
    first = caught.value.message.splitlines()[0]
    assert first == f"{tmp_path / 'bad.npz'} does not hold the parameters of {net}:build (2 faults)"
    assert "remove its line `checkpoint`" in caught.value.hint


def test_a_framework_that_cannot_run_models_says_so() -> None:
    class ReadsOnly:
        name = "paper"

    with pytest.raises(CannotRunError, match="paper models cannot be run"):
        _ = Side("x", None, ReadsOnly()).runner


@pytest.mark.parametrize("package", ["torch", "mindspore"])
def test_a_framework_that_is_not_installed_is_named_with_its_install_line(tmp_path: Path, package: str) -> None:
    (tmp_path / "net.py").write_text(f"def build():\n    import {package}.nn\n", encoding="utf-8")
    code = (
        "import sys, importlib.machinery as m\n"
        f"find = m.PathFinder.find_spec\n"
        f"m.PathFinder.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)\n"
        "from align.errors import FrameworkMissingError\n"
        "from align.models.open_side import open_side\n"
        "try:\n"
        f"    open_side({str(tmp_path / 'net.py')!r} + ':build')\n"
        "except FrameworkMissingError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{package} is not installed\nHint: install it with: pip install ")
    assert issubclass(FrameworkMissingError, CannotRunError)


PORT = """
import mindspore
from mindspore import ops

TABLE = ops.add(mindspore.Tensor([[0.0, 1.0, 2.0]]), 1.0)


def build():
    ops.matmul(TABLE, TABLE)
    raise AssertionError("the failing operator was not told")
"""


@pytest.mark.frameworks
@pytest.mark.parametrize("before", ["", "import mindspore\n"], ids=["imported by the port", "imported before"])
def test_a_failing_operator_is_told_at_once_though_the_port_computes_while_it_is_imported(
    tmp_path: Path, before: str
) -> None:
    (tmp_path / "port.py").write_text(PORT, encoding="utf-8")
    code = f"{before}from align.models.open_side import open_side\nopen_side('port.py:build')\n"
    fresh = {name: value for name, value in os.environ.items() if not name.startswith("MS_DEV_")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=fresh, capture_output=True, text=True, check=False)
    assert "UserCodeError: building port.py:build failed: RuntimeError: For 'MatMul" in done.stderr
