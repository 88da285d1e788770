"""Two loss logs: partly common steps, epochs of unlike length, tails, filtered losses, overflows, sums, other metrics.

Losses come down from 2.3 with the noise of batches, which both sides share unless a situation says otherwise.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import align

from ._situation import ALIGNED, REFUSED, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAN = float("nan")
RIGHT, FAULT, UNTOLD, SAID = (ALIGNED,), (WRONG,), (REFUSED,), (ALIGNED, REFUSED)


@dataclass(frozen=True, slots=True)
class Curves:
    """Two logs as text, with the options they are compared with; all else is as in `Situation`."""

    name: str
    twin: Literal["clean", "faulty"]
    reference: str
    candidate: str
    options: dict[str, Any]
    expected: tuple[str, ...]
    caveat: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    def compare(self) -> tuple[str, str, str]:
        """Return the outcome, the reason, and all that is said."""
        with tempfile.TemporaryDirectory() as folder:
            logs = [Path(folder, f"{side}.log") for side in ("reference", "candidate")]
            for log, text in zip(logs, (self.reference, self.candidate), strict=True):
                log.write_text(text, encoding="utf-8")
            found = align.compare_losses(*logs, **self.options)
        said = [found.verdict.reason, found.trouble, found.next_command, *found.notes]
        said += [f"{one.kind} {one.side}" for one in found.events]
        return found.verdict.outcome.value, found.verdict.reason, "\n".join(map(str, said))


def loss(steps: Any, seed: int = 0, noise: float = 0.004) -> Any:
    """The loss of steps from 1, which comes down from 2.3, with noise that depends on the seed."""
    at = np.asarray(steps)
    drawn = np.random.default_rng(seed).standard_normal(100_000)
    return (0.3 + 2.0 * np.exp(-at / 700.0)) * (1.0 + noise * drawn[at])


def one_by_one(
    steps: Iterable[int], change: Callable[[int, float], float] = lambda _, value: value, **more: Any
) -> str:
    """JSON lines, a loss each; `more` are other numbers, or what makes them of a step."""
    lines = []
    for step in steps:
        value = {"step": step, "loss": round(change(step, float(loss(step))), 5)}
        value |= {name: one(step) if callable(one) else one for name, one in more.items()}
        lines.append(json.dumps(value))
    return "\n".join([*lines, ""])


def mindcv(length: int, epochs: int, every: int, value: Callable[[int, int], float], begin: int = 0) -> str:
    """Lines of MindCV's console, without the first `begin`."""
    places = [(epoch, batch) for epoch in range(epochs) for batch in range(0, length, every)][begin:]
    head = "[2024-03-01 10:00:00] mindcv.utils.callbacks INFO - "
    return "".join(
        f"{head}Epoch: [{e + 1}/{epochs}], batch: [{b + 1}/{length}], loss: {value(e, b):.6f}, lr: 0.1, time: 0.2s\n"
        for e, b in places
    )


def imagenet(length: int, epochs: int, every: int, value: Callable[[int, int], float]) -> str:
    """Lines of PyTorch's ImageNet example."""
    return "".join(
        f"Epoch: [{e}][{b:3d}/{length}]\tTime 0.121 ( 0.130)\tData 0.001 ( 0.003)\tLoss {value(e, b):.4e} (2.3e+00)\n"
        for e in range(epochs)
        for b in range(0, length, every)
    )


def share(length: int, seed: int = 0, noise: float = 0.004) -> Callable[[int, int], float]:
    """The loss by the share of epochs that is done."""
    drawn = np.random.default_rng(seed).standard_normal((64, 4096))
    return lambda e, b: float((0.3 + 2.0 * np.exp(-(e + b / length))) * (1.0 + noise * drawn[e, b]))


def from_epoch(value: Callable[[int, int], float], epoch: int, other: float) -> Callable[[int, int], float]:
    """The same until an epoch; from there on another loss, or so many times as much more."""
    return lambda e, b: value(e, b) if e < epoch else other if other != other else value(e, b) + other


def trainer(count: int, value: Callable[[int], float], before: Callable[[int], str] = lambda _: "") -> str:
    """What the Hugging Face Trainer prints each step, and what stands in front of it."""
    return "".join(
        f"{before(step)}{{'loss': {value(step):.4f}, 'grad_norm': 0.8, 'learning_rate': 5e-05, 'epoch': 0.01}}\n"
        f"  1%|          | {step}/1000 [00:12<3:20:00, 12.05s/it]\n"
        for step in range(1, count + 1)
    )


def deepspeed(step: int, skips: int) -> str:
    """DeepSpeed's line of a skipped step, before the first `skips`."""
    scale = 2 ** (32 - step)
    line = "[2020-09-09 01:52:00,086] [INFO] [stage2.py:1132:step] [deepscale] OVERFLOW! Rank 0 Skipping step."
    return f"{line} Attempted loss scale: {2 * scale}, reducing to {scale}\n" if step <= skips else ""


def apex(step: int, skips: int) -> str:
    """Apex's line, of two processes."""
    line = f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0 ** (16 - step)}\n"
    return 2 * line if step <= skips else ""


def clean(name: str, reference: str, candidate: str, expected: tuple[str, ...] = RIGHT, **more: Any) -> Curves:
    """Nothing is wrong."""
    return Curves(name, "clean", reference, candidate, more.pop("options", {}), expected, **more)


def faulty(name: str, reference: str, candidate: str, expected: tuple[str, ...] = FAULT, **more: Any) -> Curves:
    """Something is wrong."""
    return Curves(name, "faulty", reference, candidate, more.pop("options", {}), expected, **more)


EVERY, TENTH = range(1, 401), range(10, 401, 10)
WHOLE = one_by_one(EVERY)
R313, R312, R156 = share(313), share(312), share(156)
TORCH = imagenet(313, 4, 20, R313)
FAST = imagenet(313, 2, 1, R313)


def broken(step: int, value: float) -> float:
    """NaN from step 200 on."""
    return NAN if step >= 200 else value


def beside(step: int, value: float) -> float:
    """Half as much more from step 200 on."""
    return value * 1.5 if step >= 200 else value


def once(at: int) -> Callable[[int, float], float]:
    """NaN at one step."""
    return lambda step, value: NAN if step == at else value


def zero_from(at: int) -> Callable[[int], float]:
    """The loss, and 0 from a step on, as the Trainer prints NaN."""
    return lambda step: float(loss(step)) if step < at else 0.0


def skipped(step: int) -> float:
    """A loss that 16 skipped steps have kept back."""
    return float(loss(max(1, step - 16)))


PARTIAL = [
    clean("every tenth step of a dense log", WHOLE, one_by_one(TENTH)),
    faulty("every tenth step of a dense log, part beside", WHOLE, one_by_one(TENTH, beside)),
    faulty("NaN between the common steps", WHOLE, one_by_one(TENTH, broken)),
    faulty("one NaN that the other log does not print", one_by_one(EVERY, once(205)), one_by_one(TENTH)),
    faulty("one NaN on both sides", one_by_one(EVERY, once(200)), one_by_one(EVERY, once(200)), UNTOLD, named=("NaN",)),
    clean("cadences of 10 and 7", one_by_one(range(10, 4001, 10)), one_by_one(range(7, 4001, 7))),
    faulty("cadences of 10 and 7, part beside", one_by_one(range(10, 4001, 10)), one_by_one(range(7, 4001, 7), beside)),
    clean("a tail that is the second half", WHOLE, one_by_one(range(201, 401)), caveat=("201 to 400 alone",)),
    faulty("a tail that is beside", WHOLE, one_by_one(range(201, 401), beside)),
    clean("a short tail", WHOLE, one_by_one(range(381, 401)), UNTOLD, named=("381 to 400",)),
    faulty("steps that meet at the beginning only", one_by_one([*range(1, 41), *range(42, 401, 2)]),
           one_by_one([*range(1, 41), *range(43, 401, 2)], broken)),
    clean("steps that meet at the beginning only", one_by_one([*range(1, 41), *range(42, 401, 2)]),
          one_by_one([*range(1, 41), *range(43, 401, 2)]), UNTOLD, named=("beside no common step",)),
]  # fmt: skip
EPOCHS = [
    clean("the last batch dropped", TORCH, mindcv(312, 4, 20, R313), caveat=("313 steps", "312", "drop_last")),
    clean("the last batch dropped, every step printed", FAST, mindcv(312, 2, 1, R313), caveat=("drop_last",)),
    clean("the last batch dropped, other noise", TORCH, mindcv(312, 4, 20, share(312, 1, 0.02)), SAID,
          caveat=("drop_last",), named=("drop_last", "noise")),
    faulty("the last batch dropped, NaN from epoch 2 on", TORCH, mindcv(312, 4, 20, from_epoch(R313, 1, NAN)),
           named=("drop_last", "NaN", "align nonfinite")),
    faulty("the last batch dropped, explosion in epoch 2", TORCH, mindcv(312, 4, 20, from_epoch(R313, 1, 4.0)),
           named=("drop_last", "explosion")),
    faulty("the last batch dropped, beside from epoch 3 on", TORCH, mindcv(312, 4, 20, from_epoch(R313, 2, 0.3)),
           named=("drop_last",)),
    clean("twice the batch", imagenet(313, 4, 10, R313), mindcv(156, 4, 5, R156), SAID,
          caveat=("batch size", "--steps-per 2:1"), named=("batch size",)),
    faulty("twice the batch, NaN in epoch 3", imagenet(313, 4, 10, R313), mindcv(156, 4, 5, from_epoch(R156, 2, NAN)),
           named=("batch size", "NaN")),
    faulty("twice the batch, beside in epoch 3", imagenet(313, 4, 10, R313),
           mindcv(156, 4, 5, from_epoch(R156, 2, 0.5)), named=("batch size",)),
    clean("a third of the data", imagenet(313, 3, 10, R313), mindcv(104, 3, 4, share(104)), SAID,
          caveat=("part of the data",), named=("part of the data",)),
    clean("too few points of unlike epochs", imagenet(313, 3, 200, R313), mindcv(100, 3, 60, share(100)), UNTOLD,
          named=("313", "100")),
]  # fmt: skip
HEADED = "".join(f"Batch({b}/400) done. Loss: {float(loss(400 + b)):.4f}\n" for b in range(200, 400, 20))
NEXT = "".join(f"Batch({b}/400) done. Loss: {float(loss(800 + b)):.4f}\n" for b in range(0, 400, 20))
TAIL = f"{HEADED}Training epoch: 3\n{NEXT}"
WHOLE_HEADED = "".join(
    f"Training epoch: {e}\n"
    + "".join(f"Batch({b}/400) done. Loss: {float(loss(400 * e - 400 + b)):.4f}\n" for b in range(0, 400, 20))
    for e in (1, 2, 3)
)
TAILS = [
    clean("a log that begins inside an epoch", WHOLE_HEADED, TAIL, caveat=("begins inside an epoch|alone",)),
    faulty("a log that begins inside an epoch, beside", WHOLE_HEADED, f"{HEADED}Training epoch: 3\n" + "".join(
        f"Batch({b}/400) done. Loss: {1.3 * float(loss(800 + b)):.4f}\n" for b in range(0, 400, 20))),
    clean("epochs without a number in a tail", WHOLE_HEADED, HEADED + NEXT, UNTOLD, named=("do not number",)),
    clean("a console that begins inside an epoch", mindcv(312, 4, 20, R312), mindcv(312, 4, 20, R312, begin=20),
          caveat=("alone",)),
    faulty("a console that begins inside an epoch, NaN", mindcv(312, 4, 20, R312),
           mindcv(312, 4, 20, from_epoch(R312, 3, NAN), begin=20), named=("NaN",)),
]  # fmt: skip
FILTERS = [
    faulty("NaN printed as 0", trainer(60, lambda s: float(loss(s))), trainer(60, zero_from(20)).replace(
        "'grad_norm': 0.8", "'grad_norm': nan"), named=("logging_nan_inf_filter", "align nonfinite")),
    faulty("0 from the first step on", one_by_one(EVERY), one_by_one(EVERY, lambda *_: 0.0),
           named=("NaN", "align nonfinite")),
    clean("a loss that comes down to 0", one_by_one(EVERY, lambda s, _: max(0.0, 2.0 * 0.96**s - 1e-4)),
          one_by_one(EVERY, lambda s, _: max(0.0, 2.0 * 0.96**s - 1e-4))),
    faulty("a sum over 8 parts", one_by_one(EVERY, grad_norm=0.8), one_by_one(EVERY, lambda _, v: 8 * v, grad_norm=0.8),
           named=("times 8", "only what is printed")),
    faulty("a sum over 4 parts that is trained", one_by_one(EVERY, grad_norm=0.8),
           one_by_one(EVERY, lambda _, v: 4 * v, grad_norm=3.2), named=("times 4", "gradient norms differ")),
    faulty("a mean over 2 parts", one_by_one(EVERY, lambda _, v: 2 * v), one_by_one(EVERY), named=("times 2",)),
    faulty("a gradient norm of Inf where the curves part", one_by_one(EVERY, grad_norm=0.8),
           one_by_one(EVERY, beside, grad_norm=lambda s: float("inf") if s == 201 else 0.8),
           named=("gradients", "align nonfinite")),
]  # fmt: skip
OVERFLOWS = [
    faulty("16 steps skipped by DeepSpeed", trainer(120, lambda s: float(loss(10 * s))),
           trainer(120, lambda s: float(loss(max(1, 10 * (s - 16)))), lambda s: deepspeed(s, 16)),
           named=("persistent overflow", "16 steps")),
    faulty("12 steps skipped by apex, of two processes", trainer(120, lambda s: float(loss(10 * s))),
           trainer(120, lambda s: float(loss(max(1, 10 * (s - 12)))), lambda s: apex(s, 12)),
           named=("persistent overflow", "12 steps")),
    clean("two steps skipped, alike otherwise", trainer(120, lambda s: float(loss(s))),
          trainer(120, lambda s: float(loss(s)), lambda s: deepspeed(s, 2)), caveat=("2 steps changed no weight",)),
    faulty("two steps skipped, and another rate", trainer(120, lambda s: float(loss(10 * s))),
           trainer(120, lambda s: float(loss(4 * s)), lambda s: deepspeed(s, 2))),
]  # fmt: skip
RL = "".join(
    f"step {s}: {{'train/pg_loss': {0.1 / s:.6f}, 'train/entropy_loss': 0.3, 'train/kl': 0.01}}\n" for s in EVERY
)
METRICS = [
    clean("several losses of reinforcement learning", RL, RL, UNTOLD, named=("train/pg_loss, train/entropy_loss",)),
    clean("one of several losses asked for", RL, RL.replace("0.3,", "0.31,"), options={"metric": "train/pg_loss"}),
    faulty("one of several losses asked for, beside", RL, RL.replace("0.3,", "0.4,"),
           options={"metric": "train/entropy_loss"}),
]  # fmt: skip
SITUATIONS = [*PARTIAL, *EPOCHS, *TAILS, *FILTERS, *OVERFLOWS, *METRICS]
