"""Ports written by hand: a run of both models shows the whole map, which is right element by element."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from fresh_ports import FOLDER, judge, numbered_elements

from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.frameworks


def loaded(port: str, stem: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of the modules of a port, under a name that no other port's module has."""
    name = f"fresh_port_{port}_{stem}"
    spec = importlib.util.spec_from_file_location(name, FOLDER / port / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


# Rows of one frequency and channel laid out otherwise, and heads interleaved; a stack of experts against a list of
# them; an encoder and a decoder; a scan that both sides write as a loop.
@pytest.mark.parametrize("port", ["conformer", "sparse_decoder", "translator", "state_space"])
def test_the_map_of_a_port_by_hand_is_complete_sure_and_right(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, other, data, truth = (
        loaded(port, stem, monkeypatch) for stem in ("original", "port", "data", "true_map")
    )
    result = map_parameters(original.build(), other.build(), inputs=data.inputs(), trial=True)
    judged = judge(result.name_map, numbered_elements(result.source_parameters), truth)
    assert judged["listed"] == {"wrong": [], "unsure": [], "missing": []}
    assert judged["sure"] == judged["right"] == judged["true"] == len({(a, b) for a, b, _ in truth.PAIRS})
    assert all(pair.sure for pair in result.name_map.pairings)
    assert result.name_map.complete
    dropped = {one.name for one in result.name_map.dropped}
    assert dropped >= truth.DROP_SOURCE.keys() | truth.DROP_TARGET.keys()
