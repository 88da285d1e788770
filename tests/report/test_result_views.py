"""Every result shows itself in a notebook and gives its rows to pandas: made from its types, so none is left out."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import types
from collections import abc
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import nbformat
import numpy as np
import pandas as pd
import pytest

import align
from align.core.protocols import silent
from align.core.transforms import IDENTITY, Transform
from align.core.verdicts import Outcome, ShownResult
from align.report.open_run import result_html
from align.report.write_report import execute_notebook
from align.runs import run_folder

ROOT = Path(__file__).parents[2]
PLAIN = {
    str: "a text",
    int: 1,
    float: 0.5,
    bool: True,
    type(None): None,
    Any: 1,
    object: 1,
    Path: Path("a file"),
    Transform: IDENTITY,
    Outcome: Outcome.NOT_ALIGNED,
}
# What a field holds whose type does not say so.
HELD = {
    "code": "shape",
    "coverage": {"unit": "layers", "compared": 1},
    "inputs": {"x": {"dtype": "float32", "shape": [2], "sha256": "ab"}},
    "machine": {"memory": 1, "disk": 1},
}


def _load_maker():
    spec = importlib.util.spec_from_file_location("make_schemas", ROOT / "docs" / "make_schemas.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MAKER = _load_maker()
# An error is a document, but no result: nothing shows it.
RESULTS = {kind: result for kind, result in MAKER.result_types().items() if kind != "error"}


def example(hint):
    """A value of a type, with two entries in all that it lists."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return hint(**{name: _held(name, one) for name, one in MAKER.field_types(hint).items()})
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return example(arguments[0])
    return _several(origin, arguments)


def _held(name, hint):
    is_open = {Any, object} & {hint, *get_args(hint), *(inner for one in get_args(hint) for inner in get_args(one))}
    return (
        HELD[name]
        if name in HELD and (is_open or name == "machine" or (name == "code" and hint is str))
        else example(hint)
    )


def _several(origin, arguments):
    if origin in (dict, abc.Mapping):
        return {"one": example(arguments[1]), "other": example(arguments[1])}
    if origin is np.ndarray:
        return np.ones(2, get_args(arguments[1])[0])
    if arguments[1:] == (Ellipsis,):
        return (example(arguments[0]),) * 2
    return tuple(map(example, arguments))


def test_all_that_the_public_functions_return_are_such_results():
    assert all(issubclass(result, ShownResult) for result in RESULTS.values())
    assert len(RESULTS) > 20
    assert RESULTS.keys() >= {*run_folder.KINDS, "ladder", "report", "doctor", "trace", "power"}


# These say first what else they hold a run against, or where a loop broke; the verdict of the run stands in the run.
OTHER_FIRST_LINES = {"nonfinite", "against", "verify"}
OUTCOMES = {"doctor": "NOT READY", "followed": "LEAKS", "memory": "NOT OK", "advise": "SLOW"}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_of_each_kind_shows_itself_and_has_a_frame(kind):
    result = example(RESULTS[kind])
    shown = result._repr_html_()
    assert shown.startswith('<div class="ma-result"><style>')
    assert shown.count("<table>") <= 1
    assert "a text" in shown
    if hasattr(result, "verdict"):
        wanted = "a text" if kind in OTHER_FIRST_LINES else f"{OUTCOMES.get(kind, 'NOT ALIGNED')}: a text"
        assert wanted in shown
        assert ("NOT ALIGNED" in shown) == wanted.startswith("NOT ALIGNED")
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) >= 1
    assert not [name for name in frame.columns if name.endswith("_from")]
    assert run_folder.as_document(result, {"role": "a.py:b"})["schema"] == run_folder.schema_of(kind)


def test_a_result_shows_its_verdict_what_comes_first_and_one_table(samples):
    shown = result_html(samples.faulty_forward())
    assert shown.index("NOT ALIGNED: 105 of 120") < shown.index("2 PARTS OF THE PORT") < shown.index("<table>")
    assert shown.count("<table>") == 1
    assert samples.FIRST_DIVERGENT in shown
    assert "&lt;script" in result_html(dataclasses.replace(samples.sample_map(), name_map=_hostile(samples)))


def _hostile(samples):
    return samples.NameMap("a", "b", (samples.Pairing("<script>alert(1)</script>", "x", "rule", 1.0),))


def test_colours_of_a_result_are_the_pages_own_or_shine_through():
    css = (ROOT / "notebooks" / "result.css").read_text(encoding="utf-8")
    colours = re.findall(r"(?<![\w-])(color|background):\s*([^;]+);", css)
    assert len(colours) > 5
    assert {value for _, value in colours if not value.startswith("rgba(")} == {"inherit", "none"}


CELLS = """
import numpy as np, align
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def model(path, layer, factor=1.0):
    weights = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    return ArrayModel((ArrayLayer(path, layer, lambda x, weight: factor * x @ weight.T, weights),))

sides = model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense", 1.5)
open("log.jsonl", "w").write('{"step": 1, "loss": 2.5}\\n{"step": 2, "loss": 2.25}\\n')
inputs = {"x": np.ones((4, 3), np.float32)}
--
align.compare_forward(*sides, inputs=inputs)
--
align.map_parameters(*sides)
--
align.compare_losses("log.jsonl", "log.jsonl")
--
align.measure_power(sides[0], inputs)
--
align.compare_forward(*sides, inputs=inputs).to_frame()
--
print(align.map_parameters(*sides).to_frame().equals(align.map_frame(align.map_parameters(*sides))))
"""


def test_results_show_themselves_in_a_kernel(tmp_path):
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS.split("--\n")]
    notebook = execute_notebook(nbformat.v4.new_notebook(cells=cells), tmp_path, silent)
    outputs = [[one for one in cell.outputs if "data" in one] for cell in notebook.cells]
    shown = ["".join(one.data.get("text/html", "") for one in each) for each in outputs]
    assert "NOT ALIGNED" in shown[1]
    assert "head.weight" in shown[2]
    assert shown[3].count('<div class="ma-result">') == 1
    assert "not aligned" in shown[5]
    assert 'class="dataframe"' in shown[5]
    assert notebook.cells[6].outputs[0].text == "True\n"
    assert shown[4].startswith('<div class="ma-result">')
    assert align.__file__
