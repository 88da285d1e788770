"""Training steps of real pairs: clean ones, and faults planted in them, each pair in a process of its own.

The pairs are two of mindcv (a ResNet, a MobileNet) and two of mindone (BERT, GPT-2), of a folder of cases as _cases.py
says. Faults stand in the loss, in what a block sends back, in a layer, and in the optimizer; each moves something.

Run by training_mutations.py --cases; alone:
python benchmarks/_training_cases.py DIR CASE --result FILE [--only PATTERN]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _cases import Case, in_process, open_case
from _planted_fault import Fault, Outcome, outcome_of

import align
from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Plant = Callable[["RealPair"], Any]  # a context in which the port is faulty

NAMES = ("cv_resnet18", "cv_mobilenet_v2", "nlp_bert", "_case_gpt2")
BLOCKS = {
    "cv_resnet18": "layer2",
    "cv_mobilenet_v2": "features.7",
    "nlp_bert": "bert.encoder.layer.1.output",
    "_case_gpt2": "transformer.h.1.mlp",
}
FROZEN = {
    "cv_resnet18": "layer3.0.conv1",
    "cv_mobilenet_v2": "features.3.layers.0",
    "nlp_bert": "bert.encoder.layer.2.intermediate.dense",
    "_case_gpt2": "transformer.h.0.attn.c_attn",
}
NORMS = {
    "cv_resnet18": "layer1.0.bn1",
    "cv_mobilenet_v2": "features.1",
    "nlp_bert": "bert.encoder.layer.0.output.LayerNorm",
    "_case_gpt2": "transformer.h.2.ln_1",
}
RATE, STEPS, SAMPLES = 0.01, 2, 4


@dataclass(frozen=True)
class RealPair:
    """A case with what its training needs: a batch, losses of outputs and labels, and the number of classes."""

    name: str
    case: Case
    batch: dict[str, Any]
    classes: int

    def torch_side(self, optimizer: str = "momentum") -> align.Training:
        """The reference."""
        import torch

        own = self.case.model.parameters()
        made = {
            "momentum": lambda: torch.optim.SGD(own, RATE, momentum=0.9),
            "adam": lambda: torch.optim.Adam(own, 1e-3),
        }
        return align.Training(self.case.model, partial(_loss, torch.nn.CrossEntropyLoss()), made[optimizer]())

    def port(self, loss: Any = None, optimizer: str = "momentum", make: Any = None) -> align.Training:
        """The port as it is now; `loss` is of logits and labels, `make` makes an optimizer of parameters."""
        from mindspore import nn

        own = self.case.net.trainable_params()
        made = {"momentum": lambda: nn.Momentum(own, RATE, 0.9), "adam": lambda: nn.Adam(own, 1e-3)}
        loss = partial(_loss, loss or nn.CrossEntropyLoss())
        return align.Training(self.case.net, loss, make(nn, own) if make else made[optimizer]())


def _loss(criterion: Any, outputs: Any, label: Any) -> Any:
    return criterion(_logits(outputs), label)


def _logits(outputs: Any) -> Any:
    """Rows of logits, whatever holds them."""
    found = outputs[0] if isinstance(outputs, (tuple, list)) else getattr(outputs, "logits", outputs)
    return found.reshape((-1, found.shape[-1]))


def open_pair(folder: Path, name: str) -> RealPair:
    """Open a case, mend what is known to differ, and give it a batch."""
    import torch

    case = open_case(folder, name)
    case.repair()
    case.restore_names()
    inputs = dict(case.inputs)
    if "x" in inputs:
        shape = (SAMPLES, *inputs["x"].shape[1:])
        inputs = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    with torch.no_grad():
        rows, classes = _logits(case.model(**{key: torch.from_numpy(one) for key, one in inputs.items()})).shape
    label = np.random.default_rng(1).integers(0, classes, rows)
    return RealPair(name, case, {**inputs, "label": label}, classes)


def _planted_loss(make: Callable[[Any, RealPair], Any]) -> Plant:
    @contextmanager
    def plant(pair: RealPair) -> Iterator[align.Training]:
        from mindspore import nn

        yield pair.port(make(nn, pair))

    return plant


def _planted_optimizer(make: Any) -> Plant:
    @contextmanager
    def plant(pair: RealPair) -> Iterator[align.Training]:
        yield pair.port(make=make)

    return plant


@contextmanager
def _detached(pair: RealPair) -> Iterator[align.Training]:
    """What a block returns sends nothing back."""
    from mindspore import ops

    cell = _cell(pair, BLOCKS[pair.name])
    own = cell.construct
    cell.construct = lambda *args, **kwargs: ops.stop_gradient(own(*args, **kwargs))
    try:
        yield pair.port()
    finally:
        del cell.construct


@contextmanager
def _frozen(pair: RealPair) -> Iterator[align.Training]:
    found = [one for one in _cell(pair, FROZEN[pair.name]).get_parameters() if one.requires_grad]
    for one in found:
        one.requires_grad = False
    try:
        yield pair.port()
    finally:
        for one in found:
            one.requires_grad = True


@contextmanager
def _other_norm(pair: RealPair) -> Iterator[align.Training]:
    """A BatchNorm of the other framework's momentum, a LayerNorm of another epsilon."""
    from mindspore import nn

    path = NORMS[pair.name]
    old = _cell(pair, path)
    gamma, beta = (getattr(old, one, None) for one in ("gamma", "beta"))
    gamma, beta = (gamma, beta) if gamma is not None else (old.weight, old.bias)
    if hasattr(old, "moving_mean"):
        new = nn.BatchNorm2d(len(gamma), eps=old.eps, momentum=0.1)
        new.moving_mean, new.moving_variance = old.moving_mean, old.moving_variance
    else:
        new = nn.LayerNorm((len(gamma),), epsilon=1e-3)
    new.gamma, new.beta = gamma, beta
    _place(pair, path, new)
    try:
        yield pair.port()
    finally:
        _place(pair, path, old)


def _cell(pair: RealPair, path: str) -> Any:
    return dict(pair.case.net.cells_and_names())[path]


def _place(pair: RealPair, path: str, cell: Any) -> None:
    parent, _, name = path.rpartition(".")
    holder = _cell(pair, parent) if parent else pair.case.net
    if name.isdigit():
        holder[int(name)] = cell
    else:
        setattr(holder, name, cell)
    pair.case.restore_names()  # a cell puts its own name before those of what it is given


def _shifted(nn: Any, pair: RealPair) -> Any:
    whole = nn.CrossEntropyLoss()
    return lambda logits, label: whole(logits, (label + 1) % pair.classes)


def _decay_of_norms(nn: Any, own: Any) -> Any:
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for one in own:
        groups[one.name.endswith(("beta", "bias", "gamma"))].append(one)
    decayed, others = {"params": groups[True], "weight_decay": 0.1}, {"params": groups[False]}
    return nn.Momentum([decayed, others, {"order_params": own}], RATE, 0.9)


def _fault(group: str, name: str, part: str | tuple[str, ...], *causes: str, module: Any = None) -> Fault:
    parts = (part,) if isinstance(part, str) else part
    return Fault(group, name, lambda *_: align.Training(None), parts, frozenset(causes), module or {}, NAMES)


VISION = ("cv_resnet18", "cv_mobilenet_v2")
FAULTS: tuple[tuple[Fault, Plant, tuple[str, ...]], ...] = (
    (
        _fault("loss", "sum for mean", "loss", "mean-against-sum", "gradient-factor"),
        _planted_loss(lambda nn, _: nn.CrossEntropyLoss(reduction="sum")),
        NAMES,
    ),
    (_fault("loss", "labels shifted", "loss"), _planted_loss(_shifted), NAMES),
    (
        _fault("loss", "label smoothing", "loss"),
        _planted_loss(lambda nn, _: nn.CrossEntropyLoss(label_smoothing=0.1)),
        NAMES,
    ),
    (
        _fault("optimizer", "decay on norms and biases", "optimizer", "weight-decay"),
        _planted_optimizer(_decay_of_norms),
        NAMES,
    ),
    (
        _fault("optimizer", "less momentum", "optimizer", "momentum"),
        _planted_optimizer(lambda nn, own: nn.Momentum(own, RATE, 0.8)),
        NAMES,
    ),
    (_fault("backward", "detached", ("code", "layer"), "no-gradient", module=BLOCKS), _detached, NAMES),
    (_fault("layer", "frozen", "layer", "no-gradient", module=FROZEN), _frozen, NAMES),
    (
        _fault("layer", "other momentum of a norm", "layer", "statistics-momentum-swapped", module=NORMS),
        _other_norm,
        VISION,
    ),
    (
        _fault("layer", "other epsilon of a norm", "layer", module=NORMS),
        _other_norm,
        tuple(sorted({*NAMES} - {*VISION})),
    ),
)


def tried_cases(folder: Path, only: str) -> Iterator[tuple[list[str], list[Outcome]]]:
    """Run each pair in a process; yield its false alarms, and what became of its faults."""
    for name in NAMES:
        found = in_process(str(Path(__file__)), [str(folder), name, "--only", only])
        alarms = [*found.get("alarms", ()), *([f"{name}: {found['failed']}"] if "failed" in found else [])]
        yield alarms, [Outcome(**{**one, "told": tuple(one["told"])}) for one in found.get("outcomes", ())]


def main() -> int:
    """One pair: clean steps, then each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("case")
    parser.add_argument("--only", default="")
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    pair = open_pair(options.folder, options.case)
    alarms = [text for text in _clean(pair, options.only) if text]
    outcomes = []
    for fault, plant, names in FAULTS:
        if pair.name in names and re.search(options.only, f"{fault.group} {fault.name} {pair.name}"):
            outcomes.append(_tried(pair, fault, plant))
            print(outcomes[-1], file=sys.stderr, flush=True)
            _write(options.result, alarms, outcomes)
    _write(options.result, alarms, outcomes)
    return 0


def _write(file: Path, alarms: list[str], outcomes: list[Outcome]) -> None:
    file.write_text(json.dumps({"alarms": alarms, "outcomes": [asdict(one) for one in outcomes]}), encoding="utf-8")


def _clean(pair: RealPair, only: str) -> Iterator[str]:
    """Steps of the right port, with two optimizers: what is told of each, "" if nothing."""
    for optimizer in ("momentum", "adam"):
        if re.search(only, f"clean {optimizer} {pair.name}"):
            told = _compared(pair, pair.torch_side(optimizer), pair.port(optimizer=optimizer))
            found = (
                told
                if isinstance(told, str)
                else "; ".join(f"{one.kind} {one.candidate} {one.cause}" for one in told.culprits)
            )
            print(f"clean      {optimizer:34s} {pair.name:16s} {found or 'aligned'}", file=sys.stderr, flush=True)
            yield f"{pair.name} {optimizer}: {found}" if found else ""


def _compared(pair: RealPair, reference: align.Training, candidate: align.Training) -> Any:
    try:
        return align.compare_training_step(
            reference, candidate, batch=pair.batch, steps=STEPS, name_map=pair.case.name_map
        )
    except AlignError as error:
        return error.message


def _tried(pair: RealPair, fault: Fault, plant: Plant) -> Outcome:
    with ExitStack() as stack:
        result = _compared(pair, pair.torch_side(), stack.enter_context(plant(pair)))
    if isinstance(result, str):
        return Outcome(fault.name, fault.group, pair.name, 0, True, False, False, False, 0, (result,))
    return outcome_of(fault, (pair.name, 0), result, moved=True)


if __name__ == "__main__":
    import os

    CODE = main()
    sys.stdout.flush()
    os._exit(CODE)  # MindSpore prints a traceback for each cell at the end of the interpreter
