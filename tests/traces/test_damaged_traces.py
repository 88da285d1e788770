"""A sealed trace of which something was cut, changed or lost is refused; an older or unfinished one is read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import RunFolderError, UnlikeTracesError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.manifest import INPUTS, MANIFEST, MODEL_FILE, NOISE_FILE, TENSORS, VALUES
from align.traces.open_trace import open_trace
from align.traces.thresholds import TRACE_HEADER_BYTES
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
DATA = 8 + TRACE_HEADER_BYTES
BESIDE = (MODEL_FILE, VALUES, NOISE_FILE, INPUTS)


def model(port: bool = False) -> ArrayModel:
    kind = "mindspore.nn.Dense" if port else "torch.nn.Linear"
    weights = np.random.default_rng(1).standard_normal((2, 8, 8)).astype(np.float32)
    return ArrayModel(tuple(ArrayLayer(f"fc{n}", kind, lambda x, w: x @ w.T, {"w": w}) for n, w in enumerate(weights)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    align.capture_trace(model(), tmp_path / "a", inputs=X)
    return tmp_path / "a"


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    align.capture_trace(model(port=True), tmp_path / "b", inputs=X)
    return tmp_path / "b"


def lines_of(folder: Path) -> list[bytes]:
    return (folder / MANIFEST).read_bytes().splitlines(keepends=True)


def read_all(folder: Path) -> None:
    trace = open_trace(folder).trace
    for capture in (*trace.captures, *trace.inputs):
        trace.value(capture)


def edited(pattern: str, new: str) -> Callable[[list[bytes]], list[bytes]]:
    def edit(lines: list[bytes]) -> list[bytes]:
        text, count = re.subn(pattern, new, b"".join(lines).decode(), count=1)
        assert count == 1
        return text.encode().splitlines(keepends=True)

    return edit


def without(word: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [line for line in lines if word not in line]


def rewritten(lines: list[bytes]) -> list[bytes]:
    """What a tool that reads and writes JSON makes of the lines: no spaces."""
    return [json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n" for line in lines]


def without_checks(lines: list[bytes]) -> list[bytes]:
    told = [json.loads(line) for line in lines]
    return [json.dumps({k: v for k, v in one.items() if k != "check"}).encode() + b"\n" for one in told]


EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "an offset": edited(r'"offset": 128', '"offset": 0'),
    "a shape": edited(r'"shape": \[4, 8\]', '"shape": [8, 4]'),
    "a statistic": edited(r'"mean": -?0\.', '"mean": 1.'),
    "a path": edited(r'"module": "fc1"', '"module": "fc2"'),
    "a checksum of values": edited(r'"crc32": ', '"crc32": 1'),
    "a checksum of a line": edited(r'"check": ', '"check": 1'),
    "all checksums of lines but one": lambda lines: (
        [re.sub(rb', "check": \d+', b"", one) for one in lines[:-1]] + lines[-1:]
    ),
    "all lines rewritten and a tensor removed": lambda lines: rewritten(without(b'"module": "fc1"')(lines)),
    "all lines rewritten": rewritten,
    "all checksums of lines": without_checks,
    "all checksums of lines and a tensor": lambda lines: without_checks(without(b'"module": "fc1"')(lines)),
    "a checksum as a number with a point": edited(r'"check": (\d+)\}', r'"check": \1.0}'),
    "the word that lines are checked": edited(r', "checked": true', ""),
    "a line without JSON": lambda lines: [*lines[:3], b"fc0\n", *lines[3:]],
    "the first line": edited(r'"numpy": "', '"numpy": "9'),
    "the seal": edited(r'"sealed": true', '"sealed": 1'),
    "a line removed": lambda lines: lines[:3] + lines[4:],
    "the first line removed": lambda lines: lines[1:],
    "all of a tensor removed": without(b'"module": "fc1"'),
    "the seal removed": without(b"sealed"),
    "the last line removed": lambda lines: lines[:-1],
    "lines exchanged": lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
    "a line doubled": lambda lines: [*lines[:3], lines[3], *lines[3:]],
    "a line of another trace": lambda lines: [*lines[:3], b'{"end": "fc0", "call": 0, "check": 1}\n', *lines[3:]],
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_manifest_is_refused_and_the_file_named(folder: Path, edit: Any) -> None:
    read_all(folder)
    lines = lines_of(folder)
    new = edit(lines)
    assert new != lines
    (folder / MANIFEST).write_bytes(b"".join(new))
    with pytest.raises(RunFolderError) as caught:
        read_all(folder)
    assert str(folder) in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_the_line_is_named(folder: Path) -> None:
    lines = lines_of(folder)
    (folder / MANIFEST).write_bytes(b"".join(lines[:4] + lines[5:]))
    with pytest.raises(RunFolderError, match=r"manifest\.jsonl is damaged: line 5 is not .* written behind line 4"):
        TraceFolder(folder)


def test_no_byte_of_a_manifest_can_be_changed_unseen(folder: Path) -> None:
    manifest = (folder / MANIFEST).read_bytes()
    generator = np.random.default_rng(0)
    for place in generator.choice(len(manifest), 300, replace=False):
        changed = bytearray(manifest)
        changed[place] ^= int(generator.integers(1, 256))
        (folder / MANIFEST).write_bytes(changed)
        with pytest.raises(RunFolderError):
            read_all(folder)


@pytest.mark.parametrize("size", [-1, 1])
def test_a_file_of_tensors_of_another_size_is_refused(folder: Path, size: int) -> None:
    content = (folder / TENSORS).read_bytes()
    (folder / TENSORS).write_bytes(content[:size] if size < 0 else content + b"0")
    said = f"step0.safetensors is damaged: it has {len(content) + size:,} bytes, {len(content):,} were written"
    with pytest.raises(RunFolderError, match=said):
        TraceFolder(folder)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (DATA + 5, "the values of fc0#0 are"),
        (-1, "are not what was written"),
        (3, "header"),
        (99, "header"),
        (DATA - 9, "header"),
    ],
)
def test_a_flipped_byte_among_the_tensors_is_refused(folder: Path, place: int, said: str) -> None:
    content = bytearray((folder / TENSORS).read_bytes())
    content[place] ^= 1
    (folder / TENSORS).write_bytes(content)
    with pytest.raises(RunFolderError, match=rf"step0\.safetensors is damaged: .*{said}"):
        read_all(folder)


@pytest.mark.parametrize("name", [*BESIDE, TENSORS])
def test_a_file_that_is_gone_is_refused_by_its_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    for reads in (open_trace, align.show_trace):
        with pytest.raises(RunFolderError, match=f"{name}, which was written with the trace, is missing"):
            reads(folder)


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_that_was_changed_is_refused_by_its_name(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(RunFolderError, match=f"{name} is damaged: its bytes are not what was written"):
        open_trace(folder)


def test_a_file_of_another_trace_is_refused(tmp_path: Path, folder: Path) -> None:
    align.capture_trace(model(), tmp_path / "c", inputs=X, noise=False)
    open_trace(tmp_path / "c")
    (tmp_path / "c" / NOISE_FILE).write_bytes((folder / NOISE_FILE).read_bytes())
    with pytest.raises(RunFolderError, match=r"noise\.json was not written with the trace"):
        open_trace(tmp_path / "c")


def test_a_tensor_removed_from_the_manifest_and_from_the_header_is_refused(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"".join(without(b'"module": "fc1"')(lines_of(folder))))
    content = (folder / TENSORS).read_bytes()
    header = json.loads(content[8:DATA])
    del header["fc1#0"]
    start = content[:8] + json.dumps(header).encode().ljust(TRACE_HEADER_BYTES)
    (folder / TENSORS).write_bytes(start + content[DATA:])
    with pytest.raises(RunFolderError, match="is damaged"):
        TraceFolder(folder)


def test_the_command_refuses_a_damaged_trace_and_takes_a_whole_one(
    folder: Path, twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forward", str(folder), str(twin)]) == 0
    content = bytearray((twin / TENSORS).read_bytes())
    content[DATA] ^= 1
    (twin / TENSORS).write_bytes(content)
    assert main(["forward", str(folder), str(twin)]) == 2
    assert f"{twin / TENSORS} is damaged: the values of fc0#0" in capsys.readouterr().err


def test_a_trace_of_an_earlier_version_stays_readable(folder: Path) -> None:
    lines = []
    for line in lines_of(folder)[:-1]:  # the last tells of the noise
        told = json.loads(line)
        for name in ("checked", "check", "crc32", "tensors", "beside", "later"):
            told.pop(name, None)
        lines.append(json.dumps(told) + "\n")
    (folder / MANIFEST).write_text("".join(lines), encoding="utf-8")
    read_all(folder)
    assert TraceFolder(folder).complete
    assert align.show_trace(folder).noise


def test_a_manifest_without_its_last_line_says_so_and_blames_no_other_file(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"".join(lines_of(folder)[:-1]))
    for reads in (open_trace, align.show_trace):
        with pytest.raises(
            RunFolderError, match=r"manifest\.jsonl is damaged: its last line, .* noise\.json, is missing"
        ):
            reads(folder)


def test_a_trace_that_lost_its_noise_and_the_line_of_it_is_cut_short(folder: Path, twin: Path) -> None:
    (folder / MANIFEST).write_bytes(b"".join(lines_of(folder)[:-1]))
    (folder / NOISE_FILE).unlink()
    assert not align.show_trace(folder).complete
    with pytest.raises(UnlikeTracesError, match=r"a was cut short: it ends before the line about noise\.json"):
        align.compare_trace_folders(folder, twin)
    found = align.compare_trace_folders(folder, twin, partial=True)
    assert {"trace-cut-short", "noise-unmeasured"} <= {one.code for one in found.findings}


def test_a_trace_whose_noise_was_not_to_be_measured_is_whole_without(tmp_path: Path, twin: Path) -> None:
    align.capture_trace(model(), tmp_path / "c", inputs=X, noise=False)
    assert align.show_trace(tmp_path / "c").complete
    assert align.compare_trace_folders(tmp_path / "c", twin).verdict.outcome is Outcome.ALIGNED


def test_a_trace_that_was_cut_short_stays_readable(folder: Path) -> None:
    lines = lines_of(folder)
    (folder / MANIFEST).write_bytes(b"".join(lines[:-4]))
    (folder / NOISE_FILE).unlink()
    trace = open_trace(folder).trace
    assert not trace.complete
    assert [trace.value(one).shape for one in trace.captures] == [(4, 8)] * len(trace.captures)
    assert crc32(trace.value(trace.captures[0]).tobytes()) == trace.manifest.places["fc0#0"].crc32
