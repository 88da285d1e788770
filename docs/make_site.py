"""Bring the pages together from which `make docs` builds the site, and point links out of docs/ at copies or at names.

The README is its first page, docs/zh/ its Chinese part, whose first page is README.zh-CN.md. What a page links outside
of docs/ (a notebook, an example, a folder) is a name in the site: the repository has it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site-source"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Write all pages anew into build/site-source."""
    shutil.rmtree(SITE, ignore_errors=True)
    places = page_places()
    for page, place in places.items():
        target = SITE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(with_links(page, place, places), encoding="utf-8")
        else:
            shutil.copyfile(page, target)


def page_places() -> dict[Path, Path]:
    """Each file of the site, and where it stands there."""
    docs = ROOT / "docs"
    places = {ROOT / "README.md": Path("index.md"), ROOT / "README.zh-CN.md": Path("zh/index.md")}
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        places[ROOT / name] = Path(name.lower())
    for path in sorted(docs.rglob("*")):
        if path.suffix in {".md", ".png", ".svg"}:
            relative = path.relative_to(docs)
            places[path] = relative if relative != Path("README.md") else Path("questions.md")
    return places


def with_links(page: Path, place: Path, places: dict[Path, Path]) -> str:
    """The text of a page with its links as they are in the site; code is left as it is."""

    def changed(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        name, separator, heading = target.partition("#")
        if "://" in target or not name:
            return link[0]
        file = (page.parent / name).resolve()
        if file not in places:
            return text
        up = "../" * (len(place.parts) - 1)
        return f"{mark}[{text}]({up}{places[file].as_posix()}{separator}{heading})"

    parts = FENCE.split(page.read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else LINK.sub(changed, part) for part in parts)


if __name__ == "__main__":
    main()
