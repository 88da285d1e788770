"""Pictures of a job: a cell for each layer, or step, on each rank."""

from __future__ import annotations

from typing import Any

import pytest

from align.report.draw_plot import draw_layers_by_rank, draw_plot, draw_steps_by_rank
from align.report.page_blocks import draw_page_plot
from align.report.plot_layers import BAD

PLOTS = ("layers_by_rank", "steps_by_rank")


def document(ranks: int = 4, layers: int = 3, bad: int | None = 2) -> dict[str, Any]:
    outcomes = ["not aligned" if rank == bad else "aligned" for rank in range(ranks)]
    tasks = [
        {"rank": rank, "step": step, "state": outcomes[rank] if step else "aligned", "value": 3.0}
        for rank in range(ranks)
        for step in range(2)
    ]
    named = [{"layer": f"layers.{n}.$x", "outcomes": outcomes, "values": [1.0] * ranks} for n in range(layers)]
    return {"ranks": [*range(ranks)], "steps": [0, 1], "tasks": tasks, "layers": named}


def bad_cells(figure: Any) -> int:
    from matplotlib.colors import to_rgb

    (cells,) = figure.axes[0].collections
    return sum(tuple(colour[:3]) == to_rgb(BAD) for colour in cells.get_facecolors())


def test_each_cell_that_departs_is_marked_and_no_other() -> None:
    assert bad_cells(draw_layers_by_rank(document())) == 3
    assert bad_cells(draw_steps_by_rank(document())) == 1
    assert bad_cells(draw_layers_by_rank(document(bad=None))) == 0


def test_of_very_many_ranks_and_layers_those_that_depart_are_drawn() -> None:
    large = document(ranks=1000, layers=150, bad=999)
    figure = draw_layers_by_rank(large)
    assert bad_cells(figure) == 60
    assert figure.axes[0].get_xlim() == (-0.5, 127.5)
    assert bad_cells(draw_steps_by_rank(large)) == 1


@pytest.mark.parametrize("name", PLOTS)
def test_the_notebook_and_the_page_show_the_same(name: str) -> None:
    picture = draw_plot(name, document())
    assert picture is not None
    assert picture.png.startswith(b"\x89PNG")
    page = draw_page_plot(name, document())
    assert "<svg" in page.figure()
    assert "var(--bad-mark)" in page.marks
    assert draw_plot(name, document() | {"ranks": []}) is None
