"""Calls of fused operators in a dump, judged against their documented formula on a machine without the card.

The formula runs in float64 on what the call was given. What its kernel may round between steps is the limit. Where an
output departs, other values of the arguments are tried: one that makes it agree says what the kernel did instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.parameters import dtype_name, is_float, numpy_dtype
from align.core.protocols import silent
from align.core.traces import Limit, Measurement, smallest_factor
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, UsageError
from align.forward.thresholds import DROPOUT_MARGIN, LEAST_DROPPED
from align.measure.fused_formulas import FORMULAS, PACKED
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.rules.fused_rules import NOT_GIVEN, fused_rules
from align.traces.dumped_calls import DumpedValue, read_dumped_calls
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.parameters import Array
    from align.core.protocols import Progress
    from align.rules.fused_rules import FusedOperator
    from align.traces.dumped_calls import DumpedCall

OF_TORCH_NPU = "NPU."  # how msprobe begins the names of torch_npu's operators
UNREAD_IN_PACKED = ("mask",)
LISTS = ("query_lengths", "key_lengths", "prefix")  # which some calls give as tensors
CallOutcome = Literal["aligned", "not aligned"]


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """A value of an argument with which the formula gives the output that was captured; `said` is that of the call."""

    argument: str
    said: str
    instead: str
    factor: float


@dataclass(frozen=True, slots=True)
class FormulaCall:
    """A judged call: its worst output by number, what it differs by, and what would explain it.

    `unjudged_elements` counts elements of which the formula says nothing: padding, and rows that see no key. `pitfalls`
    are what the call itself is to be looked at for.
    """

    call: str
    operator: str
    outcome: CallOutcome
    output: int
    shape: tuple[int, ...]
    dtype: str
    measurement: Measurement
    limit: Limit
    factor: float
    explained_by: tuple[OtherArgument, ...]
    unjudged_elements: int
    note: str
    pitfalls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnjudgedCall:
    """A call of a fused operator that could not be judged, and why."""

    call: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class FormulaComparison(ShownResult):
    """All calls of fused operators of a dump, in its order, and those that could not be judged."""

    result_kind = "formula"
    dump: str
    framework: str
    calls: tuple[FormulaCall, ...]
    unjudged: tuple[UnjudgedCall, ...]
    other_calls: int
    verdict: Verdict


def compare_with_formulas(dump: Path | str, *, progress: Progress = silent) -> FormulaComparison:
    """Judge the calls of fused operators in a dump of msprobe (task tensor, level L1 or mix) by their formula.

    Raises DumpError for what is no such dump, CannotRunError if no call of it can be judged.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from align.errors import CannotRunError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "dump.json").write_text(json.dumps({"data": {"Torch.add.0.forward": {}}}))
    ...     try:
    ...         compare_with_formulas(folder)
    ...     except CannotRunError as error:
    ...         print(error.hint[:39])
    dump the calls of functions (level L1 o
    """
    path = Path(dump)
    framework, calls = read_dumped_calls(path)
    known = fused_rules().by_dumped(framework)
    fused = [call for call in calls if call.api in known or call.api.startswith(OF_TORCH_NPU)]
    judged: list[FormulaCall] = []
    unjudged: list[UnjudgedCall] = []
    for number, call in enumerate(fused):
        progress("formula", number, len(fused))
        operator = known.get(call.api)
        one = _examined(call, operator)
        (judged if isinstance(one, FormulaCall) else unjudged).append(one)  # type: ignore[arg-type]
    progress("formula", len(fused), len(fused))
    if not judged:
        _refuse(path, unjudged, sorted(known))
    return FormulaComparison(
        str(path), framework, tuple(judged), tuple(unjudged), len(calls) - len(fused), _verdict(judged, unjudged)
    )


def _refuse(path: Path, unjudged: list[UnjudgedCall], known: list[str]) -> None:
    if not unjudged:
        raise CannotRunError.of("formula_error.no_fused_call", path=path, known=known)
    raise CannotRunError.of(
        "formula_error.nothing_judged", path=path, reasons=[f"{one.call}: {one.reason}" for one in unjudged]
    )


def _verdict(judged: list[FormulaCall], unjudged: list[UnjudgedCall]) -> Verdict:
    wrong = [one for one in judged if one.outcome == "not aligned"]
    coverage = Coverage("calls", len(judged), excluded=len(unjudged))
    caveats = (sentence("formula_verdict.unjudged", calls=[one.call for one in unjudged]),) if unjudged else ()
    if not wrong:
        return Verdict(Outcome.ALIGNED, sentence("formula_verdict.agree", count=len(judged)), coverage, caveats)
    first = wrong[0]
    facts = {"count": len(wrong), "of": len(judged), "call": first.call, "factor": first.factor}
    if first.explained_by:
        why = first.explained_by[0]
        facts |= {"argument": why.argument, "instead": why.instead, "said": why.said}
    key = "explained" if first.explained_by else "departs"
    return Verdict(Outcome.NOT_ALIGNED, sentence(f"formula_verdict.{key}", **facts), coverage, caveats)


class _UnjudgedError(Exception):
    """Why a call cannot be judged."""


def _examined(call: DumpedCall, operator: FusedOperator | None) -> FormulaCall | UnjudgedCall:
    name = call.api.rpartition(".")[2]
    if operator is None:
        return UnjudgedCall(call.name, name, sentence("formula_note.unknown"))
    try:
        return _Examined(call, operator).judged()
    except _UnjudgedError as error:
        return UnjudgedCall(call.name, name, error.args[0])
    except UsageError as error:
        return UnjudgedCall(call.name, name, error.message)


class _Examined:
    """One call: its arguments by the names of the formula, and its outputs."""

    def __init__(self, call: DumpedCall, operator: FusedOperator) -> None:
        self.call, self.operator = call, operator
        self.given = operator.bound(call.args, call.kwargs)
        if outside := operator.outside_formula(self.given):
            raise _UnjudgedError(sentence("formula_note.outside", names=outside))
        outputs = [(number, output) for number, output in enumerate(call.outputs) if isinstance(output, DumpedValue)]
        if not outputs:
            raise _UnjudgedError(sentence("formula_note.no_outputs"))
        self.outputs = {
            number: self._loaded(output, f"output {number}") for number, output in outputs if output.load or not number
        }
        self.arguments = self._arguments()

    def judged(self) -> FormulaCall:
        keep_prob = self.arguments.get("keep_prob", 1.0)
        if not isinstance(keep_prob, (int, float)):
            raise _UnjudgedError(
                sentence("formula_note.unfit", reason=f"{self._name('keep_prob')}={_shown(keep_prob)}")
            )
        number, measurement, limit, factor, unjudged = self.compared(self.arguments)
        explained: tuple[OtherArgument, ...] = ()
        note = ""
        if keep_prob < 1.0 and self.operator.formula == "attention":
            explained, note, agrees = self._dropout(keep_prob, factor)
        else:
            agrees = factor <= 1.0
            explained = () if agrees else tuple(self._explanations())
        return FormulaCall(
            call=self.call.name,
            operator=self.operator.id,
            outcome="aligned" if agrees else "not aligned",
            output=number,
            shape=self.outputs[number].shape,
            dtype=dtype_name(self.outputs[number].dtype),
            measurement=measurement,
            limit=limit,
            factor=factor,
            explained_by=explained,
            unjudged_elements=unjudged,
            note=note,
            pitfalls=self.operator.pitfalls_of(self.given),
        )

    def compared(self, arguments: Mapping[str, Any]) -> tuple[int, Measurement, Limit, float, int]:
        """The output that differs most from the formula with these arguments."""
        try:
            exact = FORMULAS[self.operator.formula](**arguments)
            kept = FORMULAS[self.operator.formula](**arguments, keep=partial(_rounded, dtype=self._dtype()))
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise _UnjudgedError(sentence("formula_note.unfit", reason=error)) from error
        rows = [self._output(number, exact[number], kept[number]) for number in self.outputs if number < len(exact)]
        return max(rows, key=lambda row: row[3])

    def _output(self, number: int, exact: Array, kept: Array) -> tuple[int, Measurement, Limit, float, int]:
        captured = self.outputs[number]
        if number and exact.size == captured.size:
            exact, kept = exact.reshape(captured.shape), kept.reshape(captured.shape)
        if captured.shape != exact.shape:
            facts = {"captured": list(captured.shape), "expected": list(exact.shape), "number": number}
            raise _UnjudgedError(sentence("formula_note.shapes", **facts))
        said = np.isfinite(exact)
        if not said.any():
            raise _UnjudgedError(sentence("formula_note.nothing_said"))
        dtype = dtype_name(captured.dtype)
        chosen = (exact, captured, kept) if said.all() else (exact[said], captured[said], kept[said])
        measurement = measure(chosen[0], chosen[1].astype(np.float64))
        noise = measure(chosen[0], _rounded(chosen[2], dtype))
        limit = limit_for(measurement, (dtype, dtype), noise, dtype, dtype, alone=True)
        return number, measurement, limit, smallest_factor(measurement, limit), int(said.size - said.sum())

    def _dtype(self) -> str:
        return dtype_name(self.outputs[min(self.outputs)].dtype)

    def _arguments(self) -> dict[str, Any]:
        """What the formula is given; a packed mask is not read, for it is the same for every size."""
        known, arguments = self.operator.defaults, dict(self.operator.constants)
        packed = self.given.get(self._name("sparse_mode"), 0) in PACKED
        for name, role in self.operator.roles.items():
            value = self.given.get(name)
            value = known[name] if value is None else value
            if value is not NOT_GIVEN and not (packed and role in UNREAD_IN_PACKED):
                tensor = self._loaded(value, name) if isinstance(value, DumpedValue) else value
                arguments[role] = tensor.tolist() if role in LISTS and isinstance(tensor, np.ndarray) else tensor
        return arguments

    def _name(self, role: str) -> str:
        """What the operator calls an argument of the formula."""
        return next((name for name, own in self.operator.roles.items() if own == role), role)

    def _loaded(self, value: DumpedValue, name: str) -> Array:
        if value.load is None:
            raise _UnjudgedError(sentence("formula_note.not_kept", name=name))
        tensor = value.load()
        return tensor if name.startswith("output ") or not is_float(value.dtype) else tensor.astype(np.float64)

    def _explanations(self) -> Iterator[OtherArgument]:
        """Other values of one argument that make the output agree, the closest first."""
        explained = []
        for role, values in fused_rules().tries.get(self.operator.formula, {}).items():
            for value in values:
                given = self.arguments.get(role)
                other = self._other(value, given)
                if other is NOT_GIVEN or (not isinstance(given, np.ndarray) and other == given):
                    continue
                try:
                    factor = self.compared({**self.arguments, role: other})[3]
                except _UnjudgedError:
                    continue
                if factor <= 1.0:
                    instead = (
                        value["of"] if isinstance(value, dict) and isinstance(given, np.ndarray) else _shown(other)
                    )
                    explained.append(OtherArgument(self._name(role), _shown(given), instead, factor))
        yield from sorted(explained, key=lambda other_argument: other_argument.factor)

    def _other(self, value: Any, given: Any) -> Any:
        """The value to try; NOT_GIVEN where it makes no sense."""
        if not isinstance(value, dict):
            return value
        if value["of"] == "1/sqrt(d)":
            return 1.0 / sqrt(self._head_size())
        if given is None or (value["of"] == "1/value" and not given):
            return NOT_GIVEN
        turned: dict[str, Any] = {"left out": lambda: None, "inverted": lambda: given == 0, "negated": lambda: -given}
        turned |= {"1/value": lambda: 1.0 / given, "1+value": lambda: 1.0 + given}
        return turned[value["of"]]()

    def _head_size(self) -> int:
        query = self.arguments["query"]
        flat = self.arguments.get("layout") in ("BSH", "SBH")
        return max(int(query.shape[-1]) // int(self.arguments.get("heads", 1) if flat else 1), 1)

    def _dropout(self, keep_prob: float, factor: float) -> tuple[tuple[OtherArgument, ...], str, bool]:
        """Judge a dropout by how far it spreads the output: which weights fell is random."""
        name, said = self._name("keep_prob"), _shown(keep_prob)
        if factor <= 1.0:
            return (OtherArgument(name, said, _shown(1.0), factor),), sentence("formula_note.no_dropout"), False
        exact = FORMULAS["attention"](**self.arguments)[0]
        spread = FORMULAS["attention"](**self.arguments, squares=True)[0]
        said_rows = np.isfinite(exact)
        apart = float(((self.outputs[0].astype(np.float64) - exact)[said_rows] ** 2).sum())
        if (counted := _weights(spread[said_rows])) < LEAST_DROPPED:
            raise _UnjudgedError(sentence("formula_note.few_dropped", count=int(counted)))
        share = 1.0 / (1.0 + apart / float(spread[said_rows].sum()))
        note = sentence("formula_note.dropout", share=share, said=keep_prob)
        if abs(share - keep_prob) <= DROPOUT_MARGIN:
            return (), note, True
        other = abs(share - (1.0 - keep_prob)) <= DROPOUT_MARGIN
        return ((OtherArgument(name, said, _shown(1.0 - keep_prob), 0.0),) if other else ()), note, False


def _weights(spread: Array) -> float:
    """How many equal parts the spread is made of."""
    return float(spread.sum()) ** 2 / max(float((spread**2).sum()), 1e-300)


def _rounded(values: Array, dtype: str) -> Array:
    """What a dtype keeps of float64."""
    with np.errstate(over="ignore"):
        return values.astype(numpy_dtype(dtype)).astype(np.float64) if is_float(dtype) else values


def _shown(value: object) -> str:
    """A value in a sentence; of a tensor that there is one."""
    if isinstance(value, np.ndarray):
        return "x".join(map(str, value.shape))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
