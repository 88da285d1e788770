"""What every result can do: show itself in a notebook, and give its rows to pandas.

The rooms that make results stand below the one that shows them, so the registry finds that one when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from align.core.registry import result_views

if TYPE_CHECKING:
    import pandas as pd


class ShownResult:
    """A base without fields for frozen dataclasses with slots; `result_kind` says what kind of document they make."""

    __slots__ = ()
    result_kind: ClassVar[str]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of the result: layers, tensors, parameters, steps or whatever it lists, in its order.

        Names of columns are those of the document that the result is written as.
        """
        return result_views().result_frame(self)

    def _repr_html_(self) -> str:
        """Show a notebook the headline and one table."""
        return result_views().result_html(self)
