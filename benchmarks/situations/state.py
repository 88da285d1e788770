"""State: what a model keeps from batch to batch, or from run to run. Most need several batches to be seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, dtype_of, make, mlp, numbers, one_batch, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, WRONG, clean, faulty


def batches(*sizes: int, lengths: tuple[int, ...] = ()) -> Any:
    """A list of batches, of these sizes, and lengths (6 unless told)."""
    longs = lengths or (6,) * len(sizes)
    return lambda: [
        {"x": numbers(size, long, 8, seed=seed)} for seed, (size, long) in enumerate(zip(sizes, longs, strict=True))
    ]


THREE = batches(4, 4, 4)


def positive(x: Any, f: Any) -> Any:
    """A mask that depends on the values: 1 where the first number is positive."""
    return f.cast(x[..., :1] > 0, dtype_of(x))


def masked(net: Any, x: Any, f: Any) -> Any:
    """The mask of this batch."""
    return mlp(net, x, f) * positive(x, f)


def kept_mask(net: Any, x: Any, f: Any) -> Any:
    """The mask of the first batch, ever after."""
    if getattr(net, "mask", None) is None:
        net.mask = positive(x, f)
    return mlp(net, x, f) * net.mask


def mask_by_shape(net: Any, x: Any, f: Any) -> Any:
    """The mask of the first batch of each shape."""
    if not hasattr(net, "masks"):
        net.masks = {}
    if x.shape not in net.masks:
        net.masks[tuple(x.shape)] = positive(x, f)
    return mlp(net, x, f) * net.masks[tuple(x.shape)]


def kept_output(net: Any, x: Any, f: Any) -> Any:
    """The result of the first batch, ever after."""
    if getattr(net, "result", None) is None:
        net.result = mlp(net, x, f)
    return net.result


def counted(net: Any, x: Any, f: Any) -> Any:
    """Right once, then 10 % more a call."""
    net.calls = getattr(net, "calls", 0) + 1
    return mlp(net, x, f) * (1.0 + 0.1 * (net.calls - 1))


def counting_only(net: Any, x: Any, f: Any) -> Any:
    """Calls are counted, and the count is not used."""
    net.calls = getattr(net, "calls", 0) + 1
    return mlp(net, x, f)


CALLS = {"reference": 0, "port": 0}


def counted_outside(side: str, strength: float = 0.1) -> Any:
    """The count stands in the module, where no run puts it back."""

    def code(net: Any, x: Any, f: Any) -> Any:
        CALLS[side] += 1
        return mlp(net, x, f) * (1.0 + strength * CALLS[side])

    return code


def small_batch_wrong(net: Any, x: Any, f: Any) -> Any:
    """Wrong for the last batch, which is smaller."""
    return mlp(net, x, f) * (1.0 if x.shape[0] == 4 else 1.1)


def long_batch_wrong(net: Any, x: Any, f: Any) -> Any:
    """The table of positions is as long as the first batch; later ones begin again."""
    if getattr(net, "long", None) is None:
        net.long = x.shape[1]
    return mlp(net, x, f) + positions(x, f, net.long)


def positions(x: Any, f: Any, longest: int) -> Any:
    """A table of positions for `x`."""
    table = (np.arange(x.shape[1]) % longest * 0.1).astype(np.float32)[:, None]
    return f.cast(f.const(table), dtype_of(x))


def with_positions(net: Any, x: Any, f: Any) -> Any:
    """As long as it needs to be."""
    return mlp(net, x, f) + positions(x, f, 1 << 20)


def grown_table(net: Any, x: Any, f: Any) -> Any:
    """A table that is kept, and made anew if it is too short."""
    if getattr(net, "table", None) is None or net.table.shape[0] < x.shape[1]:
        net.table = positions(x, f, 1 << 20)
    return mlp(net, x, f) + f.cast(net.table, dtype_of(x))[: x.shape[1]]


def running(update: bool = True) -> Any:
    """A running mean of the inputs, updated in evaluation mode as well, is taken from them."""

    def code(net: Any, x: Any, f: Any) -> Any:
        mean = f.mean(f.mean(x, 0), 0)
        before = getattr(net, "seen", None)
        now = mean * 0.5 if before is None else f.cast(before, dtype_of(x)) * 0.5 + mean * 0.5
        if update or before is None:
            net.seen = now
        return mlp(net, x - net.seen, f)

    return code


def first_call_only(net: Any, x: Any, f: Any) -> Any:
    """A cache of keys that goes on from the batch before: the outputs of later batches see earlier ones."""
    past = getattr(net, "past", None)
    net.past = x
    return mlp(net, x if past is None or past.shape != x.shape else x + past * 0.1, f)


def counter_cell() -> Any:
    """A cell with a Parameter that counts the calls, and multiplies."""
    import mindspore
    from mindspore import ops

    def code(net: Any, x: Any, f: Any) -> Any:
        ops.assign_add(net.count, mindspore.Tensor(np.full(1, 0.1, np.float32)))
        return mlp(net, x * net.count, f)

    port = make(MINDSPORE, code)
    port.count = mindspore.Parameter(mindspore.Tensor(np.full(1, 0.9, np.float32)), name="count", requires_grad=False)
    return port


def norm_layers(f: Any) -> dict[str, Any]:
    """A convolution and a BatchNorm."""
    return {"c": f.conv(3, 8, 3), "n": f.batch_norm(8)}


def conv_norm(net: Any, x: Any, f: Any) -> Any:
    """Through both."""
    return f.relu(net.n(net.c(x)))


def own_statistics(net: Any, x: Any, f: Any) -> Any:
    """The statistics of the batch instead of the kept ones."""
    h = net.c(x)
    mean = f.mean(f.mean(f.mean(h, 0, True), 2, True), 3, True)
    variance = f.mean(f.mean(f.mean((h - mean) ** 2, 0, True), 2, True), 3, True)
    return f.relu(net.n((h - mean) / (variance + 1e-5) ** 0.5))


def pictures() -> list[dict[str, np.ndarray]]:
    """Two batches of pictures."""
    return [one_batch(2, 3, 8, 8, seed=seed) for seed in (0, 1)]


def pair(name: str, right: Any, wrong: Any, inputs: Any = THREE, port: Any = None, **more: Any) -> list[Any]:
    """Twins over several batches."""
    original = reference(TORCH, right)
    return [
        clean(name, original, reference(MINDSPORE, port or right), inputs=inputs),
        faulty(name, original, reference(MINDSPORE, wrong), inputs=inputs, **more),
    ]


SITUATIONS = [
    *pair("mask kept from the first batch", masked, kept_mask),
    *pair("mask kept by shape", masked, mask_by_shape, batches(4, 2, 4)),
    *pair("output kept from the first batch", mlp, kept_output),
    *pair("calls counted", mlp, counted, port=counting_only),
    *pair("small last batch", mlp, small_batch_wrong, batches(4, 4, 2)),
    *pair("table of the first length", with_positions, long_batch_wrong, batches(4, 4, lengths=(6, 9)),
          port=grown_table),
    *pair("running mean in evaluation mode", running(), running(update=False)),
    *pair("earlier batch seen", mlp, first_call_only),
    *pair("several batches, one fault in all", mlp, lambda net, x, f: mlp(net, x * 1.003, f)),
    clean("several batches of many shapes", reference(TORCH), reference(MINDSPORE),
          inputs=batches(1, 3, 5, lengths=(2, 6, 4))),
    clean("reference counts its calls", reference(TORCH, counting_only), reference(MINDSPORE)),
    clean("reference keeps a table", reference(TORCH, grown_table), reference(MINDSPORE, with_positions)),
    clean("reference keeps a mask", reference(TORCH, kept_mask), reference(MINDSPORE, masked)),
    faulty("reference keeps a mask", reference(TORCH, kept_mask), reference(MINDSPORE, mlp)),
    faulty("port counts in a Parameter", reference(TORCH), counter_cell, inputs=THREE),
    clean("port counts in a Parameter, one batch", reference(TORCH), counter_cell, expected=(ALIGNED, REFUSED)),
    faulty("reference counts in its module", reference(TORCH, counted_outside("reference")), reference(MINDSPORE),
           expected=FAULTS_SEEN),
    faulty("reference and port count in the module", reference(TORCH, counted_outside("reference", 1e-3)),
           reference(MINDSPORE, counted_outside("port", 1e-3)), expected=FAULTS_SEEN),
    clean("BatchNorm, two batches", reference(TORCH, conv_norm, norm_layers),
          reference(MINDSPORE, conv_norm, norm_layers), inputs=pictures),
    faulty("BatchNorm, two batches", reference(TORCH, conv_norm, norm_layers),
           reference(MINDSPORE, own_statistics, norm_layers), inputs=pictures, expected=(WRONG,)),
]  # fmt: skip
