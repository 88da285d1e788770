"""A fault planted in a training step, and whether it moves anything: found by training, without the tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import align
    from align.training.step_result import StepComparison

    Make = Callable[[Any, str, int], align.Training]

ALL = ("mlp", "resnet", "encoder", "lstm")
MOVED_SHARE = 1e-5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: how both sides are made (of the nets, the net's name, a seed), and where it is to be found.

    `parts` and `kinds` are those of a culprit that names it, `module` the beginning of its path; `causes` hold one
    that it must be given, none if any will do.
    """

    group: str
    name: str
    faulty: Make
    parts: tuple[str, ...]
    causes: frozenset[str] = frozenset()
    module: Mapping[str, str] = field(default_factory=dict)
    nets: tuple[str, ...] = ALL
    reference: Make = field(default=lambda nets, net, seed: nets.torch_side(net, "sgd", seed))
    clean: Make = field(default=lambda nets, net, _seed: nets.mindspore_side(net, "sgd"))

    def is_at(self, net: str, part: str, candidate: str) -> bool:
        """Tell whether a culprit stands where the fault is."""
        return part in self.parts and candidate.startswith(self.module.get(net, ""))


def moves(clean: align.Training, faulty: align.Training, batch: Mapping[str, Any], steps: int) -> bool:
    """Tell whether a faulty side ends elsewhere than the clean one, from the same values."""
    fill(faulty, _values(clean))
    ends = []
    for side in (clean, faulty):
        for _ in range(steps):
            take_step(side, batch)
        ends.append(_values(side))
    return any(
        np.abs(ends[1][name] - own).max(initial=0.0) > MOVED_SHARE * max(np.abs(own).max(initial=0.0), MOVED_SHARE)
        for name, own in ends[0].items()
        if name in ends[1]
    )


def _is_torch(side: align.Training) -> bool:
    return hasattr(side.model, "register_buffer") and not hasattr(side.model, "construct")


def _values(side: align.Training) -> dict[str, Any]:
    if _is_torch(side):
        return {name: one.detach().numpy().astype(np.float64) for name, one in side.model.state_dict().items()}
    return {one.name: one.asnumpy().astype(np.float64) for one in side.model.get_parameters()}


def fill(side: align.Training, values: Mapping[str, Any]) -> None:
    """Give a side the values of these names."""
    if _is_torch(side):
        import torch

        held = side.model.state_dict()
        side.model.load_state_dict({name: torch.tensor(values[name]).to(held[name].dtype) for name in held})
        return
    import mindspore

    for one in side.model.get_parameters():
        if one.name in values:
            one.set_data(mindspore.Tensor(values[one.name].astype(np.float32)).astype(one.dtype))


def take_step(side: align.Training, batch: Mapping[str, Any]) -> float:
    """One step as everybody writes it, without the tool; return the loss."""
    return _torch_step(side, batch) if _is_torch(side) else _mindspore_step(side, batch)


def _torch_step(side: align.Training, batch: Mapping[str, Any]) -> float:
    import torch

    side.model.train()
    given = {name: torch.tensor(value) for name, value in batch.items()}
    if side.step is not None:
        return float(side.step(given))
    side.optimizer.zero_grad()
    loss = side.loss(side.model(given["x"]), given["label"])  # type: ignore[misc]
    loss.backward()
    side.optimizer.step()
    return float(loss.detach())


def _mindspore_step(side: align.Training, batch: Mapping[str, Any]) -> float:
    import mindspore

    side.model.set_train(True)
    given = {"x": mindspore.Tensor(batch["x"]), "label": mindspore.Tensor(batch["label"].astype(np.int32))}
    if side.step is not None:
        return float(side.step(given).asnumpy())
    weights = side.model.trainable_params()
    grad = mindspore.value_and_grad(lambda x, y: side.loss(side.model(x), y), None, weights)  # type: ignore[misc]
    loss, gradients = grad(given["x"], given["label"])
    by_name = dict(zip((one.name for one in weights), gradients, strict=True))
    side.optimizer(tuple(by_name.get(one.name, one * 0) for one in side.optimizer.parameters))
    return float(loss.asnumpy())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault: whether it moved anything, and what the tool said."""

    fault: str
    group: str
    net: str
    seed: int
    moved: bool
    detected: bool
    place: bool
    cause: bool
    strangers: int
    told: tuple[str, ...]


def outcome_of(fault: Fault, which: tuple[str, int], result: StepComparison, *, moved: bool) -> Outcome:
    """Hold what the tool says against the fault; `which` is the net and the seed."""
    right = [one for one in result.culprits if fault.is_at(which[0], one.part, one.candidate)]
    causes = {cause for one in right for cause in one.cause.split(" + ")}
    told = tuple(f"{one.kind}/{one.part}/{one.candidate}: {one.cause} ({one.sureness})" for one in result.culprits)
    return Outcome(
        fault.name, fault.group, *which, moved, result.verdict.exit_code == 1, bool(right),
        bool(causes & fault.causes) or not fault.causes, len(result.culprits) - len(right), told,
    )  # fmt: skip
