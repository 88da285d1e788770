"""Every family of mappings/models leads there and back by each of its rules, and knows its own names only."""

from __future__ import annotations

import re

import pytest

from align.rules.model_families import ModelFamily, Place, PlaceRule, model_families

FAMILIES = {family.name: family for family in model_families()}
HITS = [(family.name, torch, mindspore) for family in FAMILIES.values() for torch, mindspore in family.hits]
MISSES = [(family.name, path) for family in FAMILIES.values() for path in family.misses]
RULES = [(family.name, number) for family in FAMILIES.values() for number in range(len(family.rules))]
NUMBERED = re.compile(r"#(?:[+-]\d+)?")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_examples_that_hit_and_that_miss(name) -> None:
    family = FAMILIES[name]
    assert len(family.hits) > 1
    assert len(family.misses) > 1
    assert family.needs


@pytest.mark.parametrize(("name", "torch", "mindspore"), HITS)
def test_an_example_leads_there_and_back(name, torch, mindspore) -> None:
    assert mindspore in place(FAMILIES[name], torch, backwards=False).paths
    assert torch in place(FAMILIES[name], mindspore, backwards=True).paths


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.optional])
def test_names_without_an_optional_prefix_have_the_places_of_those_with_it(name) -> None:
    family = FAMILIES[name]
    for side, prefix in family.optional.items():
        number = ("torch", "mindspore").index(side)
        hits = [hit for hit in family.hits if hit[number].startswith(prefix)]
        assert hits, f"no example has the prefix {prefix}"
        for hit in hits:
            bare = hit[number].removeprefix(prefix)
            places = [place(form, bare, backwards=side == "mindspore") for form in family.forms]
            found = next(one for one in places if one is not None)
            assert any(path.endswith(hit[1 - number].removeprefix(prefix)) for path in found.paths)
            assert place(family, bare, backwards=side == "mindspore") is None


@pytest.mark.parametrize(("name", "path"), MISSES)
def test_a_path_of_another_model_is_not_known(name, path) -> None:
    assert place(FAMILIES[name], path, backwards=False) is None


@pytest.mark.parametrize(("name", "number"), RULES)
def test_each_rule_comes_to_bear_for_some_numbers_and_leads_back(name, number) -> None:
    rule = FAMILIES[name].rules[number]
    for backwards, paths in ((False, rule.torch), (True, rule.mindspore)):
        for path in paths:
            assert any(leads(FAMILIES[name], rule, path, n, backwards=backwards) for n in range(1, 7)), path


@pytest.mark.parametrize("name", FAMILIES)
def test_no_two_rules_of_a_family_say_different_things_of_one_path(name) -> None:
    for side in ("torch", "mindspore"):
        own = [(path, bool(rule.kind)) for rule in FAMILIES[name].rules for path in getattr(rule, side)]
        assert len(own) == len(set(own))


def place(family: ModelFamily, path: str, *, backwards: bool) -> Place | None:
    """The place of a parameter, or of a layer with some parameter."""
    return family.place(path, backwards=backwards) or family.place(f"{path}.weight", backwards=backwards)


def leads(family: ModelFamily, rule: PlaceRule, path: str, number: int, *, backwards: bool) -> bool:
    filled = NUMBERED.sub(str(number), path)
    found = family.place(f"{filled}.weight" if rule.kind else filled, backwards=backwards)
    return found is not None and found.rule == rule
