"""Opening a file that only its own code can: whole pickled modules, TorchScript, the oldest form of torch.save.

What the safe readers can open is never run, however much the user trusts it: they are lazy, and faster. What they
cannot is loaded whole into memory by the framework, at the one boundary where foreign code runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.checkpoints.format_parts.nested_entries import choose_entry, describe_plain, read_others, read_tensors
from align.checkpoints.open_checkpoint import open_checkpoint, printable_checkpoint
from align.core.checkpoints import Checkpoint, OddTensor, StoredTensor, require_plain
from align.core.import_user_code import put_first
from align.core.registry import check_packages, trusted_loaders
from align.errors import NeedsItsCodeError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable


def open_trusted(path: Path | str, key: str | None = None, *, odd_too: bool = False) -> Checkpoint:
    """Open a checkpoint, running the code that it names only if there is no other way; `notes` then say so.

    Whole modules are taken as their state_dict, so that `key` may name one. Modules are also looked for in the current
    folder. Raises FrameworkMissingError where torch is missing, MissingClassError for a class that cannot be imported,
    UserCodeError for what the file's code raises, and all that `open_checkpoint` does.

    >>> import numpy, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, w=numpy.ones(2))
    >>> open_trusted(path).notes
    ()
    """
    path = Path(path)
    try:
        return open_checkpoint(path, key, odd_too=odd_too)
    except NeedsItsCodeError as error:
        if error.path != path:  # a shard; its index vouches for names that only the safe readers can check
            raise
    loader = trusted_loaders()["torch"]
    check_packages(loader)
    put_first(Path.cwd())
    tree, look = loader.load_trusted(path), _LoadedTreeReader()
    chosen = choose_entry(path, tree, look, key)
    tensors, odd = read_tensors(chosen, look, lambda _, tensor: tensor)
    others, counts = read_others(path, tree, chosen, {*tensors, *odd}, look)
    notes = (sentence("checkpoint_note.trusted", path=str(path)),)
    found = Checkpoint(
        path, loader.name, tensors, {"format": "pt"}, others, counts, chosen.key, chosen.entries, odd=odd, notes=notes
    )
    return printable_checkpoint(found if odd_too else require_plain(found))


class _LoadedTreeReader:
    """Looks at a tree of plain data and tensors in memory."""

    def mapping(self, value: Any) -> dict[Any, Any] | None:
        return value if isinstance(value, dict) else None

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, (StoredTensor, OddTensor))

    def size(self, _name: str, tensor: Any) -> tuple[int, int]:
        return (0, 0) if isinstance(tensor, OddTensor) else (tensor.load().size, tensor.nbytes)

    def module(self, _value: Any) -> str:
        return ""

    def describe(self, value: Any) -> str:
        if isinstance(value, StoredTensor):
            return sentence("entry_note.tensor", shape=str(value.shape))
        return "tensor" if isinstance(value, OddTensor) else describe_plain(value)

    def parts(self, value: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            return value.values()
        return value if isinstance(value, list) else ()
