"""Norms and activations that users wrote: no rule knows their classes, but what they call epsilon is one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.rules.pitfalls import Examples, Pitfall, pitfalls
from align.rules.setting_forms import Form
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.layer_settings import LayerSettings
    from align.lint.compare_settings import LayerPair

NAMES = ("eps", "epsilon", "variance_epsilon", "norm_eps")
FORMS = {"torch.nn.RMSNorm": Form(("torch.nn.RMSNorm",), "eps", lacking=1.1920929e-07)}  # of float32, if not given
KNOWN = "epsilon"  # how rules call the setting


def written_epsilons(pairs: Sequence[LayerPair]) -> list[Pitfall]:
    """A rule for each pair of classes, one of them written by users, that both keep an epsilon and hold no layers."""
    around = {side.path.rpartition(".")[0] for pair in pairs for side in (pair.reference, pair.candidate)}
    found: dict[tuple[str, ...], Pitfall] = {}
    for pair in pairs:
        forms = _form(pair.reference), _form(pair.candidate)
        inner = {pair.reference.path, pair.candidate.path}.isdisjoint(around)
        if forms[0] and forms[1] and inner and not _is_known(pair):
            found.setdefault((*forms[0].classes, "", *forms[1].classes), _rule((forms[0], forms[1])))
    return list(found.values())


def _rule(forms: tuple[Form, Form]) -> Pitfall:
    return Pitfall(
        id="written-epsilon",
        topic="norms",
        setting=KNOWN,
        severity="error",
        effect=sentence("lint_effect.small_values"),
        forms=forms,
        examples=Examples((), ()),
        idle={},
    )


def _form(layer: LayerSettings) -> Form | None:
    """Where a layer keeps its epsilon: as its rule says, or under one of the usual names."""
    rule = next((rule for rule in _rules() if rule.form_of(layer.classes)), None)
    form = rule.form_of(layer.classes) if rule else FORMS.get(layer.classes[0] if layer.classes else "")
    if form is not None:
        return replace(form, classes=tuple(name for name in layer.classes if name in form.classes))
    name = next((name for name in NAMES if _is_number(layer.values.get(name))), None)
    return Form(classes=layer.classes[:1], reads=name) if name and layer.classes else None


def _is_known(pair: LayerPair) -> bool:
    return any(rule.form_of(pair.reference.classes) and rule.form_of(pair.candidate.classes) for rule in _rules())


def _rules() -> list[Pitfall]:
    return [rule for rule in pitfalls() if rule.setting == KNOWN and rule.topic == "norms"]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
