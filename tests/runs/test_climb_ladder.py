"""The ladder: rungs in their order, each kept, stale, blocked, or not run; a rung that was not run never passed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.core.load_code import import_user_code, note_opened_files
from align.core.operating_system import folder_lock
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import FolderInUseError, ProjectFileError, RunFolderError, UsageError
from align.models.user_code import run_user_code
from align.report.kinds.ladder import climb_again, climb_from, ladder_blocks, next_steps
from align.runs.climb_ladder import LOCK, Climb, Performed, _first_line, climb_ladder, loaded_sources
from align.runs.project_file import Project, read_project
from align.runs.run_folder import RunFolder, as_document
from align.runs.rung import Culprit, Plan, RungResult, rungs, setting_culprit

if TYPE_CHECKING:
    from align.runs.rung import Call, LadderResult


@dataclass(frozen=True)
class Written:
    """A result as the ladder reads it."""

    result_kind: str
    verdict: Verdict
    findings: tuple[dict[str, Any], ...] = ()
    culprits: tuple[dict[str, Any], ...] = ()
    losses: tuple[dict[str, Any], ...] = ({"step": 1},)
    gradients: tuple[dict[str, Any], ...] = ({},)
    updates: tuple[dict[str, Any], ...] = ({},)
    name_map: dict[str, Any] = field(default_factory=lambda: {"unmatched": [], "ambiguous": []})
    first_divergent_step: int | None = None
    trouble: str | None = None
    mindalign: str = "another version, whose documents may have other fields"


CULPRIT = {
    "reference": "a",
    "candidate": "b",
    "part": "layer",
    "cause": "x",
    "line": "port.py:3",
    "change": "",
    "kind": "",
}


class Port:
    """Commands that leave a result each, with the outcomes and culprits that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.outcomes: dict[str, Outcome] = {}
        self.faults: tuple[str, ...] = ()
        self.causes: dict[str, dict[str, str]] = {}
        self.commands: list[str] = []
        self.dies_at = ""
        self.losses: tuple[dict[str, Any], ...] = ({"step": 1},)
        self.name_map: dict[str, Any] = {"unmatched": [], "ambiguous": []}

    def faults_of(self, command: str) -> tuple[str, ...]:
        return self.faults if command in ("step", "forward") else ()

    def told(self, command: str) -> dict[str, str]:
        return self.causes.get(command, {})

    def perform(self, call: Call) -> Performed:
        if call.run is None:  # what explains, or captures, and leaves no result
            return Performed(error=None if call.command == "capture" else UsageError("it cannot"))
        self.commands.append(call.command)
        if call.command == self.dies_at:
            return Performed(error=UsageError("no such layer", "look again"))
        outcome = self.outcomes.get(call.command, Outcome.ALIGNED)
        culprits = tuple(CULPRIT | self.told(call.command) | {"kind": kind} for kind in self.faults_of(call.command))
        verdict = Verdict(outcome, f"{call.command} says so", Coverage("things", 3))
        result = Written(call.command, verdict, culprits=culprits, losses=self.losses, name_map=self.name_map)
        RunFolder.create(self.run).write(result, {})
        if call.command == "map":
            (self.run / "map.toml").write_text("# pairs\n")
        if call.command == "convert":
            (self.run / "candidate.ckpt").write_bytes((self.run.parent / "weights.pth").read_bytes())
        return Performed(as_document(result, {}), None, f"shown by {call.command}\n")


@pytest.fixture
def port(tmp_path: Path) -> Port:
    (tmp_path / "sides.py").write_text("def build(): ...\n")
    (tmp_path / "weights.pth").write_bytes(b"1")
    (tmp_path / "inputs.npz").write_bytes(b"1")
    side = 'model = "sides.py:build"\ntraining = "sides.py:build"\n'
    (tmp_path / "align.toml").write_text(
        f'[reference]\n{side}checkpoint = "weights.pth"\n[candidate]\n{side}'
        '[forward]\ninputs = "inputs.npz"\n[training]\nbatch = "inputs.npz"\n'
    )
    return Port(tmp_path)


def project(port: Port) -> Project:
    return read_project(port.run.parent / "align.toml")


def climbed(port: Port, climb: Climb | None = None) -> dict[str, str]:
    return {rung.name: rung.state for rung in whole(port, climb).rungs}


def whole(port: Port, climb: Climb | None = None) -> LadderResult:
    port.commands.clear()
    return climb_ladder(project(port), port.run, port.perform, climb)


def test_a_line_that_announces_others_is_told_with_the_first_of_them() -> None:
    assert _first_line("nothing fits:\n  the head\n  the stem") == "nothing fits: the head"
    assert [*map(_first_line, ("several\nlines", "ends so:", ""))] == ["several", "ends so", ""]


def test_rungs_stand_in_the_order_of_a_port() -> None:
    order = ["environment", "parameters", "settings", "weights", "data", "forward", "metric", "loss", "gradients"]
    names = [rung.name for rung in rungs() if not rung.optional]
    assert names == [*order, "optimizer", "curve"]


def test_all_that_has_its_inputs_is_run_and_the_rest_is_not_available(port: Port) -> None:
    result = whole(port)
    states = {rung.name: rung.state for rung in result.rungs}
    assert [name for name, state in states.items() if state == "not available"] == ["data", "metric", "curve"]
    assert {state for name, state in states.items() if name not in ("data", "metric", "curve")} == {"passed"}
    assert port.commands == ["doctor", "map", "lint", "convert", "forward", "step"]  # one step for three rungs
    assert result.verdict.outcome is Outcome.ALIGNED
    assert "data" in result.verdict.caveats[0]
    assert (port.run / "shown" / "forward.txt").read_text().endswith("shown by forward\n")


def test_a_second_climb_runs_nothing(port: Port) -> None:
    climbed(port)
    assert set(climbed(port).values()) == {"passed", "not available"}
    assert port.commands == []


def test_a_replaced_checkpoint_makes_the_rungs_above_it_stale(port: Port) -> None:
    climbed(port)
    (port.run.parent / "weights.pth").write_bytes(b"2")
    states = climbed(port, Climb(only=("parameters",)))
    assert (states["weights"], states["forward"]) == ("stale", "stale")
    assert (states["settings"], states["optimizer"]) == ("passed", "passed")
    assert port.commands == ["map"]
    climbed(port)
    assert port.commands == ["convert", "forward"]


def test_a_replaced_checkpoint_of_the_same_size_and_time_makes_the_rungs_above_it_stale(port: Port) -> None:
    climbed(port)
    weights = port.run.parent / "weights.pth"
    before = weights.stat()
    weights.write_bytes(b"2")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert climbed(port, Climb(only=("environment",)))["weights"] == "stale"


def test_a_new_result_is_known_by_a_clock_that_stands_still(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    write = RunFolder.write

    def write_at_no_time(folder: RunFolder, result: Any, made_from: Any) -> Path:
        path = write(folder, result, made_from)
        os.utime(path, ns=(0, 0))
        return path

    monkeypatch.setattr(RunFolder, "write", write_at_no_time)
    climbed(port)
    port.outcomes["loss"] = port.outcomes["forward"] = Outcome.NOT_ALIGNED
    (port.run.parent / "sides.py").write_text("def build(): return 1\n")
    assert climbed(port, Climb(keep_going=True))["forward"] == "failed"


def test_changed_code_of_a_side_makes_what_it_made_stale(port: Port) -> None:
    climbed(port)
    (port.run.parent / "sides.py").write_text("def build(): return 1\n")
    states = climbed(port, Climb(only=("environment",)))
    assert [name for name, state in states.items() if state == "stale"] == [
        "parameters",
        "settings",
        "forward",
        "loss",
        "gradients",
        "optimizer",
    ]


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_file_that_a_factory_loads_itself_makes_its_rungs_stale_when_it_changes(port: Port, is_changed) -> None:
    own = port.run.parent / "own.npz"
    own.write_bytes(b"1")

    def perform(call: Call) -> Performed:
        run_user_code(own.read_bytes, lambda error: UsageError(str(error)))
        return port.perform(call)

    climb_ladder(project(port), port.run, perform)
    own.write_bytes(b"2" if is_changed else b"1")
    states = climbed(port, Climb(only=("environment",)))
    assert {states[name] for name in ("parameters", "forward", "optimizer")} == {"stale" if is_changed else "passed"}


def test_files_that_compiled_code_opens_are_known_by_their_names_in_the_code(tmp_path: Path, monkeypatch) -> None:
    for name in ("named.safetensors", "other.safetensors", "model/weights.h5", "model/config.json", "run/own.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    code = tmp_path / "own_port.py"
    code.write_text('NAMES = ("named.safetensors", "run/own.h5", "gone.h5")\n')
    note_opened_files()
    monkeypatch.setattr("sys.path", [*sys.path])
    import_user_code(str(code))
    run_user_code((tmp_path / "model" / "config.json").read_text, lambda error: UsageError(str(error)))
    known = {Path(name).name for name in loaded_sources(tmp_path / "run") if name.startswith(str(tmp_path))}
    assert known == {"named.safetensors", "config.json", "weights.h5", "own_port.py"}


def test_a_removed_result_is_made_again(port: Port) -> None:
    climbed(port)
    (port.run / "lint.json").unlink()
    climbed(port)
    assert port.commands == ["lint"]


def test_the_climb_stops_at_the_first_failure_and_what_was_not_run_has_not_passed(port: Port) -> None:
    port.outcomes["lint"] = Outcome.NOT_ALIGNED
    result = whole(port)
    states = {rung.name: rung.state for rung in result.rungs}
    assert (states["parameters"], states["settings"], states["forward"]) == ("passed", "failed", "not run")
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    port.outcomes.clear()
    climbed(port)
    assert port.commands == ["lint", "convert", "forward", "step"]


def test_a_rung_that_a_failed_one_makes_useless_is_blocked_and_says_by_what(port: Port) -> None:
    port.outcomes["map"] = Outcome.NOT_ALIGNED
    result = whole(port, Climb(keep_going=True))
    blocked = {rung.name: rung.blocked_by for rung in result.rungs if rung.state == "blocked"}
    assert blocked == {
        "settings": "parameters",
        "weights": "parameters",
        "forward": "parameters",
        "loss": "parameters",
        "gradients": "parameters",
        "optimizer": "parameters",
    }
    assert port.commands == ["doctor", "map"]


def test_one_training_step_is_judged_by_its_parts(port: Port) -> None:
    port.outcomes["step"], port.faults = Outcome.NOT_ALIGNED, ("update",)
    states = climbed(port, Climb(keep_going=True))
    assert (states["loss"], states["gradients"], states["optimizer"]) == ("passed", "passed", "failed")


@pytest.mark.parametrize(("candidate", "state"), [(2.001, "failed"), (2.00001, "passed")])
def test_a_loss_that_differs_has_not_passed_though_its_function_is_right(port: Port, candidate, state) -> None:
    port.losses = ({"step": 1, "reference": 2.0, "candidate": candidate, "alone": 2.0, "limit": 2e-5},)
    rung = next(one for one in whole(port, Climb(keep_going=True)).rungs if one.name == "loss")
    assert rung.state == state
    assert ("2.001, the reference's is 2" in rung.reason) == (state == "failed")


def test_a_command_that_leaves_no_result_could_not_compare(port: Port) -> None:
    port.dies_at = "forward"
    result = whole(port)
    rung = next(one for one in result.rungs if one.name == "forward")
    assert (rung.state, rung.reason) == ("could not compare", "no such layer")
    assert result.verdict.outcome is Outcome.NOT_COMPARED


def test_what_the_project_file_asks_for_must_be_run(port: Port) -> None:
    file = port.run.parent / "align.toml"
    file.write_text(file.read_text() + '[run]\nrungs = ["parameters", "curve"]\n')
    result = whole(port)
    assert {rung.name: rung.state for rung in result.rungs} == {"parameters": "passed", "curve": "not available"}
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "curve (not available)" in result.verdict.reason


def test_a_climb_starts_where_it_is_told_to(port: Port) -> None:
    climbed(port)
    climbed(port, Climb(first="forward"))
    assert port.commands == ["forward"]


@pytest.mark.parametrize("climb", [Climb(only=("forward",)), Climb(first="forward")])
def test_what_needs_a_stale_rung_is_blocked_by_it_and_nothing_is_judged(port: Port, climb: Climb) -> None:
    climbed(port)
    (port.run.parent / "weights.pth").write_bytes(b"2")
    result = whole(port, climb)
    forward = next(rung for rung in result.rungs if rung.name == "forward")
    assert (forward.state, forward.blocked_by, port.commands[:1]) == ("blocked", "weights", [])
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "--from weights" in shown_next(port)


def test_an_optional_rung_that_failed_decides_only_where_it_is_asked_for(port: Port) -> None:
    climbed(port)
    port.outcomes["initial"] = Outcome.NOT_ALIGNED
    assert whole(port, Climb(only=("initial",))).verdict.outcome is Outcome.NOT_ALIGNED
    assert shown_next(port).endswith("--only initial")
    verdict = whole(port).verdict
    assert (verdict.outcome, port.commands) == (Outcome.ALIGNED, [])
    assert "not asked for: initial" in verdict.caveats[0]


def test_what_is_named_and_not_available_is_no_pass(port: Port) -> None:
    climbed(port)
    assert whole(port, Climb(only=("metric",))).verdict.outcome is Outcome.NOT_COMPARED


def shown_next(port: Port) -> str:
    document = RunFolder(port.run).read("ladder")
    assert document is not None
    return ladder_blocks(document)[-1].lines[0]


def test_a_rung_that_is_not_there_is_refused(port: Port) -> None:
    with pytest.raises(UsageError, match="there is no rung forwards"):
        climb_ladder(project(port), port.run, port.perform, Climb(only=("forwards",)))


def test_a_second_climb_at_a_time_is_refused(port: Port) -> None:
    port.run.mkdir()
    with folder_lock(port.run / LOCK, port.run, "run"), pytest.raises(FolderInUseError):
        climb_ladder(project(port), port.run, port.perform)


def test_a_climb_that_dies_goes_on_where_it_was(port: Port) -> None:
    def interrupted(call: Call) -> Performed:
        if call.command == "forward":
            raise KeyboardInterrupt
        return port.perform(call)

    with pytest.raises(KeyboardInterrupt):
        climb_ladder(project(port), port.run, interrupted)
    assert json.loads((port.run / "ladder.json").read_text())["rungs"][3]["state"] == "passed"
    climbed(port)
    assert port.commands == ["forward", "step"]


def test_a_climb_that_ends_early_leaves_no_pass_of_what_has_changed(port: Port) -> None:
    climbed(port)
    (port.run.parent / "sides.py").write_text("def build(): return 1\n")

    def interrupted(call: Call) -> Performed:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        climb_ladder(project(port), port.run, interrupted)
    left = RunFolder(port.run).read("ladder")
    assert left is not None
    assert left["verdict"]["outcome"] == "could not compare"
    assert {one["state"] for one in left["rungs"] if one["name"] in ("parameters", "forward")} == {"stale"}


def test_one_step_is_judged_for_all_rungs_that_read_it_though_the_climb_stops(port: Port) -> None:
    port.outcomes["step"], port.faults = Outcome.NOT_ALIGNED, ("backward",)
    states = climbed(port)
    assert (states["loss"], states["gradients"], states["optimizer"]) == ("passed", "failed", "passed")


def test_a_sound_machine_alone_is_no_aligned_port(port: Port) -> None:
    (port.run.parent / "align.toml").write_text("")
    result = whole(port)
    assert {rung.name: rung.state for rung in result.rungs}["environment"] == "passed"
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.verdict.reason == "nothing of the two sides was compared: only environment passed"


def test_all_files_that_the_project_names_and_that_are_not_there_stand_in_one_message(port: Port) -> None:
    (port.run.parent / "weights.pth").unlink()
    file = port.run.parent / "align.toml"
    file.write_text(file.read_text().replace('batch = "inputs.npz"', 'batch = "batches.py:batch"'))
    with pytest.raises(ProjectFileError) as raised:
        whole(port)
    assert len(raised.value.faults) == 2
    assert "weights.pth is not there (reference checkpoint)" in str(raised.value)
    assert "batches.py is not there (batch 1)" in str(raised.value)
    assert port.commands == []
    assert not port.run.exists()
    assert climbed(port, Climb(only=("parameters",)))["parameters"] == "passed"


def test_a_command_that_could_not_run_leaves_its_hint(port: Port) -> None:
    port.dies_at = "map"
    rung = next(one for one in whole(port).rungs if one.name == "parameters")
    assert (rung.reason, rung.hint) == ("no such layer", "look again")
    document = RunFolder(port.run).read("ladder")
    assert document is not None
    shown = str(ladder_blocks(document)[0])
    assert "Hint: look again" in shown
    assert "Again:\\nalign map" in shown


def test_an_optional_rung_is_run_where_it_is_named(port: Port) -> None:
    climbed(port, Climb(only=("parameters", "weights", "generate")))
    assert port.commands == ["map", "convert", "generate"]


def plan_of(name: str, project: Project) -> Plan:
    plan = next(rung for rung in rungs() if rung.name == name).plan(project, Path("run"))
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("rung", ["metric", "generate"])
def test_where_and_in_which_precision_a_side_computes_reaches_every_rung_that_runs_it(tmp_path: Path, rung) -> None:
    file = tmp_path / "align.toml"
    sides = '[reference]\nmodel = "a.py:a"\n[forward]\ninputs = "x.npz"\n[metric]\ndata = "a.py:d"\n[candidate]\n'
    file.write_text(f'{sides}model = "a.py:b"\n')
    assert "--project" not in plan_of(rung, read_project(file)).lines[-1]
    file.write_text(f'{sides}model = "a.py:b"\ndtype = "float16"\n')
    plan = plan_of(rung, read_project(file))
    assert plan.lines[-1][-4:] == ("--project", str(file), "--run", "run")
    assert plan.made_from["project"] == file


def test_limits_and_places_hold_where_a_side_is_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "align.toml"
    file.write_text(
        f'[reference]\ntrace = "{tmp_path}"\n[candidate]\nmodel = "a.py:b"\ncheckpoint = "b.ckpt"\ndtype = "float16"\n'
        'mode = "pynative"\n[[accepted]]\nlayer = "*.tanh"\nreason = "the kernel"\n'
    )
    plan = plan_of("forward", read_project(file))
    capture, compare = plan.lines
    assert capture[-6:-2] == ("--dtype", "float16", "--mode", "pynative")
    assert compare[-4:-2] == ("--project", str(file))
    assert {"project", "candidate checkpoint"} <= {*plan.made_from}


LACKS = {
    "name": "attn_k.bias",
    "side": "source",
    "reason": "its layer is paired with key, which has no such parameter",
    "lacking_layer": "key",
}
SETTING = {
    "severity": "error",
    "reference": "attn_k",
    "candidate": "key",
    "reference_setting": "bias=True",
    "candidate_setting": "has_bias=False",
    "line": "port.py:7",
    "change": "nn.Dense(..., has_bias=True)",
}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_parameter_that_a_layer_of_the_port_lacks_is_at_fault_there_with_the_line(port: Port, is_known) -> None:
    def perform(call: Call) -> Performed:
        if call.run is None:
            return Performed({"findings": [SETTING]} if is_known else None)
        return port.perform(call)

    port.outcomes["map"], port.name_map = Outcome.NOT_ALIGNED, {"unmatched": [LACKS], "ambiguous": []}
    result = climb_ladder(project(port), port.run, perform)
    found = next(rung for rung in result.rungs if rung.name == "parameters").culprits
    if is_known:
        assert found == (setting_culprit(SETTING),)
        assert (found[0].place, found[0].line, found[0].change) == ("key", "port.py:7", SETTING["change"])
    else:
        assert [(one.place, one.cause) for one in found] == [("key", "it lacks a counterpart of attn_k.bias")]


def test_names_and_settings_alone_are_no_aligned_port(port: Port) -> None:
    side = 'model = "sides.py:build"\n'
    (port.run.parent / "align.toml").write_text(f"[reference]\n{side}[candidate]\n{side}")
    result = whole(port)
    assert port.commands == ["doctor", "map", "lint"]
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "only environment, parameters, settings passed" in result.verdict.reason
    assert "forward" in result.verdict.caveats[0]


@pytest.mark.parametrize("climb", [Climb(only=("forward",)), Climb(first="forward")])
def test_a_rung_that_is_named_is_run_though_one_below_it_failed_before(port: Port, climb: Climb) -> None:
    port.outcomes["lint"] = Outcome.NOT_ALIGNED
    climbed(port, Climb(keep_going=True))
    states = climbed(port, climb)
    assert port.commands == ["forward"]
    assert (states["settings"], states["forward"]) == ("failed", "passed")


def test_a_ladder_that_somebody_damaged_is_named_with_what_to_do(port: Port) -> None:
    climbed(port)
    path = port.run / "ladder.json"
    document = json.loads(path.read_text())
    del document["rungs"][0]["culprits"]
    path.write_text(json.dumps(document))
    with pytest.raises(RunFolderError, match=r"rungs\[0\] must contain") as raised:
        climbed(port)
    assert "rm " in raised.value.hint


def test_what_to_type_next_names_the_project_file_that_was_given(port: Port) -> None:
    port.outcomes["lint"] = Outcome.NOT_ALIGNED
    whole(port)
    document = RunFolder(port.run).read("ladder")
    assert document is not None
    document["run_folder"] = "align-run"
    assert climb_again(document | {"made_from": {"project": {"path": "my port/align.toml"}}}).endswith(
        "align run --project 'my port/align.toml'"
    )
    assert climb_again(document | {"made_from": {}, "run_folder": "of today"}).endswith("align run --folder 'of today'")
    assert climb_from(document | {"made_from": {"project": {"path": "align.toml"}}}, "weights") == (
        "align run --from weights"
    )


@pytest.mark.parametrize(
    ("kind", "change", "named"), [("map", "", True), ("map", "nn.CellList", False), ("check", "", False)]
)
def test_the_map_is_named_where_what_is_left_is_to_be_paired(kind: str, change: str, named: bool) -> None:
    """Not where a line of the port is at fault, nor where the user's own map was held against both sides."""
    rung = RungResult(
        "parameters", "failed", kind=kind, culprits=(Culprit("fc.weight", "nothing is left", "", change),)
    )
    steps = next_steps([rung], {"run_folder": "my runs"})
    assert any(step.endswith("cat 'my runs/map.toml'") for step in steps) is named
    assert steps[-1].startswith("after the change, run:")


def test_an_environment_with_other_switches_is_looked_at_again(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    climbed(port)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert climbed(port, Climb(only=("parameters",)))["environment"] == "stale"
    climbed(port)
    assert port.commands == ["doctor"]


def test_an_environment_on_another_machine_is_looked_at_again(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    climbed(port)
    monkeypatch.setattr("os.cpu_count", lambda: 512)
    climbed(port)
    assert port.commands == ["doctor"]


def test_a_warning_of_the_environment_is_said_and_fails_nothing() -> None:
    environment = next(rung for rung in rungs() if rung.name == "environment")
    verdict = {"outcome": "aligned", "reason": "both can be compared", "coverage": {}}
    found = {"severity": "warning", "subject": "torch-tf32", "message": "it is True"}
    judged = environment.judge({"verdict": verdict, "findings": [found, found | {"severity": "note", "subject": "no"}]})
    assert (judged.outcome, judged.culprits) == (Outcome.ALIGNED, ())
    assert judged.reason == "both can be compared. torch-tf32: it is True"


@pytest.mark.parametrize(("output", "again"), [("map.toml", ["map"]), ("candidate.ckpt", ["convert"])])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_rung_whose_output_is_gone_or_changed_runs_again(port: Port, output: str, again: list[str], is_gone) -> None:
    climbed(port)
    file = port.run / output
    file.unlink() if is_gone else file.write_bytes(b"another")
    climbed(port)
    assert port.commands == again


@pytest.mark.parametrize(("output", "maker"), [("map.toml", "parameters"), ("candidate.ckpt", "weights")])
def test_a_rung_whose_file_a_lower_one_makes_is_blocked_by_that_one_and_says_so(port: Port, output, maker) -> None:
    climbed(port)
    (port.run / output).unlink()
    result = whole(port, Climb(first="forward"))
    forward = next(rung for rung in result.rungs if rung.name == "forward")
    assert (forward.state, forward.blocked_by) == ("blocked", maker)
    assert output in forward.reason
    assert maker in forward.reason
    assert port.commands == []
    document = RunFolder(port.run).read("ladder")
    assert document is not None
    assert f"--from {maker}" in str(ladder_blocks(document)[-1])
    assert whole(port, Climb(first=maker)).verdict.outcome is Outcome.ALIGNED


def test_the_cause_that_forward_knows_of_a_place_is_the_one_of_its_gradients(port: Port) -> None:
    port.outcomes |= {"forward": Outcome.NOT_ALIGNED, "step": Outcome.NOT_ALIGNED}
    port.faults = ("forward",)
    port.causes = {"step": {"cause": ""}, "forward": {"cause": "norm-eps", "change": "eps=1"}}
    found = {rung.name: rung for rung in whole(port, Climb(keep_going=True)).rungs}
    assert found["gradients"].culprits == found["forward"].culprits
    assert found["gradients"].culprits[0].cause == "norm-eps"


def test_each_rung_of_a_training_step_counts_its_own_part() -> None:
    coverage = {"unit": "gradients of parameters", "compared": 5, "excluded": 1}
    verdict = {"outcome": "aligned", "reason": "", "coverage": coverage}
    document = {"verdict": verdict, "culprits": [], "losses": [{}, {}], "gradients": [{}] * 6, "updates": [{}] * 4}
    own = {rung.name: rung.judge(document).coverage for rung in rungs() if rung.kinds == ("step",)}
    assert {name: (one["compared"], one["unit"]) for name, one in own.items()} == {
        "loss": (2, "losses"),
        "gradients": (5, "gradients of parameters"),
        "optimizer": (4, "updates of parameters"),
    }


def test_what_a_step_does_not_say_to_write_is_what_differs_in_the_settings() -> None:
    optimizer = next(rung for rung in rungs() if rung.name == "optimizer")
    culprit = Culprit("optimizer", "nesterov", "port.py:15")
    setting = SETTING | {"part": "optimizer", "candidate": "", "reference_setting": "nesterov=True"}
    given = {"findings": [setting | {"change": "nn.SGD(..., nesterov=True)"}]}
    assert optimizer.explain((culprit,), given) == (replace(culprit, change="nn.SGD(..., nesterov=True)"),)
    other = replace(culprit, cause="momentum")
    assert optimizer.explain((other,), given) == (other,)
    layer = Culprit("key", "gradient-not-masked", "port.py:6")
    told = optimizer.explain((layer,), {"findings": [SETTING | {"part": "layer"}]})[0]
    assert (told.line, told.change) == ("port.py:6", SETTING["change"])
    assert told.cause == "gradient-not-masked + has_bias=False, where the reference has bias=True"


def test_several_causes_that_one_change_of_one_line_mends_are_one_fault() -> None:
    optimizer = next(rung for rung in rungs() if rung.name == "optimizer")
    one = CULPRIT | {"kind": "update", "candidate": "", "part": "optimizer", "cause": "weight-decay"}
    two = one | {"cause": "decay-coupled + epsilon-before-correction", "change": "AdamW(...)"}
    other = one | {"line": "port.py:9"}
    verdict = {"outcome": "not aligned", "reason": "", "coverage": {}}
    judged = optimizer.judge({"verdict": verdict, "culprits": [one, two, other], "updates": [1]})
    assert [(one.line, one.cause, one.change) for one in judged.culprits] == [
        ("port.py:3", "weight-decay + decay-coupled + epsilon-before-correction", "AdamW(...)"),
        ("port.py:9", "weight-decay", ""),
    ]
    assert judged.reason.startswith("2 places are at fault")


def test_what_is_not_available_is_said_with_the_line_to_add_when_all_else_has_passed(port: Port) -> None:
    whole(port)
    document = RunFolder(port.run).read("ladder")
    assert document is not None
    lines = str(ladder_blocks(document)[-1])
    assert "align report" in lines
    assert 'data = "file.py:function"  # under [metric]' in lines
