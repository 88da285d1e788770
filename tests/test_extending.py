"""Each recipe of docs/extending.md is followed: the files that it shows are written, and do what is said there."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import align.cli
from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.core import about, load_code
from align.core.name_map import LayerChoice
from align.core.parameters import Parameter
from align.core.protocols import CheckpointFormat, ModelReader, ModelRunner
from align.curves.compare_losses import compare_losses
from align.curves.log_parts.table_reader import read_format_tables
from align.curves.log_sources import LogFormat, LogSource
from align.curves.losslogs.console import console_formats, read_console, read_console_table
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, NotACheckpointError
from align.models.frameworks import arrays
from align.names.infer_names import infer_names
from align.names.map_one_side import map_from_family, recognise_families
from align.rules import model_families as families
from align.rules import training_rules
from align.rules.layer_rules import LayerFamily, mappings_folder, read_layer_rules
from align.rules.model_families import model_families
from align.rules.pitfalls import pitfalls, read_pitfalls
from align.runs.check_plugins import layer_faults, pitfall_faults

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))


@pytest.fixture
def family(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "somebody.toml").write_text(example("A model family", "toml"), encoding="utf-8")
    monkeypatch.setattr(families, "mappings_folder", lambda: tmp_path)
    (found,) = model_families()
    return found


NAMES = {
    "encoder.embed.weight": ((9, 6), {"tokens.embedding_table": (9, 6)}),
    "encoder.cls": ((1, 6), {"cls_token": (1, 6)}),
    "encoder.scale": ((6, 1, 1), {"gamma_": (6,)}),
    "encoder.stages.1.down.weight": ((6, 6, 3, 3), {"down2.weight": (6, 6, 3, 3)}),
    "encoder.blocks.0.norm1.weight": ((6,), {"layers.0.ln1.gamma": (6,)}),
    "encoder.blocks.0.norm1.bias": ((6,), {"layers.0.ln1.beta": (6,)}),
    "encoder.blocks.0.attn.qkv.weight": ((18, 6), {f"layers.0.attn.{one}.weight": (6, 6) for one in "qkv"}),
    "encoder.blocks.0.mlp.fc2.weight": ((6, 6), {"layers.0.mlp.fc2.weight": (6, 6)}),
    "encoder.position_ids": ((4,), {}),
}


def test_the_family_leads_there_and_back(family) -> None:
    there = map_from_family(family, parameters({name: shape for name, (shape, _) in NAMES.items()}), "nn")
    expected = {name: shape for _, targets in NAMES.values() for name, shape in targets.items()}
    assert shapes_made(there, {name: shape for name, (shape, _) in NAMES.items()}) == expected
    back = map_from_family(family, parameters(expected | {"layers.0.mask": (4, 4)}), "torch")
    assert shapes_made(back, expected) == {name: shape for name, (shape, targets) in NAMES.items() if targets}


def test_the_family_is_recognised(family) -> None:
    found = recognise_families(parameters({name: shape for name, (shape, _) in NAMES.items()}), "torch")
    assert [one.name for one in found] == [family.name] == ["somebody"]


def test_the_layer_rule_is_the_one_that_the_conformance_tests_hold_against_the_frameworks(tmp_path) -> None:
    (tmp_path / "prelu.toml").write_text(example("A layer rule", "toml"), encoding="utf-8")
    assert read_layer_rules(tmp_path / "prelu.toml") == read_layer_rules(mappings_folder() / "layers" / "prelu.toml")


def test_every_key_of_a_layer_rule_is_explained() -> None:
    keys = [field.name for field in dataclasses.fields(LayerFamily)]
    assert [key for key in keys if not re.search(rf"\b{key}\b( =|`)", TEXT)] == []


def test_every_key_of_a_family_is_shown() -> None:
    shown = set(re.findall(r"^(?:\[\[?)?(\w+)", example("A model family", "toml"), re.MULTILINE))
    assert {"about", "needs", "optional", "group", "dropped", "examples", "at", "layers", "same", "parameters"} <= shown


@pytest.mark.parametrize(("target", "name"), [("nn", "act.w"), ("mint", "act.weight")])
def test_the_layer_rule_names_parameters(tmp_path, target, name) -> None:
    (tmp_path / "prelu.toml").write_text(example("A layer rule", "toml"), encoding="utf-8")
    rules = read_layer_rules(tmp_path / "prelu.toml")
    inferred = infer_names({"act.weight": (3,)}, rules, target, [LayerChoice("act", "prelu")])
    assert [pair.target for pair in inferred.name_map.pairings] == [name]


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_names_places_that_are_there(recipe) -> None:
    text = RECIPES[recipe]
    places = re.findall(r"`((?:align|mappings|tests)/[\w/.-]+)`", text)
    made_by_the_reader = {"align/cli/count.py", "tests/curves/losslogs/test_foo.py"}
    named = [name for name in places if not re.search("NAME|TOPIC|KIND", name) and name not in made_by_the_reader]
    assert places or "```" in text
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_recipe_that_shows_a_file_is_run_here() -> None:
    assert {name for name, text in RECIPES.items() if "```" in text} == {
        "Rules and plugins of your own, without a change of align",
        "A layer rule", "A log format", "A console as data", "A checkpoint format", "A model family", "A pitfall",
        "State of an optimizer", "The rule of an optimizer", "A command",
    }  # fmt: skip


@pytest.fixture
def plugin(monkeypatch):
    """Make the module of a recipe a plugin beside those that are there."""

    def add(recipe: str, room: str, folder):
        (folder / "of_the_recipe.py").write_text(example(recipe, "python"), encoding="utf-8")
        package = importlib.import_module(load_code.PACKAGES[room])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        load_code.plugins.cache_clear()
        (new,) = (one for one in load_code.plugins(room).values() if "of_the_recipe" in type(one).__module__)
        return new

    yield add
    load_code.plugins.cache_clear()
    for name in [name for name in sys.modules if name.endswith(".of_the_recipe")]:
        del sys.modules[name]


def test_the_log_format_reads_its_sample_and_is_found_by_the_command(plugin, tmp_path) -> None:
    new = plugin("A log format", "losslogs", tmp_path)
    assert isinstance(new, LogFormat)
    log = tmp_path / "foo.log"
    log.write_bytes(new.sample)
    comparison = compare_losses(log, log)
    assert new.name == "foo"
    assert comparison.reference.steps.tolist() == [1, 2]
    assert comparison.reference.values.tolist() == [2.3026, 2.2981]
    with pytest.raises(EmptyLogError):
        new.read(LogSource.of_text("no step here\n"))


def test_the_console_as_data_is_the_one_that_the_conformance_tests_read(tmp_path) -> None:
    (tmp_path / "paddle.toml").write_text(example("A console as data", "toml"), encoding="utf-8")
    (table,) = read_format_tables(tmp_path / "paddle.toml")["console"]
    shown = read_console_table(tmp_path / "paddle.toml", table)
    (kept,) = (one for one in console_formats() if one.name == shown.name)
    assert (shown.lines, shown.pairs, shown.window, shown.points) == (kept.lines, kept.pairs, kept.window, kept.points)
    curve = place_on_axis(read_console(shown, LogSource.of_text(shown.sample)))
    assert [*zip(curve.steps.tolist(), curve.values.tolist(), strict=True)] == [*shown.points]


def test_the_checkpoint_format_is_read_and_refuses_to_be_written(plugin, tmp_path) -> None:
    new = plugin("A checkpoint format", "formats", tmp_path)
    assert isinstance(new, CheckpointFormat)
    path = tmp_path / "three.raw32"
    path.write_bytes(b"RAW32\0\0\0" + np.arange(3, dtype="<f4").tobytes())
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.tensors["values"].load().tolist()) == ("raw32", [0.0, 1.0, 2.0])
    assert new.problems([], {})
    path.write_bytes(b"RAW32\0\0\0" + b"abc")
    with pytest.raises(NotACheckpointError, match="no whole number"):
        open_checkpoint(path)


def test_rules_and_plugins_of_a_user_are_found_used_and_checked(tmp_path) -> None:
    package, project = tmp_path / "installed", tmp_path / "project"
    information = package / "foo_logs-1.0.dist-info"
    information.mkdir(parents=True)
    (project / "mappings" / "models").mkdir(parents=True)
    (package / "foo_logs.py").write_text(example("A log format", "python"), encoding="utf-8")
    (package / "bad_logs.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    shown = example("Rules and plugins of your own, without a change of align", "toml")
    group, entry = re.findall(r'entry-points\."([\w.]+)"\].*\n(\w+) = "([\w:]+)"', shown)[0][0::2]
    lines = [f"[{group}]", f"foo = {entry}", "bad = bad_logs:PLUGIN", "[mindalign.dumps]", "plain = foo_logs:PLUGIN"]
    (information / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: foo-logs\nVersion: 1.0\n", encoding="utf-8")
    family = example("A model family", "toml")
    (project / "mappings" / "models" / "somebody.toml").write_text(family, encoding="utf-8")
    wrong = family.replace('"layers.11.attn.k"]', '"layers.12.attn.k"]')
    (project / "mappings" / "models" / "wrong.toml").write_text(wrong, encoding="utf-8")
    (project / "align.toml").write_text("", encoding="utf-8")
    (project / "foo.log").write_text("iter=0 loss=2.3026\niter=1 loss=2.2981\n", encoding="utf-8")

    checked, said, warned = run_align(package, project, "plugins", "--check", "--json")
    states = {(row["kind"], row["name"]): (row["state"], row["origin"]) for row in json.loads(said)}
    assert checked == 1
    assert states == {
        ("models", "somebody"): ("passed", str(project / "mappings" / "models" / "somebody.toml")),
        ("models", "wrong"): ("failed", str(project / "mappings" / "models" / "wrong.toml")),
        ("losslogs", "foo"): ("passed", "foo-logs"),
        ("losslogs", "bad"): ("failed", "foo-logs"),
        ("dumps", "plain"): ("failed", "foo-logs"),
    }
    assert "the plugin bad (mindalign.losslogs) of the package foo-logs is left out: ModuleNotFoundError" in warned
    assert run_align(package, project, "loss", "foo.log", "foo.log", "--format", "foo")[0] == 0
    assert run_align(package, package, "plugins", "--check")[0] == 1  # what the package brings alone
    assert run_align(project, tmp_path, "plugins", "--check")[0] == 2  # nothing


def test_rules_lie_beside_the_project_that_is_named_and_where_the_variable_says(tmp_path, monkeypatch) -> None:
    files = [tmp_path / name / "mappings" / "models" / f"{name}.toml" for name in ("one", "two", "three")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("", encoding="utf-8")
    monkeypatch.setenv("ALIGN_MAPPINGS", os.pathsep.join([str(files[1].parents[1]), str(tmp_path / "none")]))
    monkeypatch.setattr(about, "_CHOSEN", [tmp_path / "one" / "align.toml"])
    assert [path.stem for path in about.user_mappings("models")] == ["two", "one"]
    monkeypatch.setattr(about, "_CHOSEN", [])
    (tmp_path / "three" / "align.toml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "three")
    assert [path.stem for path in about.user_mappings("models")] == ["two", "three"]


@pytest.mark.frameworks
def test_a_layer_rule_that_says_something_wrong_fails_its_check(tmp_path) -> None:
    shown = example("A layer rule", "toml")
    for old, new in (
        ('{ weight = "w" }', '{ weight = "slope" }'),
        ('misses = ["torch.nn.ReLU()"', 'misses = ["torch.nn.PReLU()"'),
    ):
        (tmp_path / "prelu.toml").write_text(shown.replace(old, new), encoding="utf-8")
        (rule,) = read_layer_rules(tmp_path / "prelu.toml")
        assert layer_faults(rule) != []
    (tmp_path / "prelu.toml").write_text(shown, encoding="utf-8")
    assert layer_faults(read_layer_rules(tmp_path / "prelu.toml")[0]) == []
    (rule,) = (rule for rule in pitfalls() if rule.id == "dropout-probability")
    assert pitfall_faults(rule) == []
    examples = dataclasses.replace(rule.examples, differ=rule.examples.agree[:1], agree=rule.examples.differ[:1])
    assert len(pitfall_faults(dataclasses.replace(rule, examples=examples))) == 2


def run_align(package: Path, project: Path, *arguments: str) -> tuple[int, str, str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), str(ROOT)]), "ALIGN_LANG": "en"}
    result = subprocess.run(
        [sys.executable, "-m", "align", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def test_the_smallest_adapter_offers_what_the_recipe_says() -> None:
    assert isinstance(arrays.PLUGIN, ModelReader)
    assert isinstance(arrays.PLUGIN, ModelRunner)


def test_the_pitfall_is_the_one_that_the_conformance_tests_hold_against_the_frameworks(tmp_path) -> None:
    (tmp_path / "dropout.toml").write_text(example("A pitfall", "toml"), encoding="utf-8")
    (shown,), faults = read_pitfalls(tmp_path / "dropout.toml")
    (kept,) = (rule for rule in pitfalls() if rule.id == shown.id)
    assert faults == []
    assert (shown.setting, shown.severity, shown.topic) == (kept.setting, kept.severity, kept.topic)
    assert set(shown.forms) <= set(kept.forms)
    assert set(shown.examples.differ) <= set(kept.examples.differ)
    assert set(shown.examples.agree) <= set(kept.examples.agree)


def test_the_state_of_an_optimizer_is_read(tmp_path, monkeypatch) -> None:
    rules = (mappings_folder() / "training_state.toml").read_text(encoding="utf-8")
    rest = rules[rules.index("[numbers]") :]
    written = f"{example('State of an optimizer', 'toml')}\n{rest}"
    (tmp_path / "training_state.toml").write_text(written, encoding="utf-8")
    monkeypatch.setattr(training_rules, "mappings_folder", lambda: tmp_path)
    read = training_rules.training_state_rules.__wrapped__()
    (kept,) = (one for one in training_rules.training_state_rules().optimizers if one.id == "Adam")
    assert read.optimizers == (kept,)


def test_the_rule_of_an_optimizer_is_the_one_that_is_kept(tmp_path, monkeypatch) -> None:
    (tmp_path / "update_rules.toml").write_text(example("The rule of an optimizer", "toml"), encoding="utf-8")
    (kept,) = (one for one in training_rules.update_rule_forms() if "AdamWeightDecay" in one.classes[0])
    monkeypatch.setattr(training_rules, "mappings_folder", lambda: tmp_path)
    (shown,) = training_rules.update_rule_forms.__wrapped__()
    assert shown.kind == kept.kind
    assert set(shown.classes) <= set(kept.classes)
    assert shown.fixed == kept.fixed
    assert shown.reads.items() <= kept.reads.items()


def test_the_command_is_found_and_runs(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "count.py").write_text(example("A command", "python"), encoding="utf-8")
    monkeypatch.setattr(align.cli, "__path__", [*align.cli.__path__, str(tmp_path)])
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(3))
    assert main(["count", str(tmp_path / "two.npz")]) == 0
    assert capsys.readouterr().out == "2 tensors\n"
    assert main(["count", str(tmp_path / "none.npz")]) == 2
    assert "Hint:" in capsys.readouterr().err
    sys.modules.pop("align.cli.count", None)


def example(recipe: str, language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", RECIPES[recipe], re.DOTALL)
    return code


def parameters(shapes):
    return {name: Parameter(name, shape, "float32", *name.rpartition(".")[::2]) for name, shape in shapes.items()}


def shapes_made(inferred, shapes):
    return {p.target: p.transform.output_shape(shapes[p.source]) for p in inferred.name_map.pairings}
