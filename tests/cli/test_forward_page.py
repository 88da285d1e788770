"""The commands of docs/forward.md print what the page quotes, and its constants are those of the code."""

from __future__ import annotations

from typing import Any

import pytest

from align.measure import thresholds


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    import torch

    torch.save(page.state_dict(), "net.pth")
    assert page.run_commands() == [0, 0, 1, 1]


def test_the_page_names_every_option(page: Any) -> None:
    others = {"--seed", "--partial"}  # of the inputs, and of two folders: they stand where those are told of
    assert page.named_options() == page.known_options() - others


def test_the_page_gives_the_constants_that_are_in_force(page: Any) -> None:
    assert f"| times the noise | {thresholds.NOISE_FACTOR:g} |" in page.text
    assert f"| {thresholds.TYPICAL_UNITS:g} units in the last place |" in page.text
    assert f"| {thresholds.WORST_UNITS:g} units of the largest value |" in page.text
    assert f"upper end of the {thresholds.NOISE_CONFIDENCE:.0%} confidence".replace("%", " %") in page.text
    for value in thresholds.RELATIVE_BY_DTYPE.values():
        assert f"{value:.0e}".replace("e-0", "e-") in page.text


def test_the_page_gives_the_constants_of_half_precision(page: Any) -> None:
    half = f"{thresholds.NOISE_FACTOR_OF_HALF_ALONE:g} times the noise of a layer alone"
    least = f"never below {thresholds.TYPICAL_UNITS_OF_HALF:g} unit in the last place"
    assert f"| {half}; {least}, {thresholds.WORST_UNITS_OF_HALF:g} of the largest value |" in page.text
