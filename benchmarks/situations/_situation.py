"""What a situation is: both sides, their inputs, and what is right to say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._nets import MINDSPORE, TORCH, make, mlp, mlp_layers, one_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._nets import Code, Layers

ALIGNED, WRONG, REFUSED = "aligned", "not aligned", "could not compare"
FAULTS_SEEN = (WRONG, REFUSED)  # a fault that may be told as such, or make the pair one that cannot be compared


@dataclass(frozen=True, slots=True)
class Situation:
    """Two sides on the same inputs, as one of two twins.

    `expected` are the outcomes that are right. An aligned verdict must come with the words `caveat`, one that is not
    with the words `named`; both are patterns, looked for in all that the result says, whatever the case.
    `inputs` are arrays by name, or a list of such batches.
    """

    name: str
    twin: Literal["clean", "faulty"]
    reference: Callable[[], Any]
    candidate: Callable[[], Any]
    inputs: Callable[[], Any] = one_batch
    expected: tuple[str, ...] = (ALIGNED,)
    caveat: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


def clean(name: str, reference: Any, candidate: Any, **more: Any) -> Situation:
    """Nothing is wrong: aligned, unless `expected` says that it cannot be told."""
    return Situation(name, "clean", reference, candidate, **more)


def faulty(name: str, reference: Any, candidate: Any, **more: Any) -> Situation:
    """Something is wrong: not aligned, unless `expected` allows more."""
    return Situation(name, "faulty", reference, candidate, **({"expected": (WRONG,)} | more))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How both sides of a pair of twins are made."""

    layers: Layers = mlp_layers
    port: Any = MINDSPORE
    dtypes: tuple[str, str] = ("float32", "float32")
    weights: str = "float32"
    masked: bool = False

    def original(self, code: Code = mlp) -> Callable[[], Any]:
        """A factory of the reference."""
        return lambda: make(TORCH, code, self.layers, dtype=self.dtypes[0], weights=self.weights, masked=self.masked)

    def other(self, code: Code = mlp) -> Callable[[], Any]:
        """A factory of the candidate."""
        return lambda: make(
            self.port, code, self.layers, dtype=self.dtypes[1], weights=self.weights, masked=self.masked
        )

    def both(self, code: Code = mlp) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Factories of both, of one code."""
        return self.original(code), self.other(code)


PORT = Recipe()
TORCH_TWICE = Recipe(port=TORCH)


def twins(  # noqa: PLR0913 - one parameter a part of the pair
    name: str,
    right: Code,
    wrong: Code,
    recipe: Recipe = PORT,
    *,
    rewritten: Code | None = None,
    inputs: Callable[[], Any] = one_batch,
    expected: tuple[str, ...] = (WRONG,),
    **told: tuple[str, ...],
) -> list[Situation]:
    """The pair that differs in `right` against `wrong` only; a clean port may be `rewritten` in other words.

    `expected`, and `caveat` and `named` in `told`, are those of the faulty twin.
    """
    original = recipe.original(right)
    port = recipe.other(rewritten or right)
    return [
        clean(name, original, port, inputs=inputs),
        faulty(name, original, recipe.other(wrong), inputs=inputs, expected=expected, **told),
    ]
