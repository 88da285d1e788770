"""The project speaks of itself alone, and its layout is what it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".md", ".toml", ".txt", ".cfg", ".yaml", ".yml", ".ipynb", ".html", ".css", ".svg", ".json", ""}
# Written in pieces so that this file does not find itself.
HOME_FOLDERS = re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "home", "root", "Users"]) + r")/[\w.-]+")
PRIVATE_HOSTS = re.compile(r"\b(?!self\.)(?:\w[\w-]*\.)+(?:internal|corp|local|lan)\b(?!\w|\()")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files or ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_file_names_a_machine_or_a_persons_folder() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in HOME_FOLDERS.finditer(text)]
            found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in PRIVATE_HOSTS.finditer(text)]
    assert found == []


def test_the_search_for_machines_finds_one() -> None:
    assert HOME_FOLDERS.search("see /" + "home/somebody/model.pth")
    assert PRIVATE_HOSTS.search("https://mirror.company" + ".internal/simple")


def test_no_test_folder_has_a_package_file() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_mappings_hold_the_known_kinds_of_rules_only() -> None:
    folders = {path.name for path in (ROOT / "mappings").iterdir() if path.is_dir() and list(path.rglob("*.toml"))}
    assert "layers" in folders
    assert folders <= {
        "api",
        "ascend",
        "crash",
        "gpu",
        "hyperparameters",
        "layers",
        "log_formats",
        "models",
        "pitfalls",
    }
