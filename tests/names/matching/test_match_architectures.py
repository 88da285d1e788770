"""Architectures as two authors write them: all is found where names, nesting and shapes tell it, and nothing wrong."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

NAMES = ("googlenet", "densenet", "convnext", "vit", "whisper", "t5", "unet")


@pytest.fixture(scope="module")
def architectures(written):
    path = Path(__file__).with_name("written_architectures.py")
    spec = importlib.util.spec_from_file_location("written_architectures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_architecture_is_tried(architectures):
    assert tuple(one.__name__ for one in architectures.ARCHITECTURES) == NAMES


def ported(rows, seed=None):
    """The layers of the port, its modules registered in another order if there is a seed."""
    blocks = {}
    for layer, path in rows:
        blocks.setdefault(path.rpartition(".")[0], []).append(layer.at(path))
    order = list(blocks)
    if seed is not None:
        random.Random(seed).shuffle(order)
    return [layer for block in order for layer in blocks[block]]


@pytest.mark.parametrize("seed", [None, 1], ids=["in order", "in another order"])
@pytest.mark.parametrize("name", NAMES)
def test_a_port_with_other_names_and_nesting_is_mapped_whole(written, architectures, name, seed):
    rows = getattr(architectures, name)()
    found = written.matched(written.side("torch", *(a for a, _ in rows)), written.side("nn", *ported(rows, seed)))
    assert written.paired(found) == written.truth([(layer, layer.at(path)) for layer, path in rows])


@pytest.mark.parametrize("lacking", [3, 17])
@pytest.mark.parametrize("name", NAMES)
def test_a_port_that_lacks_a_layer_has_no_wrong_pair(written, architectures, name, lacking):
    rows = getattr(architectures, name)()
    port = ported([row for place, row in enumerate(rows) if place != lacking])
    found = written.matched(written.side("torch", *(a for a, _ in rows)), written.side("nn", *port))
    truth = written.truth([(layer, layer.at(path)) for place, (layer, path) in enumerate(rows) if place != lacking])
    assert {a: b for a, b in written.paired(found).items() if truth.get(a) != b} == {}
    assert not found.complete
