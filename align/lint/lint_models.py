"""The settings of two models compared layer by layer, before any run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.import_user_code import require_file
from align.core.message_words import counted
from align.core.name_map import NameMap
from align.core.protocols import SettingsReader
from align.core.registry import check_packages, model_readers
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import CannotRunError, NothingInCommonError, UsageError
from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.lint_result import LintResult
from align.lint.pair_layers import pair_layers
from align.models.open_side import Side, load_function, open_side
from align.models.open_sides import refuse_one_object
from align.names.apply_user_rules import check_shapes
from align.names.map_file import read_map
from align.names.map_parameters import match_sides
from align.names.user_rules import NameRules
from align.rules.pitfalls import pitfalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.layer_settings import LayerSettings
    from align.core.parameters import ParameterSet
    from align.core.protocols import Model
    from align.lint.compare_settings import ComparedSettings


def lint_models(
    reference: str | Model | Side, candidate: str | Model | Side, *, name_map: NameMap | Path | str | None = None
) -> LintResult:
    """Compare the settings of all paired layers of two models, or of two optimizers; nothing is run.

    A side is a live model or optimizer, or `module:function` that makes one. Layers with parameters are paired by
    `name_map` (made from the names if None), others by their place in the tree. Raises NothingInCommonError if
    nothing pairs.

    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(name, **settings):
    ...     return ArrayModel((ArrayLayer("act", name, abs, {}, settings),))
    >>> reference = model("torch.nn.LeakyReLU", negative_slope=0.01)
    >>> lint_models(reference, model("mindspore.nn.LeakyReLU", alpha=0.2)).findings[0].change
    'nn.LeakyReLU(..., alpha=0.01)'
    """
    for side in (reference, candidate):
        if isinstance(side, str):
            require_file(side)
    sides = _open(reference), _open(candidate)
    refuse_one_object(sides)  # nothing is filled or run, so what else they share does no harm
    settings = [_reader(side).read_settings(side.model) for side in sides]
    if any(_reader(side).is_optimizer(side.model) for side in sides):
        pairs, alone = _pair_groups(sides, settings)
    else:
        pairs, alone = _pair_layers(sides, settings, name_map)
    if not pairs:
        raise NothingInCommonError(sides[0].label, sides[1].label, "layer")
    rules = pitfalls()
    compared = compare_settings(pairs, rules)
    unrun = sum(rule.unrun for rule in rules)
    verdict = _verdict(compared, alone)
    return LintResult(sides[0].label, sides[1].label, compared.findings, len(pairs), len(rules), unrun, verdict)


def _open(side: str | Model | Side) -> Side:
    """Open a side as for a run; an optimizer, which cannot be run, is a side as well."""
    readers = model_readers()
    model = load_function(side)() if isinstance(side, str) else side
    for reader in readers.values():
        if isinstance(reader, SettingsReader) and reader.is_optimizer(model):
            check_packages(reader)
            return Side(side if isinstance(side, str) else type(model).__name__, model, reader)
    opened = open_side(model)
    return Side(side, opened.model, opened.reader) if isinstance(side, str) else opened


def _reader(side: Side) -> SettingsReader:
    if isinstance(side.reader, SettingsReader):
        return side.reader
    hint = "give a side whose settings can be: `align plugins` lists the frameworks"
    raise CannotRunError(f"the settings of {side.reader.name} models cannot be read", hint)


def _pair_groups(
    sides: tuple[Side, Side], settings: Sequence[list[LayerSettings]]
) -> tuple[list[LayerPair], tuple[int, int]]:
    """Groups of parameters of two optimizers, in their order."""
    for side in sides:
        if not _reader(side).is_optimizer(side.model):
            raise UsageError(
                f"{side.label} is no optimizer, the other side is one", "give two models or two optimizers"
            )
    left, right = settings
    pairs = [LayerPair(mine, theirs) for mine, theirs in zip(left, right, strict=False)]
    return pairs, (len(left) - len(pairs), len(right) - len(pairs))


def _pair_layers(
    sides: tuple[Side, Side], settings: Sequence[list[LayerSettings]], given: NameMap | Path | str | None
) -> tuple[list[LayerPair], tuple[int, int]]:
    """Layers of two models; of those that stay alone, count the ones that a rule knows."""
    left, right = (side.reader.read_parameters(side.model, side.label) for side in sides)
    by_path = [{layer.path: layer for layer in own} for own in settings]
    pairs, alone = pair_layers((left, right), _name_map(given, left, right), (by_path[0], by_path[1]))
    known = {name for rule in pitfalls() for form in rule.forms for name in form.classes}
    counts = [sum(not known.isdisjoint(layer.classes) for layer in own) for own in alone]
    return pairs, (counts[0], counts[1])


def _name_map(given: NameMap | Path | str | None, source: ParameterSet, target: ParameterSet) -> NameMap:
    if isinstance(given, NameMap):
        return given
    if given is not None:
        name_map = read_map(Path(given), source.names, target.names)
        check_shapes(name_map, source, target)
        return name_map
    if not source.parameters and not target.parameters:
        return NameMap(source.label, target.label)
    return match_sides(source, target, NameRules())


def _verdict(compared: ComparedSettings, alone: tuple[int, int]) -> Verdict:
    coverage = Coverage("settings", compared.compared, compared.unread, *alone)
    grave = [finding for finding in compared.findings if finding.severity != "note"]
    if grave:
        layers = len({finding.candidate for finding in grave})
        reason = f"{counted(len(grave), 'setting')} of {counted(layers, 'layer')} may make the outputs differ"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not compared.compared:
        return Verdict(Outcome.NOT_COMPARED, "no rule knows a setting of two paired layers", coverage)
    return Verdict(Outcome.ALIGNED, f"{counted(compared.compared, 'known setting')} are equal", coverage)
