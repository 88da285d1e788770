"""The rule of an optimizer from the settings that the adapters read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.rules.update_rule_forms import update_rule_form
from align.training.updates.update_rules import UpdateRule

if TYPE_CHECKING:
    from align.core.layer_settings import ParameterGroup


def read_rule(group: ParameterGroup | None) -> UpdateRule | None:
    """Return what a group's optimizer computes.

    None for a class that `mappings/update_rules.toml` does not know, which a class derived from a known one is too,
    and where settings or rates could not be read.
    """
    if group is None or group.problems or group.rates.problem or not group.rates.values:
        return None
    form = update_rule_form(group.settings.classes)
    fields = form.fields(group.settings.values) if form else None
    return None if fields is None else UpdateRule(**fields, rates=group.rates.values)
