"""Every pitfall is tried on the real layers: pairs that it calls different compute different numbers, others do not."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.mappings import rule_for
from align.core.pitfalls import is_of, pitfalls
from align.core.registry import model_readers
from align.steps.lint import LayerPair, compare_settings

if TYPE_CHECKING:
    from align.core.settings import LayerSettings

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in pitfalls()}
PAIRS = [
    (rule.id, outcome, pair)
    for rule in RULES.values()
    for outcome, pairs in (("differ", rule.examples.differ), ("agree", rule.examples.agree))
    for pair in pairs
]
RUN = [
    (rule, outcome, pair)
    for rule, outcome, pair in PAIRS
    if not any(is_of(x, RULES[rule].examples.unrun) for x in pair)
]
UNRUN = [(rule, layer) for rule, _, pair in PAIRS for layer in pair if is_of(layer, RULES[rule].examples.unrun)]
CLASSES = sorted({name for rule in RULES.values() for form in rule.forms for name in form.classes})
RELATIVE = {"zeros": 0.05, "fresh": 0.05, "spread": 0.15}
PRECISION = 1e-5

STEPS = 4


@pytest.mark.parametrize(("rule_id", "outcome", "pair"), PAIRS)
def test_the_settings_of_live_layers_are_read_as_the_examples_say(
    rule_id: str, outcome: str, pair: tuple[str, str]
) -> None:
    rule = RULES[rule_id]
    reference, candidate = (settings_of(build(layer)) for layer in pair)
    compared = compare_settings([LayerPair(reference, candidate)], [rule])
    assert compared.unread == 0
    assert [finding.rule for finding in compared.findings] == ([rule_id] if outcome == "differ" else [])


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("rule_id", "outcome", "pair"), RUN)
def test_what_a_rule_calls_different_computes_different_numbers_and_what_it_calls_equal_the_same(
    rule_id: str, outcome: str, pair: tuple[str, str]
) -> None:
    examples = RULES[rule_id].examples
    mine, theirs = observe(build(pair[0]), build(pair[1]), examples.inputs, examples.judge)
    assert np.isfinite(mine).all()
    limit = RELATIVE.get(examples.judge, PRECISION)
    assert (distance(mine, theirs) > limit) == (outcome == "differ")


@pytest.mark.parametrize(("rule_id", "layer"), sorted(set(UNRUN)))
def test_what_is_marked_unrun_has_no_kernel_here(rule_id: str, layer: str) -> None:
    examples = RULES[rule_id].examples
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        observe(build(layer), build(layer), examples.inputs, examples.judge)


@pytest.mark.parametrize(("rule_id", "pair"), [(rule, pair) for rule, outcome, pair in PAIRS if outcome == "differ"])
def test_what_a_finding_says_to_write_ends_it(rule_id: str, pair: tuple[str, str]) -> None:
    """Where it is an argument: what is to be written instead of a layer, nobody can evaluate."""
    rule = RULES[rule_id]
    reference = settings_of(build(pair[0]))
    form = rule.form_of(settings_of(build(pair[1])).classes)
    (finding,) = compare_settings([LayerPair(reference, settings_of(build(pair[1])))], [rule]).findings
    if form is not None and not finding.arguments:
        assert finding.change == form.instead
        return
    _, _, argument = finding.change.partition("(..., ")
    mended = settings_of(build(with_argument(pair[1], argument.removesuffix(")"))))
    assert compare_settings([LayerPair(reference, mended)], [rule]).findings == ()


def with_argument(layer: str, argument: str) -> str:
    """The expression with keywords of the argument replaced or added, `betas[0]=0.5` as `betas=(0.5, 0.999)`."""
    call = ast.parse(layer, mode="eval").body
    assert isinstance(call, ast.Call)
    new = ast.parse(f"f({argument})", mode="eval").body
    assert isinstance(new, ast.Call)
    told = {one.arg for one in new.keywords}
    if told & {"p", "keep_prob"}:
        told |= {"p", "keep_prob"}
    call.keywords = [one for one in call.keywords if one.arg not in told] + new.keywords
    names = list(inspect.signature(type(build(layer)).__init__).parameters)[1:]
    by_place = list(zip(names, call.args, strict=False))
    first_told = next((n for n, (name, _) in enumerate(by_place) if name in told), len(call.args))
    rest = [ast.keyword(name, value) for name, value in by_place[first_told:] if name not in told]
    call.args, call.keywords = call.args[:first_told], [*rest, *call.keywords]
    return ast.unparse(call)


@pytest.mark.parametrize("rule_id", RULES)
def test_each_form_of_a_rule_is_seen_in_its_examples(rule_id: str) -> None:
    rule = RULES[rule_id]
    layers = {layer for pair in (*rule.examples.differ, *rule.examples.agree) for layer in pair}
    seen = [rule.form_of(settings_of(build(layer)).classes) for layer in layers]
    assert [form for form in rule.forms if form not in seen] == []


@pytest.mark.parametrize("name", CLASSES)
def test_no_two_rules_read_one_setting_of_a_class(name: str) -> None:
    forms = [(form.reads, rule.id) for rule in RULES.values() if (form := rule.form_of((name,))) and form.reads]
    assert len({reads for reads, _ in forms}) == len(forms), forms


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_exists_under_its_public_name(name: str) -> None:
    import importlib

    module, _, attribute = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_there_are_rules_over_all_kinds_of_layers_and_most_are_run() -> None:
    topics = {rule.topic for rule in RULES.values()}
    assert topics >= {
        "activations", "attention", "convolution", "dropout", "embedding", "initialisers", "interpolation", "losses",
        "norms", "optimizers", "pooling", "recurrent", "softmax",
    }  # fmt: skip
    assert len(RULES) >= 60
    assert sum(rule.unrun for rule in RULES.values()) < len(RULES) / 10


def build(expression: str) -> Any:
    import mindspore
    import torch
    import transformers

    def parameter() -> Any:
        return torch.nn.Parameter(torch.linspace(-1.0, 1.0, 6))

    def cell_parameter() -> Any:
        return mindspore.Parameter(mindspore.Tensor(np.linspace(-1.0, 1.0, 6, dtype=np.float32)), name="p")

    space = {"torch": torch, "mindspore": mindspore, "transformers": transformers}
    torch.manual_seed(0)
    made = parameter if expression.startswith("torch") else cell_parameter
    return eval(expression.replace("PARAMETER", "made()"), {**space, "made": made})


def settings_of(layer: Any) -> LayerSettings:
    reader: Any = next(one for one in model_readers().values() if one.owns(layer) or one.is_optimizer(layer))
    return reader.read_settings(layer)[0]


def is_torch(layer: Any) -> bool:
    return model_readers()["torch"].owns(layer) or model_readers()["torch"].is_optimizer(layer)  # type: ignore[attr-defined]


def observe(reference: Any, candidate: Any, inputs: tuple[str, ...], judge: str) -> tuple[np.ndarray, np.ndarray]:
    """What `judge` looks at, on both sides."""
    if judge == "steps":
        return stepped(reference), stepped(candidate)
    if judge == "spread":
        return spread(reference), spread(candidate)
    arrays = [drawn(text, seed) for seed, text in enumerate(inputs)]
    if judge == "fresh":
        return zeros(called(reference, arrays, False)), zeros(called(candidate, arrays, False))
    copy_values(reference, candidate)
    train = judge != "output"
    mine, theirs = called(reference, arrays, train), called(candidate, arrays, train)
    if judge == "after training":
        return called(reference, arrays, False), called(candidate, arrays, False)
    return (zeros(mine), zeros(theirs)) if judge == "zeros" else (mine, theirs)


def distance(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Relative to the size of the values; infinite for unlike shapes."""
    if mine.shape != theirs.shape:
        return np.inf
    return float(np.linalg.norm(mine - theirs) / max(np.linalg.norm(mine), 1e-30))


def drawn(text: str, seed: int) -> np.ndarray:
    """`2,3` normal values; `<5:2,3` whole numbers below five; `~0.01:2,3` small values; `+:2,3` values in (0, 1)."""
    kind, _, shape = text.rpartition(":")
    generator = np.random.default_rng(seed)
    size = tuple(map(int, filter(None, shape.split(","))))
    if kind.startswith("<"):
        return generator.integers(0, int(kind[1:]), size).astype(np.int32)
    if kind == "+":
        return generator.uniform(0.05, 0.95, size).astype(np.float32)
    if kind == "-":
        return np.where(generator.uniform(size=size) < 0.5, -1, 1).astype(np.float32)
    scale = float(kind[1:]) if kind else 1.0
    return (scale * generator.standard_normal(size)).astype(np.float32)


def called(layer: Any, arrays: list[np.ndarray], train: bool) -> np.ndarray:
    if is_torch(layer):
        import torch

        tensors = [torch.from_numpy(a.astype(np.int64) if a.dtype == np.int32 else a) for a in arrays]
        with torch.no_grad():
            return first(layer.train(train)(*tensors)).numpy()
    import mindspore

    layer.set_train(train)
    return first(layer(*map(mindspore.Tensor, arrays))).asnumpy()


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def zeros(output: np.ndarray) -> np.ndarray:
    return np.asarray([np.mean(output == 0), 0.1])


def spread(layer: Any) -> np.ndarray:
    """Standard deviations and means of the values that a fresh layer has."""
    values = model_readers()["torch" if is_torch(layer) else "mindspore"].read_values(layer)
    kept = [value for name, value in values.items() if "num_batches" not in name]
    return np.asarray([*sorted(map(np.std, kept)), *sorted(np.round(list(map(np.mean, kept)), 1))])


def stepped(optimizer: Any) -> np.ndarray:
    """The parameter after some steps with fixed gradients."""
    gradients = [drawn("6", step) for step in range(STEPS)]
    if is_torch(optimizer):
        import torch

        value = optimizer.param_groups[0]["params"][0]
        for gradient in gradients:
            value.grad = torch.from_numpy(gradient)
            optimizer.step()
        return value.detach().numpy()
    import mindspore

    for gradient in gradients:
        optimizer((mindspore.Tensor(gradient),))
    return optimizer.parameters[0].asnumpy()


def copy_values(reference: Any, candidate: Any) -> None:
    """Give both layers the same distinct values, by the roles that the layer rules know."""
    sides = [(layer, model_readers()["torch" if is_torch(layer) else "mindspore"]) for layer in (reference, candidate)]
    known: dict[tuple[str, str], np.ndarray] = {}
    for layer, reader in sides:
        values = reader.read_values(layer)
        for key, name, shape in roles(reader.read_parameters(layer, "layer")):
            if key not in known:
                seed = np.random.default_rng(len(known))
                known[key] = 0.5 + seed.uniform(0, 1, shape) if "var" in key[1] else seed.uniform(-0.5, 0.5, shape)
            values[name] = known[key].reshape(values[name].shape).astype(values[name].dtype)
        reader.load_values(layer, values)


def roles(parameters: Any) -> list[tuple[tuple[str, str], str, tuple[int, ...]]]:
    found = []
    classes = {module.path: module.classes for module in parameters.modules}
    for one in parameters.parameters:
        rule = rule_for(classes[one.module])
        names = rule[0].families[rule[1]].parameters if rule else {}
        role = next((role for role, name in names.items() if one.attribute == name.rpartition(".")[2]), one.attribute)
        place = one.module.removesuffix("bn2d").replace("dense", "linear")
        if role != "batches":
            found.append(((place, f"{role} of {one.count}"), one.name, one.shape))
    return found
