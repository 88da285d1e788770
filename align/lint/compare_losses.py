"""Two losses compared: what they compute, every setting of theirs that a rule knows, and which it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.lint_result import ComparedPart, SettingFinding
from align.lint.lint_sides import root_settings
from align.lint.uncovered_settings import uncovered_settings
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.layer_settings import LayerSettings
    from align.models.open_side import Side
    from align.rules.pitfalls import Pitfall

TOPIC, REDUCTION = "losses", "loss-reduction"
FAMILIES = ("torch.nn.", "mindspore.nn.", "mindspore.mint.nn.")
SAME_FUNCTION = {
    "SoftmaxCrossEntropyWithLogits": "CrossEntropyLoss",
    "MAELoss": "L1Loss",
    "MultilabelMarginLoss": "MultiLabelMarginLoss",
}


def compare_losses(sides: tuple[Side, Side], rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare two losses; what no rule compares, and a loss that no rule knows, could not be compared."""
    settings = root_settings(sides[0]), root_settings(sides[1])
    found = compare_loss_settings(settings, rules)
    if not _same_function(settings):
        return found
    own = [rule for rule in rules if rule.topic == TOPIC]
    missed = uncovered_settings((type(sides[0].model), type(sides[1].model)), settings, own)
    problems = (sentence("lint_note.not_covered", what=one) for one in (*missed, *_reductions(settings, own)))
    return replace(found, not_compared=(*found.not_compared, *problems))


def compare_loss_settings(settings: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare what is known of two losses that need not be there: what they compute, and the settings of rules."""
    functions = _function(settings[0]), _function(settings[1])
    unknown = [one.classes[0] for one, name in zip(settings, functions, strict=True) if not name]
    if unknown:
        names = dict.fromkeys(unknown)
        return ComparedPart(not_compared=tuple(sentence("lint_note.unknown_class", name=name) for name in names))
    if not _same_function(settings):
        return ComparedPart((_other_function(settings, functions),), 1, 1)
    compared = compare_settings([LayerPair(*settings)], [rule for rule in rules if rule.topic == TOPIC])
    findings = tuple(replace(finding, part="loss") for finding in compared.findings)
    return ComparedPart(findings, 1, compared.compared, compared.unread, not_compared=tuple(compared.missing))


def _same_function(settings: tuple[LayerSettings, LayerSettings]) -> bool:
    return "" != _function(settings[0]) == _function(settings[1])


def _reductions(settings: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]) -> list[str]:
    """The reduction of losses that no rule reads it of: that it is at its default does not tell that it is equal."""
    known = next((rule for rule in rules if rule.id == REDUCTION), None)
    unread = [one for one in settings if known is None or known.form_of(one.classes) is None]
    return [sentence("lint_note.reduction", name=one.classes[0]) for one in unread]


def _function(loss: LayerSettings) -> str:
    """What a class of a framework, or one derived from it, computes; "" for one that users wrote."""
    names = [name.rpartition(".")[2] for name in loss.classes if name.startswith(FAMILIES) and name.count(".") < 4]
    name = next((name for name in names if not name.endswith("LossBase")), "")
    return SAME_FUNCTION.get(name, name)


def _other_function(settings: tuple[LayerSettings, LayerSettings], functions: tuple[str, str]) -> SettingFinding:
    names = [one.classes[0].rpartition(".")[2] for one in settings]
    return SettingFinding(
        rule="loss-function",
        severity="error",
        reference="",
        candidate="",
        reference_class=names[0],
        candidate_class=names[1],
        setting=sentence("lint_setting.kind_of_loss"),
        reference_setting=names[0],
        candidate_setting=names[1],
        effect=sentence("lint_effect.other_loss"),
        change=f"nn.{functions[0]}(...)",
        part="loss",
    )
