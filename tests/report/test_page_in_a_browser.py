"""The page in a headless Chromium: nothing fails, tables and trees answer, and it fits every screen."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from matplotlib.image import imread

from align.report.blocks import format_number
from align.report.page_html import page_html
from align.runs.run_folder import RunFolder

LATER = "--virtual-time-budget=20000"
OPENED = """async function tried() {
  document.body.getBoundingClientRect();
  return { elements: document.querySelectorAll("*").length };
}</script>"""
TRIED = """async function tried() {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const table = document.querySelector("[data-name=layers]");
  const head = all("thead th", table).find((one) => one.textContent.startsWith("× limit"));
  const first = () => table.querySelector("tbody tr").cells[head.cellIndex].textContent;
  const count = () => table.querySelector(".count").textContent;
  const found = { folded: count(), start: first() };
  head.querySelector("button").click();
  found.ascending = [first(), head.getAttribute("aria-sort")];
  head.querySelector("button").click();
  found.descending = [first(), head.getAttribute("aria-sort")];
  head.querySelector("button").click();
  found.unsorted = [first(), head.getAttribute("aria-sort")];
  table.querySelector(".unfold").click();
  found.unfolded = count();
  const field = table.querySelector("input");
  field.value = "LAYER4";
  field.dispatchEvent(new Event("input"));
  found.filtered = [count(), all("tbody tr", table).every((row) => row.textContent.includes("layer4"))];
  field.value = "";
  field.dispatchEvent(new Event("input"));
  let saved;
  window.Blob = class { constructor(parts) { saved = parts.join(""); } };
  URL.createObjectURL = () => "#";
  const click = HTMLElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () { found.file = this.download; };
  click.call(table.querySelector(".export"));
  delete HTMLAnchorElement.prototype.click;
  const lines = saved.split(/\\r\\n/);
  found.saved = [lines.length, lines[0].includes("× limit"), lines.some((one) => one.includes("layer4"))];
  const places = [];
  for (const key of ["n", "n", "N"]) {
    dispatchEvent(new KeyboardEvent("keydown", { key }));
    places.push(location.hash);
  }
  found.led = places;
  dispatchEvent(new Event("beforeprint"));
  found.printed = [all("details:not([open])").length, all("tbody tr", table).length];
  dispatchEvent(new Event("afterprint"));
  found.closedAgain = all("details:not([open])").length > 0;

  const named = (one, name) => one.querySelector(".name")?.textContent === name;
  const node = (side, name) => all(`[data-side=${side}] .node`).find((one) => named(one, name));
  const isOpen = (side, name) => node(side, name).querySelector(".twist").getAttribute("aria-expanded");
  found.ledTo = all(".node.current .name").map((one) => one.textContent);
  found.inView = all(".node.current").map((one) => {
    const [line, tree] = [one, one.closest(".tree")].map((each) => each.getBoundingClientRect());
    return line.top >= tree.top && line.bottom <= tree.bottom;
  });
  found.open = [isOpen("reference", "shortcut"), isOpen("candidate", "down_sample")];
  node("reference", "shortcut").querySelector(".twist").click();
  found.closed = [isOpen("reference", "shortcut"), isOpen("candidate", "down_sample")];
  node("candidate", "max_pool").querySelector(".pick").click();
  found.chosen = all(".node.current .name").map((one) => one.textContent);
  found.told = document.querySelector(".chosen").textContent.includes("resnet.embedder.pooler");
  document.querySelector("[type=radio][value=gathered]").click();
  found.mode = document.querySelector(".trees").dataset.mode;

  const link = document.querySelector('.strip a[href$="-parameters"]');
  const section = document.querySelector(link.hash + " details");
  found.section = [section.open];
  link.click();
  await new Promise((done) => setTimeout(done, 200));
  found.section.push(section.open);

  const style = (selector) => getComputedStyle(document.querySelector(selector));
  const colours = () => style("body").backgroundColor + style("h2").color;
  const before = colours();
  document.querySelector(".theme").click();
  found.theme = [before === colours(), document.documentElement.dataset.theme];
  document.querySelector(".copy").click();
  await new Promise((done) => setTimeout(done, 200));
  const isCopied = all(".copy").some((one) => one.textContent === "Copied");
  found.copied = isCopied || String(getSelection()).startsWith("align ");
  return found;
}</script>"""
TOKENS = """async function tried() {
  const found = { title: document.title };
  for (const version of document.querySelectorAll("div.version")) {
    document.documentElement.lang === version.lang || document.querySelector(".language").click();
    const title = [...version.querySelectorAll("h3")].find((one) => /\\bids\\b.*3 \\/ 5$/.test(one.textContent));
    title.closest("details").open = true;
    const table = title.nextElementSibling.querySelector("table");
    const rows = [...table.querySelectorAll("tbody tr")];
    const colour = (row) => getComputedStyle(row.cells[0]).backgroundColor + getComputedStyle(row).backgroundColor;
    found[version.lang] = {
      title: title.textContent,
      head: [...table.querySelectorAll("thead th")].map((cell) => cell.textContent),
      rows: rows.map((row) => [...row.cells].map((cell) => cell.textContent)),
      marked: rows.map((row) => colour(row) !== colour(rows[1])),
      height: table.clientHeight > 0,
    };
  }
  return found;
}</script>"""
AXE = """<script>async function tried() {
  for (const one of document.querySelectorAll("details")) one.open = true;
  for (const row of document.querySelectorAll("tbody tr:nth-child(n+6)")) row.remove();
  for (const one of document.querySelectorAll(".plot svg")) one.replaceChildren();
  const found = {};
  for (const theme of ["light", "dark"]) {
    document.documentElement.dataset.theme = theme;
    const run = await axe.run(document);
    const told = (one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html).join(" ")}`;
    found[theme] = {
      passed: run.passes.length,
      bad: run.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map(told),
    };
  }
  return found;
}</script>"""


def test_tables_sort_filter_and_unfold_trees_stay_in_step_and_sections_open(probe, faulty, faulty_page):
    layers = faulty.read("forward")["layers"]
    largest = format_number(max(layer["factor"] for layer in layers if layer["factor"] is not None))
    filtered = sum("layer4" in layer["candidate"] for layer in layers if layer["outcome"] != "not comparable")
    assert probe(faulty_page, TRIED, LATER) == {
        "folded": "118 of 120 rows",
        "start": "0",
        "ascending": ["0", "ascending"],
        "descending": [largest, "descending"],
        "unsorted": ["0", None],
        "unfolded": "120 rows",
        "filtered": [f"{filtered} of 120 rows", True],
        "file": "forward-layers.csv",
        "saved": [122, True, True],
        "led": ["#en-fault-1", "#en-fault-2", "#en-fault-1"],
        "printed": [0, 120],
        "closedAgain": True,
        "ledTo": ["convolution", "0"],
        "inView": [True, True],
        "open": ["true", "true"],
        "closed": ["false", "false"],
        "chosen": ["pooler", "max_pool"],
        "told": True,
        "mode": "gathered",
        "section": [False, True],
        "theme": [False, "dark"],
        "copied": True,
    }


def test_tokens_of_both_sides_stand_beside_each_other_with_what_differs_marked(probe, samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("data",)))
    found = probe(page_html(run), TOKENS, LATER)
    assert found["title"] == "Alignment report: run"
    # The probe's own text is written with &lt; when the browser prints the document.
    hostile, escaped = "&lt;script>document.title =…", "\\x1b[31m\\u4f60"
    rows = [
        ["-", "-", "", "0", "1", "[CLS]", "≠"],
        ["0", "7", "' '", "1", "7", "' '", ""],
        [*[""] * 6, "12 equal tokens"],
        ["13", "8", hostile, "14", "9", escaped, "≠"],
        [*[""] * 6, "4 equal tokens"],
    ]
    assert found["en"] == {
        "title": "Tokens of field ids, sample 3 / 5",
        "head": ["#", "reference", "word", "#", "candidate", "word", "differs"],
        "rows": rows,
        "marked": [True, False, False, True, False],
        "height": True,
    }
    chinese = found["zh"]
    assert (chinese["title"], chinese["marked"]) == ("字段 ids 的 token，样本 3 / 5", found["en"]["marked"])
    assert [row[:6] for row in chinese["rows"]] == [row[:6] for row in rows]
    assert chinese["rows"][2][6] == "12 个相同的 token"


def test_axe_finds_nothing_serious_in_light_or_dark(probe, faulty_page):
    axe = find_spec("axe_core_python")
    assert axe is not None, 'pip install -e ".[dev]"'
    rules = Path(str(axe.origin)).with_name("axe.min.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    found = probe(faulty_page, f"</script><script>{rules}</script>{AXE}", LATER)
    for theme in ("light", "dark"):
        assert found[theme]["passed"] > 15
        assert found[theme]["bad"] == []


def test_five_thousand_layers_open_with_few_elements(probe, many_layers):  # benchmarks/report_page.py measures how fast
    page = page_html(many_layers)
    assert len(page.encode()) < 4_000_000
    assert probe(page, OPENED)["elements"] < 12_000  # of 65,000 cells and 10,000 modules


def test_a_phone_shows_all_without_scrolling_sideways(browse, faulty_page, tmp_path):
    telling = """<script>addEventListener("load", () => {
      const plot = document.querySelector(".plot svg").clientWidth;
      parent.postMessage([innerWidth, document.documentElement.scrollWidth, plot], "*");
    })</script>"""
    page, frame = tmp_path / "page.html", tmp_path / "phone.html"
    page.write_text(faulty_page.replace("<head>", "<head>" + telling, 1), encoding="utf-8")
    frame.write_text(
        '<script>addEventListener("message", (event) => document.body.append("told " + event.data))</script>'
        f'<body><iframe src="{page.as_uri()}" style="width: 375px; height: 800px; border: 0"></iframe>',
        encoding="utf-8",
    )
    dom, _ = browse(frame, "--dump-dom", LATER)
    width, reached, plot = map(int, re.search(r"told (\d+),(\d+),(\d+)", dom).groups())
    assert width == 375
    assert reached <= width
    assert plot > width, "a plot scrolls in itself and stays readable"


def test_the_page_as_drawn_is_light_or_dark_as_the_reader_wants_it(browse, faulty_page, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(faulty_page, encoding="utf-8")
    brightness = {}
    for theme, flags in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
        shot = tmp_path / f"{theme}.png"
        browse(page, "--window-size=1000,1400", f"--screenshot={shot}", *flags)
        picture = imread(shot)[..., :3]
        brightness[theme] = picture.mean()
        assert picture.std() > 0.05, "nothing is drawn"
    assert brightness["light"] > 0.8
    assert brightness["dark"] < 0.3
