from __future__ import annotations

import json
import re
import struct
import zlib

# Put into a copy of the page: tells what a reader's browser made of it.
PROBE = """<script>
const faults = [];
addEventListener("error", event => faults.push(event.message || event.target.outerHTML.slice(0, 80)), true);
addEventListener("load", () => {
  const images = [...document.images].map(image => [image.complete, image.naturalWidth, image.clientWidth]);
  const wide = document.documentElement.scrollWidth - innerWidth;
  const probe = document.createElement("pre");
  probe.id = "probe";
  const figures = [...document.querySelectorAll(".ma-figure")].map(place => [
    place.data.length, place.data[0].x.length, place.clientWidth, place.layout.annotations.map(note => note.text)]);
  probe.textContent = JSON.stringify({images, figures, faults, wide,
    loaded: performance.getEntriesByType("resource").filter(one => !one.name.startsWith("data:")).length});
  document.body.append(probe);
});
</script>"""


def test_a_real_browser_shows_what_is_at_fault_and_all_pictures(reported, browse, samples, tmp_path):
    page = tmp_path / "probed.html"
    page.write_text(reported.html.read_text(encoding="utf-8").replace("<head>", "<head>" + PROBE), encoding="utf-8")
    dom, said = browse(page)
    found = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', dom).group(1))
    assert samples.FIRST_DIVERGENT in dom
    assert "2 PARTS OF THE PORT ARE AT FAULT" in dom
    assert "All parts at fault" in dom
    assert "2 places are wrong by themselves; all else follows from them" in dom
    assert dom.index("Training step: what is wrong by itself") < dom.index("Training: do the loss curves stay")
    assert len(found["images"]) == 5
    for complete, natural, shown in found["images"]:
        assert complete
        assert natural == 1440
        assert 300 < shown <= 960
    [[traces, points, width, marks]] = found["figures"]
    assert (traces, points) == (7, 60)
    assert width > 300
    assert marks == ["first divergent step", "spike (candidate)"]
    assert found["faults"] == []
    assert found["loaded"] == 0
    assert found["wide"] <= 0, "the page scrolls sideways"
    assert not [line for line in said.splitlines() if "CONSOLE" in line]


def test_the_page_as_drawn_is_not_blank(reported, browse, tmp_path):
    shot = tmp_path / "page.png"
    browse(reported.html, "--window-size=1300,1500", f"--screenshot={shot}")
    assert len(colours(shot.read_bytes())) > 50


def colours(png):
    """Distinct bytes triples of an 8-bit PNG's unfiltered stream: enough to tell a page from a blank."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    raw = zlib.decompress(data)
    return {raw[i : i + 3] for i in range(0, len(raw) - 2, 3)}
