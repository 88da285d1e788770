"""Each line of mappings/initial_values.toml is run in its framework, and what it draws is named as the rule says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.rules.training_rules import initial_value_rules
from align.training.compare_initial_values import DrawnParameter, Sizes, name_distribution

RULES = initial_value_rules()
SHAPE = (60, 40)
SIZES = Sizes({"in": 40, "out": 60, "sum": 100}, SHAPE)
BUILDS = 3
LINES = [(one.id, "", one, framework) for one in RULES.families.values() for framework in ("torch", "mindspore")]
LINES += [
    (one.family, one.id, one, framework)
    for one in RULES.schemes
    for framework in ("torch", "mindspore")
    if getattr(one, framework)
]


def drawn(text: str, framework: str) -> Any:
    line = text.format(tensor="weight", shape=SHAPE, scale=0.3, twice=0.6)
    if framework == "torch":
        import torch

        return eval(line, {"torch": torch, "weight": torch.empty(SHAPE)}).numpy()
    from mindspore.common import initializer as init

    return eval(line, vars(init)).init_data().asnumpy()


@pytest.mark.frameworks
@pytest.mark.parametrize(("family", "scheme", "rule", "framework"), LINES, ids=[f"{a}-{b}-{d}" for a, b, _, d in LINES])
def test_a_line_draws_what_its_rule_names(family: str, scheme: str, rule: Any, framework: str) -> None:
    import mindspore
    import torch

    states = torch.random.get_rng_state(), mindspore.get_rng_state()
    torch.manual_seed(1)
    mindspore.manual_seed(1)
    parameter = DrawnParameter(drawn(getattr(rule, framework), framework))
    for _ in range(BUILDS):
        parameter.add(drawn(getattr(rule, framework), framework), None)
    torch.random.set_rng_state(states[0])
    mindspore.set_rng_state(states[1])
    named = name_distribution(parameter, SIZES)
    assert (named.family, named.scheme) == (family, scheme)
    if not scheme:
        assert named.scale == pytest.approx(0.3, rel=1e-6)
    else:
        assert named.scale == pytest.approx(rule.scale(SIZES.fans))


def test_schemes_of_a_family_are_told_apart_by_their_sizes() -> None:
    for family in {one.family for one in RULES.schemes}:
        scales = [one.scale(SIZES.fans) for one in RULES.schemes if one.family == family and one.fan in SIZES.fans]
        assert min(np.diff(np.sort(scales)), default=1.0) > 1e-3
        assert family in RULES.families
