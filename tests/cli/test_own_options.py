"""A hint names options of the running command only: of what shared errors say, a command leaves out the rest."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
import typer

import align
from align.cli.command_tree import build_app
from align.cli.given import EVERYWHERE, options_in, options_of, own_hint, typed_options
from align.cli.main import main
from align.errors.models import FailureKind, ModelFailure, failure_hint, hint_in_model
from align.words.catalogue import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = typer.main.get_command(build_app())
COMMANDS = {name: options_of(command) for name, command in GROUP.commands.items()}  # type: ignore[attr-defined]
KNOWN = typed_options(GROUP, ())[1]

SIDES = """
import numpy as np

def batch():
    return {"x": np.ones((2, 3), np.float32), "label": np.arange(2)}

def out_of_range():
    return [1].pop(5)

def linear():
    import torch
    model = torch.nn.Linear(3, 2)
    return model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)

def norm():
    import torch
    model = torch.nn.BatchNorm1d(3)
    return model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)
"""
BATCH = ("--batch", "sides.py:batch")


@pytest.fixture(autouse=True)
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sides.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def shown_hint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err.partition("Hint: ")[2].strip()


WHOLE = "look at it, or cast it (--dtype), or add --fast; --map takes a map; see `align forward --fast`"


@pytest.mark.parametrize(
    ("own", "left"),
    [
        ("--map", "look at it, or cast it; --map takes a map; see `align forward --fast`"),
        ("--fast --dtype", "look at it, or cast it (--dtype), or add --fast; see `align forward --fast`"),
        ("--map --fast --dtype", WHOLE),
    ],
)
def test_remarks_alternatives_and_clauses_of_other_commands_are_left_out(own: str, left: str) -> None:
    assert own_hint(WHOLE, own.split(), {"--map", "--fast", "--dtype"}) == left
    bare = "capture it: align capture SIDE --fast; --map takes a map"
    assert own_hint(bare, {"--map"}, {"--map", "--fast"}) == bare


def test_chinese_hints_are_cut_at_chinese_marks() -> None:
    hint = "检查它，或转换（--dtype），或加上 --fast；--map 接受映射（a；b）；见 `align forward --fast`"
    known = {"--map", "--fast", "--dtype"}
    assert own_hint(hint, {"--map"}, known) == "检查它，或转换；--map 接受映射（a；b）；见 `align forward --fast`"
    assert (
        own_hint(hint, {"--fast", "--dtype"}, known)
        == "检查它，或转换（--dtype），或加上 --fast；见 `align forward --fast`"
    )


def test_a_command_of_one_model_has_its_own_names_of_options() -> None:
    hint = "cast it (--candidate-dtype); give its own with --candidate-inputs"
    assert own_hint(hint, COMMANDS["capture"], KNOWN) == "cast it (--dtype)"
    assert own_hint(hint, COMMANDS["forward"], KNOWN) == hint
    assert own_hint(hint, COMMANDS["bisect"], KNOWN) == "cast it"  # its --device is of something else


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_hint_about_failures_is_the_commands_own(command: str) -> None:
    hints = {hint_in_model(kind, ModelFailure(after=after)) for kind in get_args(FailureKind) for after in ("", "a")}
    hints |= {failure_hint(kind) for kind in get_args(FailureKind)}
    assert set.union(*map(options_in, hints)) > {"--debug"}
    for hint in hints:
        own = own_hint(hint, COMMANDS[command], KNOWN)
        assert options_in(own) <= COMMANDS[command] | EVERYWHERE
        assert own.startswith(hint[:20])


def quoted_commands() -> Iterator[tuple[str, str]]:
    """The commands in backticks of all texts in the package: their names, and the rest of the line."""
    for path in Path(align.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
            else:
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            yield from re.findall(r"`align ([a-z-]+)\b([^`]*)`", text)
    for path in Path(align.__path__[0]).rglob("*.toml"):
        yield from re.findall(r"`align ([a-z-]+)\b([^`]*)`", path.read_text(encoding="utf-8"))


def test_commands_in_backticks_have_the_options_that_they_are_shown_with() -> None:
    found = [(name, set(re.findall(r"(?<![\w-])--[a-z-]+", rest))) for name, rest in quoted_commands()]
    assert sum(bool(options) for _, options in found) > 3
    assert [(name, options) for name, options in found if not options <= COMMANDS[name]] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["step", "sides.py:out_of_range", "sides.py:linear", *BATCH],
        ["params", "sides.py:out_of_range", *BATCH],
        ["check-determinism", "sides.py:out_of_range", *BATCH],
        ["initial", "sides.py:out_of_range", "sides.py:out_of_range"],
        ["capture", "--step", "sides.py:out_of_range", *BATCH, "-o", "out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_draw_no_inputs_do_not_say_how(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    hint = shown_hint(arguments, capsys)
    assert "compare the integers" in hint
    assert options_in(hint) == {"--debug"}
    drawn = ["capture", "sides.py:out_of_range", "--input", "x=int64[2]<3", "-o", "out"]
    assert options_in(shown_hint(drawn, capsys)) == {"--debug", "--input"}


@pytest.mark.frameworks
def test_sides_with_nothing_in_common_are_told_of_what_the_command_has(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["sides.py:linear", "sides.py:norm"]
    assert options_in(shown_hint(["step", *both, *BATCH], capsys)) == {"--map"}


def test_an_option_of_several_commands_is_written_once() -> None:
    files = sorted((Path(align.__file__).parent / "cli").rglob("*.py"))
    written = [text for path in files for text in annotated(ast.parse(path.read_text(encoding="utf-8")))]
    assert len(written) > 100
    assert {text for text in written if written.count(text) > 1} == set()


def test_each_command_shows_an_example_that_it_takes_and_a_page_that_exists() -> None:
    examples = catalogue()["example"]
    assert {name.replace("_", "-") for name in examples} == {*COMMANDS}
    for line, page in examples.values():
        _, name, *words = shlex.split(line)
        GROUP.commands[name].make_context(name, words)  # type: ignore[attr-defined]
        assert f"align {name}" in (Path(align.__file__).parents[1] / page).read_text(encoding="utf-8"), page


def annotated(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Annotated":
            yield ast.unparse(node)
