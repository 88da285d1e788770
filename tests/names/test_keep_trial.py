"""What a trial found is kept in the map file: with new rules only what they touch is tried again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.names.equal_values import TrialSide
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.names.map_result import MapResult

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)}
TRUE = {"left": "d2", "right": "d1", "a": "e2", "b": "e1", "fc": "out"}


class Pair:
    """Two models of one computation, of which names tell nothing, and how often the port ran."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        counts = self.counts = [0]

        class Original(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
                self.a, self.b = nn.Linear(8, 6), nn.Linear(8, 6)
                self.fc = nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                y = self.left(x).relu() - self.right(x).relu()  # what becomes of each tells no order
                return self.fc(self.a(y).relu() - self.b(y))

        class Port(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.d1, self.d2 = nn.Linear(8, 8), nn.Linear(8, 8)
                self.e1, self.e2 = nn.Linear(8, 6), nn.Linear(8, 6)
                self.out = nn.Linear(6, 3)

            def forward(self, x: Any) -> Any:
                counts[0] += 1
                y = -self.d1(x).relu() + self.d2(x).relu()
                return self.out(self.e2(y).relu() - self.e1(y))

        self.models = Original(), Port()

    def mapped(self, out: Path, **asked: Any) -> tuple[MapResult, int]:
        """The result, and how often the port ran for it."""
        before = self.counts[0]
        result = map_parameters(*self.models, **{"inputs": X, "trial": True, "out": out, **asked})
        return result, self.counts[0] - before


@pytest.fixture(scope="module", autouse=True)
def _own_code() -> Iterator[None]:
    """Of what a worker of the tests has loaded, this file is the models' code; a worker is started from no file."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("align.names.settle_by_trial.user_files", lambda: [Path(__file__)])
        patched.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
        # The side that takes longer is run once: here both take equally long, so that it is the port that is counted.
        measured = TrialSide.seconds
        patched.setattr(TrialSide, "seconds", lambda side, inputs: measured(side, inputs) * 0)
        yield


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


@pytest.fixture(scope="module")
def tried(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """The text of the map after a first trial, and how many runs it took."""
    path = tmp_path_factory.mktemp("tried") / "map.toml"
    _, runs = pair.mapped(path)
    return path.read_text(encoding="utf-8"), runs


@pytest.fixture
def path(tried: tuple[str, int], tmp_path: Path) -> Path:
    (tmp_path / "map.toml").write_text(tried[0], encoding="utf-8")
    return tmp_path / "map.toml"


def test_what_a_trial_found_is_not_tried_again(pair: Pair, path: Path, tried: tuple[str, int]) -> None:
    result, runs = pair.mapped(path)
    assert runs == 0 < tried[1]
    assert _layers(result) == TRUE
    assert any("8 pairs that a trial found are kept from map.toml" in said for said in result.warnings)
    assert path.read_text(encoding="utf-8") == tried[0]


def test_with_a_new_rule_only_what_it_touches_is_tried_again(pair: Pair, path: Path, tried: tuple[str, int]) -> None:
    text = tried[0].replace('"a.weight" = "e2.weight"  #= dataflow', '"a.weight" = "e2.weight"  # mine, not dataflow')
    path.write_text(text, encoding="utf-8")
    result, runs = pair.mapped(path)
    assert 0 < runs < tried[1]
    assert _layers(result) == TRUE
    assert any("6 pairs that a trial found are kept" in said for said in result.warnings)


def test_a_rule_against_what_was_found_parts_it_and_nothing_else(pair: Pair, path: Path) -> None:
    rules = path.with_name("rules.toml")
    rules.write_text('[names]\n"a.weight" = "e1.weight"\n', encoding="utf-8")
    result, _ = pair.mapped(path, rules=rules)
    assert _layers(result) == TRUE | {"a": "e1", "b": "e2"}


def test_after_a_rule_is_taken_away_all_is_tried_again(pair: Pair, path: Path) -> None:
    rules = path.with_name("rules.toml")
    rules.write_text('[names]\n"a.weight" = "e1.weight"\n', encoding="utf-8")
    pair.mapped(path, rules=rules)
    result, _ = pair.mapped(path)
    assert _layers(result) == TRUE
    assert not [said for said in result.warnings if "kept" in said]


@pytest.mark.parametrize("changed", ["inputs", "line", "record"])
def test_nothing_is_kept_of_what_is_no_longer_so(pair: Pair, path: Path, tried: tuple[str, int], changed: str) -> None:
    lines = tried[0].splitlines()
    if changed == "line":  # a pair that is gone is found again
        lines = [line for line in lines if not line.startswith('"left.weight"')]
    if changed == "record":
        lines = [line for line in lines if "TRIED" not in line]
    path.write_text("\n".join(lines), encoding="utf-8")
    given = {"x": X["x"] + 1} if changed == "inputs" else X
    result, runs = pair.mapped(path, inputs=given)
    assert runs > 0
    assert _layers(result) == TRUE


def _layers(result: MapResult) -> dict[str, str]:
    return {p.source.rpartition(".")[0]: p.target.rpartition(".")[0] for p in result.name_map.pairings}
