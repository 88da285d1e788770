"""`align forward` as typed: exit codes, --json, the run folder, and one message with a hint for every bad input."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.cli.main import main
from align.traces.trace_folder import TraceFolder

MODELS = '''
"""Two pairs of models without any framework."""
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def chain(names, family, scale=1.0, width=4, also=()):
    dense = {"torch": "torch.nn.Linear", "mindspore": "mindspore.nn.Dense"}[family]
    rng = np.random.default_rng(0)
    layers = [
        ArrayLayer(name, dense, lambda x, weight: x @ weight.T, {"weight": rng.normal(size=size).astype(np.float32)})
        for name, size in zip(names, ((width, width), (3, width)))
    ]
    relu = ArrayLayer(f"{names[0]}_act", f"{family}.nn.ReLU", lambda x: np.maximum(x, 0) * scale, {})
    return ArrayModel((layers[0], relu, layers[1], *also))


def reference():
    return chain(("body", "head"), "torch")


def port():
    return chain(("a", "b"), "mindspore")


def wrong_port():
    return chain(("a", "b"), "mindspore", scale=1.5)


def stranger():
    weights = {"weight": np.ones((9, 2))}
    return ArrayModel((ArrayLayer("emb", "torch.nn.Embedding", lambda x, weight: weight[x], weights),))


def inputs():
    return {"x": np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)}


def no_batches():
    return []


def no_inputs():
    return [1, 2]


def batches():
    return [inputs(), {"x": np.ones((2, 4), np.float32)}]


def texts():
    return {"x": np.array(["a", "b"])}


def broken():
    raise RuntimeError("no weights on this machine")
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    name = f"models_{tmp_path.name.replace('-', '_')}"
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"{name}.py"
    path.write_text(MODELS, encoding="utf-8")
    return path


def sides(here: Path, candidate: str = "port", reference: str = "reference") -> list[str]:
    return ["forward", f"{here.name}:{reference}", f"{here.name}:{candidate}"]


GIVEN = ["--input", "x=float32[5,4]"]


def check_refused(arguments: list[str], capsys: pytest.CaptureFixture[str], *expected: str) -> None:
    """Exit 2, nothing on standard output, one message with a hint that says all that is expected, no traceback."""
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("align: ")
    assert output.err.count("\nHint: ") == 1
    assert "Traceback" not in output.err
    for text in expected:
        assert text in output.err


@pytest.mark.parametrize(("candidate", "code", "says"), [("port", 0, "aligned"), ("wrong_port", 1, "NOT ALIGNED")])
def test_the_exit_code_is_the_verdict(
    here: Path, candidate: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*sides(here, candidate), *GIVEN]) == code
    output = capsys.readouterr()
    assert says in output.out
    assert output.err == ""


def test_what_is_at_fault_stands_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*sides(here, "wrong_port"), *GIVEN])
    first = capsys.readouterr().out[:600]
    assert "1 PART OF THE PORT IS AT FAULT" in first
    assert "body_act" in first


def test_limits_and_accepted_deviations_are_read_from_the_project_file_and_the_command_line_wins(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = f'[reference]\nmodel = "{here.name}:reference"\n[candidate]\nmodel = "{here.name}:wrong_port"\n'
    Path("align.toml").write_text(f'{models}[limits]\n"*" = 1e9\n', encoding="utf-8")
    assert main(["forward", *GIVEN]) == 0
    assert main(["forward", *GIVEN, "--limit", "body_act=1"]) == 1
    Path("align.toml").write_text(f'{models}[[accepted]]\nlayer = "a_act"\nreason = "as trained"\n', encoding="utf-8")
    capsys.readouterr()
    assert main(["forward", *GIVEN]) == 0
    assert "a_act: as trained; deviating layers: 1, by up to " in capsys.readouterr().out


def test_a_limit_that_fits_no_layer_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), *GIVEN, "--limit", "bdy=2"], capsys, "'bdy'", "close are body")
    check_refused([*sides(here), *GIVEN, "--limit", "body"], capsys, "--limit cannot be used: 'body'")


def test_json_is_the_whole_result_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*sides(here, "wrong_port"), *GIVEN, "--json"]) == 1
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["schema"] == "mindalign.forward/2"
    assert document["verdict"]["outcome"] == "not aligned"
    assert document["layers"][document["first_divergent"]]["reference"] == "body_act"
    assert document["made_from"]["reference"]["text"] == f"{here.name}:reference"
    assert output.err == ""


def test_inputs_are_described_by_shape_dtype_and_hash(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*sides(here), "--inputs", f"{here.name}:inputs", "--json"])
    described = json.loads(capsys.readouterr().out)["inputs"]["x"]
    value = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    digest = hashlib.sha256(value.tobytes()).hexdigest()
    assert described == {"shape": [5, 4], "dtype": "float32", "sha256": digest}


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([*arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_run_folder_keeps_inputs_traces_and_result(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json([*sides(here), *GIVEN, "--run", "run"], capsys)
    assert sorted(path.name for path in Path("run").iterdir()) == ["forward.json", "inputs.npz", "traces"]
    assert json.loads(Path("run/forward.json").read_text(encoding="utf-8"))["layers"] == document["layers"]
    kept = hashlib.sha256(Path("run/inputs.npz").read_bytes()).hexdigest()
    assert document["made_from"]["inputs"] == {"path": "run/inputs.npz", "sha256": kept}
    for side, first in (("reference", "body"), ("candidate", "a")):
        trace = TraceFolder(Path("run/traces") / side)
        assert trace.complete
        assert trace.captures[0].module == first


def test_a_run_folder_reuses_its_inputs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_json([*sides(here), *GIVEN, "--seed", "7", "--run", "run"], capsys)
    again = run_json([*sides(here, "wrong_port"), "--run", "run"], capsys)
    other = run_json([*sides(here), *GIVEN, "--seed", "8", "--run", "run"], capsys)
    assert first["inputs"] == again["inputs"] != other["inputs"]


def test_several_inputs_are_batches_of_one_run_and_are_kept_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("second.npz", x=np.ones((2, 4), np.float32))
    first = run_json(
        [*sides(here), "--inputs", f"{here.name}:inputs", "--inputs", "second.npz", "--run", "run"], capsys
    )
    assert first["verdict"]["outcome"] == "aligned"
    assert {(row["call"], row["batch"], row["batches"]) for row in first["layers"]} == {(0, 1, 2), (1, 2, 2)}
    assert list(first["inputs"]) == ["batch1/x", "batch2/x"]
    again = run_json([*sides(here, "wrong_port"), "--run", "run"], capsys)
    given = run_json([*sides(here), "--inputs", "run/inputs.npz"], capsys)
    listed = run_json([*sides(here), "--inputs", f"{here.name}:batches"], capsys)
    assert first["inputs"] == again["inputs"] == given["inputs"] == listed["inputs"]
    assert "in batch 1 of 2" in again["verdict"]["reason"]
    assert set(first["made_from"]) == {"reference", "candidate", "inputs"}


def test_without_a_run_folder_each_source_of_inputs_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--inputs", f"{here.name}:inputs", "--inputs", f"{here.name}:inputs"]
    assert set(run_json([*sides(here), *given], capsys)["made_from"]) == {
        "reference",
        "candidate",
        "inputs",
        "inputs 2",
    }


def test_a_batch_on_which_a_model_fails_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("narrow.npz", x=np.ones((2, 3), np.float32))
    check_refused(
        [*sides(here), "--inputs", f"{here.name}:inputs", "--inputs", "narrow.npz"], capsys, "batch2/x float32"
    )


def test_captures_of_several_batches_are_compared_batch_by_batch(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--inputs", f"{here.name}:batches"]
    for name in ("reference", "port", "wrong_port"):
        assert main(["capture", f"{here.name}:{name}", *given, "--out", name]) == 0
    capsys.readouterr()
    assert run_json(["forward", "reference", "port"], capsys)["layers"][-1]["batch"] == 2
    assert "in batch 1 of 2" in run_json(["forward", "reference", "wrong_port"], capsys)["verdict"]["reason"]
    assert main(["capture", f"{here.name}:port", "--inputs", "reference/inputs.npz", "--out", "again"]) == 0
    capsys.readouterr()
    assert run_json(["forward", "reference", "again"], capsys)["verdict"]["outcome"] == "aligned"


def test_where_one_batch_is_used_several_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(["bisect", *sides(here)[1:], "--inputs", f"{here.name}:batches"], capsys, "2 batches are given")


def test_a_seed_gives_the_same_inputs_every_time(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (run_json([*sides(here), *GIVEN, "--seed", "3"], capsys)["inputs"] for _ in range(2))
    assert first == second != run_json([*sides(here), *GIVEN, "--seed", "4"], capsys)["inputs"]


def test_checkpoints_and_a_map_are_used_and_hashed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {"a.weight": np.eye(4, dtype=np.float32), "b.weight": np.ones((3, 4), np.float32)}
    np.savez("port.npz", **weights)
    np.savez("original.npz", **{"body.weight": weights["a.weight"], "head.weight": weights["b.weight"]})
    Path("map.toml").write_text(
        'schema = "mindalign.names/1"\n[names]\n"body.weight" = "a.weight"\n"head.weight" = "b.weight"\n',
        encoding="utf-8",
    )
    given = ["--reference-checkpoint", "original.npz", "--candidate-checkpoint", "port.npz", "--map", "map.toml"]
    document = run_json([*sides(here), *GIVEN, *given], capsys)
    assert document["verdict"]["outcome"] == "aligned"
    assert set(document["made_from"]) == {
        "reference",
        "candidate",
        "map",
        "reference checkpoint",
        "candidate checkpoint",
    }
    only_one = run_json([*sides(here), *GIVEN, *given[:2]], capsys)
    assert {finding["code"] for finding in only_one["findings"]} == {"weights-differ"}


def test_no_inputs_at_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(sides(here), capsys, "no inputs are given", "--inputs FILE.npz")
    check_refused([*sides(here), "--run", "new"], capsys, "no inputs are given")
    assert not Path("new").exists()


def test_an_inputs_file_that_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), "--inputs", "nothing.npz"], capsys, "inputs file not found: nothing.npz")


def test_an_inputs_file_that_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), "--inputs", here.name], capsys, here.name, "expected one of", "npz")


def test_an_inputs_file_without_arrays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("empty.npz", names=np.array(["a", "b"]))
    check_refused([*sides(here), "--inputs", "empty.npz"], capsys, "empty.npz holds no inputs")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("no_inputs", "returned a sequence of type list that holds int, and not only dicts"),
        ("no_batches", "returned an empty list: no batches"),
        ("texts", "inputs that are no numeric arrays of a known dtype: x (<U"),
        ("broken", "RuntimeError: no weights on this machine"),
        ("absent", "absent"),
    ],
)
def test_a_function_that_gives_no_inputs(
    here: Path, function: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused([*sides(here), "--inputs", f"{here.name}:{function}"], capsys, says)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("x", "x: not of this form"),
        ("x=float32", "not of this form"),
        ("x=float32[2,3", "not of this form"),
        ("x=float32[-2]", "not of this form"),
        ("x=float32[2.5]", "not of this form"),
        ("=float32[2]", "not of this form"),
        ("x=float33[2]", "no dtype is called float33; known: bfloat16, bool, float16, float32, float64"),
        ("x=object[2]", "no dtype is called object"),
        ("x=str[2]", "no dtype is called str"),
        ("x=int64[2]<0", "no int64 is below 0"),
        ("x=uint8[2]<300", "uint8 ends before 300"),
        ("x=float32[9999999999,99999]", "elements are too many"),
    ],
)
def test_a_specification_that_cannot_be_read(
    here: Path, spec: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused([*sides(here), "--input", spec], capsys, says, "x=float32[2,3,224,224]")


def test_all_faults_of_the_specifications_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specs = ["--input", "x=nope[2]", "--input", "y", "--input", "z=float32[1]", "--input", "z=float32[2]"]
    check_refused([*sides(here), *specs], capsys, "nope", "y: not of this form", "z is given twice")


def test_a_file_and_a_specification_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", x=np.ones(2, np.float32))
    check_refused([*sides(here), *GIVEN, "--inputs", "x.npz"], capsys, "both --inputs and --input are given")


def test_inputs_of_the_wrong_shape_name_layer_and_inputs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--input", "x=float32[5,7]"]
    check_refused([*sides(here), *wrong], capsys, "in layer 'body'", "x float32[5, 7]", "shapes and dtypes")


def test_inputs_that_the_model_does_not_take(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), *GIVEN, "--input", "y=float32[2]"], capsys, "x float32[5, 4], y float32[2]")


def test_a_run_that_failed_leaves_no_result_but_the_trace_up_to_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused([*sides(here), "--input", "x=float32[5,7]", "--run", "run"], capsys)
    assert not Path("run/forward.json").exists()
    assert not Path("run/traces").exists()
    assert not Path("run/inputs.npz").exists()
    assert not TraceFolder(Path("run/traces.part/reference")).complete


def test_a_checkpoint_of_another_model_lists_all_faults(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("other.npz", **{"body.weight": np.ones((2, 2)), "tail.weight": np.ones(3)})
    arguments = [*sides(here), *GIVEN, "--reference-checkpoint", "other.npz"]
    check_refused(arguments, capsys, "missing: head.weight", "unexpected: tail.weight", "shape: body.weight is [2, 2]")


def test_a_checkpoint_that_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), *GIVEN, "--candidate-checkpoint", "no.ckpt"], capsys, "checkpoint not found: no.ckpt")


def test_models_with_nothing_in_common(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here, "stranger"), *GIVEN], capsys, "have no parameter in common")


def test_a_map_that_is_missing_or_of_other_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here), *GIVEN, "--map", "map.toml"], capsys, "map file not found: map.toml")
    Path("map.toml").write_text('schema = "mindalign.names/1"\n[names]\n"fc.w" = "fc.w"\n', encoding="utf-8")
    check_refused([*sides(here), *GIVEN, "--map", "map.toml"], capsys, "fc.w: the source has no such parameter")


@pytest.mark.parametrize("side", ["nothing", "nothing:", "absent.py:model", "json:loads_not"])
def test_a_side_that_is_none(here: Path, side: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(["forward", side, f"{here.name}:port", *GIVEN], capsys, side.partition(":")[0])


def test_a_side_whose_factory_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here, "broken"), *GIVEN], capsys, "RuntimeError: no weights on this machine", "--debug")


def test_a_side_that_is_no_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused([*sides(here, "inputs"), *GIVEN], capsys, "it returned an object of type dict, expected one of")


def test_a_run_folder_that_is_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").write_text("in the way", encoding="utf-8")
    check_refused([*sides(here), *GIVEN, "--run", "run"], capsys, "run")


def test_traces_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/traces").write_text("in the way", encoding="utf-8")
    check_refused([*sides(here), *GIVEN, "--run", "run"], capsys, "cannot write the trace")


def test_models_and_inputs_may_come_from_the_project_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    Path("align.toml").write_text(
        f'[reference]\nmodel = "{here.name}:reference"\n[candidate]\nmodel = "{here.name}:wrong_port"\n'
        '[forward]\ninputs = "x.npz"\n',
        encoding="utf-8",
    )
    assert run_json(["forward"], capsys)["inputs"]["x"]["shape"] == [2, 4]
    assert run_json(["forward", *GIVEN], capsys)["inputs"]["x"]["shape"] == [5, 4]
    assert main(["forward"]) == 1


def test_help_needs_no_framework(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(torch=None, mindspore=None)\n"
        "from align.cli.main import main; sys.exit(main(['forward', '--help']))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    for option in ("--inputs", "--input", "--seed", "--map", "--run", "--json"):
        assert option in result.stdout


REAL = """
import torch


def original():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())


def port():
    from mindspore import nn
    return nn.SequentialCell(nn.Dense(4, 3), nn.ReLU())
"""


TWICE = """
import sys
from align.cli.main import main
for number in "45":
    code = main(["forward", "models.py:original", "models.py:port", "--input", f"x=float32[2,{number}]"])
    for stream in (sys.stdout, sys.stderr):
        print("exit code", code, file=stream, flush=True)
"""


@pytest.mark.frameworks
def test_real_models_in_a_program_of_their_own_say_one_thing(tmp_path: Path) -> None:
    """Weights differ: exit 1. Wrong inputs: exit 2. Neither leaves a word on standard error but the message."""
    (tmp_path / "models.py").write_text(REAL, encoding="utf-8")
    command = [sys.executable, "-c", TWICE]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (printed, nothing, more), (told, failed, after) = (
        re.split("exit code [12]\n", stream) for stream in (found.stdout, found.stderr)
    )
    assert "0.weight -> 0.weight" in printed
    assert (told, nothing, more, after) == ("", "", "", "")
    assert re.findall("exit code .", found.stdout) == ["exit code 1", "exit code 2"]
    assert failed.startswith(
        "align: the torch model, in layer '0' (Linear) on inputs x float32[2, 5], failed: RuntimeError"
    )
    assert failed.count("\n") == 2


def test_the_candidate_may_be_given_inputs_of_its_own_which_the_run_folder_keeps(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    for name, scale in (("mine", 1), ("same", 1), ("other", 2)):
        np.savez(f"{name}.npz", x=values * scale)
    given = [*sides(here), "--inputs", "mine.npz", "--run", "run"]
    assert main([*given, "--candidate-inputs", "same.npz"]) == 0
    assert main([*given, "--candidate-inputs", "other.npz"]) == 1
    capsys.readouterr()
    assert main([*sides(here), "--run", "run", "--json"]) == 1  # both are used again
    document = json.loads(capsys.readouterr().out)
    assert document["candidate_inputs"]["x"]["sha256"] != document["inputs"]["x"]["sha256"]
    assert [one["parameters"] for one in document["bindings"]] == [{"x": "x"}, {"x": "x"}]
    assert main(given) == 0  # the earlier run's are gone
    assert not Path("run/candidate_inputs.npz").exists()
    capsys.readouterr()
    check_refused([*given, "--candidate-inputs", "gone.npz"], capsys, "gone.npz")
