"""What is read changes while it is read, or between two steps: nothing of two contents is taken for whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.batch.job import input_state
from align.checkpoints import extents
from align.checkpoints.extents import check_whole
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import NotACheckpointError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import open_side
from align.names.map_parameters import map_parameters
from align.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGED = "changed while it was read"


def write(path: Path, value: float) -> Path:
    """Four equal matrices, in a format that has no checksums."""
    matrix = np.full((40, 50), value, np.float32)
    tensors = [StoredTensor(f"layers.{n}.weight", matrix.shape, "float32", lambda: matrix) for n in range(4)]
    with path.open("wb") as stream:
        checkpoint_formats()["safetensors"].write(stream, tensors, {"format": "pt"})
    return path


def rewritten(path: Path) -> None:
    write(path, 2.0)


def replaced(path: Path) -> None:
    write(path.with_name("new.safetensors"), 2.0).replace(path)


def appended(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"\0")


def set_back(path: Path) -> None:
    """Other values while the clock is an hour behind."""
    past = path.stat().st_mtime_ns - 3600 * 10**9
    write(path, 2.0)
    os.utime(path, ns=(past, past))


WAYS = [rewritten, replaced, appended, set_back, Path.unlink]


def once(change: Callable[[Path], None], path: Path) -> Callable[..., None]:
    """A progress that changes a file when the first bytes were read."""
    left = [change]

    def progress(_what: str, done: int, _total: int) -> None:
        if done and left:
            left.pop()(path)

    return progress


@pytest.mark.parametrize("change", WAYS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("verify", [True, False])
def test_a_source_that_changes_during_a_conversion_leaves_the_destination_as_it_was(
    change: Callable[[Path], None], verify: bool, tmp_path: Path
) -> None:
    source, destination = write(tmp_path / "source.safetensors", 1.0), tmp_path / "out.npz"
    destination.write_bytes(b"old")
    options: dict[str, Any] = {"target": "torch", "overwrite": True, "verify": verify}
    with pytest.raises(NotACheckpointError):
        convert_checkpoint(source, destination, progress=once(change, source), **options)
    assert destination.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*"))
    write(source, 3.0)
    assert convert_checkpoint(source, destination, **options).verdict.outcome.value in ("aligned", "could not compare")


@pytest.mark.parametrize("change", WAYS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("side", [0, 1])
def test_a_file_that_changes_during_a_diff_gives_no_verdict(
    change: Callable[[Path], None], side: int, tmp_path: Path
) -> None:
    both = [write(tmp_path / f"{name}.safetensors", 1.0) for name in "ab"]
    with pytest.raises(NotACheckpointError):
        diff_checkpoints(*both, progress=once(change, both[side]))


def test_a_shard_that_was_replaced_since_it_was_opened_is_no_whole_file(tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors", 1.0)
    convert_checkpoint(source, tmp_path / "m.safetensors", target="torch", max_shard_size=16_000)
    (index,) = tmp_path.glob("*.index.json")
    opened = open_checkpoint(index)
    check_whole(opened)
    shard = max(tmp_path.glob("m-*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + b"\1")
    with pytest.raises(NotACheckpointError, match=CHANGED):
        check_whole(opened)


def changed_once(monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], path: Path) -> None:
    """Change a file when the first of its tensors is loaded."""
    left = [change]

    def changing(read: Callable[..., Any]) -> Callable[..., Any]:
        def first(*arguments: Any) -> Any:
            found = read(*arguments)
            if left:
                left.pop()(path)
            return found

        return first

    for name in ("check_crc", "_read_extent"):  # of a tensor that is mapped, and of a small one
        monkeypatch.setattr(extents, name, changing(getattr(extents, name)))


@pytest.mark.parametrize("change", WAYS, ids=lambda one: one.__name__)
def test_a_file_that_changes_while_names_are_matched_by_values_makes_no_map(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [write(tmp_path / f"{name}.safetensors", 1.0) for name in "ab"]
    changed_once(monkeypatch, change, both[1])
    with pytest.raises(NotACheckpointError):
        map_parameters(*both, out=tmp_path / "map.toml")
    assert not (tmp_path / "map.toml").exists()


@pytest.mark.parametrize("change", WAYS, ids=lambda one: one.__name__)
def test_weights_that_change_while_a_model_is_filled_are_refused(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"weight": np.zeros((40, 50), np.float32)}
    layers = [
        ArrayLayer(f"layers.{n}", "torch.nn.Linear", lambda x, weight: x @ weight.T, dict(weights)) for n in range(4)
    ]
    source = write(tmp_path / "source.safetensors", 1.0)
    changed_once(monkeypatch, change, source)
    with pytest.raises(NotACheckpointError):
        open_side(ArrayModel(tuple(layers)), source)


def test_a_batch_compares_again_what_has_another_content_of_the_same_size_and_time(tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors", 1.0)
    before, times = [*input_state(str(source))], source.stat()
    assert [*input_state(str(source))] == before
    write(source, 2.0)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [*input_state(str(source))] != before


ORIGINAL = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
import {factors}

def build():
    {edit}
    weights = {{"weight": np.ones((2, 3), np.float32)}}
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T * {factors}.SCALE, weights),))
"""
EDIT = "open('port_factors.py', 'w').write('SCALE = 3.0 # edited')"  # what a user does in an editor at this moment


def test_code_that_is_edited_while_a_run_goes_on_has_not_passed(
    commands: Callable[..., Any], project: Callable[[Path], Path], tmp_path: Path
) -> None:
    project(tmp_path)
    for name, edit in (("original", "pass"), ("port", EDIT)):
        (tmp_path / f"{name}.py").write_text(ORIGINAL.format(factors=f"{name}_factors", edit=edit))
        (tmp_path / f"{name}_factors.py").write_text("SCALE = 1.0\n")

    def run() -> str:
        code = commands(tmp_path, "run --json").code
        document = RunFolder(tmp_path / "align-run").read("ladder")
        assert document is not None
        return f"{code} {next(one['state'] for one in document['rungs'] if one['name'] == 'forward')}"

    assert run() == "0 passed"  # of the code that was loaded
    assert run() == "1 failed"
