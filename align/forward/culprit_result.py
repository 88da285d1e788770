"""What stands at fault in a port: layers judged alone, and the culprits with what is known of their causes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from align.core.measurements import Limit, Measurement

IsolatedOutcome = Literal["aligned", "not aligned", "not comparable"]
Part = Literal["layer", "inputs", "code"]
FunctionDifference = Literal["result", "scaled input", "other table", "other input", "missing step"]
Sureness = Literal["confirmed", "suspected", "unknown"]


@dataclass(frozen=True, slots=True)
class IsolatedComparison:
    """One tensor of the port's layer that was given the reference's inputs, against the reference's output.

    `measurement`, `limit` and `factor` are as in LayerComparison. `inputs_factor` is that of what the port itself
    made of the right outputs of all layers before, the worst of its inputs: above 1 the code in front of the layer is
    at fault; None where no input could be paired.
    """

    outcome: IsolatedOutcome
    measurement: Measurement | None = None
    limit: Limit | None = None
    factor: float | None = None
    inputs_factor: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FunctionFault:
    """The functional call inside of wrong code that first makes something wrong.

    `function` is the name that the framework gives it, `lines` the files and numbers of the lines that call it. It is
    `confirmed` if all was right once it returned what a function of the reference does. Where the `difference` is a
    missing step, `reference_function` is the function that is missing, else the one in its place; "" if neither is
    known. `factor` is what its input is multiplied by.
    """

    function: str
    lines: tuple[str, ...]
    reference_function: str = ""
    reference_line: str = ""
    difference: FunctionDifference | Literal[""] = ""
    factor: float = 1.0
    sureness: Sureness = "suspected"


@dataclass(frozen=True, slots=True)
class Culprit:
    """Something in the port that computes what the reference does not, though all before it was right.

    `part` is the layer itself, the `inputs` that the code in front makes for it, or the `code` of the module, which
    makes wrong use of what its layers returned. Paths are "" for the model itself. `factor` is the multiple of the
    limit at which it would pass. `cause` is the id of a rule or relation, "" where none is known; it is `confirmed`
    if the change was tried and removes the difference, `suspected` if it would explain it. `change` is what to write,
    `line` where: file and number of the line that makes the layer, or that calls it. `inside` is the functional call
    at fault, where one was found.
    """

    reference: str
    candidate: str
    reference_class: str
    candidate_class: str
    call: int
    part: Part
    factor: float
    cause: str = ""
    sureness: Sureness = "unknown"
    facts: dict[str, float | int | str] = field(default_factory=dict)
    change: str = ""
    line: str = ""
    inside: FunctionFault | None = None
