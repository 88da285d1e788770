"""The commands of docs/validate.md print what the page quotes."""

from __future__ import annotations

from typing import Any

import pytest

from align.evaluation.dataset_batches import METRICS


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    import torch

    torch.save(page.state_dict(), "net.pth")
    assert page.run_commands() == [0, 0, 1]


def test_the_page_names_every_option_and_every_metric(page: Any) -> None:
    assert page.named_options() == page.known_options()
    assert [name for name in METRICS if f"`{name}`" not in page.text] == []
