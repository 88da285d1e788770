"""Wrong state and wrong masks: what a cell keeps of its first call for later ones, and what it is told to hide.

State is planted in cells that are called once in a batch, so that it shows from the second batch on.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from _planting import Mutation, Port, Undo, all_of, set_attributes, set_value
from _watching import arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _watching import Seen

    Key = int | str
    Construct = Callable[..., Any]

RECURRENT = ("LSTM", "GRU", "RNN")
EMBEDDINGS = ("Embedding", "EmbeddingExt", "VocabEmbedding")
HIDING = -1e3  # what a mask that is added holds at most where it hides


def plant_state(port: Port) -> Iterator[Mutation]:
    """All that cells which are called once in a batch can keep; only what another batch changes."""
    for path, cell in port.cells.items():
        if path and port.seen[path].calls == 1:
            later = [seen[path] for seen in port.later if path in seen]
            yield from _kept_output(path, cell, port.seen[path], later)
            yield from _kept_arguments(port, path, later)
            yield from _counting_on(path, cell, port.seen[path])
    for path, cell in port.of(*RECURRENT):
        if port.seen[path].calls == 1 and len(port.seen[path].given) == 1:
            yield Mutation("kept hidden state", "state", (path,), "of the batch before", partial(_carry, cell))
    for path, cell in port.of("BatchNorm1d", "BatchNorm2d"):
        if port.seen[path].calls == 1:
            yield Mutation("statistics go on", "state", (path,), "half of each batch", partial(_go_on, cell))


def plant_masks(port: Port) -> Iterator[Mutation]:
    """Each mask that a called cell is given: ignored, inverted, one further, of another sample or on another axis."""
    for path, cell in port.cells.items():
        for key, value in _tensors(port.seen[path]).items():
            mask = value.asnumpy()
            for kind, other in _wrong_masks(mask).items() if is_mask(mask) else ():
                if not np.array_equal(other, mask):
                    change = partial(_given_instead, key=key, changed=partial(_wrong_mask, kind))
                    plant = partial(wrapped, cell, change)
                    yield Mutation(kind, "masks", (path,), f"argument {key}", plant, also=_masked_within(port, path))


def is_mask(value: np.ndarray) -> bool:
    """Tell whether a tensor only says what is hidden: true and false, ones and zeros, or 0 and a very low number."""
    if value.size < 2 or value.ndim < 2:
        return False
    found = np.unique(value)
    if len(found) != 2 or not np.isfinite(found).any():
        return False
    added = value.dtype.kind == "f" and found[1] == 0 and found[0] < HIDING
    return bool(added or value.dtype.kind == "b" or found.tolist() == [0, 1])


def _wrong_masks(mask: np.ndarray) -> dict[str, np.ndarray]:
    """Wrong forms of a mask by kind; of every mask here the first position is visible."""
    visible = mask.flat[0]
    hidden = mask[mask != visible].flat[0] if (mask != visible).any() else visible
    found = {
        "ignored mask": np.full_like(mask, visible),
        "inverted mask": np.where(mask == visible, hidden, visible).astype(mask.dtype),
        "mask one further": np.roll(mask, 1, axis=-1),
        "mask of another sample": mask[::-1],
    }
    if mask.ndim > 2 and (mask.shape[-1] == mask.shape[-2] or 1 in mask.shape[-2:]):
        found["mask on another axis"] = mask.swapaxes(-1, -2)
    return found


def _wrong_mask(kind: str, mask: np.ndarray) -> np.ndarray:
    return _wrong_masks(mask)[kind]


def _masked_within(port: Port, path: str) -> frozenset[str]:
    """The cells inside that are given a mask themselves, and where else theirs may show.

    What a cell makes is a mask: all cells of the model that are given one.
    """
    makes = any(is_mask(output) for output in port.seen[path].outputs)
    inside = port.seen if makes else _within(port, path)
    masked = [one for one in inside if any(is_mask(value.asnumpy()) for value in _tensors(port.seen[one]).values())]
    return frozenset(masked).union(*(port.beside(one) for one in masked))


def _within(port: Port, path: str) -> frozenset[str]:
    return frozenset(other for other in port.seen if other != path and other.startswith(f"{path}." if path else ""))


def _tensors(seen: Seen) -> dict[Key, Any]:
    """The tensors among the arguments of a call, by place or name."""
    return {key: value for key, value in [*enumerate(seen.given), *seen.named.items()] if hasattr(value, "asnumpy")}


def _kept_output(path: str, cell: Any, seen: Seen, later: list[Seen]) -> Iterator[Mutation]:
    """A cell without cells inside that returns what it returned first, where the shapes agree."""
    changes = any(_unlike(one.outputs, seen.outputs) for one in later)
    if not cell._cells and len(seen.outputs) == 1 and changes:  # noqa: SLF001
        yield Mutation("kept output", "state", (path,), "of the first call", partial(_keep_output, cell))


def _kept_arguments(port: Port, path: str, later: list[Seen]) -> Iterator[Mutation]:
    """An argument besides the first that stays what it was in the first call; cells inside may be given it too."""
    for key, value in _tensors(port.seen[path]).items():
        others = [_tensors(one).get(key) for one in later]
        if key != 0 and any(other is not None and _unlike(arrays(value), arrays(other)) for other in others):
            mask = is_mask(value.asnumpy())
            kind, also = ("kept mask", _masked_within(port, path)) if mask else ("kept argument", _within(port, path))
            plant = partial(_keep_argument, port.cells[path], key)
            yield Mutation(kind, "state", (path,), f"argument {key}", plant, also=also)


def _counting_on(path: str, cell: Any, seen: Seen) -> Iterator[Mutation]:
    """Positions that are not set back to the start for another batch."""
    tables = list(cell.parameters_dict(recurse=False).values())
    if type(cell).__name__ not in EMBEDDINGS or not seen.given or not tables:
        return
    ids = seen.given[0].asnumpy()
    if ids.dtype.kind in "iu" and ids.size > 1 and (np.diff(ids.reshape(-1, ids.shape[-1])) == 1).all():
        plant = partial(_count_on, cell, tables[0].shape[0])
        yield Mutation("positions go on", "state", (path,), "after the batch before", plant)


def _unlike(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    """Tell whether the shapes agree, and the values do not."""
    return [a.shape for a in first] == [b.shape for b in second] and not all(map(np.array_equal, first, second))


def wrapped(cell: Any, around: Construct) -> Undo:
    """Let a cell run other code, which keeps the signature: `around(written, *args)` with its construct of now."""
    written = cell.construct

    @functools.wraps(written)
    def construct(*args: Any, **kwargs: Any) -> Any:
        return around(written, *args, **kwargs)

    return set_attributes(cell, construct=construct)


def _given_instead(
    written: Construct, *args: Any, key: Key, changed: Callable[[np.ndarray], np.ndarray], **kwargs: Any
) -> Any:
    """The call with one argument changed."""
    args, kwargs = _with_argument(args, kwargs, key, lambda value: _like(value, changed(value.asnumpy())))
    return written(*args, **kwargs)


def _with_argument(args: Any, kwargs: Any, key: Key, changed: Callable[[Any], Any]) -> tuple[Any, Any]:
    if isinstance(key, str):
        return args, {**kwargs, key: changed(kwargs[key])} if key in kwargs else kwargs
    return (*args[:key], *map(changed, args[key : key + 1]), *args[key + 1 :]), kwargs


def _like(tensor: Any, value: np.ndarray) -> Any:
    import mindspore

    return mindspore.Tensor(np.ascontiguousarray(value), tensor.dtype)


def _first_of_its_kind() -> Callable[[Any], Any]:
    """A function that returns the first tensor it was given, for every tensor of the same shape."""
    kept: list[np.ndarray] = []

    def first(value: Any) -> Any:
        if not kept:
            kept.append(value.asnumpy().copy())
        return _like(value, kept[0]) if kept[0].shape == tuple(value.shape) else value

    return first


def _keep_output(cell: Any) -> Undo:
    first = _first_of_its_kind()
    return wrapped(cell, lambda written, *args, **kwargs: first(written(*args, **kwargs)))


def _keep_argument(cell: Any, key: Key) -> Undo:
    first = _first_of_its_kind()

    def kept(written: Construct, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _with_argument(args, kwargs, key, first)
        return written(*args, **kwargs)

    return wrapped(cell, kept)


def _count_on(cell: Any, rows: int) -> Undo:
    done = 0

    def further(written: Construct, ids: Any) -> Any:
        nonlocal done
        moved, done = _like(ids, (ids.asnumpy() + done) % rows), done + ids.shape[-1]
        return written(moved)

    return wrapped(cell, further)


def _carry(cell: Any) -> Undo:
    """A recurrent layer that begins where it ended in the call before."""
    kept: list[Any] = []

    def begun(written: Construct, x: Any, hx: Any = None, *rest: Any) -> Any:
        output, ended = written(x, kept[0] if kept and hx is None else hx, *rest)
        kept[:] = [ended]
        return output, ended

    return wrapped(cell, begun)


def _go_on(cell: Any) -> Undo:
    """A norm that goes on learning its mean in evaluation: each call leaves half of its own for the next."""
    mean = cell.moving_mean

    def learnt(written: Construct, x: Any) -> Any:
        output = written(x)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        set_value(mean, (mean.asnumpy() + x.asnumpy().mean(axes)) / 2)
        return output

    before = mean.asnumpy().copy()
    return all_of(lambda: partial(set_value, mean, before), lambda: wrapped(cell, learnt))
