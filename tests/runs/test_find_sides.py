"""What `align init` finds in a folder, read and never run, and the file that it writes of it."""

from __future__ import annotations

from align.runs.find_sides import find_sides
from align.runs.project_file import read_project
from align.runs.write_project import write_project

MODEL = """
class Net(nn.{base}):
    def __init__({arguments}):
        pass


def model():
    return Net()
"""


def source(packages, base, arguments="self"):
    imports = "".join(f"import {package}\n" for package in packages)
    return imports + MODEL.format(base=base, arguments=arguments)


def found(folder, purpose, side):
    return [one.text for one in find_sides(folder) if (one.purpose, one.side) == (purpose, side)]


def test_a_port_that_imports_torch_as_well_is_known_by_the_name_of_its_file(tmp_path):
    (tmp_path / "port.py").write_text(source(["torch", "mindspore"], "Cell"))
    assert "port.py:model" in found(tmp_path, "model", "candidate")


def test_a_class_that_needs_an_argument_is_no_model(tmp_path):
    (tmp_path / "port.py").write_text(source(["mindspore"], "Cell", "self, *, classes"))
    (tmp_path / "other.py").write_text(source(["mindspore"], "Cell", "self, classes=3, *, width=2"))
    models = found(tmp_path, "model", "candidate")
    assert "port.py:Net" not in models
    assert "other.py:Net" in models


def test_names_with_quotes_and_backslashes_are_read_back(tmp_path):
    given = {"reference model": "a.py:model", "candidate model": "b.py:model", "reference checkpoint": "a'b\"c\\d.pth"}
    write_project(tmp_path, given)
    assert str(read_project(tmp_path / "align.toml").reference.checkpoint).endswith("a'b\"c\\d.pth")
