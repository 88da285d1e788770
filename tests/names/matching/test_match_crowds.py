"""Thousands of layers of one shape that no folding makes fewer: open at once, and the rest is paired as ever."""

from __future__ import annotations

import random

import pytest


@pytest.mark.usefixtures("guarded")
def test_a_crowd_of_one_shape_is_open_at_once_and_the_rest_is_paired(written, growth):
    def match(count):
        pairs = [(written.linear(f"experts.{i}.fc", bias=False), f"list.{i}.dense") for i in range(count)]
        pairs += [(written.linear(f"layers.{i}.up", 8, 4), f"blocks.{i}.up") for i in range(4)]
        port = [a.at(b) for a, b in pairs]
        shuffled = random.Random(0).sample(port[:count], count) + port[count:]
        found = written.matched(written.side("torch", *(a for a, _ in pairs)), written.side("nn", *shuffled))
        assert written.paired(found) == written.truth([(a, a.at(b)) for a, b in pairs[count:]])
        assert len(written.open_names(found)) == count

    assert growth(match, 600) < 3
