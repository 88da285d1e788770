"""SARIF 2.1.0 by the rules of its schema for all that is written, and by what GitHub needs to show a finding."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from align.cli.main import main
from align.report.judged_run import judged_run
from align.report.write_report import as_sarif, source_place

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}},
        "additionalProperties": False}  # fmt: skip
NUMBER = {"type": "integer", "minimum": 1}


def closed(required, **properties):
    """An object of these properties and no others."""
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


def listed(item):
    return {"type": "array", "items": item}


# The parts of the schema of SARIF 2.1.0 that are used, with what it leaves open closed.
REGION = closed("startLine", startLine=NUMBER, startColumn=NUMBER)
FILE = closed("uri", uri={"type": "string", "pattern": r"^[\w%./+~-]+$"})
LOCATION = closed(
    "",
    logicalLocations=listed(closed("", fullyQualifiedName={"type": "string"})),
    physicalLocation=closed("artifactLocation", artifactLocation=FILE, region=REGION),
)
RESULT = closed(
    "message ruleId level",
    ruleId={"type": "string"},
    level={"enum": ["error", "warning", "note", "none"]},
    message=TEXT,
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    locations=listed(LOCATION),
)
INVOCATION = closed(
    "executionSuccessful",
    executionSuccessful={"type": "boolean"},
    endTimeUtc={"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    toolExecutionNotifications=listed(closed("message", level={"enum": ["error"]}, message=TEXT)),
)
RULE = closed("id shortDescription", id={"type": "string"}, shortDescription=TEXT)
DRIVER = closed("name version rules", name={"type": "string"}, version={"type": "string"}, rules=listed(RULE))
RUN = closed(
    "tool results",
    tool=closed("driver", driver=DRIVER),
    automationDetails=closed("id", id={"type": "string"}),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=listed(INVOCATION),
    results=listed(RESULT),
)
SCHEMA = closed(
    "$schema version runs",
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs=listed(RUN) | {"minItems": 1},
)


@pytest.fixture
def written(climbed, tmp_path, monkeypatch):
    """A repository with the port in a folder of its own, which is the current one; and its run folder as SARIF."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "ports").mkdir()
    (tmp_path / "ports" / "port.py").write_text("\n" * 6 + "    self.norm = 1\n\n\n")
    monkeypatch.chdir(tmp_path / "ports")

    def sarif(change=lambda run: run):
        document = json.loads(as_sarif(change(judged_run(climbed.path))))
        jsonschema.validate(document, SCHEMA)
        return document["runs"][0]

    return sarif


def test_each_cause_is_a_result_at_its_line_in_the_repository(written):
    run = written()
    folded, other = run["results"]
    assert folded["ruleId"] == "forward/norm-eps"
    assert folded["message"]["text"].startswith("forward: layers.{0…3}.norm (4): norm-eps")
    assert folded["message"]["text"].endswith("at port.py:7; write nn.LayerNorm(8, epsilon=1e-5)")
    place = folded["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "ports/port.py"}, "region": {"startLine": 7, "startColumn": 5}}
    assert other["locations"] == [{"logicalLocations": [{"fullyQualifiedName": "head|`er`"}]}]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted({result["ruleId"] for result in run["results"]})


def test_what_could_not_be_compared_is_a_notification_of_a_run_that_did_not_succeed(written):
    (invocation,) = written()["invocations"]
    assert invocation["executionSuccessful"] is False
    said = [one["message"]["text"] for one in invocation["toolExecutionNotifications"]]
    assert [text.partition(":")[0] for text in said] == ["weights", "curve"]


def test_a_finding_without_a_file_stands_in_the_project_file(written, tmp_path):
    Path("align.toml").write_text("")
    run = written(lambda run: replace(run, climb={"made_from": {"project": {"path": "align.toml"}}}))
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]
    assert uris == ["ports/port.py", "ports/align.toml"]


def test_a_mark_stays_where_the_line_moves(written):
    def move(run):
        moved = [
            replace(one, culprits=tuple(replace(own, line="port.py:9:5") for own in one.culprits)) for one in run.rungs
        ]
        return replace(run, rungs=tuple(moved))

    before, after = written()["results"], written(move)["results"]
    assert [one["partialFingerprints"] for one in before] == [one["partialFingerprints"] for one in after]
    assert after[0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 9, "startColumn": 5}


@pytest.mark.parametrize(("text", "place"), [
    ("port.py:12", ("port.py", 12, 1)), ("a b/port.py:12:5", ("a b/port.py", 12, 5)), ("port.py:f", None), ("", None),
    (":12", None), ("port.py:0", None),
])  # fmt: skip
def test_places_are_read_with_and_without_a_column(text, place):
    assert source_place(text) == place


def test_report_writes_all_files_and_refuses_one_name_for_two(climbed, capsys, tmp_path):
    files = {kind: str(tmp_path / f"run.{kind}") for kind in ("markdown", "junit", "sarif")}
    assert (
        main(["report", str(climbed.path), *(word for kind, file in files.items() for word in (f"--{kind}", file))])
        == 1
    )
    assert all(Path(file).read_text(encoding="utf-8") for file in files.values())
    same = str(tmp_path / "same")
    assert main(["report", str(climbed.path), "--junit", same, "--sarif", same]) == 2
    assert "--junit and --sarif would write one file" in capsys.readouterr().err
    assert not Path(same).exists()
