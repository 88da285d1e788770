"""Every pitfall is ended on the live layer: rebuilt as the finding says, it computes what the other side computes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from real_layers import build, called, copy_values, distance, drawn, is_torch, settings_of

from align.core.load_code import model_readers
from align.forward.settings_to_try import rebuilt_layer
from align.lint.compare_settings import LayerPair, compare_settings
from align.models.open_side import open_side
from align.rules.layer_rules import layer_rules
from align.rules.pitfalls import is_of, pitfalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.lint.compare_settings import SettingFinding

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

RULES = {rule.id: rule for rule in pitfalls()}
PAIRS = [
    (rule.id, pair)
    for rule in RULES.values()
    if rule.examples.judge == "output"
    for pair in rule.examples.differ
    if not any(is_of(layer, rule.examples.unrun) for layer in pair)
]
# Pairs of which no layer can be built that computes what the first one does, and why.
NO_LAYER = {
    "conv-padding-mode": "zeros are the only padding that the class knows",
    "embedding-max-norm": "the class has no such setting, and of another class the values are not known",
    "bce-positive-weight": "the finding writes no values, for there may be a thousand",
    "kl-div-log-target": "the change is in front of the layer",
    "layer-norm-axes": "the axis is counted from the front, which the layer alone does not tell",
    "loss-class-weights": "the finding writes no values, for there may be a thousand",
    "loss-weights": "the finding writes no values, for there may be a thousand",
    "lstm-projection": "the class cannot project",
}
# Classes that have none of the settings: another one is to be written, which is not built.
WITHOUT_SETTINGS = ("mindspore.nn.SoftmaxCrossEntropyWithLogits(",)
# Pairs of which the layer is built but tells nothing, and why.
TELLS_NOTHING = {
    "elu-alpha": "the kernel on the CPU takes 1.0 only",
    "rrelu-lower": "slopes are drawn in evaluation mode too",
    "rrelu-upper": "slopes are drawn in evaluation mode too",
}
STRANGERS = "transformers."  # activations that no layer rule knows
NOT_BUILT = [(rule, pair) for rule, pair in PAIRS if rule in NO_LAYER or pair[1].startswith(WITHOUT_SETTINGS)]
TRIED = [
    (rule, pair)
    for rule, pair in PAIRS
    if (rule, pair) not in NOT_BUILT and rule not in TELLS_NOTHING and not pair[0].startswith(STRANGERS)
]
CLASSES = {
    name for rule in RULES.values() for form in rule.forms for name in form.classes if rule.topic != "optimizers"
}
EXPRESSIONS = {
    name: sorted(layers)
    for name, layers in groupby(
        sorted(
            {layer for rule in RULES.values() for pair in rule.examples.differ for layer in pair}
            | {layer for rule in layer_rules() for hit in rule.hits for layer in hit.values()}
        ),
        lambda layer: layer.partition("(")[0],
    )
    if name in CLASSES and not name.startswith(STRANGERS)
}
PRECISION = 1e-5
AssertEach = Callable[[Callable[..., None], Collection[Any]], None]


def by_rule(pairs: list[tuple[str, tuple[str, str]]]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for rule, pair in pairs:
        found.setdefault(rule, []).append(pair)
    return found


@pytest.mark.parametrize("rule_id", by_rule(TRIED))
def test_a_layer_rebuilt_as_the_finding_says_moves_to_what_the_reference_computes_and_back(
    rule_id: str, assert_each: AssertEach
) -> None:
    def moves_and_back(*pair: str) -> None:
        reference, candidate, arrays = filled(rule_id, pair)
        layer = rebuilt(reference, candidate)
        back = rebuilt(candidate, layer)  # before any call, which may change statistics
        wanted, had, has = (called(one, arrays, False) for one in (reference, candidate, layer))
        assert distance(wanted, had) > PRECISION > distance(wanted, has)
        if type(layer) is type(candidate):  # another layer takes no change to become the first one again
            assert distance(had, called(back, arrays, False)) < PRECISION

    assert_each(moves_and_back, by_rule(TRIED)[rule_id])


@pytest.mark.parametrize("rule_id", by_rule(NOT_BUILT))
def test_what_cannot_be_built_is_not_built(rule_id: str, assert_each: AssertEach) -> None:
    def is_not_built(*pair: str) -> None:
        reference, candidate, _ = filled(rule_id, pair)
        assert rebuilt(reference, candidate) is None

    assert_each(is_not_built, by_rule(NOT_BUILT)[rule_id])


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_layer_rebuilt_without_a_change_is_a_copy_with_the_same_settings_and_values(
    name: str, assert_each: AssertEach
) -> None:
    def is_copied(expression: str) -> None:
        layer = build(expression)
        reader = reader_of(layer)
        copied = reader.rebuilt(layer, "", {})
        assert copied is not layer
        assert {**settings_of(copied).values, "training": None} == {**settings_of(layer).values, "training": None}
        mine, theirs = reader.read_values(layer), reader.read_values(copied)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)

    assert_each(is_copied, EXPRESSIONS[name])


def test_few_pitfalls_cannot_be_tried_on_a_layer() -> None:
    left_out = sorted({rule for rule, pair in PAIRS if (rule, pair) not in TRIED})
    print(f"{len(TRIED)} of {len(PAIRS)} pairs are tried; not {', '.join(left_out)}")
    assert len(TRIED) > 0.85 * len(PAIRS)


def filled(rule_id: str, pair: tuple[str, ...]) -> tuple[Any, Any, list[np.ndarray]]:
    """Both layers with equal values, and inputs for them."""
    reference, candidate = (build(layer) for layer in pair)
    copy_values(reference, candidate)
    return reference, candidate, [drawn(text, seed) for seed, text in enumerate(RULES[rule_id].examples.inputs)]


def rebuilt(reference: Any, candidate: Any) -> Any:
    return rebuilt_layer(open_side(reference), open_side(candidate), *findings(reference, candidate))


def findings(reference: Any, candidate: Any) -> Sequence[SettingFinding]:
    pair = LayerPair(settings_of(reference), settings_of(candidate))
    return compare_settings([pair], list(RULES.values())).findings


def reader_of(layer: Any) -> Any:
    return model_readers()["torch" if is_torch(layer) else "mindspore"]
