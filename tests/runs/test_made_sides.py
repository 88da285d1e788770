"""Models that no function without arguments returns: what `align init` writes for them can be built, or filled in."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest

from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import DestinationError, UsageError
from align.models.open_side import open_side
from align.runs import write_project as writing
from align.runs.project_file import read_project
from align.runs.write_project import write_project

NET = """
class Part(nn.{base}):
    def __init__(self, size=2):
        super().__init__()
        self.inner = nn.{layer}(size, size)


class {name}(nn.{base}):
    def __init__(self, {arguments}):
        super().__init__()
        self.part = Part({width})
        self.head = nn.{layer}({width}, {depth})
"""
WITH_CONFIG = "\ndef build(cfg{of}):\n    return {name}(cfg{0}width{1}, cfg{0}depth{1})\n"
OPTIONS = """
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--width", type=int, default="4")
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--fast", action="store_true")
"""
PARSER = f"import argparse\ndef get_args():{OPTIONS}    return parser.parse_args()\n"
DATACLASS = (
    "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    width: int = 4\n    depth: int = 3\n"
    "@dataclass\nclass Other:\n    depth: int\n"
)
GUARD = 'if __name__ == "__main__":'


def nets(more="", arguments="width, depth", width="width", depth="depth", before=""):
    """The files of both sides: the same net in torch and MindSpore."""
    facts = {"arguments": arguments, "width": width, "depth": depth}
    torch = "from torch import nn\n" + before + NET.format(base="Module", layer="Linear", name="Net", **facts)
    port = "from mindspore import nn\n" + before + NET.format(base="Cell", layer="Dense", name="Port", **facts)
    return torch + more.replace("NET", "Net"), port + more.replace("NET", "Port")


def with_config(form, of="", **facts):
    return nets(WITH_CONFIG.format(*form, of=of, name="NET"), **facts)


def in_files(names, pair):
    return dict(zip(names, pair, strict=True))


HERE = ("net.py", "port.py")
MAIN = f"""
import torch
import argparse
from net import Net

def main():{OPTIONS}
    args = parser.parse_args()
    depth = args.depth
    model = Net(args.width, depth).to('cpu')
    for step in range(3):
        step()

main()
"""
MAIN_MS = f"""
import mindspore, argparse
import port

def train(args, extra=1):
    given = {{'width': args.width}}
    given['depth'] = args.depth * extra
    net = port.Port(**given)

{GUARD}{OPTIONS}
    train(parser.parse_args())
"""
SCRIPT = f"""
{GUARD}
    import yaml
    with open('net.yaml') as file:
        cfg = yaml.safe_load(file)
    model = NET(**cfg['model'])
"""
CLASS = """
class ModelConfig:
    def __init__(self, width=4, depth=3):
        self.width, self.depth = width, depth
"""
ENTRY = """
from first import Net
from second import Port
def torch_net():
    return Net(4, 3)
def made():
    return Port(4, 3)
"""
DECORATED = """
@functools.cache
def main(cfg):
    net = NET(cfg.width, depth=[size for size in (cfg.depth,)][0])
"""
OF_SIZES = "\ndef build(width=WIDTH, depth=3):\n    return NET(width, depth)\n"
OF_OWN_SIZES = "\ndef build():\n    return NET(WIDTH, 3)\n"
LAYOUTS = {
    "a dict": in_files(HERE, with_config(["['", "']"], before="CFG = dict(width=4, depth=3)\n")),
    "a dict read by attributes": in_files(HERE, with_config((".", ""), before="CFG = {'width': 4, 'depth': 3}\n")),
    "a dataclass": in_files(HERE, with_config((".", ""), of=": Settings", before=DATACLASS)),
    "options of argparse": in_files(HERE, with_config((".", ""), before=PARSER.replace(", required=True", ""))),
    "a section of YAML": {**in_files(HERE, with_config((".", ""))), "conf/net.yaml": "model: {width: 4, depth: 3}"},
    "keys of JSON": {**in_files(HERE, nets()), "net.json": '{"width": 4, "depth": 3, "lr": 0.1}'},
    "a class of settings handed down": {
        **in_files(HERE, nets(arguments="cfg", width="cfg.width", depth="cfg.depth")),
        "config.py": CLASS,
    },
    "trainings in main": {**in_files(HERE, nets()), "train.py": MAIN, "train_ms.py": MAIN_MS},
    "a script under its guard": {**in_files(HERE, nets(SCRIPT)), "net.yaml": "model: {width: 4, depth: 3}\n"},
    "folders with files of the same names": {
        **in_files(("a/model.py", "b/model.py"), with_config((".", ""), before="from config import Settings\n")),
        **dict.fromkeys(("a/config.py", "b/config.py"), DATACLASS),
    },
    "src": {
        **in_files(("src/kit/net.py", "src/kit/port.py"), nets(OF_SIZES, before="from kit.sizes import WIDTH\n")),
        "src/kit/__init__.py": "", "src/kit/sizes.py": "WIDTH = 4\n",
    },
    "packages": {
        **in_files(("original/net.py", "port/net.py"), nets(OF_OWN_SIZES, before="from .sizes import WIDTH\n")),
        **dict.fromkeys(("original/__init__.py", "port/__init__.py"), "from .net import build\n"),
        **dict.fromkeys(("original/sizes.py", "port/sizes.py"), "WIDTH = 4\n"),
    },
    "what a decorator gives": {
        **in_files(HERE, nets(DECORATED, before="import functools\n")),
        "conf/config.yaml": "{width: 4, depth: 3}",
    },
    "functions beside packages": {
        **in_files(("first/net.py", "second/net.py"), nets()),
        "first/__init__.py": "from .net import Net\n", "second/__init__.py": "from .net import *\n",
        "entry.py": ENTRY,
    },
}  # fmt: skip


NAMES = {Path(name).parts[0].removesuffix(".py") for files in LAYOUTS.values() for name in files}


def laid_out(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules are forgotten at the end; of other tests' modules nothing is known here."""
    for name, module in list(sys.modules.items()):
        file = str(vars(module).get("__file__") or "site-packages")
        if name.partition(".")[0] in NAMES and "site-packages" not in file:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(vars(module).get("__file__") or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.frameworks
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_named_for_a_layout_can_be_built(layout, folder):
    tmp_path = laid_out(folder, LAYOUTS[layout])
    written = write_project(tmp_path, {})
    assert not [one for one in written.sides if one.line]
    project = read_project(tmp_path / "align.toml")
    for side, name in ((project.reference, "Net"), (project.candidate, "Port")):
        opened = open_side(side.model)
        parameters = opened.reader.read_parameters(opened.model, "").parameters
        assert type(opened.model).__name__ == name
        assert {one.name: one.shape for one in parameters} == {
            "part.inner.weight": (4, 4),
            "part.inner.bias": (4,),
            "head.weight": (3, 4),
            "head.bias": (3,),
        }


def test_arguments_that_cannot_be_found_are_left_to_fill_in_and_filled_they_are_taken(tmp_path):
    laid_out(tmp_path, in_files(HERE, nets()))
    written = write_project(tmp_path, {})
    assert written.chosen["reference model"] == "sides.py:reference"
    lines = (tmp_path / "sides.py").read_text().splitlines()
    for side in written.sides:
        assert lines[side.line - 1].strip().startswith("raise NotImplementedError(")
        assert side.recipe.missing == ("width", "depth")
    ast.parse("\n".join(lines))
    assert write_project(tmp_path, {}, overwrite=True).sides == ()  # the file is there, and the user's
    assert (tmp_path / "sides.py").read_text().splitlines() == lines


def test_an_option_that_must_be_given_is_to_be_filled_in_where_it_is_read(tmp_path):
    text = f"\n{GUARD}{OPTIONS}    args = parser.parse_args()\n    net = build(args)\n"
    torch, port = with_config((".", ""), before=PARSER)
    torch, port = torch + text, port.replace("cfg.width", "cfg.data") + text
    laid_out(tmp_path, {"net.py": torch, "port.py": port})
    sides = {one.side: one for one in write_project(tmp_path, {}).sides}
    assert (sides["reference"].recipe.missing, sides["candidate"].recipe.missing) == ((), ("args.data",))
    written = (tmp_path / "sides.py").read_text()
    assert "Namespace(width=4, depth=3, fast=False)" in written
    assert "Namespace(width=4, depth=3, fast=False, data=...)" in written


def test_a_file_beside_a_training_in_a_folder_is_found_from_where_align_runs(tmp_path):
    torch, port = nets()
    text = f"import json\n{GUARD}\n    net = Net(**json.load(open('net.json')))\n"
    laid_out(tmp_path, {"a/net.py": torch + text, "a/net.json": '{"width": 4, "depth": 3}', "port.py": port})
    write_project(tmp_path, {})
    assert 'open(str(HERE / "a/net.json"))' in (tmp_path / "sides.py").read_text()


def test_a_file_that_is_too_deep_or_no_python_is_left_out(tmp_path):
    torch, port = nets("\ndef build():\n    return NET(4, 3)\n")
    deep = "import torch\ndef build():\n    return x" + ".f()" * 2000 + "\n"
    laid_out(
        tmp_path,
        {"net.py": torch, "port.py": port, "deep.py": deep, "half.py": "def (", "x.json": "{", "y.yaml": "a: b: c"},
    )
    assert write_project(tmp_path, {}).chosen["reference model"] == "net.py:build"


def test_a_file_of_the_users_keeps_its_name(tmp_path):
    files = in_files(HERE, with_config((".", ""), before="CFG = {'width': 4, 'depth': 3}\n"))
    laid_out(tmp_path, {**files, "sides.py": "NOTES = 1\n", "align_sides.py": "NOTES = 2\n"})
    written = write_project(tmp_path, {})
    assert written.chosen["candidate model"] == "align_sides_2.py:candidate"
    assert (tmp_path / "sides.py").read_text() == "NOTES = 1\n"


def test_nothing_is_left_where_the_project_file_cannot_be_written(tmp_path, monkeypatch):
    laid_out(tmp_path, in_files(HERE, nets()))
    before = {path.name for path in tmp_path.iterdir()}
    write = writing.write_text

    def refused(path, text):
        if path.name == "align.toml":
            raise DestinationError.of("run_usage.project_is_there", path=path)
        write(path, text)

    monkeypatch.setattr(writing, "write_text", refused)
    with pytest.raises(DestinationError):
        write_project(tmp_path, {})
    assert {path.name for path in tmp_path.iterdir()} == before


def test_what_is_given_and_needs_arguments_gets_a_function_too(tmp_path):
    laid_out(tmp_path, in_files(HERE, nets("\nclass Second(NET):\n    pass\n\nclass Third(NET):\n    pass\n")))
    with pytest.raises(UsageError, match=r"net.py:Second, net.py:Third"):
        write_project(tmp_path, {})
    given = {"reference model": "net.py:Third", "candidate model": "elsewhere:build"}
    chosen = write_project(tmp_path, given).chosen
    assert (chosen["reference model"], chosen["candidate model"]) == ("sides.py:reference", "elsewhere:build")


@pytest.mark.parametrize("library", ["mindcv", "mindone.diffusers", "mindformers"])
def test_files_that_import_only_a_library_of_models_count(library, tmp_path):
    text = "from {0} import create_model\ndef build():\n    return create_model('resnet18')\n"
    laid_out(tmp_path, {"a.py": text.format("timm"), "b.py": text.format(library) + "import transformers\n"})
    chosen = write_project(tmp_path, {}).chosen
    assert (chosen["reference model"], chosen["candidate model"]) == ("a.py:build", "b.py:build")


def test_names_of_files_count_where_imports_tell_nothing(tmp_path):
    text = "def build():\n    return __import__('kit').Net()\n"
    laid_out(tmp_path, {"net_torch.py": text, "net_mindspore.py": text, "other.py": text})
    chosen = write_project(tmp_path, {}).chosen
    assert (chosen["reference model"], chosen["candidate model"]) == ("net_torch.py:build", "net_mindspore.py:build")


def test_of_several_the_one_that_is_called_as_the_other_side_s_is_taken(tmp_path):
    torch, port = nets("\ndef small():\n    return NET(4, 3)\n")
    laid_out(tmp_path, {"net.py": torch, "port.py": port + "\ndef large():\n    return Port(9, 9)\n"})
    assert write_project(tmp_path, {}).chosen["candidate model"] == "port.py:small"


def test_inputs_stand_in_any_file_and_settings_are_none(tmp_path):
    torch, port = nets("\ndef build():\n    return NET(4, 3)\n")
    data = "import numpy as np\ndef inputs():\n    return dict(x=np.ones((2, 4)))\n"
    data += "def batch():\n    return {'ids': np.ones(3)}\ndef sizes():\n    return {'width': 4}\n"
    laid_out(tmp_path, {"net.py": torch, "port.py": port, "kit/data.py": data})
    chosen = write_project(tmp_path, {}).chosen
    assert (chosen["forward inputs"], chosen["training batch"]) == ("kit/data.py:inputs", "kit/data.py:batch")


def test_environments_and_tests_are_not_looked_at(tmp_path):
    torch, port = nets("\ndef build():\n    return NET(4, 3)\n")
    others = ("tests/net.py", "env/lib/net.py", "conda/net.py", "test_net.py", "lib/site-packages/net.py")
    laid_out(tmp_path, {"net.py": torch, "port.py": port, **dict.fromkeys(others, torch + port)})
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "conda" / "conda-meta").mkdir()
    chosen = write_project(tmp_path, {}).chosen
    assert (chosen["reference model"], chosen["candidate model"]) == ("net.py:build", "port.py:build")


def test_of_notebooks_it_is_said_that_they_are_not_read(tmp_path):
    (tmp_path / "my work.ipynb").write_text("{}")
    with pytest.raises(UsageError) as raised:
        write_project(tmp_path, {})
    assert "nbconvert --to script 'my work.ipynb'" in raised.value.hint


def save(path, names, format_name="safetensors"):
    tensors = [StoredTensor(name, (2,), "float32", lambda: np.ones(2, np.float32)) for name in names]
    with path.open("wb") as stream:
        checkpoint_formats()[format_name].write(stream, tensors, {})


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["stem.weight", "norms.0.moving_mean"], "candidate checkpoint"),
        (["first.weight", "bn.0.moving_mean"], None),  # made of the original's names alone
        (["stem.weight", "norms.0.running_mean"], None),  # torch's own
    ],
)
def test_a_checkpoint_is_the_ports_only_with_names_of_its_source(names, taken, tmp_path):
    torch = nets("\ndef build():\n    return NET(4, 3)\n")[0].replace("self.part", "self.first").replace("head", "bn")
    port = nets("\ndef build():\n    return NET(4, 3)\n")[1].replace("self.part", "self.stem").replace("head", "norms")
    laid_out(tmp_path, {"net.py": torch, "port.py": port})
    save(tmp_path / "net.ckpt", names, "ckpt")
    written = write_project(tmp_path, {})
    assert [key for key in written.chosen if key.endswith("checkpoint")] == ([taken] if taken else [])
    assert written.unfit == (() if taken else ("net.ckpt",))


@pytest.mark.parametrize(
    ("names", "side"),
    [
        (["inside.0.weight"], "reference"),
        (["inside.gamma", "inside.beta"], None),
        (["norms.gamma", "norms.beta"], "port"),
    ],
)
def test_a_file_that_either_may_have_is_the_originals_unless_its_names_are_not(names, side, tmp_path):
    torch, port = nets("\ndef build():\n    return NET(4, 3)\n")
    laid_out(tmp_path, {"net.py": torch, "port.py": port.replace("part", "stem").replace("head", "norms")})
    save(tmp_path / "net.safetensors", names)
    written = write_project(tmp_path, {})
    found = [key.partition(" ")[0] for key in written.chosen if key.endswith("checkpoint")]
    assert found == ([{"port": "candidate"}.get(side, side)] if side else [])


def test_safetensors_with_the_ports_names_are_the_ports(tmp_path):
    torch, port = nets("\ndef build():\n    return NET(4, 3)\n")
    laid_out(tmp_path, {"net.py": torch, "port.py": port.replace("part", "stem").replace("head", "norms")})
    save(tmp_path / "port.safetensors", ["stem.inner.weight", "norms.gamma"])
    save(tmp_path / "net.safetensors", ["part.inner.weight", "head.weight"])
    chosen = write_project(tmp_path, {}).chosen
    assert chosen["reference checkpoint"] == "net.safetensors"
    assert chosen["candidate checkpoint"] == "port.safetensors"
