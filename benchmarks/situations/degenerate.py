"""Degenerate outputs: constant, saturated, not finite, or torn apart by chaos: they tell little or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, dtype_of, make, mlp, one_batch, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, WRONG, clean, faulty, twins

BLIND = (REFUSED,)


def then(change: Any, factor: float = 1.0) -> Any:
    """The output, changed: `change(y, f)`; the fault is in front."""
    return lambda net, x, f: change(mlp(net, x, f) * factor, f)


def blind(name: str, change: Any) -> list[Any]:
    """Nothing can be told, whether the port is right or not."""
    original = reference(TORCH, then(change))
    return [
        clean(name, original, reference(MINDSPORE, then(change)), expected=BLIND),
        faulty(name, original, reference(MINDSPORE, then(change, 1.5)), expected=FAULTS_SEEN),
    ]


def seen(name: str, right: Any, wrong: Any, **more: Any) -> list[Any]:
    """Twins of two changes of the output."""
    return twins(name, then(right), then(wrong), **more)


def filled(y: Any, f: Any, where: np.ndarray, value: float) -> Any:
    """The output with a value where the array says so."""
    return y.masked_fill(f.const(np.ascontiguousarray(np.broadcast_to(where, tuple(y.shape)))), value)


ALL_BUT_ONE = np.arange(192).reshape(4, 6, 8) != 77
HALF = np.arange(192).reshape(4, 6, 8) % 2 == 0
NAN, INF = float("nan"), float("inf")


def logistic(steps: int, growth: float = 3.9, shift: float = 0.0) -> Any:
    """A map that doubles small differences almost at each step."""

    def change(y: Any, f: Any) -> Any:
        z = f.sigmoid(y)
        for _ in range(steps):
            z = z * (1.0 - z) * growth
        return z + shift

    return change


def sines(steps: int, factor: float = 1.0) -> Any:
    """Another one, with a fault in front of it."""

    def change(y: Any, f: Any) -> Any:
        z = y * factor
        for _ in range(steps):
            z = f.sin(z * 3.0)
        return z

    return change


def zero_head(code: Any) -> Any:
    """Factories of both sides with a last layer that begins at zero."""

    def build(f: Any) -> Any:
        model = make(f, code)
        if f is TORCH:
            import torch

            with torch.no_grad():
                model.b.weight.zero_()
                model.b.bias.zero_()
        else:
            model.b.weight.set_data(model.b.weight * 0)
            model.b.bias.set_data(model.b.bias * 0)
        return model

    return build


def branch(factor: float) -> Any:
    """A branch that begins at zero is added to the input."""
    return lambda net, x, f: x + net.b(f.relu(net.n(net.a(x * factor))))


def table(factor: float = 1.0) -> Any:
    """An output that does not depend on the input, such as a table of positions."""

    def code(net: Any, x: Any, f: Any) -> Any:
        return mlp(net, f.cast(f.const(np.eye(8, dtype=np.float32)), dtype_of(x)) * factor, f)

    return code


def fed(factor: float) -> Any:
    """One channel of the input counts otherwise."""

    def code(net: Any, x: Any, f: Any) -> Any:
        scale = np.ones(8, np.float32)
        scale[3] = factor
        return mlp(net, x * f.cast(f.const(scale), dtype_of(x)), f)

    return code


def smooth(factor: float = 1.0) -> Any:
    """Through tanh, which keeps NaN in both frameworks; MindSpore's ReLU on the CPU makes 0 of it."""
    return lambda net, x, f: net.b(f.tanh(net.n(net.a(x))) * factor)


def inputs_of(value: float, *places: int) -> Any:
    """The usual input with a value at a place, or everywhere."""

    def made() -> dict[str, np.ndarray]:
        x = one_batch()["x"]
        x[places or ...] = value
        return {"x": x}

    return made


def tenths(factor: float = 1.0) -> Any:
    """Rounded to tenths."""
    return lambda y, f: (y * (10.0 * factor) + 0.03).round() / 10.0


def round_ids(level: float) -> Any:
    """Whole numbers."""
    return lambda y, f: f.cast(y * level, "int32")


SITUATIONS = [
    *blind("dead ReLU", lambda y, f: f.relu(y - 100.0)),
    *blind("saturated sigmoid", lambda y, f: f.sigmoid(y + 200.0)),
    *blind("times zero", lambda y, f: y * 0.0),
    *blind("true everywhere", lambda y, f: y > -1e6),
    *blind("NaN everywhere", lambda y, f: y * NAN),
    *blind("Inf everywhere", lambda y, f: f.abs(y) * INF),
    *blind("maximum of equals", lambda y, f: (y * 0.0).argmax(-1)),
    *seen("saturated in part", lambda y, f: f.sigmoid(y * 30.0), lambda y, f: f.sigmoid(y * 30.1)),
    *seen("one-hot softmax", lambda y, f: f.softmax(y * 1e3), lambda y, f: f.softmax(y * -1e3)),
    *seen("clipped", lambda y, f: y.clip(-0.2, 0.2), lambda y, f: y.clip(-0.2, 0.201)),
    *seen("whole numbers", round_ids(20.0), lambda y, f: round_ids(20.0)(y + 0.05, f)),
    *seen("highest index", lambda y, f: y.argmax(-1), lambda y, f: (y * -1.0).argmax(-1)),
    *seen("NaN in half", lambda y, f: filled(y, f, HALF, NAN), lambda y, f: filled(y * 1.001, f, HALF, NAN)),
    *seen("NaN at other places", lambda y, f: filled(y, f, HALF, NAN), lambda y, f: filled(y, f, ~HALF, NAN)),
    *seen("NaN on one side", lambda y, f: y, lambda y, f: filled(y, f, ~ALL_BUT_ONE, NAN)),
    *seen("log of negative numbers", lambda y, f: f.log(y), lambda y, f: f.log(y * 1.001)),
    *seen("Inf in half", lambda y, f: filled(y, f, HALF, INF), lambda y, f: filled(y * 1.001, f, HALF, INF)),
    *seen("Inf of another sign", lambda y, f: filled(y, f, HALF, INF), lambda y, f: filled(y, f, HALF, -INF)),
    *seen("Inf for NaN", lambda y, f: filled(y, f, HALF, NAN), lambda y, f: filled(y, f, HALF, INF)),
    *seen("exp overflows in part", lambda y, f: f.exp(y * 150.0), lambda y, f: f.exp(y * 150.5)),
    clean("all but one NaN", reference(TORCH, then(lambda y, f: filled(y, f, ALL_BUT_ONE, NAN))),
          reference(MINDSPORE, then(lambda y, f: filled(y, f, ALL_BUT_ONE, NAN))), expected=(ALIGNED, REFUSED),
          caveat=("NaN",)),
    faulty("all but one NaN", reference(TORCH, then(lambda y, f: filled(y, f, ALL_BUT_ONE, NAN))),
           reference(MINDSPORE, then(lambda y, f: filled(y * 1.1, f, ALL_BUT_ONE, NAN))), expected=FAULTS_SEEN),
    clean("input of NaN", reference(TORCH, smooth()), reference(MINDSPORE, smooth()), inputs=inputs_of(NAN),
          expected=BLIND),
    *twins("one NaN in the input", smooth(), smooth(1.001), inputs=inputs_of(NAN, 0, 0, 0)),
    faulty("ReLU makes 0 of NaN", reference(TORCH), reference(MINDSPORE), inputs=inputs_of(NAN, 0, 0, 0)),
    clean("input of zeros", reference(TORCH), reference(MINDSPORE), inputs=inputs_of(0.0), expected=(ALIGNED, REFUSED)),
    faulty("input of zeros hides a fault", reference(TORCH), reference(MINDSPORE, fed(1.5)), inputs=inputs_of(0.0),
           expected=(ALIGNED, REFUSED), caveat=("show",)),
    clean("head of zeros", lambda: zero_head(mlp)(TORCH), lambda: zero_head(mlp)(MINDSPORE), expected=BLIND),
    faulty("head of zeros", lambda: zero_head(mlp)(TORCH), lambda: zero_head(fed(1.5))(MINDSPORE),
           expected=FAULTS_SEEN),
    clean("branch of zeros", lambda: zero_head(branch(1.0))(TORCH), lambda: zero_head(branch(1.0))(MINDSPORE)),
    faulty("branch of zeros", lambda: zero_head(branch(1.0))(TORCH), lambda: zero_head(branch(1.5))(MINDSPORE)),
    clean("a table", reference(TORCH, table()), reference(MINDSPORE, table()), expected=(ALIGNED, REFUSED)),
    faulty("a table", reference(TORCH, table()), reference(MINDSPORE, table(1.001)), expected=(WRONG,)),
    *seen("chaos of 8 steps", logistic(8), logistic(8, shift=0.001)),
    *seen("chaos of 20 steps, shifted", logistic(20), logistic(20, shift=0.3)),
    faulty("chaos of 20 steps, shifted by little", reference(TORCH, then(logistic(20))),
           reference(MINDSPORE, then(logistic(20, shift=0.05))), expected=(*FAULTS_SEEN, ALIGNED),
           caveat=("noise|rounding|chao|amplif",)),
    *seen("chaos of 20 steps, grown otherwise", logistic(20), logistic(20, 3.9 * 1.001)),
    *seen("chaos of sines", sines(10), sines(10, 1.001)),
    *seen("tiny numbers", lambda y, f: y * 1e-30, lambda y, f: y * 1.01e-30),
    *seen("huge numbers", lambda y, f: y * 1e30, lambda y, f: y * 1.001e30),
    *seen("rounded to tenths", tenths(), tenths(1.01)),
]  # fmt: skip
