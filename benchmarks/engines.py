"""Whether `align tokens`, `align diff` and `align forward --against-formula` find and name what was planted.

`python benchmarks/engines.py --part weights` changes the weights of that Llama as ports do, in files of both
frameworks, and looks whether `align diff` names the relation in every changed tensor, and none elsewhere. `--part
formulas` judges calls of fused operators whose kernel took one argument otherwise than the call says. Without a part,
`python benchmarks/engines.py` has the small Llama of `examples/`, in torch and in MindSpore, score its own texts as an
engine would with a fault of `_engine_faults.py`, and prints found, named and alarms. `--only WORD` takes the cases
whose name has it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from _engine_faults import CLEAN, PLANTED, Case, Engine
from _formula_faults import FORMULA_CLEAN, FORMULA_PLANTED, FormulaCase, write_dump
from _weight_faults import CLEAN_WEIGHTS, PLANTED_WEIGHTS, WeightCase, diffed

import align


def main() -> int:
    """Run all cases; 1 if a fault is missed or named otherwise, or an alarm is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument(
        "--part", choices=("tokens", "weights", "formulas"), default="tokens", help="whose cases are run"
    )
    options = parser.parse_args()
    if options.part == "weights":
        planted = [_judged_weights(case) for case in PLANTED_WEIGHTS if options.only in case.name]
        clean = [_judged_weights(case) for case in CLEAN_WEIGHTS if options.only in case.name]
    elif options.part == "formulas":
        planted = [_judged_formula(case) for case in FORMULA_PLANTED if options.only in case.name]
        clean = [_judged_formula(case) for case in FORMULA_CLEAN if options.only in case.name]
    else:
        engine = Engine()
        planted = [_judged(engine, case) for case in PLANTED if options.only in case.name]
        clean = [_judged(engine, case) for case in CLEAN if options.only in case.name]
    found, named = sum(one[0] for one in planted), sum(one[1] for one in planted)
    alarms = sum(one[0] for one in clean)
    print(f"{len(planted)} planted: {found} found, {named} named; {len(clean)} clean: {alarms} with an alarm")
    return int(named < len(planted) or alarms > 0)


def _judged(engine: Engine, case: Case) -> tuple[bool, bool]:
    """Whether something was found, and whether it was named."""
    with tempfile.TemporaryDirectory() as folder:
        reference, candidate, options = case.make(engine, Path(folder))
        result = align.compare_tokens(reference, candidate, **options)
    causes = [cause.id for cause in result.causes] or [one.fault for one in result.garbled]
    found = result.verdict.outcome is not align.Outcome.ALIGNED
    mean = f"mean {result.figures.mean:.2e}" if result.figures else ""
    proved = "measured" if result.causes and result.causes[0].confirmed else ""
    print(f"{case.name:34} {'found' if found else '-':6} {', '.join(dict.fromkeys(causes)):28} {proved:9} {mean}")
    return found, causes[:1] == [case.cause]


def _judged_weights(case: WeightCase) -> tuple[bool, bool]:
    """Whether the fault is found (of a clean pair: whether anything is related), and named wherever tensors differ."""
    with tempfile.TemporaryDirectory() as folder:
        diff = diffed(case, Path(folder))
    differing = [one for one in diff.tensors if one.outcome != "equal"]
    names = [relation.id for one in differing for relation in one.relations]
    found = bool(differing) if case.relation else bool(names)
    lines = f"{len(diff.map_lines)} lines" if diff.map_lines else ""
    said = ", ".join(dict.fromkeys(names))
    print(f"{case.name:28} {case.framework:9} {len(differing):2} differ  {said:16} {lines}")
    return found, bool(names) and names == [case.relation] * len(differing)


def _judged_formula(case: FormulaCase) -> tuple[bool, bool]:
    """Whether the call departs from its formula, and whether the argument at fault is the first that is named."""
    with tempfile.TemporaryDirectory() as folder:
        result = align.compare_with_formulas(write_dump(Path(folder, "dump"), [case.call], case.framework))
    (call,) = result.calls
    named = [f"{one.argument}={one.instead}" for one in call.explained_by]
    print(f"{case.name:34} {call.outcome:12} {call.factor:10.3g} {', '.join(named)}")
    arguments = [one.argument for one in call.explained_by]
    return call.outcome != "aligned", arguments[:1] == [case.cause]


if __name__ == "__main__":
    raise SystemExit(main())
