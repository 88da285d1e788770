"""A call of a framework's operator, as its dispatch mode shows it: looked at, made again with other tensors, answered.

An operator is a function of its arguments. One that writes into its first argument is run on copies of it, and the last
outcome is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.models.nested_values import leaves, with_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array

    ToArray = Callable[[Any], Array | None]
    FromArray = Callable[[Array, Any], Any]


class LiveOperatorCall:
    """One call; `tensors` are those among its arguments, in order, also those inside of lists.

    `function` makes the call of (args, kwargs); `copied` copies a tensor, and is given where the operator writes into
    its first argument.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
        forms: tuple[ToArray, FromArray],
        copied: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        self._function = function
        self._given = {str(place): one for place, one in enumerate(given[0])} | dict(given[1])
        self._positions = len(given[0])
        self._to_array, self._from_array = forms
        self._copied = copied
        arrays = [(place, leaf, self._to_array(leaf)) for place, leaf in leaves(self._given)]
        self._leaves = [(place, leaf) for place, leaf, array in arrays if array is not None]
        self.tensors: list[Array] = [array for _, _, array in arrays if array is not None]

    def run(self, instead: Mapping[int, Array] | None = None) -> Any:
        """Return what the operator makes of its arguments, with these tensors in the place of its own."""
        new = {
            self._leaves[at][0]: self._from_array(value, self._leaves[at][1]) for at, value in (instead or {}).items()
        }
        if self._copied is not None and self._leaves[0][0] not in new:
            new[self._leaves[0][0]] = self._copied(self._leaves[0][1])
        given = with_leaves(self._given, new.get) if new else self._given
        return self._call(given)

    def output(self, made: Any) -> Array | None:
        """The first tensor of what the operator made."""
        return next(self._arrays(made), None)

    def outputs(self, made: Any) -> list[Array]:
        """All tensors of what the operator made."""
        return [*self._arrays(made)]

    def with_output(self, made: Any, value: Array) -> Any:
        """Return what the operator made with its first tensor replaced."""
        place, leaf = next((p, one) for p, one in leaves(made) if self._to_array(one) is not None)
        new = {place: self._from_array(value, leaf)}
        return with_leaves(made, new.get)

    def plain(self) -> Any:
        """Make the call as it is, writing into what it writes into."""
        return self._call(self._given)

    def answer(self, made: Any) -> Any:
        """Return the outcome of the call, written into the first argument where the operator does that."""
        if self._copied is None:
            return made
        first = self._leaves[0][1]
        first.copy_(made)
        return first

    def _arrays(self, made: Any) -> Iterator[Array]:
        return (array for _, leaf in leaves(made) if (array := self._to_array(leaf)) is not None)

    def _call(self, given: Mapping[str, Any]) -> Any:
        places = [str(place) for place in range(self._positions)]
        return self._function(
            *(given[place] for place in places), **{name: one for name, one in given.items() if name not in places}
        )
