"""What a large page of a report costs to make and to open: seconds in a headless Chromium, and times an empty page.

`opened` is when the page is there and its scripts have run, `drawn` when all tables and trees that stand open have been
styled and laid out; a headless browser paints nothing. The smallest of several runs counts: noise only ever adds. Run
it on a quiet machine: `python benchmarks/report_page.py [LAYERS ...]`.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from align.report.page_html import page_html
from align.runs.run_folder import RunFolder

RUNS = 5
LAYERS = (100, 1000, 5000)
ROOT = Path(__file__).parents[1]
SAMPLES = runpy.run_path(str(ROOT / "tests" / "report" / "sample_runs.py"))
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
PROBE = """<script>
addEventListener("load", () => {
  const opened = performance.now();
  document.body.getBoundingClientRect();  // all has to be laid out for this
  const told = document.createElement("pre");
  told.id = "probe";
  told.textContent = JSON.stringify([opened, performance.now(), document.querySelectorAll("*").length]);
  document.body.append(told);
});
</script>"""
EMPTY = "<!doctype html><html><head></head><body><p>nothing</p></body></html>"


def main() -> None:
    """Print one line for each number of layers."""
    counts = tuple(map(int, sys.argv[1:])) or LAYERS
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pages = {"an empty page": (EMPTY, 0.0)}
        pages |= {f"{count:,} layers": made_page(count, folder / str(count)) for count in counts}
        best = {name: (float("inf"), float("inf"), 0) for name in pages}
        for _ in range(RUNS):  # side by side, so that a busy moment hits all of them
            for name, (page, _) in pages.items():
                best[name] = min(best[name], measured(page, folder))
    empty = best["an empty page"][1]
    for name, (opened, drawn, elements) in best.items():
        page, seconds = pages[name]
        print(
            f"{name:14} made in {seconds:5.1f} s, {len(page.encode()) / 1e6:5.2f} MB, {elements:6,} elements:"
            f" opened in {opened:5.2f} s, drawn in {drawn:5.2f} s ({drawn / empty:5.1f} x empty)"
        )


def made_page(count: int, path: Path) -> tuple[str, float]:
    """The page of a port of so many layers of which one is at fault, and how long it took to make."""
    layers = []
    for place in range(count):
        block, own = divmod(place, 50)
        names = f"model.layers.{block}.block.{own}.convolution", f"net.blocks.{block}.cells.{own}.conv"
        one = SAMPLES["layer"](place, *names, 3e-7 if place < count // 2 else 0.02)
        layers.append(replace(one, isolated=SAMPLES["alone"](one, 0.02 if place == count // 2 else 1e-7)))
    culprits = (SAMPLES["culprit"](layers[count // 2], 4540.0, line="port.py:3"),)
    places = {"first_divergent": count // 2, "last_aligned": count // 2 - 1}
    folder = RunFolder.create(path)
    folder.write(replace(SAMPLES["sample_forward"](), layers=tuple(layers), culprits=culprits, **places), {})
    start = time.perf_counter()
    return page_html(folder), time.perf_counter() - start


def measured(page: str, folder: Path) -> tuple[float, float, int]:
    """Seconds until a page is opened, and until it is drawn, in a fresh browser; and how many elements it has."""
    browser = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium found: apt-get install chromium")
    path = folder / "page.html"
    path.write_text(page.replace("<head>", f"<head>{PROBE}", 1), encoding="utf-8")
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
        dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom)
    if found is None:
        sys.exit("the page was not opened")
    opened, drawn, elements = json.loads(found[1])
    return opened / 1000, drawn / 1000, elements


if __name__ == "__main__":
    main()
