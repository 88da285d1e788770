"""JUnit by the rules of the schemas of Jenkins and Ant that CI systems rely on."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

from align.report.judged_run import judged_run
from align.report.write_report import as_junit, as_markdown

NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}
NEEDED = {"name", "tests", "failures", "errors", "skipped", "time"}


def suite_of(run):
    text = as_junit(run)
    assert not NOT_IN_XML.search(text)
    root = ET.fromstring(text.encode("utf-8"))
    assert root.tag == "testsuites"
    (suite,) = root
    return root, suite


def follows_the_schema(root, suite):
    cases = list(suite)
    assert suite.tag == "testsuite"
    assert {case.tag for case in cases} == {"testcase"}
    assert set(root.attrib) == NEEDED
    assert set(suite.attrib) == NEEDED | {"timestamp", "hostname"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    for counter in (root, suite):
        assert int(counter.get("tests")) == len(cases)
        for name, tag in COUNTED.items():
            assert int(counter.get(name)) == len(suite.findall(f"testcase/{tag}"))
        assert float(counter.get("time")) == round(sum(float(case.get("time")) for case in cases), 3)
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases)
    for case in cases:
        assert set(case.attrib) - {"file", "line"} == {"name", "classname", "time"}
        assert all(case.attrib.values())
        assert re.fullmatch(r"\d+\.\d{3}", case.get("time"))
        assert len(case) <= 1
        assert all(set(told.attrib) == ({"message"} if told.tag == "skipped" else {"message", "type"}) for told in case)


def test_a_case_for_each_rung_and_each_state_as_what_it_is(climbed):
    root, suite = suite_of(judged_run(climbed.path))
    follows_the_schema(root, suite)
    assert {case.get("name"): [told.tag for told in case] for case in suite} == {
        "environment": ["skipped"],
        "parameters": [],
        "weights": ["error"],
        "data": ["skipped"],
        "forward": ["failure"],
        "gradients": ["skipped"],
        "curve": ["error"],
    }
    assert suite.get("time") == "3.750"


def test_a_failure_names_what_is_at_fault_with_line_and_change(climbed):
    _, suite = suite_of(judged_run(climbed.path))
    case = suite.find("testcase[@name='forward']")
    assert (case.get("file"), case.get("line")) == ("port.py", "7")
    failure = case.find("failure")
    assert failure.get("message") == "5 differ"
    assert "layers.{0…3}.norm (4): norm-eps" in failure.text
    assert "at port.py:7; write nn.LayerNorm(8, epsilon=1e-5)" in failure.text
    assert failure.text.endswith("align forward a b")
    assert "bad & worse" in suite.find("testcase/error").get("message")


def test_results_without_a_climb_follow_the_schema_too(samples, tmp_path):
    root, suite = suite_of(judged_run(samples.write_sample_run(tmp_path / "run")))
    follows_the_schema(root, suite)
    assert suite.get("failures") == "3"


def test_what_to_do_about_a_command_that_could_not_run_and_the_line_that_lacks_are_said(climbed):
    run = judged_run(climbed.path)
    told = {
        "weights": {"hint": "give --family", "commands": ("align convert a b",)},
        "data": {"settle": '[data] file = "data.py"'},
    }
    run = replace(run, rungs=tuple(replace(one, **told.get(one.name, {})) for one in run.rungs))
    _, suite = suite_of(run)
    assert "Hint: give --family\nAgain:\nalign convert a b" in suite.find("testcase[@name='weights']/error").text
    assert (
        suite.find("testcase[@name='data']/skipped").get("message") == 'no data; write under [data]: file = "data.py"'
    )
    text = as_markdown(run)
    assert "weights: Hint: give --family" in text
    assert "no data; write under \\[data\\]: file" in text
    assert "- after the change, run:  \n  `align run" in text
