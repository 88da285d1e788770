"""Every command of the README is run, and every line of output that it quotes was really printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```console\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


def quoted() -> list[tuple[str, list[str]]]:
    """The commands of the README's console blocks, each with the lines of output quoted below it.

    The first block is what a new user types: test_first_port.py holds it.
    """
    found: list[tuple[str, list[str]]] = []
    for block in SHOWN.findall(README)[1:]:
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


# Rounding differs from machine to machine, and with it every figure that is made of rounding errors.
SAME_SIZE = 3.0


def figures(line: str) -> list[float]:
    """All numbers of a line."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def words(line: str) -> str:
    """A line without its numbers, its frame and its padding."""
    return " ".join(NUMBER.sub("#", line).strip("│ ").split())


def alike(quoted_line: str, printed: str) -> bool:
    """Tell whether two lines say the same in numbers of the same size."""
    if words(quoted_line) != words(printed):
        return False
    pairs = zip(figures(quoted_line), figures(printed), strict=True)
    return all(a == b or (min(a, b) > 0 and max(a, b) < SAME_SIZE * min(a, b)) for a, b in pairs)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples only, so that nothing lands in the checkout."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def demo(workplace: Path) -> subprocess.CompletedProcess[str]:
    """What `make demo` runs, run whole."""
    command = [sys.executable, "examples/demo.py"]
    return subprocess.run(command, cwd=workplace, capture_output=True, text=True, check=False)


def test_make_demo_and_make_test_run_what_is_tested_here() -> None:
    def dry(target: str) -> str:
        command = ["make", "--dry-run", target, f"VENV={Path(sys.executable).parents[1]}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "python examples/demo.py" in dry("demo")
    assert "-m pytest" in dry("test")
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.frameworks
@pytest.mark.slow
def test_the_demo_ends_with_the_paths_of_what_it_wrote(demo: subprocess.CompletedProcess[str], workplace: Path) -> None:
    assert demo.returncode == 0, demo.stdout[-3000:] + demo.stderr[-3000:]
    written = demo.stdout.rpartition("Written:\n")[2].split()
    assert len(written) >= 5
    assert all((workplace / name).is_file() for name in written)
    assert "Traceback" not in demo.stdout + demo.stderr


@pytest.mark.frameworks
@pytest.mark.slow
def test_the_demo_finds_the_published_ports_max_pooling_and_nothing_once_it_is_changed(
    demo: subprocess.CompletedProcess[str],
) -> None:
    published, mended = demo.stdout.partition("[2/")[2].split("[3/", 1)
    found = published.partition("forward: FAILED")[2]
    assert "first at resnet.embedder.pooler (MaxPool2d)" in found
    assert 'nn.MaxPool2d(..., pad_mode="pad",' in found
    failed = {line.partition("  ")[0] for line in published.splitlines() if "  FAILED  " in line}
    assert failed == {"settings", "forward", "loss", "gradients", "curve"}
    mended, rungs = mended.split("[5/", 1)
    assert "max_pool (max-pool-padding" in mended
    assert "train it again" in " ".join(mended.split())
    assert "FAILED" not in rungs
    assert rungs.count("aligned: 10 rungs passed") == 2


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), quoted(), ids=[command[:40] for command, _ in quoted()])
def test_a_command_of_the_readme_prints_what_the_readme_quotes(
    command: str, lines: list[str], demo: subprocess.CompletedProcess[str], workplace: Path
) -> None:
    assert lines, f"the README quotes no output of {command}"
    if command.startswith("align "):
        output = demo.stdout.partition(f"$ {command}\n")[2].partition("\n$ ")[0]
    else:
        program, *arguments = command.split()
        assert program == "python"
        run = subprocess.run([sys.executable, *arguments], cwd=workplace, capture_output=True, text=True, check=False)
        output = run.stdout
    printed = output.splitlines()
    assert [line for line in lines if not any(alike(line, other) for other in printed)] == []


@pytest.mark.parametrize("name", re.findall(r"\]\(([^)#]+)\)", README))
def test_a_link_of_the_readme_leads_somewhere(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_readme_fits_its_purpose() -> None:
    assert len(README.splitlines()) < 100
    assert "docs/report.png" in README
