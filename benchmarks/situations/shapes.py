"""Shapes: layouts, axes of one, values that would broadcast, few elements and none, and batches that hide a fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, dtype_of, mlp, numbers, one_batch, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, WRONG, Recipe, clean, faulty, twins


def batch(*shape: int) -> Any:
    """Inputs of a shape."""
    return lambda: one_batch(*shape)


def then(change: Any) -> Any:
    """The output, changed: `change(y, f)`."""
    return lambda net, x, f: change(mlp(net, x, f), f)


def changed(name: str, right: Any, wrong: Any, **more: Any) -> list[Any]:
    """Twins of which one changes the output otherwise."""
    return twins(name, then(right), then(wrong), **({"expected": FAULTS_SEEN} | more))


def plain(y: Any, f: Any) -> Any:
    """As it is."""
    return y


def whole(net: Any, x: Any, f: Any) -> Any:
    """Whole numbers, as the layers' dtype."""
    return mlp(net, f.cast(x, dtype_of(net.a.weight)), f)


def leak(strength: float = 1.0) -> Any:
    """The mean of the batch is taken away: samples see each other."""

    def code(net: Any, x: Any, f: Any) -> Any:
        return mlp(net, x - f.mean(x, 0, True) * strength, f)

    return code


def leak_of_many(net: Any, x: Any, f: Any) -> Any:
    """The same, but not for a batch of one."""
    return mlp(net, x, f) if x.shape[0] == 1 else leak()(net, x, f)


def later(net: Any, x: Any, f: Any) -> Any:
    """Each place adds the mean of all: with one place, nothing tells it from its own."""
    return mlp(net, (x + f.mean(x, 1, True)) * 0.5, f)


def channels_last(factor: float = 1.0) -> Any:
    """A port that has length before batch inside."""

    def code(net: Any, x: Any, f: Any) -> Any:
        return f.swap(net.b(f.relu(net.n(net.a(f.swap(x, 0, 1)))) * factor), 0, 1)

    return code


def as_rows(factor: float = 1.0) -> Any:
    """A port that has the rows of all samples inside."""

    def code(net: Any, x: Any, f: Any) -> Any:
        rows = x.reshape(-1, 8)
        return net.b(f.relu(net.n(net.a(rows))) * factor).reshape(x.shape)

    return code


def by_sample(factor: float = 1.0) -> Any:
    """A port that takes one sample after the other: each of its layers is called as often as there are samples."""

    def code(net: Any, x: Any, f: Any) -> Any:
        return f.cat([mlp(net, x[place : place + 1], f) * factor for place in range(x.shape[0])], 0)

    return code


def narrow(width: int) -> Any:
    """Layers that end with so few numbers."""
    return lambda f: {"a": f.dense(8, 16), "n": f.norm(16), "b": f.dense(16, width)}


def pooled(factor: float = 1.0) -> Any:
    """The mean over the places, then the last layer."""
    return lambda net, x, f: net.b(f.mean(f.relu(net.n(net.a(x))), 1) * factor)


def loss(factor: float = 1.0) -> Any:
    """One number without an axis."""
    return lambda net, x, f: ((y := mlp(net, x, f)) * y).mean() * factor


def chosen(level: float) -> Any:
    """As many numbers as are above a level."""

    def change(y: Any, f: Any) -> Any:
        flat = y.reshape(-1)
        if f is TORCH:
            return flat[flat > level]
        from mindspore import ops

        return ops.masked_select(flat, flat > level)

    return change


def some_empty(factor: float = 1.0) -> Any:
    """No boxes, but features."""

    def change(y: Any, f: Any) -> Any:
        return {"boxes": f.const(np.zeros((0, 4), np.float32)), "features": y * factor}

    return change


def conv_layers(f: Any) -> dict[str, Any]:
    """Convolutions."""
    return {"c": f.conv(3, 8, 3, 1), "d": f.conv(8, 4, 1)}


def convolved(net: Any, x: Any, f: Any) -> Any:
    """Through both."""
    return net.d(f.relu(net.c(x)))


def convolved_turned(net: Any, x: Any, f: Any) -> Any:
    """Height and width exchanged on the way in, and back on the way out: equal only for symmetric kernels."""
    return f.swap(convolved(net, f.swap(x, 2, 3), f), 2, 3)


ONE, TWO = Recipe(narrow(1)), Recipe(narrow(2))
EMPTY = (REFUSED,)
SITUATIONS = [
    *changed("axes exchanged", plain, lambda y, f: f.swap(y, 0, 2)),
    *changed("axes of one length exchanged", lambda y, f: y[:, :4, 0], lambda y, f: f.swap(y[:, :4, 0], 0, 1),
             expected=(WRONG,)),
    *changed("another order of axes flattened", lambda y, f: y.reshape(4, 48),
             lambda y, f: f.swap(y, 1, 2).reshape(4, 48), expected=(WRONG,)),
    *changed("flattened", plain, lambda y, f: y.reshape(4, 48)),
    *changed("axis of one squeezed", lambda y, f: y[..., :1], lambda y, f: y[..., 0]),
    *changed("axis of one added", lambda y, f: y[..., 0], lambda y, f: y[..., :1]),
    *changed("no axis against one", lambda y, f: y.mean(), lambda y, f: (y.mean() * 1.01).reshape(1)),
    *changed("mean kept for all", plain, lambda y, f: f.mean(y, 0, True)),
    *changed("mean over places kept", plain, lambda y, f: f.mean(y, 1, True)),
    *changed("repeated for all", lambda y, f: f.mean(y, 0, True), lambda y, f: f.mean(y, 0, True) + y * 0.0),
    *changed("last place cut", plain, lambda y, f: y[:, :5]),
    *changed("channels cut", plain, lambda y, f: y[..., :7]),
    *changed("shifted by one place", lambda y, f: y[:, 1:], lambda y, f: y[:, :-1], expected=(WRONG,)),
    *changed("last sample repeated", plain, lambda y, f: f.cat([y[:3], y[2:3]], 0), expected=(WRONG,)),
    *changed("halves exchanged", plain, lambda y, f: f.cat([y[..., 4:], y[..., :4]]), expected=(WRONG,)),
    *changed("as many as there are", chosen(0.2), chosen(0.1)),
    *changed("nothing but empty", lambda y, f: y[:0], lambda y, f: y[:0], expected=EMPTY)[1:],
    *changed("one output empty", some_empty(), some_empty(1.001), expected=(WRONG,)),
    *changed("empty for some", lambda y, f: y[:1], lambda y, f: y[:0]),
    *twins("length before batch inside", mlp, channels_last(1.001), rewritten=channels_last()),
    *twins("rows of all samples inside", mlp, as_rows(1.001), rewritten=as_rows()),
    *twins("one sample after the other", mlp, by_sample(1.001), rewritten=by_sample()),
    *twins("height and width exchanged", convolved, convolved_turned, Recipe(conv_layers), inputs=batch(2, 3, 9, 9)),
    *twins("batch of four, samples leak", mlp, leak_of_many),
    faulty("batch of one hides a leak", reference(TORCH), reference(MINDSPORE, leak_of_many), inputs=batch(1, 6, 8),
           expected=(ALIGNED, REFUSED), caveat=("batch",)),
    clean("batch of one", reference(TORCH), reference(MINDSPORE), inputs=batch(1, 6, 8)),
    faulty("batch of one, samples leak", reference(TORCH), reference(MINDSPORE, leak(0.5)), inputs=batch(1, 6, 8)),
    *twins("six places, all are seen", mlp, later),
    clean("one place", reference(TORCH), reference(MINDSPORE), inputs=batch(4, 1, 8)),
    clean("no samples", reference(TORCH), reference(MINDSPORE), inputs=batch(0, 6, 8), expected=EMPTY),
    faulty("no samples", reference(TORCH), reference(MINDSPORE, leak(0.5)), inputs=batch(0, 6, 8), expected=EMPTY),
    *twins("one number", pooled(), pooled(1.001), ONE, inputs=batch(1, 6, 8)),
    *twins("two numbers", pooled(), pooled(1.001), TWO, inputs=batch(1, 6, 8)),
    *twins("four samples of one number", pooled(), pooled(1.0003), ONE),
    *twins("a loss", loss(), loss(1.001)),
    *twins("a loss, 0.01 % off", loss(), loss(1.0001)),
    *twins("a large batch", mlp, lambda net, x, f: mlp(net, x, f) * 1.0001, inputs=batch(64, 33, 8)),
    *twins("one sample of many is wrong", mlp,
           lambda net, x, f: mlp(net, x * f.const(1 + np.float32(0.001) * (np.arange(64) == 40)[:, None, None]), f),
           inputs=batch(64, 6, 8)),
    *twins("inputs of integers", whole, lambda net, x, f: mlp(net, f.cast(x, "float32") * 1.001, f),
           inputs=lambda: {"x": (numbers(4, 6, 8) * 3).astype(np.int32)}),
]  # fmt: skip
