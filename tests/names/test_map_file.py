"""The map file: written and read it is the same map; its faults are listed all at once with the file's name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from align.core.name_map import Ambiguity, Dropped, NameMap, Pairing, Unmatched
from align.core.transforms import IDENTITY, Add, Cast, Chain, Permute, Reshape, Scale
from align.errors import DestinationError, MapError, MissingFileError
from align.names.map_file import kept_lines, read_map, read_rules, write_map

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

# Any text that a file can hold: quotes, backslashes, newlines, NUL, every script.
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12)
TRANSFORMS = st.one_of(
    st.just(IDENTITY),
    st.lists(st.integers(0, 9), max_size=4).map(lambda shape: Reshape(tuple(shape))),
    st.permutations(range(3)).map(lambda axes: Permute(tuple(axes))),
    st.sampled_from(["float16", "bfloat16", "int64", "float8_e5m2"]).map(Cast),
    st.sampled_from([Add(1.0), Scale(-1e-05), Chain((Scale(8.0), Add(0.1)))]),
    st.just(Chain((Permute((1, 0)), Reshape((6,), (2, 3)), Cast("float16", "float32")))),
)


@st.composite
def name_maps(draw):
    sources = draw(st.lists(TEXTS, max_size=6, unique=True))
    targets = draw(st.lists(TEXTS, min_size=len(sources), max_size=len(sources), unique=True))
    pairings = tuple(
        Pairing(source, target, "structure", 0.75, draw(TRANSFORMS))
        for source, target in zip(sources, targets, strict=True)
    )
    drops = []
    for side, taken in (("source", sources), ("target", targets)):
        names = draw(st.lists(TEXTS.filter(lambda name, taken=taken: name not in taken), max_size=3, unique=True))
        drops += [Dropped(name, side, draw(TEXTS.filter(str.strip))) for name in names]
    groups = draw(st.lists(st.builds(Ambiguity, st.tuples(TEXTS), st.tuples(TEXTS), TEXTS), max_size=2))
    lone = draw(st.lists(st.builds(Unmatched, TEXTS, st.just("source"), TEXTS, st.tuples(TEXTS)), max_size=2))
    return NameMap("a", "b", pairings, tuple(drops), tuple(groups), tuple(lone))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name_map=name_maps())
def test_a_map_that_is_written_and_read_is_the_same_map(tmp_path: Path, name_map: NameMap) -> None:
    path = tmp_path / "map.toml"
    write_map(path, name_map)
    sources = [p.source for p in name_map.pairings] + [d.name for d in name_map.dropped if d.side == "source"]
    targets = [p.target for p in name_map.pairings] + [d.name for d in name_map.dropped if d.side == "target"]
    read = read_map(path, sources, targets)
    assert [(p.source, p.target, p.transform) for p in read.pairings] == [
        (p.source, p.target, p.transform) for p in name_map.pairings
    ]
    assert {(d.name, d.side, d.reason) for d in read.dropped} == {(d.name, d.side, d.reason) for d in name_map.dropped}
    assert read.unmatched == read.ambiguous == read.unused_rules == ()
    kept, text = kept_lines(path), path.read_text(encoding="utf-8")
    assert kept.rules.all_rules == ()
    write_map(path, name_map, kept)
    assert path.read_text(encoding="utf-8") == text


def test_what_is_open_stands_in_comments_with_its_reason_and_what_comes_close(tmp_path: Path) -> None:
    name_map = NameMap(
        "a",
        "b",
        (Pairing("fc.weight", "head.weight", "structure", 0.9),),
        ambiguous=(Ambiguity(("q", "k"), ("x", "y"), "of one shape"),),
        unmatched=(Unmatched("z", "source", "nothing is left", ("zz",)),),
    )
    write_map(tmp_path / "map.toml", name_map)
    text = (tmp_path / "map.toml").read_text(encoding="utf-8")
    assert '"fc.weight" = "head.weight"  #= structure 0.90 (' in text
    assert "#= AMBIGUOUS: of one shape. Pair each of these under [names]:" in text
    assert "#=   source q\n#=   source k\n#=   target x\n#=   target y\n" in text
    assert "#=   source z (nothing is left; close: zz)" in text
    assert read_rules(tmp_path / "map.toml").names == {"fc.weight": ("head.weight", IDENTITY)}


def test_a_dropped_name_with_wildcards_is_written_as_that_name_alone(tmp_path: Path) -> None:
    drops = (Dropped("w[0]", "source", "r"), Dropped("a*", "source", "r"))
    write_map(tmp_path / "m.toml", NameMap("a", "b", (Pairing("p", "p", "name", 1.0),), drops))
    name_map = read_map(tmp_path / "m.toml", ["p", "w[0]", "w0", "a*", "ab"], None)
    assert [drop.name for drop in name_map.dropped] == ["w[0]", "a*"]
    assert [one.name for one in name_map.unmatched] == ["w0", "ab"]


def test_a_written_map_is_plain_toml(tmp_path: Path) -> None:
    pairing = Pairing('a"b\\c\nd', "ü.γ", "user", 1.0, Reshape((2, 3)))
    write_map(tmp_path / "m.toml", NameMap("a", "b", (pairing,)))
    document = tomllib.loads((tmp_path / "m.toml").read_text(encoding="utf-8"))
    assert document["names"] == {'a"b\\c\nd': {"to": "ü.γ", "op": "reshape", "shape": [2, 3]}}


def test_a_map_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DestinationError):
        write_map(tmp_path / "missing" / "map.toml", NameMap("a", "b"))
    assert list(tmp_path.iterdir()) == []


def test_rules_by_hand_hold_names_patterns_and_drops(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        r"""
        [names]
        "fc.weight" = "head.weight"
        "attn.qkv" = { to = "attn.all", op = "permute", axes = [1, 0] }

        [[rename]]
        from = 'layer(\d)\.(\d+)\.(.*)'
        to = 'stages.\1.\2.\3'

        [[rename]]
        from = '(?x) conv (?P<n>\d+)  # a comment'
        to = 'convs.\g<n>'
        op = "cast"
        dtype = "float16"

        [dropped.source]
        "aux.*" = "training only"

        [dropped.target]
        "extra" = "not in the original"
        """,
        encoding="utf-8",
    )
    rules = read_rules(tmp_path / "r.toml")
    assert rules.target_of("fc.weight")[:2] == ("head.weight", IDENTITY)
    assert rules.target_of("attn.qkv")[:2] == ("attn.all", Permute((1, 0)))
    assert rules.target_of("layer1.2.conv.weight")[0] == "stages.1.2.conv.weight"
    assert rules.target_of("conv7")[:2] == ("convs.7", Cast("float16"))
    assert rules.drop_of("source", "aux.fc") == ("training only", "[dropped.source] aux.*")
    assert rules.drop_of("target", "aux.fc") is None


def test_all_faults_of_a_file_are_listed_together_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "faulty.toml"
    path.write_text(
        r"""
        schema = "other/9"
        colour = "red"
        [names]
        "a" = 3
        "b" = { op = "reshape" }
        "c" = { to = "x", op = "twist" }
        "d" = { to = "x", op = "reshape", shape = "wide" }
        [[rename]]
        from = '(unclosed'
        to = "x"
        [[rename]]
        from = '(a)'
        to = 'b.\2'
        [[rename]]
        from = 'c'
        [dropped]
        left = "what side?"
        [dropped.source]
        "e" = ""
        """,
        encoding="utf-8",
    )
    with pytest.raises(MapError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path} cannot be used as a name map (")
    said = "\n".join(caught.value.faults)
    for word in (
        "line 3: colour",
        "line 2: schema: 'other/9'",
        "line 5: [names] a",
        "line 6: [names] b",
        "line 7: [names] c: unknown transform op 'twist'",
        "line 8: [names] d",
        "line 9: [[rename]] 1: '(unclosed'",
        r"line 12: [[rename]] 2: '(a)' -> 'b.\\2'",
        "line 15: [[rename]] 3",
        "line 18: [dropped] left",
        "line 20: [dropped.source] e:",
    ):
        assert word in said, word
    assert len(caught.value.faults) == 11


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("names = 3", "[names]"),
        ("rename = 3", "[[rename]] 1"),
        ("dropped = 3", "[dropped]"),
        ("[dropped]\nsource = 3", "[dropped.source]"),
        ("[names]\na = 'x'\na = 'y'", "two rules"),
        ("[names", "not TOML"),
    ],
)
def test_a_table_of_another_type_is_a_fault(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "m.toml").write_text(text, encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_rules(tmp_path / "m.toml")
    assert word in str(caught.value)


def test_a_file_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_bytes(b'[names]\n"a" = "\xff\xfe"\n')
    with pytest.raises(MapError, match="not TOML"):
        read_rules(tmp_path / "m.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"map file not found: .*gone\.toml"):
        read_rules(tmp_path / "gone.toml")


def test_names_that_the_source_lacks_are_listed_with_the_contradictions(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[names]\ngone = "x"\na = "y"\nb = "y"\n', encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_map(tmp_path / "m.toml", ["a", "b"], ["x", "y"])
    assert caught.value.faults == ("gone: the source has no such parameter", "a (line 3) and b (line 4) both lead to y")


def test_a_rename_may_say_how_it_is_followed_back(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(
        "[[rename]]\nfrom = 'a\\.(.*)'\nto = 'b.\\1'\nback = { from = 'b\\.(.*)', to = 'a.\\1' }\n", encoding="utf-8"
    )
    (rename,) = read_rules(path).renames
    assert rename.back is not None
    assert (rename.back[0].pattern, rename.back[1]) == (r"b\.(.*)", r"a.\1")


@pytest.mark.parametrize(
    ("back", "word"),
    [
        ("'b'", "expected back ="),
        ("{ from = 'b' }", "expected back ="),
        ("{ from = 'b', to = 'a', op = 'cast' }", "expected back ="),
        ("{ from = 'b(', to = 'a' }", "missing )"),
        ("{ from = 'b', to = 'a\\1' }", "invalid group reference"),
    ],
)
def test_a_faulty_way_back_is_a_fault(tmp_path: Path, back: str, word: str) -> None:
    (tmp_path / "m.toml").write_text(f"[[rename]]\nfrom = 'a'\nto = 'b'\nback = {back}\n", encoding="utf-8")
    with pytest.raises(MapError) as caught:
        read_rules(tmp_path / "m.toml")
    (fault,) = caught.value.faults
    assert word in fault


@pytest.mark.parametrize("frameworks", [("torch", "mindspore"), (None, "torch"), (None, None)])
def test_whose_names_both_sides_have_is_written_and_read(tmp_path: Path, frameworks) -> None:
    write_map(tmp_path / "m.toml", NameMap("a", "b", (Pairing("p", "q", "name", 1.0),), frameworks=frameworks))
    assert read_rules(tmp_path / "m.toml").frameworks == frameworks
    assert read_map(tmp_path / "m.toml", ["p"], None).frameworks == frameworks


def test_a_framework_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('source = "jax"\ntarget = 3\n', encoding="utf-8")
    with pytest.raises(MapError) as error:
        read_rules(tmp_path / "m.toml")
    assert error.value.faults == (
        "source is 'jax', expected one of: torch, mindspore",
        "target is 3, expected one of: torch, mindspore",
    )
