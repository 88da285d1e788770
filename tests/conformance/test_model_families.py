"""Every family of mappings/models leads there and back by each of its rules, and knows its own names only."""

from __future__ import annotations

import re

import pytest

from align.rules.model_families import ModelFamily, Place, PlaceRule, model_families

FAMILIES = {family.name: family for family in model_families()}
NUMBERED = re.compile(r"#(?:[+-]\d+)?")

every_family = pytest.mark.parametrize("name", FAMILIES)


@every_family
def test_a_family_has_examples_that_hit_and_that_miss(name) -> None:
    family = FAMILIES[name]
    assert len(family.hits) > 1
    assert len(family.misses) > 1
    assert family.needs


@every_family
def test_each_example_leads_there_and_back(name, assert_each) -> None:
    def leads_there_and_back(torch, mindspore) -> None:
        assert mindspore in place(FAMILIES[name], torch, backwards=False).paths
        assert torch in place(FAMILIES[name], mindspore, backwards=True).paths

    assert_each(leads_there_and_back, FAMILIES[name].hits)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.optional])
def test_names_without_an_optional_prefix_have_the_places_of_those_with_it(name, assert_each) -> None:
    family = FAMILIES[name]
    for side, prefix in family.optional.items():
        number = ("torch", "mindspore").index(side)
        hits = [hit for hit in family.hits if hit[number].startswith(prefix)]

        def has_the_place(*hit, side=side, prefix=prefix, number=number) -> None:
            bare = hit[number].removeprefix(prefix)
            places = [place(form, bare, backwards=side == "mindspore") for form in family.forms]
            found = next(one for one in places if one is not None)
            assert any(path.endswith(hit[1 - number].removeprefix(prefix)) for path in found.paths)
            assert place(family, bare, backwards=side == "mindspore") is None

        assert hits, f"no example has the prefix {prefix}"
        assert_each(has_the_place, hits)


@every_family
def test_no_path_of_another_model_is_known(name, assert_each) -> None:
    def is_not_known(path) -> None:
        assert place(FAMILIES[name], path, backwards=False) is None

    assert_each(is_not_known, FAMILIES[name].misses)


@every_family
def test_each_rule_comes_to_bear_for_some_numbers_and_leads_back(name, assert_each) -> None:
    def comes_to_bear(number, backwards, path) -> None:
        rule = FAMILIES[name].rules[number]
        assert any(leads(FAMILIES[name], rule, path, n, backwards=backwards) for n in range(1, 7))

    ways = [
        (number, backwards, path)
        for number, rule in enumerate(FAMILIES[name].rules)
        for backwards, paths in ((False, rule.torch), (True, rule.mindspore))
        for path in paths
    ]
    assert_each(comes_to_bear, ways)


@every_family
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
