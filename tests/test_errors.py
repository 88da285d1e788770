from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import align
from align import errors
from align.errors import AlignError, CannotRunError, MapError, NotAlignedError, OpenNamesError, VerificationError
from align.words.catalogue import catalogue, changed, in_language

if TYPE_CHECKING:
    from types import ModuleType

MODULES = [
    importlib.import_module(f"align.errors.{found.name}")
    for found in pkgutil.iter_modules(errors.__path__)
    if found.name != "thresholds"
]
TREE = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, AlignError)]


def drawn_bases() -> dict[str, str]:
    """Read each error's base off the drawing in the docstring, by how far they are indented."""
    above, bases = [""], {}
    for name in re.finditer(r"^    (.*?)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        above[1 + len(name[1]) // 4 :] = [name[2]]
        bases[name[2]] = above[-2]
    return bases


def test_the_tree_of_the_docstring_shows_all_errors_under_their_bases() -> None:
    bases = {error.__name__: "" if error is AlignError else error.__bases__[0].__name__ for error in TREE}
    assert drawn_bases() == bases


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_error_can_be_imported_from_the_package(module: ModuleType) -> None:
    worded = {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    assert worded
    assert all(getattr(errors, name) is value for name, value in worded.items())
    assert {value.__module__ for value in worded.values()} == {"align.errors"}


@pytest.mark.parametrize("error", TREE)
def test_cannot_run_and_does_not_align_never_share_a_type(error: type[AlignError]) -> None:
    assert not (issubclass(error, CannotRunError) and issubclass(error, NotAlignedError))
    assert error.exit_code == (1 if issubclass(error, NotAlignedError) else 2)


def test_the_text_is_the_message_and_then_the_hint() -> None:
    assert str(AlignError("no loss found in train.log", "name the column")) == (
        "no loss found in train.log\nHint: name the column"
    )
    assert str(AlignError("no hint is known")) == "no hint is known"


@pytest.mark.parametrize(
    "error",
    [
        OpenNamesError(["fc.weight", "emb.weight"], "decide them"),
        MapError("map.toml", ["fc.weight", "emb.weight"]),
        VerificationError("out.ckpt", ["fc.weight", "emb.weight"]),
    ],
)
def test_errors_about_many_things_list_all_of_them(error: AlignError) -> None:
    assert "fc.weight" in error.message
    assert "emb.weight" in error.message


CHINESE = re.compile("[\u4e00-\u9fff]")
MANY = [f"line {number}" for number in range(30)]
WORDED = [
    errors.MissingFileError("a.pth", "checkpoint"),
    errors.NotACheckpointError("a.pth", "", ["torch", "npz"]),
    errors.ShardsError("a.json", MANY),
    errors.SeveralEntriesError("a.pth", ["", *MANY]),
    errors.WholeModuleError("a.pth", {"model": "net.Net"}, "ema"),
    errors.MissingEntryError("a.pth", "model", ["", "ema"]),
    errors.NoSpaceError("a.pth", 10, 5, "quota"),
    errors.OpenNamesError(["fc.weight"], ""),
    errors.FolderInUseError("runs", (1, "host", "now")),
    errors.EmptyLogError("a.log", ["csv"]),
    errors.UnknownLogError(["a.log", "b.log"], 3, "a line", "step", ["acc"]),
    errors.AmbiguousLogError("a.log", {"a.log": ["x"], "b.log": ["x", "y"]}),
    errors.UnorderedLogError("a.log", "loss", "passes"),
    errors.GroupedStepsError("a.log", "loss", 4, 9, 3),
    errors.MixedJobsError("a.log", [(1, 2, 3)] * 9),
    errors.SideError("net:f", "", "loss"),
    errors.ModelFailedError("torch", errors.ModelFailure("fc", "Linear", "norm", "net.py:3"), {}, ValueError("shape")),
    errors.UserCodeError("", SystemExit(2)),
    errors.NothingInCommonError("a", "b", "parameter", "b"),
]


@pytest.mark.parametrize("error", WORDED, ids=lambda error: type(error).__name__)
def test_what_an_error_says_of_itself_can_be_said_in_chinese(error: AlignError) -> None:
    chinese = error.in_language("zh")
    assert CHINESE.search(chinese)
    assert re.findall(r"(?:\b[a-z]{2,}\b ){3}", re.sub(r"\{.*\}", "", chinese)) == []
    assert str(error) == error.in_language("en")
    assert not CHINESE.search(str(error))


def test_a_text_that_is_changed_is_changed_in_every_language() -> None:
    hint = errors.SeveralEntriesError("a.pth", ["model", "ema"]).hint
    other = changed(changed(hint, lambda text: text.replace("--key", "--key-a")), lambda text: text + "!")
    assert other == hint.replace("--key", "--key-a") + "!"
    assert in_language(other, "zh") == in_language(hint, "zh").replace("--key", "--key-a") + "!"
    assert pickle.loads(pickle.dumps(other)) == other
    assert changed("no text by key", str.upper) == "NO TEXT BY KEY"


def test_what_is_missing_is_named_in_both_languages() -> None:
    calls = r"(?:existing_file|require_source|require_file|MissingFileError)\([^\"()]*\"([A-Za-z ]+)\""
    texts = [path.read_text(encoding="utf-8") for path in Path(align.__file__).parent.rglob("*.py")]
    named = {name for text in texts for name in re.findall(calls, text)}
    assert len(named) > 10
    assert {name for name in named if name.replace(" ", "_").lower() not in catalogue("zh")["noun"]} == set()
