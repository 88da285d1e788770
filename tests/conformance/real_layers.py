"""Real layers of both frameworks from expressions: built, given equal values, run on drawn inputs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.load_code import model_readers
from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from align.core.protocols import LayerSettings

STEPS = 4


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


@cache
def settings(expression: str) -> LayerSettings:
    """Those of a layer that is built for nothing else; they do not change."""
    return settings_of(build(expression))


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
    """`2,3` normal values; `<5:2,3` whole numbers below five, `<<5:2,3` as int64, `=5:2` the number five; `~0.01:2,3`
    small values; `+:2,3` values in (0, 1).
    """
    kind, _, shape = text.rpartition(":")
    generator = np.random.default_rng(seed)
    size = tuple(map(int, filter(None, shape.split(","))))
    if kind.startswith("="):
        return np.full(size, int(kind[1:]), np.int32)
    if kind.startswith("<<"):
        return generator.integers(0, int(kind[2:]), size)
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
