"""The page in a headless Chromium: nothing fails, tables and trees answer, and it fits every screen."""

from __future__ import annotations

import re
from dataclasses import replace
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

  const chosen = () => all(".node.current .name").map((one) => one.textContent);
  const reached = () => [...chosen(), document.querySelector(".trees .count").textContent];
  document.querySelector("[type=radio][value=alone]").click();
  found.red = ["r", "r", "R", "R"].map((key) => {
    dispatchEvent(new KeyboardEvent("keydown", { key }));
    return reached();
  });
  const find = document.querySelector(".trees [type=search]");
  const press = (facts) => find.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, ...facts }));
  find.value = "Layer2.1.";
  find.dispatchEvent(new Event("input"));
  found.search = [reached()];
  press({ key: "Enter" });
  found.search.push(reached());
  press({ key: "Enter", shiftKey: true });
  press({ key: "r" });
  found.search.push(reached());
  find.value = "no such module";
  find.dispatchEvent(new Event("input"));
  found.search.push(reached());
  find.value = "";
  find.dispatchEvent(new Event("input"));
  found.search.push(reached());

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
  const copy = document.querySelector(".copy");
  const own = (value) => ({ value, configurable: true });
  const clipboard = (writeText) => Object.defineProperty(navigator, "clipboard", own({ writeText }));
  const later = () => new Promise((done) => setTimeout(done, 0));
  clipboard(async () => { throw new Error("forbidden"); });
  copy.click();
  await later();
  found.copied = [copy.textContent, String(getSelection()).startsWith("align ")];
  clipboard(async (text) => { found.clipboard = text.startsWith("align "); });
  copy.click();
  await later();
  found.copied.push(copy.textContent);
  return found;
}</script>"""
# The marks of a plot are drawn by reference: a copy of them can be measured.
PLOTTED = """async function tried() {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const box = (one) => one.getBoundingClientRect();
  const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1.5;
  const plots = [...document.querySelectorAll("div.version[lang=en] .plot svg")].map((plot) => {
    const use = plot.querySelector("use");
    const marks = document.querySelector(use.getAttribute("href")).cloneNode(true);
    use.replaceWith(marks);
    const texts = [...plot.querySelectorAll("text")];
    const names = texts.filter((one) => one.textContent.startsWith("at fault, "));
    const points = [...marks.querySelectorAll("g[id*=PathCollection] use")];
    const covered = texts.flatMap((one, place) => [...texts.slice(place + 1), ...(names.includes(one) ? points : [])]
      .filter((other) => meet(box(one), box(other))).map((other) => `${one.textContent} - ${other.textContent}`));
    return { names: names.length, points: points.length, covered };
  });
  return { plots };
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
    pool, code = ("convolution", "0"), ("convolution", "conv3")
    one, other = ("convolution", "conv1"), ("convolution", "conv2")
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
        "red": [[*one, f"{place} of 2"] for one, place in ((pool, 1), (code, 2), (pool, 1), (code, 2))],
        "search": [[*one, "1 of 5"], [*other, "2 of 5"], [*one, "1 of 5"], ["0 of 0"], [""]],
        "section": [False, True],
        "theme": [False, "dark"],
        "copied": ["Copy", True, "Copied"],
        "clipboard": True,
    }


def test_names_in_the_plots_by_depth_cover_neither_each_other_nor_points(probe, samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("forward", "step")))
    forward, step = samples.faulty_forward(), samples.sample_step()
    high = {place: replace(forward.layers[place].measurement, relative_l2=1e3) for place in range(2, 119, 3)}
    layers = [replace(one, measurement=high.get(one.order, one.measurement)) for one in forward.layers]
    layers[1] = replace(layers[1], measurement=replace(layers[1].measurement, relative_l2=1e-16))
    culprits = tuple(samples.culprit(layers[place], 10.0) for place in (0, 10, 60, 61, 110))
    run.write(replace(forward, layers=tuple(layers), culprits=culprits), {})
    names = [f"body.{place}.conv" for place in (1, 2, 12)]
    wrong = [replace(step.culprits[0], candidate=name, reference=name, kind="backward", part="layer") for name in names]
    run.write(replace(step, culprits=tuple(wrong)), {})
    found = probe(page_html(run), PLOTTED, LATER)["plots"]
    assert [(one["names"], one["points"] > 20) for one in found if one["names"]] == [(4, True), (3, True)]
    assert [one["covered"] for one in found] == [[]] * len(found)


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
