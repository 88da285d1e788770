"""Names of parameters, which a run may change: a slice of a CellList renames the parameters of its cells."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.protocols import Model


@contextmanager
def names_kept(network: Model) -> Iterator[None]:
    """Give all parameters back the names that they had: two of them may have one name by then."""
    names = [(parameter, parameter.name) for parameter in network.get_parameters()]
    try:
        yield
    finally:
        for parameter, name in names:
            if parameter.name != name:
                parameter.name = name
