from __future__ import annotations

import inspect

import pytest

from align import errors
from align.errors import AlignError, CannotRunError, MapError, NotAlignedError, OpenNamesError, VerificationError

TREE = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, AlignError)]


@pytest.mark.parametrize("error", TREE)
def test_every_error_stands_in_the_tree_of_the_docstring(error: type[AlignError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


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
