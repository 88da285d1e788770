"""Weights of classes are settings: few are told one by one, many by their count and a checksum."""

from __future__ import annotations

import numpy as np

from align.core.protocols import weights_as_setting


def test_few_weights_are_told_and_many_only_by_a_checksum_that_knows_each() -> None:
    many = np.linspace(0.0, 1.0, 100, dtype=np.float32)
    other = np.where(np.arange(100) == 99, 0.5, many)
    assert weights_as_setting(None) is None
    assert weights_as_setting(np.array([0.25, 0.1], np.float32)) == (0.25, 0.1)
    assert str(weights_as_setting(many)).startswith("100 numbers with checksum ")
    assert weights_as_setting(many) == weights_as_setting(many.copy()) != weights_as_setting(other)
