"""What is left over is explained by the pairs that a trial has made, not by those before it."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.names.map_parameters import map_parameters


@pytest.mark.frameworks
def test_a_tie_is_dropped_once_a_trial_has_paired_its_first_name() -> None:
    import mindspore as ms
    import torch

    class Original(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = torch.nn.Embedding(20, 8), torch.nn.Embedding(20, 8)
            self.head = torch.nn.Linear(8, 20, bias=False)
            self.head.weight = self.tok.weight

        def forward(self, x):
            return self.head(torch.tanh(self.tok(x)) * self.pos(x))

    class Port(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.e, self.f = ms.nn.Embedding(20, 8), ms.nn.Embedding(20, 8)

        def construct(self, x):
            return ms.ops.matmul(ms.ops.tanh(self.f(x)) * self.e(x), self.f.embedding_table.T)

    inputs = {"x": np.random.default_rng(0).integers(0, 20, (2, 9)).astype(np.int32)}
    result = map_parameters(Original(), Port(), inputs=inputs, trial=True)
    assert [(p.source, p.target) for p in result.name_map.pairings] == [
        ("tok.weight", "f.embedding_table"),
        ("pos.weight", "e.embedding_table"),
    ]
    assert [(drop.name, drop.reason) for drop in result.name_map.dropped] == [
        ("head.weight", "the same tensor as tok.weight, which is paired")
    ]
    assert result.verdict.outcome is Outcome.ALIGNED
