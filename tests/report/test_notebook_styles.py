"""Results as JupyterLab shows them: its own rules for tables and lists do not reach into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from align.report.open_run import open_run, result_html

JUPYTERLAB = Path(__file__).with_name("data") / "jupyterlab_outputs.css"
DARK = "--jp-ui-font-color1: #ffffffde; --jp-layout-color0: #111; --jp-layout-color2: #424242;"
LIGHT = "--jp-ui-font-color1: #000000de; --jp-layout-color0: #fff; --jp-layout-color2: #eee;"
MEASURED = """
function tried() {
  const found = {};
  const all = (query) => [...document.querySelectorAll(query)];
  const box = (one) => one.getBoundingClientRect();
  found.layouts = [...new Set(all(".ma table").map((one) => getComputedStyle(one).tableLayout))];
  found.aligned = [...new Set(all(".ma td:not(.ma-number)").map((one) => getComputedStyle(one).textAlign))];
  found.cells = all(".ma td").length;
  found.cut = all(".ma td, .ma th, .ma dt, .ma dd").filter((one) => one.scrollWidth > one.clientWidth + 1).length;
  found.overlapping = all(".ma tr").filter((row) => [...row.cells].some((cell, place) =>
    place && box(cell).left < box(row.cells[place - 1]).right - 1)).length;
  found.facts = all(".ma dl").filter((list) => {
    const [label, fact] = list.children;
    return box(fact).left < box(label).right - 1 || Math.abs(box(label).top - box(fact).top) > 6;
  }).length;
  found.colours = [...new Set(all(".ma td").map((one) => getComputedStyle(one).color))];
  return found;
}
</script>"""


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_nothing_of_a_result_is_cut_or_overlaps_in_jupyterlab(samples, probe, tmp_path, theme: str) -> None:
    run = open_run(samples.write_sample_run(tmp_path / "run"))
    parts = [run._repr_html_(), *(run.details(kind)._repr_html_() for kind in ("forward", "map"))]
    parts += [result_html(samples.sample_forward()), result_html(samples.sample_losses())]
    output = '<div class="jp-OutputArea-child"><div class="jp-RenderedHTMLCommon jp-RenderedHTML jp-OutputArea-output">'
    outputs = "".join(f"{output}{part}</div></div>" for part in parts)
    page = f"""<!DOCTYPE html><html><head><style>:root {{ {theme} }} body {{ margin: 0;
        background: var(--jp-layout-color0); color: var(--jp-ui-font-color1) }}
        {JUPYTERLAB.read_text(encoding="utf-8")}</style></head><body>{outputs}</body></html>"""
    found = probe(page, MEASURED)
    assert found["cells"] > 100
    assert found["layouts"] == ["auto"]
    assert found["aligned"] == ["left"]
    assert (found["cut"], found["overlapping"], found["facts"]) == (0, 0, 0)
    assert len(found["colours"]) == 1
