"""The page in both languages: equal figures, one shown at a time, a switch, and no English left in the Chinese one.

Most pages here are of real comparisons: what those say keeps its key, so that it is worded in both languages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from html import escape, unescape
from pathlib import Path

import pytest

from align.cli.main import main
from align.report.draw_plot import PLOTS
from align.report.page_blocks import draw_page_plot
from align.report.page_html import page_html
from align.runs.run_folder import RunFolder
from align.words.catalogue import VARIABLE

LATER = "--virtual-time-budget=20000"
CHINESE = re.compile("[\u4e00-\u9fff]")
FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d(?!\w)", re.ASCII)
MODELS = """
import numpy as np
import torch


class Net(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.act = torch.nn.LeakyReLU(slope)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, images):
        return self.head(self.act(self.norm(self.conv(images))).mean((2, 3)))


def original(slope=0.01):
    torch.manual_seed(0)
    return Net(slope)


def port():
    return original(0.2)


def train_original():
    net = original()
    return net, torch.nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), 1e-3)


def train_port():
    net = port()
    return net, torch.nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), 1e-3, weight_decay=0.1)


def batch():
    return {"images": np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype("f4"), "labels": np.arange(4)}


def inputs():
    return {"images": batch()["images"]}
"""
COMMANDS = (
    "map models.py:original models.py:port --out map.toml",
    "lint models.py:original models.py:port",
    "forward models.py:original models.py:port --inputs models.py:inputs",
    "step models.py:train_original models.py:train_port --batch models.py:batch",
    "loss a.log b.log",
    "fix models.py:original models.py:port --inputs models.py:inputs",
)
PLOTS_SHOWN = ("coverage", "error_by_depth", "difference_histogram", "gradient_norms", "update_sizes", "loss_curves")
SWITCHED = """async function tried() {
  const button = document.querySelector(".language");
  const versions = [...document.querySelectorAll("div.version")];
  const shown = () => versions.filter((one) => one.clientHeight).map((one) => one.lang);
  const state = () => [document.documentElement.lang, ...shown(), button.textContent, document.title];
  const found = { first: state() };
  const link = document.querySelector('[lang=en] .strip a[href$="-parameters"]');
  link.click();
  await new Promise((done) => setTimeout(done, 200));
  button.click();
  found.second = state();
  const version = document.querySelector("div.version[lang=zh]");
  const twin = version.querySelector('section[id$="-parameters"] > details');
  found.openToo = twin.open;
  twin.open = false;
  version.querySelector('.strip a[href$="-parameters"]').click();
  await new Promise((done) => setTimeout(done, 200));
  found.ledTo = [location.hash, twin.open];
  const table = version.querySelector("[data-name=layers]");
  const count = () => table.querySelector(".count").textContent;
  found.rows = [count()];
  table.querySelector(".unfold").click();
  found.rows.push(count());
  const field = table.querySelector("input");
  field.value = "未对齐";
  field.dispatchEvent(new Event("input"));
  found.rows.push(count());
  const heads = [...table.querySelectorAll("thead th")];
  heads.find((one) => one.textContent.startsWith("× 阈值")).querySelector("button").click();
  found.sorted = table.querySelectorAll("[aria-sort=ascending]").length;
  found.trees = version.querySelectorAll(".node.current").length;
  found.chosen = version.querySelector(".chosen").textContent.includes("未对齐");
  button.click();
  found.third = state();
  found.english = document.querySelector("[lang=en] [data-name=layers] .count").textContent;
  return found;
}</script>"""
KEPT = """async function tried() {
  if (sessionStorage.again) return { opened: document.documentElement.lang };
  sessionStorage.again = "yes";
  document.querySelector(".language").click();
  location.reload();
  return new Promise(() => {});
}</script>"""
DRAWN = """async function tried() {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const found = {};
  for (const language of ["en", "zh"]) {
    if (document.documentElement.lang !== language) document.querySelector(".language").click();
    const plots = [...document.querySelectorAll(`div.version[lang=${language}] .plot svg`)];
    found[language] = plots.map((plot) => {
      const boxes = [...plot.querySelectorAll("text")].map((one) => one.getBoundingClientRect());
      const apart = (one, other) => one.right <= other.left + 1 || other.right <= one.left + 1
        || one.bottom <= other.top + 3 || other.bottom <= one.top + 3;
      const overlaps = boxes.flatMap((one, place) => boxes.slice(place + 1).filter((other) => !apart(one, other)));
      const marks = plot.querySelector("use").getBoundingClientRect();
      return [marks.width > 300 && marks.height > 50, boxes.every((one) => one.width > 0), overlaps.length];
    });
  }
  return found;
}</script>"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run folder with what real commands wrote, each of which found a fault."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "models.py").write_text(MODELS, encoding="utf-8")
    for name, shift in (("a.log", 0.0), ("b.log", 0.5)):
        lines = (f"step {step} loss {2 / (step + 1) + shift * step / 100:.6f}\n" for step in range(100))
        (folder / name).write_text("".join(lines), encoding="utf-8")
    path, before = [*sys.path], Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            codes = [main([*command.split(), "--run", "run"]) for command in COMMANDS]
    finally:
        os.chdir(before)
        sys.path[:] = path
    assert codes == [0, 1, 1, 1, 1, 1]
    return RunFolder.open(folder / "run")


@pytest.fixture(scope="module")
def page(compared: RunFolder) -> str:
    return page_html(compared)


def version_of(page: str, language: str) -> str:
    """All that a page says in a language."""
    start = page.index(f'<div class="version" lang="{language}">')
    return page[start : page.index("</footer>", start)]


def texts_of(version: str) -> list[str]:
    """What stands in a version of a page beside code, layers' names and data, labels for screen readers too."""
    prose = re.sub(r"<(code|pre|script)\b[^>]*>.*?</\1>", "", version, flags=re.DOTALL)
    labels = re.findall(r'(?:aria-label|placeholder)="([^"]*)"', prose)
    texts = [*re.findall(r">([^<]+)<", prose), *labels]
    return [unescape(text).strip() for text in texts if text.strip()]


def figures_of(text: str) -> tuple[str, ...]:
    """The numbers of a text, which each language has in an order of its own."""
    return tuple(sorted(FIGURE.findall(text)))


@pytest.mark.frameworks
def test_pages_of_two_readers_hold_the_same(compared: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_reader(language: str, title: str) -> str:
        monkeypatch.setenv(VARIABLE, language)
        page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page_html(compared))
        for own in (f'<html lang="{language}">', f"<title>{title}</title>"):
            assert page.count(own) == 1
            page = page.replace(own, "")
        return page

    assert without_reader("en", "Alignment report: run") == without_reader("zh", "对齐报告：run")


@pytest.mark.frameworks
def test_both_languages_tell_the_same_figures_and_no_english_sentence_is_left_in_the_chinese(page: str) -> None:
    english, chinese = (texts_of(version_of(page, language)) for language in ("en", "zh"))
    assert len(english) == len(chinese) > 500
    assert [pair for pair in zip(english, chinese, strict=True) if len({*map(figures_of, pair)}) > 1] == []
    assert not any(map(CHINESE.search, english))
    of_the_machine = ("torch ", "AuthenticAMD", "GenuineIntel", "mindspore ", "onnxruntime ", "align ")
    sentence = re.compile(r"(?:\b[A-Za-z]{2,}\b[ ,]+){3}")
    assert [text for text in chinese if sentence.search(text) and not text.startswith(of_the_machine)] == []
    verdict = unescape(re.search(r'<span class="what">(.*?)</span>', version_of(page, "zh"))[1])
    assert "的 1 个配置项" in verdict


@pytest.mark.frameworks
def test_what_a_fix_takes_over_from_a_comparison_is_worded_in_both_languages(page: str) -> None:
    section = re.search(r'<section id="zh-fix".*?</section>', page, re.DOTALL)
    assert "单位：层输出" in section[0]


@pytest.mark.frameworks
def test_what_both_languages_share_stands_in_the_page_once(page: str) -> None:
    versions = {language: version_of(page, language) for language in ("en", "zh")}
    assert [len(re.findall(r"<path\b", version)) for version in versions.values()] == [0, 0]
    for version in versions.values():
        assert sorted(re.findall(r'href="#plot-(\w+)"', version)) == sorted(PLOTS_SHOWN)
        assert all(page.count(f'<g id="plot-{name}">') == 1 for name in PLOTS_SHOWN)
    alone = len(page.encode()) - len(versions["zh"].encode())
    assert len(page.encode()) < 1.4 * alone
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len({*ids})
    for language, version in versions.items():
        ends = re.findall(r'<a\b[^>]*href="#([^"]+)"', version)
        assert ends
        assert all(end.startswith(f"{language}-") and f'id="{end}"' in version for end in ends)


def test_every_word_of_a_plot_stands_in_its_place_in_both_languages(samples, document) -> None:
    for name, (kind, _) in PLOTS.items():
        makers = {"loss": "sample_losses", "forward": "faulty_forward"}
        plot = draw_page_plot(name, document(getattr(samples, makers.get(kind, f"sample_{kind}"))()))
        assert plot.words, name
        assert [text["zh"] for _, text in plot.words if not CHINESE.search(text["zh"])] == [], name
        left = [unescape(text) for text in re.findall(r"<text [^>]*>([^<]+)<", plot.marks)]
        assert [text for text in left if len(re.findall(r"[a-z]{3,} ", text)) > 1] == [], name


def test_the_button_changes_the_language_and_tables_trees_and_links_answer_in_it(probe, faulty, faulty_page) -> None:
    english, chinese = "Alignment report: run", "对齐报告：run"
    unlike = sum(layer["outcome"] == "not aligned" for layer in faulty.read("forward")["layers"])
    assert probe(faulty_page, SWITCHED, LATER) == {
        "first": ["en", "en", "中文", english],
        "second": ["zh", "zh", "English", chinese],
        "openToo": True,
        "ledTo": ["#zh-rung-1-parameters", True],
        "rows": ["118/120 行", "120 行", f"{unlike}/120 行"],
        "sorted": 1,
        "trees": 2,
        "chosen": True,
        "third": ["en", "en", "中文", english],
        "english": "118 of 120 rows",
    }


def test_the_language_that_was_chosen_stays_when_the_page_is_opened_again(probe, faulty_page) -> None:
    assert probe(faulty_page, KEPT, LATER) == {"opened": "zh"}


@pytest.mark.frameworks
def test_words_of_plots_lie_over_no_others_in_either_language(probe, page) -> None:
    found = probe(page, DRAWN, LATER)
    assert len(found["en"]) == len(found["zh"]) == len(PLOTS_SHOWN)
    for english, chinese in zip(found["en"], found["zh"], strict=True):
        assert english[:2] == chinese[:2] == [True, True]
        assert chinese[2] <= english[2]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_without_scripts_the_language_of_the_reader_is_shown(
    browse, faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setenv(VARIABLE, language)
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<body><iframe sandbox="allow-same-origin" srcdoc="{escape(page_html(faulty))}"></iframe><script>'
        'addEventListener("load", () => {'
        '  const inner = document.querySelector("iframe").contentDocument;'
        '  const shown = [...inner.querySelectorAll("div.version")].filter((one) => one.clientHeight);'
        '  const buttons = [...inner.querySelectorAll(".language, .theme")].filter((one) => one.clientHeight);'
        "  document.body.append(`told ${shown.map((one) => one.lang)};${buttons.length}`); })</script>",
        encoding="utf-8",
    )
    dom, _ = browse(outer, "--dump-dom", LATER)
    assert re.search(r"told (\w*);(\d)", dom).groups() == (language, "0")
