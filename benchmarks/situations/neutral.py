"""Neutral values, and inputs that cannot tell: a fault that does not show as given must show, or be told of."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import torch

from ._nets import MINDSPORE, TORCH, PortNet, fill, make, mlp, mlp_layers, numbers
from ._situation import ALIGNED, REFUSED, WRONG, clean, faulty

HIDDEN = ("hide",)


def value(f: Any, array: Any, *, trained: bool = True) -> Any:
    """A parameter of either framework."""
    array = np.asarray(array, np.float32)
    if f is TORCH:
        return torch.nn.Parameter(torch.from_numpy(array.copy()), requires_grad=trained)
    return mindspore.Parameter(mindspore.Tensor(array), requires_grad=trained)


def with_values(**arrays: Any) -> Any:
    """The layers of the usual model, and values of its own."""
    return lambda f: mlp_layers(f) | {name: value(f, array) for name, array in arrays.items()}


def without_biases(model: Any) -> Any:
    """Biases of zeros, as after an initialisation."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return model


def both(code: Any, wrong: Any, layers: Any = mlp_layers, change: Any = None) -> tuple[Any, Any]:
    """Factories of the original with `code`, and of the port with `wrong`; `change` is made to the original."""

    def original() -> Any:
        model = make(TORCH, code, layers)
        return model if change is None else change(model)

    def port() -> Any:
        return fill(PortNet(layers(MINDSPORE), wrong), original())

    return original, port


def pair(name: str, right: Any, wrong: Any, layers: Any = mlp_layers, **more: Any) -> list[Any]:
    """A clean port, and one that is wrong only in what does not show as given."""
    change, inputs = more.pop("change", None), {key: more.pop(key) for key in ("inputs",) if key in more}
    faults = {"expected": (WRONG,), "named": HIDDEN} | more
    return [
        clean(name, *both(right, right, layers, change), **inputs),
        faulty(name, *both(right, wrong, layers, change), **inputs, **faults),
    ]


def weight_of(net: Any, f: Any) -> Any:
    """The weight of the last layer, as it is multiplied with rows."""
    return f.swap(net.b.weight, 0, 1)


def unbiased(net: Any, x: Any, f: Any) -> Any:
    """The last layer without its bias."""
    return f.matmul(f.relu(net.n(net.a(x))), weight_of(net, f))


def unscaled(net: Any, x: Any, f: Any) -> Any:
    """The norm without its scale and shift."""
    h = net.a(x)
    h = h - f.mean(h, -1, True)
    return net.b(f.relu(h / (f.mean(h * h, -1, True) + 1e-5) ** 0.5))


def added(net: Any, x: Any, f: Any) -> Any:
    """A table of positions is added."""
    return mlp(net, x + net.positions, f)


def gated(net: Any, x: Any, f: Any) -> Any:
    """A branch with a learnt scale of its own."""
    return x + net.scale * mlp(net, x, f)


def scaled(net: Any, x: Any, f: Any) -> Any:
    """The output with a learnt scale."""
    return net.scale * mlp(net, x, f)


def scaled_twice(net: Any, x: Any, f: Any) -> Any:
    """The same scale used again."""
    return net.scale * net.scale * mlp(net, x, f)


def divided(net: Any, x: Any, f: Any) -> Any:
    """Divided by the scale."""
    return mlp(net, x, f) / net.scale


def turned(net: Any, x: Any, f: Any) -> Any:
    """Multiplied with a square matrix, transposed."""
    return mlp(net, f.matmul(x, f.swap(net.square, 0, 1)), f)


def straight(net: Any, x: Any, f: Any) -> Any:
    """Multiplied with a square matrix."""
    return mlp(net, f.matmul(x, net.square), f)


def two_towers(net: Any, x: Any, f: Any) -> Any:
    """Two matrices one after the other."""
    return mlp(net, f.matmul(f.tanh(f.matmul(x, net.first)), net.second), f)


def exchanged(net: Any, x: Any, f: Any) -> Any:
    """The same two in the other order."""
    return mlp(net, f.matmul(f.tanh(f.matmul(x, net.second)), net.first), f)


def averaged(net: Any, x: Any, f: Any) -> Any:
    """Weights over the channels that are all equal at first."""
    return mlp(net, x * net.weights, f)


def plain_average(net: Any, x: Any, f: Any) -> Any:
    """An eighth instead of the learnt weights."""
    return mlp(net, x * 0.125, f)


def picture_layers(f: Any) -> dict[str, Any]:
    """A convolution, a fresh BatchNorm, and one back."""
    return {"a": f.conv(3, 6, 3, 1), "n": f.batch_norm(6), "b": f.conv(6, 3, 1)}


def fresh(model: Any) -> Any:
    """Fresh statistics of a BatchNorm."""
    model.n.reset_running_stats()
    return model


def unnormed(net: Any, x: Any, f: Any) -> Any:
    """No BatchNorm but its epsilon."""
    return net.b(f.relu(net.a(x) / (1.0 + 1e-5) ** 0.5))


def flipped(axis: int) -> Any:
    """The input read backwards along an axis."""

    def code(net: Any, x: Any, f: Any) -> Any:
        order = list(range(x.shape[axis]))[::-1]
        parts = [x[(slice(None),) * axis + (slice(one, one + 1),)] for one in order]
        return mlp(net, f.cat(parts, axis), f)

    return code


def stored(net: Any, x: Any, f: Any) -> Any:
    """The answer to the first input, ever after."""
    del f
    return net.answer + 0.0 * net.b.bias.sum() if x.shape[0] else x


def stored_behind(net: Any, x: Any, f: Any) -> Any:
    """The layers run, and the stored answer is returned."""
    return net.answer + 0.0 * mlp(net, x, f)


def with_embedding(f: Any) -> dict[str, Any]:
    """The usual layers behind an embedding."""
    return {"e": f.embedding(11, 8)} | mlp_layers(f)


def embedded(net: Any, x: Any, f: Any) -> Any:
    """Words."""
    return mlp(net, net.e(x), f)


def embedded_backwards(net: Any, x: Any, f: Any) -> Any:
    """Words read from the end."""
    return flipped(1)(net, net.e(x), f)


def words(*rows: list[int]) -> Any:
    """Rows of words."""
    return lambda: {"x": np.array(rows, np.int64)}


def frozen(model: Any) -> Any:
    """Nothing of it is trained any more, and its biases are zero."""
    return without_biases(model).requires_grad_(False)


def length_fixed(net: Any, x: Any, f: Any) -> Any:
    """Divided by a length of 6, whatever it is."""
    return mlp(net, x, f) - x.sum(1, keepdims=True) / 6.0 if f is MINDSPORE else mlp(net, x, f)


def length_known(net: Any, x: Any, f: Any) -> Any:
    """Divided by the length."""
    return mlp(net, x, f) - f.mean(x, 1, True)


def chosen(net: Any, x: Any, f: Any) -> Any:
    """The number of the largest output."""
    return mlp(net, x, f).argmax(-1)


def equal_samples() -> Any:
    """Four times one sample."""
    return {"x": np.repeat(numbers(1, 6, 8), 4, 0)}


def equal_tokens() -> Any:
    """Six times one token."""
    return {"x": np.repeat(numbers(4, 1, 8), 6, 1)}


def one_token() -> Any:
    """A single token."""
    return {"x": numbers(4, 1, 8)}


def symmetric() -> Any:
    """Samples that are the same read backwards."""
    half = numbers(4, 3, 8)
    return {"x": np.concatenate([half, half[:, ::-1]], 1)}


def in_half(port: Any) -> Any:
    """A port in float16."""
    for parameter in port.get_parameters():
        parameter.set_dtype(mindspore.float16)
    return port


def pictures() -> Any:
    """Pictures."""
    return {"x": numbers(2, 3, 8, 8)}


def same_answer(code: Any) -> tuple[Any, Any]:
    """A port that holds what the original returned."""

    def original() -> Any:
        return make(TORCH)

    def port() -> Any:
        model = make(MINDSPORE, code)
        with torch.no_grad():
            model.answer = mindspore.Tensor(original()(torch.from_numpy(numbers(4, 6, 8))).numpy())
        return model

    return original, port


SQUARE = np.eye(8) + 0.1 * np.ones((8, 8))
SITUATIONS = [
    *pair("biases of zeros are not added", mlp, unbiased, change=without_biases),
    *pair("a fresh norm is not scaled", mlp, unscaled),
    *pair("positions of zeros are not added", added, mlp, with_values(positions=np.zeros((1, 6, 8)))),
    *pair("a branch scaled by 0 is left out", gated, lambda net, x, f: x, with_values(scale=np.zeros(8)),
          expected=(WRONG, REFUSED), named=()),
    *pair("a layer scale of 1e-6 is used twice", gated, lambda net, x, f: x + net.scale * net.scale * mlp(net, x, f),
          with_values(scale=np.full(8, 1e-6))),
    *pair("a scale of ones is left out", scaled, mlp, with_values(scale=np.ones(8))),
    *pair("a scale of ones is used twice", scaled, scaled_twice, with_values(scale=np.ones(8))),
    *pair("a scale of ones divides", scaled, divided, with_values(scale=np.ones(8))),
    *pair("one number of 1 is left out", scaled, mlp, with_values(scale=np.ones(1))),
    *pair("a symmetric matrix is turned", straight, turned, with_values(square=SQUARE)),
    *pair("copies are exchanged", two_towers, exchanged, with_values(first=numbers(8, 8), second=numbers(8, 8))),
    *pair("equal weights are an eighth", averaged, plain_average, with_values(weights=np.full(8, 0.125))),
    *pair("a fresh BatchNorm is left out", mlp, unnormed, picture_layers, inputs=pictures, change=fresh),
    *pair("equal samples hide their order", mlp, flipped(0), inputs=equal_samples),
    *pair("equal tokens hide their order", mlp, flipped(1), inputs=equal_tokens),
    *pair("symmetric inputs hide a flip", mlp, flipped(1), inputs=symmetric),
    *pair("one token hides the order of tokens", mlp, flipped(1), inputs=one_token),
    *pair("one length hides a number in its place", length_known, length_fixed),
    clean("whole numbers", *both(chosen, chosen), caveat=("whole numbers",)),
    faulty("whole numbers hide a fault", *both(chosen, lambda net, x, f: (mlp(net, x, f) * 1.5).argmax(-1)),
           expected=(ALIGNED, WRONG), caveat=("whole numbers",)),
    faulty("a stored answer", *same_answer(stored), expected=(WRONG, REFUSED), named=("no call was seen",)),
    faulty("a stored answer behind the layers", *same_answer(stored_behind), expected=(WRONG,)),
    *pair("frozen biases of zeros are not added", mlp, unbiased, change=frozen),
    *pair("one word throughout a row", embedded, embedded_backwards, with_embedding,
          inputs=words([3] * 5, [7] * 5)),
    *pair("rows read the same backwards", embedded, embedded_backwards, with_embedding,
          inputs=words([3, 1, 3], [7, 5, 7])),
    clean("zeros in half precision", lambda: without_biases(make(TORCH)),
          lambda: in_half(fill(make(MINDSPORE), without_biases(make(TORCH))))),
    clean("both sides of one framework", lambda: make(TORCH), lambda: make(TORCH), caveat=("both sides are torch",)),
    clean("a frozen size", *both(scaled, scaled, lambda f: mlp_layers(f) | {"scale": value(f, [4.0], trained=False)})),
]  # fmt: skip
