"""A hint names options of the running command only: of what shared errors say, a command leaves out the rest."""

from __future__ import annotations

import ast
import pickle
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import typer

import align
from align.cli.command_tree import build_app
from align.cli.given import EVERYWHERE, options_of, own_option
from align.cli.main import main
from align.errors.models import FailureKind, ModelFailure, failure_hint, hint_in_model
from align.words.catalogue import LANGUAGES, catalogue, hint_of_command, in_language, say, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

GROUP = typer.main.get_command(build_app())
COMMANDS = {name: options_of(command) for name, command in GROUP.commands.items()}  # type: ignore[attr-defined]
KNOWN = frozenset().union(*COMMANDS.values())
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
MARKED = re.compile(r"\{(--[a-z-]+)(?::given [^{}]*)?\}")
QUOTED = re.compile(r"`[^`]*`|\balign [a-z-]+ [^;`]*")  # commands, which have options of their own

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


ENGLISH_HINT = [
    ["look at it", "cast it{--dtype:given  (--dtype)}", "add {--fast}"],
    "{--map} takes a map",
    "see `align forward --fast`",
]
CHINESE_HINT = [
    ["检查它", "转换{--dtype:given （--dtype）}", "加上 {--fast}"],
    "{--map} 接受映射（a；b）",
    "见 `align forward --fast`",
]


@pytest.fixture
def hint(monkeypatch: pytest.MonkeyPatch) -> str:
    for language, parts in (("en", ENGLISH_HINT), ("zh", CHINESE_HINT)):
        monkeypatch.setitem(catalogue(language)["cli_usage"], "no_project", ["message", parts])
    return texts("cli_usage.no_project")[1]


def of_options(hint: str, options: Collection[str]) -> str:
    return hint_of_command(hint, lambda option: own_option(option, options))


@pytest.mark.parametrize(
    ("options", "left", "in_chinese"),
    [
        (
            "--map",
            "look at it, or cast it; --map takes a map; see `align forward --fast`",
            "检查它，或转换；--map 接受映射（a；b）；见 `align forward --fast`",
        ),
        (
            "--fast --dtype",
            "look at it, or cast it (--dtype), or add --fast; see `align forward --fast`",
            "检查它，或转换（--dtype），或加上 --fast；见 `align forward --fast`",
        ),
    ],
)
def test_remarks_alternatives_and_clauses_of_other_commands_are_left_out(
    hint: str, options: str, left: str, in_chinese: str
) -> None:
    kept = of_options(hint, options.split())
    assert kept == left
    assert in_language(kept, "en") == left
    assert in_language(kept, "zh") == in_chinese
    assert in_language(pickle.loads(pickle.dumps(kept)), "en") == left


def test_a_hint_of_code_that_no_command_runs_is_whole(hint: str) -> None:
    assert hint == of_options(hint, {"--map", "--fast", "--dtype"})
    assert hint == "look at it, or cast it (--dtype), or add --fast; --map takes a map; see `align forward --fast`"


def test_a_hint_that_would_say_nothing_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue()["cli_usage"], "no_project", ["message", "add {--fast}"])
    assert of_options(texts("cli_usage.no_project")[1], {"--map"}) == "add --fast"


def test_a_hint_of_hints_has_what_is_left_of_each(monkeypatch: pytest.MonkeyPatch, hint: str) -> None:
    monkeypatch.setitem(catalogue()["cli_usage"], "no_baseline_file", ["message", "add {--fast}"])
    only_fast = texts("cli_usage.no_baseline_file")[1]
    several = say("model_error.hints", hints=[only_fast, hint])
    assert of_options(several, {"--map"}) == of_options(hint, {"--map"})


def test_a_command_that_another_one_runs_has_the_options_of_both(hint: str) -> None:
    of_inner = of_options(hint, {"--fast", "--dtype"})
    assert "--dtype" in of_inner
    assert (
        of_options(of_inner, {"--fast", "--map"}) == "look at it, or cast it, or add --fast; see `align forward --fast`"
    )


def test_a_command_of_one_model_has_its_own_names_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["cast it{--candidate-dtype:given  (--candidate-dtype)}", "give its own with {--candidate-inputs}"]
    monkeypatch.setitem(catalogue()["cli_usage"], "no_project", ["message", parts])
    hint = texts("cli_usage.no_project")[1]
    assert of_options(hint, COMMANDS["capture"]) == "cast it (--dtype)"
    assert of_options(hint, COMMANDS["forward"]) == hint
    assert of_options(hint, COMMANDS["bisect"]) == "cast it"  # its --device is of something else


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_hint_about_failures_is_the_commands_own(command: str) -> None:
    hints = {hint_in_model(kind, ModelFailure(after=after)) for kind in get_args(FailureKind) for after in ("", "a")}
    hints |= {failure_hint(kind) for kind in get_args(FailureKind)}
    assert set.union(*map(options_in, hints)) > {"--debug"}
    for hint in hints:
        own = of_options(hint, COMMANDS[command])
        assert options_in(own) <= COMMANDS[command] | EVERYWHERE
        assert own.startswith(hint[:20])


def options_in(text: str) -> set[str]:
    """The options that a text names, but for those of commands that it quotes."""
    return set(OPTION.findall(QUOTED.sub("", text)))


def parts_of(hint: Any) -> Iterator[str]:
    for part in [hint] if isinstance(hint, str) else hint:
        yield from [part] if isinstance(part, str) else parts_of(part)


def test_options_in_hints_are_marked_so_that_a_command_that_lacks_them_does_not_name_them() -> None:
    for language in LANGUAGES:
        errors = [
            (f"{section}.{name}", given[1])
            for section, table in catalogue(language).items()
            for name, given in table.items()
            if not isinstance(given, str) and len(given) == 2
        ]
        named = [(key, set(MARKED.findall(part))) for key, hint in errors for part in parts_of(hint)]
        assert sum(bool(options) for _, options in named) > 100
        assert [(key, options) for key, options in named if not options <= KNOWN] == []
        plain = [
            (key, options_in(MARKED.sub("", part)) & KNOWN - EVERYWHERE)
            for key, hint in errors
            for part in parts_of(hint)
        ]
        assert [(key, options) for key, options in plain if options] == []


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
