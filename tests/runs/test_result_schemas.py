"""The published schemas are what the results are; `tests/conftest.py` holds the documents of all tests to them."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.names.map_result import MapCheck
from align.runs.run_folder import KINDS, as_document
from align.words.catalogue import sentence

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "align" / "runs" / "schemas"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_schemas", ROOT / "docs" / "make_schemas.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def document():
    reason = sentence("ladder.passed", count=2)
    fault = Finding("shape", "error", "fc.weight", "(2,) against (3,)", {"reference": float("inf")})
    verdict = Verdict(Outcome.NOT_ALIGNED, reason, Coverage("tensors", 2))
    return json.loads(
        json.dumps(as_document(MapCheck("map.toml", "a", "b", (fault,), (), verdict), {"map": "map.toml"}))
    )


def problems(document, kind="check"):
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return [error.json_path for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def test_the_schemas_are_made_anew_from_the_results(maker):
    made = {f"{kind}.schema.json": maker.schema_text(result) for kind, result in maker.result_types().items()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    assert made == kept, "results changed: run python docs/make_schemas.py"
    assert {f"{kind}.schema.json" for kind in (*KINDS, "ladder", "report", "doctor")} <= made.keys()


def test_each_is_a_schema_of_its_draft_whose_parts_are_there(assert_each):
    def is_sound(path):
        text = path.read_text(encoding="utf-8")
        schema = json.loads(text)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert set(re.findall(r'"#/\$defs/(\w+)"', text)) <= schema["$defs"].keys()

    assert_each(is_sound, sorted(SCHEMAS.iterdir()))


def test_a_document_with_sentences_and_infinity_is_valid(document):
    assert document["verdict"]["reason_from"]["key"] == "ladder.passed"
    assert document["faults"][0]["facts"] == {"reference": "Infinity"}
    assert problems(document) == []


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (("verdict", "outcome"), "fine", "$.verdict.outcome"),
        (("verdict", "coverage", "compared"), "2", "$.verdict.coverage.compared"),
        (("faults", 0, "severity"), "grave", "$.faults[0].severity"),
        (("schema",), "mindalign.check/1", "$.schema"),
        (("unused_rules",), None, "$.unused_rules"),
        (("invented",), 1, "$"),
    ],
)
def test_a_document_that_is_otherwise_is_refused_at_its_place(document, path, value, where):
    changed = copy.deepcopy(document)
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert problems(changed) == [where]
    del part[path[-1]]
    assert bool(problems(changed)) is (path != ("invented",))
