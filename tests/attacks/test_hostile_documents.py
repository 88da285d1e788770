"""Documents that are read (project files, maps, jobs, traces, results of runs): each fault ends in one message."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from align.cli.main import main
from align.core.documents import DocumentFault, Form, parse_json, parse_toml
from align.core.thresholds import LONGEST_TOML_BYTES, MOST_JSON_VALUES
from align.errors import RunFolderError
from align.report.show_result import result_blocks
from align.runs.run_folder import RunFolder, readable_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("guarded")

TOML = {
    "nested": ("a = " + "[" * 100_000 + "]" * 100_000, "nested deeper"),
    "nested tables": ("a = " + "{a = " * 100_000 + "1" + "}" * 100_000, "nested deeper"),
    "a long number": ("a = " + "9" * 100_000, "4300 digits"),
    "a long hexadecimal number": ("a = 0x" + "f" * 100_000, "thousand digits"),
    "a name of many parts": (".".join("a" * 50_000) + " = 1", "too many parts"),
    "a heading of many parts": (f"[{'.'.join('a' * 50_000)}]", "too many parts"),
    "many values": ("a = [" + "1," * 800_000 + "]", "more than 700,000 values"),
    "no text": ("a = \0", "not TOML"),
}
JSON = {
    "nested": ("[" * 100_000, "nested deeper"),
    "nested objects": ('{"a":' * 100_000, "nested deeper"),
    "a long number": ("9" * 100_000, "4300 digits"),
    "no number": ('{"a": NaN}', "NaN is no number"),
    "many values": ("[" + "1," * MOST_JSON_VALUES + "1]", "more than 4,000,000 values"),
    "no text": (b"\xff\xfe", "not JSON"),
    "cut": ('{"a": ', "not JSON"),
}


@pytest.mark.parametrize("name", TOML)
def test_toml_that_costs_too_much_is_refused_before_it_is_parsed(name: str) -> None:
    text, said = TOML[name]
    with pytest.raises(DocumentFault, match=said):
        parse_toml(text)


@pytest.mark.parametrize("name", JSON)
def test_json_that_costs_too_much_is_refused(name: str) -> None:
    text, said = JSON[name]
    with pytest.raises(DocumentFault, match=said):
        parse_json(text)


def test_large_documents_that_users_have_are_read() -> None:
    names = "[names]\n" + "".join(f'"model.layers.{n}.weight" = "model.layers.{n}.gamma"\n' for n in range(50_000))
    assert len(parse_toml(names)["names"]) == 50_000
    dotted = "".join(f"model.layers.{n}.rate = 1\n" for n in range(5_000))
    assert len(parse_toml(dotted)["model"]["layers"]) == 5_000


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"rows": [{"n": "1"}]}, r"rows\[0\]\.n must be integer, not '1'"),
        ({"rows": [{"n": 10**40}]}, r"rows\[0\]\.n must be smaller than or equal to"),
        ({"rows": [{}]}, r"rows\[0\] must contain \['n'\]"),
        ({"rows": 1}, "rows must be array, not 1"),
        ([], "must be object"),
        ({"rate": float("inf"), "rows": []}, "rate must be smaller"),
    ],
)
def test_a_field_of_another_form_is_named(value: Any, said: str) -> None:
    row = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = Form(
        {
            "type": "object",
            "properties": {"rows": {"type": "array", "items": row}, "rate": {"type": "number"}},
            "required": ["rows"],
        }
    )
    with pytest.raises(DocumentFault, match=said):
        form.require(value)
    assert form.require({"rows": [{"n": 1}]}) == {"rows": [{"n": 1}]}


NET = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def net():
    weight = np.eye(3, dtype=np.float32)
    return ArrayModel((
        ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight}),
        ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),
    ))
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a trace, a run folder and what they were made of."""
    folder = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("net.py").write_text(NET, encoding="utf-8")
        for name, bias in (("a", 0.0), ("b", 1.0)):
            np.savez(f"{name}.npz", **{"fc.weight": np.ones((2, 3)), "fc.bias": np.full(2, bias)})
            rows = "".join(f"{step},{2 - step / 100 - bias / 50}\n" for step in range(20))
            Path(f"{name}.csv").write_text(f"step,loss\n{rows}", encoding="utf-8")
        assert main(["capture", "net.py:net", "--input", "x=float32[2,3]", "-o", "trace"]) == 0
        made = {
            "forward net.py:net net.py:net --input x=float32[2,3] --no-power": 0,
            "map a.npz b.npz": 1,
            "diff a.npz b.npz": 1,
            "loss a.csv b.csv": 1,
        }
        for words, code in made.items():
            assert main([*words.split(), "--run", "run"]) in (code, 0), words
        yield folder


HOSTILE = st.sampled_from(
    [None, True, -1, 0, 1.5, 10**30, 10**400, "x", "", [], {}, [None], [[1]], {"a": None}, "\x1b[2J", ["a", 1], "NaN"]
)


@st.composite
def tampered(draw: Callable[..., Any], document: Any) -> Any:
    """The document with one value replaced or taken away, at any depth."""
    made = json.loads(json.dumps(document))
    place, keys = made, ()
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
        if not keys:
            return made
        key = draw(st.sampled_from(list(keys)))
        if not place[key] or not isinstance(place[key], (dict, list)) or draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    if draw(st.integers(0, 3)):
        place[key] = draw(HOSTILE)
    else:
        del place[key]
    return made


def checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command; where it could not run, it says so once and how to go on."""
    capsys.readouterr()
    code = main(words)
    shown = capsys.readouterr()
    could_not_compare = not shown.err and "COULD NOT COMPARE" in shown.out
    assert code in (0, 1) or could_not_compare or re.match(r"align: .*\nHint: ", shown.err, re.DOTALL), shown.err
    return code


def attack(path: Path, words: list[str], capsys: pytest.CaptureFixture[str], examples: int) -> None:
    whole = path.read_text(encoding="utf-8")
    lines = whole.splitlines() if path.suffix == ".jsonl" else [whole]
    documents = [{k: v for k, v in json.loads(line).items() if k not in ("check", "checked")} for line in lines]

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.integers(0, len(documents) - 1), st.data())
    def check(which: int, data: st.DataObject) -> None:
        made = [*documents]
        made[which] = data.draw(tampered(made[which]))
        path.write_text("".join(json.dumps(one) + "\n" for one in made), encoding="utf-8")
        checked(words, capsys)

    check()
    path.write_text(whole, encoding="utf-8")


@pytest.mark.parametrize("name", ["manifest.jsonl", "model.json", "noise.json"])
def test_a_trace_that_somebody_edited_is_refused_or_shown(
    work: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(work / "trace", tmp_path / "trace")
    attack(tmp_path / "trace" / name, ["trace", "show", str(tmp_path / "trace")], capsys, 60)
    attack(tmp_path / "trace" / name, ["forward", str(tmp_path / "trace"), str(work / "trace")], capsys, 40)


def run_cells(notebook: Any, folder: Path, progress: object) -> Any:
    """The cells of a report in this process, which a kernel of its own would take two seconds for."""
    names: dict[str, Any] = {"display": lambda *_: None}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    return notebook


@pytest.mark.parametrize("kind", ["forward", "map", "diff", "loss"])
def test_a_result_that_somebody_edited_is_refused_or_shown(
    work: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("align.report.write_report.execute_notebook", run_cells)
    (tmp_path / "run").mkdir()
    shutil.copy(work / "run" / f"{kind}.json", tmp_path / "run")
    attack(tmp_path / "run" / f"{kind}.json", ["report", str(tmp_path / "run"), "--no-html"], capsys, 12)


def test_the_message_names_the_file_and_the_field(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    document = json.loads((work / "run" / "loss.json").read_text(encoding="utf-8"))
    document["points"]["step"][3] = "three"
    (tmp_path / "run" / "loss.json").write_text(json.dumps(document), encoding="utf-8")
    assert main(["report", str(tmp_path / "run"), "--no-html"]) == 2
    said = capsys.readouterr().err
    assert "loss.json is not what mindalign writes: points.step[3] must be integer, not 'three'" in said


READERS = [
    "forward --project FILE",
    "diff a.npz b.npz --map FILE",
    "convert a.npz out.npz --map FILE",
    "batch FILE",
    "hyperparameters FILE FILE",
]


@pytest.mark.parametrize("words", READERS)
def test_every_reader_of_toml_ends_in_one_message(
    work: Path, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    texts = {**{name: text for name, (text, _) in TOML.items()}, "large": "#" * LONGEST_TOML_BYTES + "# x"}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        line = [str(tmp_path / f"{name}.toml") if word == "FILE" else word for word in words.split()]
        assert checked(line, capsys) == 2, name


@pytest.mark.parametrize("kind", ["forward", "diff", "map", "loss"])
@pytest.mark.parametrize("older", ["mindalign", "schema"])
def test_a_result_of_another_version_that_lacks_a_field_is_refused_or_shown(
    work: Path, kind: str, older: str, tmp_path: Path
) -> None:
    whole = json.loads((work / "run" / f"{kind}.json").read_text(encoding="utf-8"))
    whole |= {"mindalign": "0.0.1"} if older == "mindalign" else {"schema": readable_schemas(kind)[1]}
    fields = [name for name in whole if name not in ("schema", "mindalign")]
    refused = []
    for lacking in fields:
        left = {name: whole[name] for name in whole if name != lacking}
        (tmp_path / f"{kind}.json").write_text(json.dumps(left), encoding="utf-8")
        try:
            result_blocks(RunFolder(tmp_path).read(kind) or {}, show_all=True)
        except RunFolderError as error:
            refused.append(error.message)
    assert 0 < len(refused) < len(fields)
    assert {message.partition(" of mindalign")[0] for message in refused} == {f"the {kind} result of another version"}
