"""The rules that optimizers compute, as data."""

from __future__ import annotations

from dataclasses import fields

import pytest

from align.errors import MappingRuleError
from align.rules import training_rules as module
from align.rules.training_rules import setting_at, update_rule_form, update_rule_forms
from align.training.apply_rule import FORMULAS, UpdateRule


def test_every_form_is_of_a_known_kind_and_gives_fields_of_a_rule() -> None:
    names = {one.name for one in fields(UpdateRule)}
    for form in update_rule_forms():
        assert form.kind in FORMULAS
        assert names >= {*form.fixed, *form.reads}


def test_no_class_has_two_forms() -> None:
    classes = [name for form in update_rule_forms() for name in form.classes]
    assert len(set(classes)) == len(classes)


@pytest.mark.frameworks
def test_every_class_is_there() -> None:
    import mindspore
    import torch

    roots = {"torch": torch, "mindspore": mindspore}
    for form in update_rule_forms():
        for name in form.classes:
            first, *rest = name.split(".")
            found = roots[first]
            for part in rest:
                found = getattr(found, part)
            assert isinstance(found, type), name


def test_settings_are_turned_into_fields() -> None:
    form = update_rule_form(("mindspore.nn.Momentum",))
    assert form is not None
    settings = {"momentum": 0.9, "use_nesterov": True, "weight_decay": 0.1, "loss_scale": 4.0}
    expected = {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "gradient_scale": 0.25}
    assert form.fields(settings) == expected
    assert update_rule_form(("torch.optim.LBFGS",)) is None


def test_one_of_several_values_is_read() -> None:
    assert setting_at({"betas": (0.9, 0.99)}, "betas.1") == 0.99
    assert setting_at({"betas": (0.9,)}, "betas.1") is None
    assert setting_at({"eps": 1e-8}, "eps") == 1e-8


@pytest.mark.parametrize("text", ["[[optimizer", "a = 1", "[[optimizer]]\nkind = 'sgd'", "[[optimizer]]\nclasses = []"])
def test_a_faulty_file_is_refused(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setattr(module, "mappings_folder", lambda: tmp_path)
    (tmp_path / "update_rules.toml").write_text(text, encoding="utf-8")
    update_rule_forms.cache_clear()
    with pytest.raises(MappingRuleError, match="malformed"):
        update_rule_forms()
    update_rule_forms.cache_clear()
