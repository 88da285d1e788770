"""The groups of an optimizer as the reference's decay their parameters: written around what its call is given.

MindSpore's own optimizers leave gamma and beta without weight decay where parameters are not grouped, and torch's decay
them; ports often leave out groups that the reference has. The parameters of a group are told by a condition that holds
of all of them and of no other: how many dimensions they have, or the end of their name.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from align.fixes.plan_edits import decoded, ends
from align.forward.forward_result import Culprit
from align.lint.lint_models import decays_to_set
from align.models.function_source import CodeChange, called_name, function_source, resolved, shown
from align.runs.rung import RungResult, lacks_groups

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from align.models.function_source import FunctionSource
    from align.runs.project_file import Project

CAUSE: Final = "optimizer-weight-decay"  # the id of this cause
LISTS = ("trainable_params", "get_parameters")  # methods that list all parameters of a model
MOST_GROUPS = 2  # format: one condition, and its opposite


def proposes_groups(ladder: Mapping[str, Any] | None) -> bool:
    """Tell whether a rung of the last climb failed since parameters are decayed otherwise than in the reference."""
    rungs = map(RungResult.read, (ladder or {"rungs": []})["rungs"])
    return any(map(lacks_groups, (one for rung in rungs if rung.state == "failed" for one in rung.culprits)))


def ungrouped_optimizer(project: Project, map_file: Path) -> Culprit | None:
    """The optimizer of a port as a culprit, with the groups that its call lacks; None where these cannot be written.

    Both sides are the functions of the project that make a training.
    """
    if not (project.reference.training and project.candidate.training):
        return None
    known = decays_to_set(
        project.reference.training, project.candidate.training, map_file if map_file.is_file() else None
    )
    if known is None or known[0].optimizer is None:
        return None
    side, decays = known
    optimizer = known[0].optimizer.optimizer
    source = function_source(side.factory) if isinstance(side.factory, FunctionType) else None
    listed = _listed_parameters(source, type(optimizer).__name__) if source else None
    if source is None or listed is None:
        return None
    text = decoded(Path(source.file).read_bytes())
    before = text[slice(*ends(text, listed))]
    after = _grouped(before, decays, _shapes(optimizer))
    if not after:
        return None
    code = CodeChange(source.file, listed.lineno, listed.col_offset, before, after)
    place, line = "optimizer", shown(source, listed.lineno)
    return Culprit(
        "", place, "", type(optimizer).__name__, 0, "code", 0.0, CAUSE, "confirmed", change=after, line=line, code=code
    )


def _listed_parameters(source: FunctionSource, class_name: str) -> ast.expr | None:
    """What the only call of an optimizer's class is given as its parameters, where that lists those of a model."""
    calls = [one for one in ast.walk(source.node) if isinstance(one, ast.Call) and called_name(one) == class_name]
    if len(calls) != 1:
        return None
    given = [*calls[0].args[:1], *(one.value for one in calls[0].keywords if one.arg == "params")]
    if not given:
        return None
    listing = called_name(resolved(source.node, given[0]))
    is_list = listing == LISTS[0] or (listing in LISTS and isinstance(given[0], ast.Call))  # the other one ends
    return given[0] if is_list else None


def _shapes(optimizer: Any) -> dict[str, int]:
    """The dimensions of all parameters of a live optimizer by their own name."""
    groups = getattr(optimizer, "param_groups", None)
    listed = [one for group in groups for one in group["params"]] if isinstance(groups, list) else optimizer.parameters
    return {one.name: one.ndim for one in listed}


def _grouped(listed: str, decays: Mapping[str, float], dimensions: Mapping[str, int]) -> str:
    """The source of the groups; "" where no condition tells them apart, or there are more than two."""
    values = sorted(set(decays.values()))
    if len(values) > MOST_GROUPS or decays.keys() != dimensions.keys():
        return ""
    if len(values) == 1:
        return f'[{{"params": {listed}, "weight_decay": {values[0]!r}}}]'
    apart = {name for name, decay in decays.items() if decay == values[0]}
    conditions = zip(_conditions(apart, dimensions), values, strict=False)
    groups = [f'{{"params": [{_chosen(listed, one)}], "weight_decay": {value!r}}}' for one, value in conditions]
    return f"[{', '.join(groups)}]" if groups else ""


def _chosen(listed: str, condition: str) -> str:
    return " ".join(("param", "for", "param", "in", listed, "if", condition))


def _conditions(names: Collection[str], dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """What holds of these parameters, and what of all others: few dimensions, or an end of the name; () for neither."""
    others = dimensions.keys() - names
    if max(dimensions[name] for name in names) < MATRIX <= min(dimensions[name] for name in others):
        return f"param.ndim < {MATRIX}", f"param.ndim >= {MATRIX}"
    ends_of_names = sorted({_end(name) for name in names})
    if any(name.endswith(tuple(ends_of_names)) for name in others):
        return ()
    written = ", ".join(f'"{end}"' for end in ends_of_names)
    condition = f"param.name.endswith(({written},))"
    return condition, f"not {condition}"


MATRIX = 2  # format: dimensions that a weight has, and a bias or the scale of a normalisation has not


def _end(name: str) -> str:
    return f".{name.rpartition('.')[2]}" if "." in name else name
