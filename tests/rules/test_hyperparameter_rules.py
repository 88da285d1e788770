"""The tables of hyperparameters: enough of them, each name once, each default with a public address."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from align.errors import MappingRuleError
from align.hyperparameters.setting_values import in_one_form
from align.rules import hyperparameter_rules as rules
from align.rules.hyperparameter_rules import hyperparameter_rules

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = re.compile(r"https://[\w.-]+/\S+")


def test_there_are_sixty_parameters_of_six_trainers() -> None:
    found = hyperparameter_rules()
    assert len(found.parameters) >= 60
    assert len(found.trainers) >= 6
    trainers = {"hf_trainer", "megatron", "mindformers", "mmengine", "timm", "paddle", "deepspeed"}
    assert trainers <= {one.id for one in found.trainers}


def test_each_parameter_has_its_place_in_the_order_and_a_reason() -> None:
    found = hyperparameter_rules()
    assert {one.group for one in found.parameters} <= set(found.groups)
    assert found.unsettling <= set(found.groups)
    places = [found.groups.index(one.group) for one in found.parameters if one.id != "weights_fingerprint"]
    assert places == sorted(places)
    assert all(one.why and one.title for one in found.parameters)


def test_a_name_means_one_parameter() -> None:
    plain = [repr(name) for one in hyperparameter_rules().parameters for name in one.names]
    assert [name for name, count in Counter(plain).items() if count > 1] == []


def test_every_default_has_an_address_and_a_value_of_its_kind() -> None:
    found = hyperparameter_rules()
    for trainer in found.trainers:
        assert all(map(ADDRESS.fullmatch, [trainer.source, *trainer.sources.values()]))
        for name, value in trainer.defaults.items():
            parameter = found.parameter(name)
            known = in_one_form(value, parameter.kind, parameter.same)  # type: ignore[arg-type]
            kinds = {"number": float, "switch": bool, "choice": str, "numbers": tuple, "shares": tuple, "text": str}
            assert isinstance(known, kinds[parameter.kind]), (trainer.id, name, value)


def test_signs_tell_trainers_apart() -> None:
    signs = [sign for one in hyperparameter_rules().trainers for sign in one.signs]
    shared = {sign for sign, count in Counter(signs).items() if count > 1}
    alone = {one.id: set(one.signs) - shared for one in hyperparameter_rules().trainers}
    assert {name for name, own in alone.items() if len(own) < 2} == set()


def test_a_trainer_that_names_an_unknown_parameter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('id = "x"\ntitle = "X"\nsource = "https://x.org/"\nsigns = []\n[defaults]\nnone_such = 1\n')
    trainer = rules.read_rules(path, rules._trainer)
    with pytest.raises(MappingRuleError, match="no parameter is called \\['none_such'\\]"):
        rules._checked(path, trainer, {"lr"})
