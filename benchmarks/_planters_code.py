"""Wrong code: what a cell computes in its construct, or what it is given, changed; no setting and no value shows it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from _addends import addends, without_addend
from _planters_calls import plant_calls
from _planters_lines import first_inside, plant_lines
from _planting import Mutation, NotPlantableError, Port, Undo, all_of, set_attributes, wrap
from _watching import call_again, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads")
HEAD_SIZES = ("head_dim", "attention_head_size", "size_per_head", "key_value_proj_dim")
EMBEDDINGS = ("Embedding", "EmbeddingExt", "VocabEmbedding")


def plant_code(port: Port) -> Iterator[Mutation]:
    """All wrong code that the called cells of a network can have."""
    for path, cell in port.cells.items():
        if path:
            yield from _of_the_output(port, path, cell)
            yield from _of_the_input(port, path, cell)
            yield from _heads(path, cell)
        for number, text in addends(cell):
            plant, also = partial(_drop, port, path, number), frozenset(first_inside(port, path))
            yield Mutation("dropped addend", "code", (path,), text, plant, ("*residual*",), also=also)
    for path, cell in port.of("Dropout"):
        if share := getattr(cell, "p", 0.0) or 0.0:
            yield Mutation(
                "active dropout", "code", (path,), f"p={share}", partial(_drop_out, cell, share), ("dropout*",)
            )
    yield from plant_calls(port)
    yield from plant_lines(port)


def _of_the_output(port: Port, path: str, cell: Any) -> Iterator[Mutation]:
    outputs = port.seen[path].outputs
    if len(outputs) != 1 or outputs[0].ndim < 2:
        return
    axis = 1 if outputs[0].ndim >= 4 else outputs[0].ndim - 1
    size = outputs[0].shape[axis]
    if size > 3 and cell.parameters_dict(recurse=False):
        yield Mutation(
            "permuted channels", "code", (path,), f"axis {axis}", partial(_permute, cell, axis), ("*permut*",)
        )
    if cell.parameters_dict(recurse=False):
        yield Mutation("float16", "code", (path,), "in and out", partial(_round, cell), ("*precision*", "*16*"))


def _of_the_input(port: Port, path: str, cell: Any) -> Iterator[Mutation]:
    """Ids one further; those that count up are positions."""
    given = port.seen[path].given
    if type(cell).__name__ not in EMBEDDINGS or not given or not cell.parameters_dict(recurse=False):
        return
    ids = given[0].asnumpy()
    rows = next(iter(cell.parameters_dict(recurse=False).values())).shape[0]
    if ids.dtype.kind in "iu" and ids.size > 1:
        counting = bool((np.diff(ids.reshape(-1, ids.shape[-1])) == 1).all())
        kind = "position ids" if counting else "token ids"
        yield Mutation(kind, "code", (path,), "one further", partial(_shift, cell, rows), ("*shift*", "*position*"))


def _heads(path: str, cell: Any) -> Iterator[Mutation]:
    """Half as many heads of double the size, in a cell that keeps both."""
    found = {name: vars(cell)[name] for name in (*HEADS, *HEAD_SIZES) if isinstance(vars(cell).get(name), int)}
    heads = [name for name in HEADS if name in found and found[name] % 2 == 0]
    sizes = [name for name in HEAD_SIZES if name in found]
    if heads and sizes:
        changes = {**{n: found[n] // 2 for n in heads}, **{n: found[n] * 2 for n in sizes}}
        change = ", ".join(f"{name}={value}" for name, value in changes.items())
        plant = partial(set_attributes, cell, **changes)
        yield Mutation("head count", "code", (path,), change, plant, ("*heads*",))


def _drop(port: Port, path: str, number: int) -> Undo:
    """Leave the addend out, if it is one that the output shows: sums of lengths and of offsets need not."""
    cell, seen = port.cells[path], port.seen[path]

    def check() -> Undo:
        if distance(seen.outputs, call_again(cell, seen)) == 0:
            raise NotPlantableError
        return lambda: None

    return all_of(partial(set_attributes, cell, construct=without_addend(cell, number)), check)


def _drop_out(cell: Any, share: float) -> Undo:
    from mindspore import ops

    return wrap(cell, lambda _written, x, *_: ops.dropout(x, share, training=True))


def _permute(cell: Any, axis: int) -> Undo:
    """Neighbouring channels change places."""

    def exchanged(written: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = written(*args, **kwargs)
        order = np.arange(output.shape[axis])
        order[: len(order) // 2 * 2] = order[: len(order) // 2 * 2].reshape(-1, 2)[:, ::-1].ravel()
        return _like(output, output.asnumpy().take(order, axis))

    return wrap(cell, exchanged)


def _round(cell: Any) -> Undo:
    """Rounded to float16 on the way in and on the way out, as a layer of that precision is."""

    def rounded(written: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return _half(written(*map(_half, args), **kwargs))

    return wrap(cell, rounded)


def _half(value: Any) -> Any:
    import mindspore

    floating = isinstance(value, mindspore.Tensor) and value.dtype == mindspore.float32
    return _like(value, value.asnumpy().astype(np.float16)) if floating else value


def _like(tensor: Any, value: np.ndarray) -> Any:
    import mindspore

    return mindspore.Tensor(np.ascontiguousarray(value), tensor.dtype)


def _shift(cell: Any, rows: int) -> Undo:
    def further(_cell: Any, args: Any) -> Any:
        return (_like(args[0], (args[0].asnumpy() + 1) % rows), *args[1:])

    return cell.register_forward_pre_hook(further).remove
