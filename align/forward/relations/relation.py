"""A relation that was found between two arrays: what would have to be so for the one to become the other."""

from __future__ import annotations

from dataclasses import dataclass, field

Fact = int | float | str


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation, with its figures.

    `id` names it (`permuted`, `bias-missing`; docs/causes.md lists them). `factor` is the multiple of the limit that
    is left once the relation is taken into account, over the `share` of the elements that it speaks of: <= 1 explains
    these. `fitted` counts the numbers that were read off the data.
    """

    id: str
    factor: float
    share: float = 1.0
    fitted: int = 0
    facts: dict[str, Fact] = field(default_factory=dict)

    @property
    def explains(self) -> bool:
        """True if nothing is left to explain: all elements are within the limit."""
        return self.factor <= 1.0 and self.share == 1.0
