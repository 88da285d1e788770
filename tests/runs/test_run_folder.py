from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from align.errors import DestinationError, RunFolderError
from align.runs.run_folder import KINDS, RunFolder, as_document, schema_of

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class SmallResult:
    result_kind = "loss"
    metric: str
    worst: float
    mindalign: str = "another version"


def test_a_result_reads_back_with_schema_version_and_the_hash_of_its_source(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("loss 1.0", encoding="utf-8")
    folder = RunFolder.create(tmp_path / "run")
    folder.write(SmallResult("loss", float("nan")), {"reference": log, "command": "align loss a b"})
    document = folder.read("loss")
    assert document is not None
    assert document["schema"] == schema_of("loss") == "mindalign.loss/3"
    assert document["mindalign"] == "another version"
    assert (document["metric"], document["worst"]) == ("loss", "NaN")
    assert document["made_from"] == {
        "reference": {"path": str(log), "sha256": hashlib.sha256(b"loss 1.0").hexdigest()},
        "command": {"text": "align loss a b"},
    }


def test_a_later_result_replaces_the_earlier_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    folder.write(SmallResult("a long metric name that leaves more text", 1.0), {})
    folder.write(SmallResult("loss", 2.0), {})
    document = folder.read("loss")
    assert document is not None
    assert document["worst"] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["loss.json"]


def test_a_result_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path).read("forward") is None


def test_opening_needs_a_folder_with_a_result(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not found"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="holds no results"):
        RunFolder.open(tmp_path)
    RunFolder.create(tmp_path).write(SmallResult("loss", 1.0), {})
    assert RunFolder.open(tmp_path).path == tmp_path


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(DestinationError, match="cannot make the run folder"):
        RunFolder.create(tmp_path / "run")


def test_a_result_of_the_schema_before_is_read(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text('{"schema": "mindalign.map/1", "label": "a"}', encoding="utf-8")
    assert RunFolder(tmp_path).read("map") == {"schema": "mindalign.map/1", "label": "a"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema": "mindalign.loss/999"}', "expected 'mindalign.loss/3'"),
        ('{"schema": "mindalign.map/1"}', "expected 'mindalign.loss/3'"),
        ("{}", "has schema None"),
        ('{"schema": ', "not JSON"),
        ("[]", "is not a result"),
    ],
)
def test_another_schema_or_a_damaged_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "loss.json").write_text(content, encoding="utf-8")
    with pytest.raises(RunFolderError, match=words):
        RunFolder(tmp_path).read("loss")


def test_a_document_is_strict_json() -> None:
    text = json.dumps(as_document(SmallResult("loss", float("inf")), {}), allow_nan=False)
    assert json.loads(text)["worst"] == "Infinity"


def test_each_kind_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert len({RunFolder(tmp_path).file(kind) for kind in KINDS}) == len(KINDS)
