"""Two folders against each other: the verdict of the models themselves, and what must not be compared is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.name_map import NameMap, Pairing
from align.core.verdicts import Outcome
from align.errors import (
    DumpError,
    MissingFileError,
    NothingInCommonError,
    RunFolderError,
    UnlikeTracesError,
    UserCodeError,
)
from align.forward.forward_result import AcceptedDeviation, Allowances
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.manifest import MANIFEST, LineChain
from align.traces.trace_folder import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from align.forward.forward_result import ForwardComparison

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((16, 8)).astype(np.float32)
WEIGHTS = [GENERATOR.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]

NAMES = (("fc1", "body"), ("fc2", "head"))
UNLIKE = [WEIGHTS[0], WEIGHTS[1][:5]]  # two shapes: no order is needed to tell them apart


def leaky(slope: float) -> Any:
    return lambda x: np.where(x > 0, x, slope * x).astype(x.dtype)


def model(port: bool = False, slope: float = 0.01, weights: Any = WEIGHTS, last: Any = None) -> ArrayModel:
    kinds = ("mindspore.nn.Dense", "mindspore.nn.LeakyReLU") if port else ("torch.nn.Linear", "torch.nn.LeakyReLU")
    setting = {"alpha" if port else "negative_slope": slope}
    names = ("body", "f", "head") if port else ("fc1", "act", "fc2")

    def dense(x: Any, weight: Any) -> Any:
        return x @ weight.T

    return ArrayModel(
        (
            ArrayLayer(names[0], kinds[0], dense, {"weight": weights[0]}),
            ArrayLayer(names[1], kinds[1], leaky(slope), {}, setting),
            ArrayLayer(names[2], kinds[0], last or dense, {"weight": weights[1]}),
        )
    )


def captured(folder: Path, one: ArrayModel, inputs: Any = X, **options: Any) -> Path:
    align.capture_trace(one, folder, inputs={"x": inputs}, **options)
    return folder


def compared(folder: Path, reference: ArrayModel, candidate: ArrayModel, **options: Any) -> ForwardComparison:
    sides = captured(folder / "a", reference, **options), captured(folder / "b", candidate, **options)
    return align.compare_trace_folders(*sides)


def outcomes(result: ForwardComparison) -> list[str]:
    return [layer.outcome for layer in result.layers]


def test_folders_have_the_caveats_of_the_models(tmp_path: Path) -> None:
    for name, given, told in (
        ("one", X[:1], ["the batch holds 1 sample"]),
        ("ones", np.ones_like(X), ["x is 1.0"]),
        ("all", X, []),
    ):
        found = compared(tmp_path / name, model(), model(True), inputs=given)
        live = align.compare_forward(model(), model(True), inputs={"x": given}, power=False)
        assert found.verdict.caveats == live.verdict.caveats
        assert [
            one.split(" through")[0].split(":")[0] for one in found.verdict.caveats if not one.startswith("judged")
        ] == told
        assert any(one.startswith("judged in float32: a relative difference of") for one in found.verdict.caveats)


def test_folders_are_judged_as_the_models_are(tmp_path: Path) -> None:
    for name, port in (("clean", model(True)), ("faulty", model(True, slope=0.2))):
        found = compared(tmp_path / name, model(), port)
        live = align.compare_forward(model(), port, inputs={"x": X})
        assert outcomes(found) == outcomes(live)
        assert [one.limit for one in found.layers] == [one.limit for one in live.layers]
        assert [one.factor for one in found.layers] == [one.factor for one in live.layers]
        assert found.verdict.outcome == live.verdict.outcome
        assert (found.first_divergent, found.inputs) == (live.first_divergent, live.inputs)


def test_layers_are_not_isolated_and_a_note_says_why(tmp_path: Path) -> None:
    found = compared(tmp_path, model(), model(True))
    assert [one.isolated for one in found.layers] == [None] * 4
    assert [(one.code, one.severity) for one in found.findings] == [("folders-only", "note")]
    assert set(found.environment) == {"reference (arrays)", "candidate (arrays)"}


def test_traces_with_what_layers_are_given_tell_how_errors_grow(tmp_path: Path) -> None:
    options = {"inputs": {"x": X}}
    live = align.compare_forward(model(), model(True, slope=0.2), **options)
    found = compared(tmp_path, model(), model(True, slope=0.2), layer_inputs=True)
    assert [one.amplification for one in found.layers] == [one.amplification for one in live.layers]
    assert any(one.amplification for one in found.layers)


def test_settings_that_differ_are_told_with_what_to_write(tmp_path: Path) -> None:
    found = compared(tmp_path, model(), model(True, slope=0.2))
    [finding] = [one for one in found.findings if one.code == "setting-differs"]
    assert finding.subject == "act -> f"
    assert "alpha=0.01" in finding.message
    assert found.verdict.outcome is Outcome.NOT_ALIGNED


def test_a_setting_that_no_output_shows_does_not_decide(tmp_path: Path) -> None:
    candidate = model(True)
    mistold = replace(candidate.layers[1], settings={"alpha": 0.2})
    found = compared(tmp_path, model(), ArrayModel((candidate.layers[0], mistold, candidate.layers[2])))
    assert [one.severity for one in found.findings if one.code == "setting-differs"] == ["warning"]
    assert found.verdict.outcome is Outcome.ALIGNED


def test_a_setting_that_shows_in_training_only_is_a_note(tmp_path: Path) -> None:
    def dropping(share: float, port: bool = False) -> ArrayModel:
        own = ("mindspore.nn.Dropout", {"dropout.keep_prob": 1 - share}) if port else ("torch.nn.Dropout", {"p": share})
        return ArrayModel((*model(port).layers, ArrayLayer("drop", own[0], lambda x: x, {}, own[1])))

    clean = compared(tmp_path / "clean", dropping(0.1), dropping(0.1, port=True))
    assert [one.code for one in clean.findings] == ["folders-only"]
    found = compared(tmp_path / "faulty", dropping(0.1), dropping(0.5, port=True))
    assert [(one.code, one.severity) for one in found.findings][1:] == [("not-judged", "note")]
    assert "p=0.1 in the reference, p=0.5 in the candidate (1 layer: drop)" in found.findings[1].message
    assert found.verdict.outcome is Outcome.ALIGNED


def test_weights_are_compared_through_the_map(tmp_path: Path) -> None:
    other = [WEIGHTS[0], WEIGHTS[1] + np.float32(1e-3)]
    found = compared(tmp_path, model(), model(True, weights=other))
    assert [one.subject for one in found.findings if one.code == "weights-differ"] == ["fc2.weight -> head.weight"]


def test_a_port_that_was_never_given_its_weights_is_one_finding_of_folders_too(tmp_path: Path) -> None:
    names = NameMap("a", "b", tuple(Pairing(f"{one}.weight", f"{two}.weight", "user", 1.0) for one, two in NAMES))
    other = [np.random.default_rng(9).standard_normal((8, 8)).astype(np.float32) for _ in WEIGHTS]
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True, weights=other))
    found = align.compare_trace_folders(*sides, name_map=names)
    assert [one.code for one in found.findings if one.severity == "error"] == ["weights-never-given"]
    assert found.verdict.reason.startswith("the port was never given weights: 2 of 2 parameters differ")
    twin = captured(tmp_path / "c", model(True))
    assert align.compare_trace_folders(sides[0], twin, name_map=names).verdict.outcome is Outcome.ALIGNED


def test_weights_that_were_not_kept_are_told_as_not_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, model(), model(True), values=False)
    assert [one.severity for one in found.findings if one.code == "weights-unknown"] == ["warning"]
    assert found.verdict.outcome is Outcome.ALIGNED


def test_without_noise_the_limits_come_from_a_table_and_a_note_says_so(tmp_path: Path) -> None:
    found = compared(tmp_path, model(), model(True), noise=False)
    assert {one.limit.source for one in found.layers if one.limit} == {"dtype"}
    assert "it was not measured" in next(one.message for one in found.findings if one.code == "noise-unmeasured")


@pytest.mark.parametrize("kept", ["first:20", "sample:20"])
def test_kept_elements_are_compared_and_the_rows_say_how_many(tmp_path: Path, kept: str) -> None:
    found = compared(tmp_path, model(), model(True, slope=0.2), tensors=(kept,))
    faulty = next(one for one in found.layers if one.reference == "act")
    assert (faulty.outcome, faulty.note) == ("not aligned", "on 20 of 128 elements")
    assert faulty.measurement is not None
    hidden = X @ WEIGHTS[0].T
    difference = np.abs(leaky(0.2)(hidden) - leaky(0.01)(hidden))
    assert difference[faulty.measurement.worst] == pytest.approx(faulty.measurement.max_abs)


def test_a_trace_of_all_elements_is_compared_with_one_of_some(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True), tensors=("sample:20",))
    for pair in (sides, sides[::-1]):
        found = align.compare_trace_folders(*pair)
        assert {one.note for one in found.layers} == {"on 20 of 128 elements"}
        assert found.verdict.outcome is Outcome.ALIGNED


def test_tensors_that_were_not_kept_are_not_comparable(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True), tensors=("none",))
    found = align.compare_trace_folders(*sides)
    assert {(one.outcome, one.note) for one in found.layers} == {
        ("not comparable", "its values were not kept in the trace of the candidate")
    }
    assert found.verdict.outcome is Outcome.NOT_COMPARED


def test_allowances_hold_for_folders_too(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True, slope=0.2))
    allowed = Allowances(accepted=(AcceptedDeviation("*", "another slope is meant"),))
    found = align.compare_trace_folders(*sides, allowances=allowed)
    assert [one.layers for one in found.accepted] == ["*"]
    assert "not aligned" not in outcomes(found)


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True), inputs=2 * X)
    with pytest.raises(UnlikeTracesError, match=r"different inputs: x has other values.*\nHint: .*same --inputs"):
        align.compare_trace_folders(*sides)


def test_another_mode_or_step_is_refused_and_all_reasons_are_listed(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True))
    manifest = sides[1] / MANIFEST
    told = [json.loads(line) for line in manifest.read_text().splitlines()]
    told[0]["head"] |= {"mode": "training", "step": 3}
    chain = LineChain()
    lines = [{name: value for name, value in line.items() if name != "check"} for line in told]
    manifest.write_text("".join(chain.close(json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(UnlikeTracesError, match="different mode: evaluation and training\\n  different step: 0 and 3"):
        align.compare_trace_folders(*sides)


def test_outputs_of_another_structure_are_refused(tmp_path: Path) -> None:
    two = model(True, last=lambda x, weight: (x @ weight.T, x))
    with pytest.raises(UnlikeTracesError, match="outputs have different structures: 1 tensor and 2"):
        compared(tmp_path, model(), two)


def cut_short(folder: Path) -> Path:
    def broken(x: Any, weight: Any) -> Any:
        raise ValueError("no kernel")

    with pytest.raises(UserCodeError):
        captured(folder, model(True, last=broken, weights=UNLIKE))
    return folder


def test_a_trace_that_was_cut_short_is_refused_or_compared_up_to_its_end(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model(weights=UNLIKE)), cut_short(tmp_path / "b")
    with pytest.raises(UnlikeTracesError, match=r"b was cut short: it ends in head, which .*\nHint: .*--partial"):
        align.compare_trace_folders(*sides)
    found = align.compare_trace_folders(*sides, partial=True)
    assert [(one.reference, one.outcome) for one in found.layers] == [("fc1", "aligned"), ("act", "aligned")]
    assert [one.subject for one in found.findings if one.code == "trace-cut-short"] == [str(sides[1])]
    assert found.verdict.outcome is Outcome.NOT_COMPARED


def test_what_is_no_trace_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = captured(tmp_path / "a", model())
    with pytest.raises(MissingFileError, match="trace folder or dump not found"):
        align.compare_trace_folders(whole, tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DumpError, match="is neither a trace folder nor a dump of a known tool"):
        align.compare_trace_folders(whole, tmp_path / "empty")
    with TraceWriter(tmp_path / "bare", {}):
        pass
    with pytest.raises(RunFolderError, match=r"does not say which model.*\nHint: .*align capture"):
        align.compare_trace_folders(whole, tmp_path / "bare")


def test_models_without_a_common_layer_are_refused(tmp_path: Path) -> None:
    other = ArrayModel((ArrayLayer("emb", "torch.nn.Embedding", lambda x, weight: x, {"weight": np.ones((5, 2))}),))
    with pytest.raises(NothingInCommonError):
        compared(tmp_path, model(), other)


def test_neither_framework_is_imported(tmp_path: Path) -> None:
    sides = captured(tmp_path / "a", model()), captured(tmp_path / "b", model(True))
    code = f"""
import sys
for name in ("torch", "mindspore"):
    sys.modules[name] = None  # whoever imports it fails
import align
print(align.compare_trace_folders({str(sides[0])!r}, {str(sides[1])!r}).verdict.outcome.value)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "aligned\n"
