from __future__ import annotations

import pytest

from align.checkpoints.names_in_file import (
    matched_without_wrappers,
    shared_prefixes,
    with_file_names,
    without_prefixes,
    without_wrappers,
    wrapper_words,
)
from align.core.name_map import Dropped, NameMap, Pairing
from align.errors import UsageError


@pytest.mark.parametrize("prefixes", [("module.",), ("module",)])
def test_a_prefix_is_taken_off_with_its_dot(prefixes) -> None:
    assert without_prefixes(["module.a.w", "module.b"], prefixes) == {"a.w": "module.a.w", "b": "module.b"}


@pytest.mark.parametrize("prefixes", [("module", "_orig_mod"), ("_orig_mod", "module"), ("module._orig_mod",)])
def test_nested_prefixes_may_be_given_in_any_order(prefixes) -> None:
    assert without_prefixes(["module._orig_mod.a"], prefixes) == {"a": "module._orig_mod.a"}


def test_a_prefix_is_taken_off_once() -> None:
    assert list(without_prefixes(["module.module.a"], ("module",))) == ["module.a"]


def test_names_without_the_prefix_stay() -> None:
    assert list(without_prefixes(["module.a", "step", "modules.b"], ("module",))) == ["a", "step", "modules.b"]


def test_all_that_stands_against_it_is_listed() -> None:
    with pytest.raises(UsageError) as error:
        without_prefixes(["module.a", "a"], ("module", "network", "b"))
    for line in ("no name starts with 'network.'", "no name starts with 'b.'", "module.a and a would both be a"):
        assert line in error.value.message


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (["module._orig_mod.a.w", "module._orig_mod.b.w"], ["module.", "module._orig_mod."]),
        (["a.w", "b.w"], []),
        (["module.a", "b"], []),
        (["fc.weight", "fc.bias"], ["fc."]),
        (["moduleA.w", "moduleB.w"], []),
        ([], []),
    ],
)
def test_prefixes_that_all_names_share_are_whole_parts(names, shared) -> None:
    assert shared_prefixes(names) == shared


def test_a_map_gets_the_names_of_the_file_again() -> None:
    drops = (Dropped("n", "source", "r"), Dropped("n", "target", "r"))
    name_map = with_file_names(NameMap("a", "b", (Pairing("a", "x", "user", 1.0),), drops), {"a": "m.a", "n": "m.n"})
    assert name_map.pairings[0].source == "m.a"
    assert [drop.name for drop in name_map.dropped] == ["m.n", "n"]


@pytest.mark.parametrize(
    ("names", "inner", "bare"),
    [
        (["module.a.w", "module.b"], False, ["a.w", "b"]),
        (["module.a.w", "n_averaged"], False, ["a.w", "n_averaged"]),
        (["module.a.w", "b"], False, ["module.a.w", "b"]),
        (["_orig_mod.module.a.w", "_orig_mod.module.b"], False, ["a.w", "b"]),
        (["a._orig_mod._fsdp_wrapped_module.w", "b.w"], False, ["a.w", "b.w"]),
        (["a.module.w", "b.w"], False, ["a.module.w", "b.w"]),
        (["a.module.w", "b.w"], True, ["a.w", "b.w"]),
        (["a.module.w", "a.w"], True, ["a.module.w", "a.w"]),
        (["a._orig_mod.w", "a.w"], False, ["a._orig_mod.w", "a.w"]),
        (["a.module", "module"], True, ["a.module", "module"]),
    ],
)
def test_what_wrappers_put_into_names_goes(names: list[str], inner: bool, bare: list[str]) -> None:
    assert list(without_wrappers(names, inner=inner).values()) == bare


def test_names_meet_those_of_another_side_whichever_is_wrapped() -> None:
    bare, wrapped = ["a.w", "b.w"], ["module.a._orig_mod.w", "module.b.module.w"]
    assert matched_without_wrappers(wrapped, bare) == dict(zip(wrapped, bare, strict=True))
    assert matched_without_wrappers(bare, wrapped) == dict(zip(bare, wrapped, strict=True))
    assert matched_without_wrappers(wrapped, wrapped) == {name: name for name in wrapped}
    assert wrapper_words(matched_without_wrappers(wrapped, bare)) == "module., _orig_mod. in 2 names"
    assert wrapper_words({name: name for name in bare}) == ""
