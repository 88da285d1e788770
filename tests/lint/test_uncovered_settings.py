"""No setting of an optimizer that the frameworks have otherwise by default is passed over."""

from __future__ import annotations

import importlib
from itertools import permutations

import pytest

from align.lint.lint_sides import default_arguments, known_arguments
from align.rules.pitfalls import pitfalls

pytestmark = pytest.mark.frameworks

RULES = [rule for rule in pitfalls() if rule.topic == "optimizers"]
METHOD = next(rule for rule in RULES if rule.id == "optimizer-method")
# Arguments of one class alone that at this value do what all other classes do: chosen, they end with 2.
PLAIN = {
    "update_slots": True,
    "amsgrad": False,
    "use_amsgrad": False,
    "use_nesterov": False,
    "grad_centralization": False,
}


def maker(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("method", [str(form.always) for form in METHOD.forms])
def test_each_argument_that_differs_by_default_has_a_rule(method: str) -> None:
    """Else two optimizers that were given nothing would be called equal."""
    classes = next(form.classes for form in METHOD.forms if form.always == method)
    passed_over = [
        (name, own, other)
        for own, other in permutations(classes, 2)
        for name, value in default_arguments(maker(own)).items()
        if name not in known_arguments(RULES, ((own,), (other,)))[0] and PLAIN.get(name) is not value
    ]
    assert passed_over == []
    assert len(classes) > 1
