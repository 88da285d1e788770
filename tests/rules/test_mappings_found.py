"""The rules are found from a wheel, an editable install and a plain checkout, each in a fresh process elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from align.rules.layer_rules import layer_rules

ROOT = Path(__file__).parents[2]
SHOW = "from align.rules import layer_rules as m; print(m.mappings_folder(), len(m.layer_rules()), sep='\\n')"
OWN_MAPPINGS = ROOT / "mappings"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distribution is built from, so that building leaves nothing in the working tree."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("align", "mappings", "notebooks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def installed_wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed."""
    dist, target = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, checkout)
    pip_install("--target", target, next(dist.glob("*.whl")))
    return target


@pytest.fixture
def empty_environment(tmp_path: Path) -> Path:
    """Interpreter of a new environment that sees the packages of this one, but not its editable installs."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    (site / "outer.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path), encoding="utf-8")
    return tmp_path / "venv" / "bin" / "python"


def test_a_wheel_brings_its_rules_inside_the_package(installed_wheel: Path) -> None:
    folder, count = shown(PYTHONPATH=installed_wheel)
    assert folder == installed_wheel / "align" / "_mappings"
    assert count == len(layer_rules())


def test_a_wheel_holds_every_file_of_the_mappings_and_the_licence(installed_wheel: Path) -> None:
    shipped = installed_wheel / "align" / "_mappings"
    assert files_in(shipped) == files_in(OWN_MAPPINGS)
    assert list(installed_wheel.glob("mindalign-*.dist-info/licenses/LICENSE"))
    assert (installed_wheel / "align" / "py.typed").is_file()


def test_an_editable_install_reads_the_rules_of_the_checkout(checkout: Path, empty_environment: Path) -> None:
    pip_install("--editable", checkout, python=empty_environment)
    folder, count = shown(python=empty_environment)
    assert folder == checkout / "mappings"
    assert count == len(layer_rules())


def test_a_plain_checkout_reads_its_own_rules(checkout: Path) -> None:
    folder, count = shown(PYTHONPATH=checkout)
    assert folder == checkout / "mappings"
    assert count == len(layer_rules())


def test_a_stranger_beside_the_package_is_not_taken_for_the_rules(installed_wheel: Path, tmp_path: Path) -> None:
    """A site folder may hold a `mappings` package of somebody else."""
    shutil.copytree(installed_wheel / "align", tmp_path / "align")
    shutil.rmtree(tmp_path / "align" / "_mappings")
    (tmp_path / "mappings" / "layers").mkdir(parents=True)
    result = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "the installation is broken" in result.stderr


def shown(python: Path | str = sys.executable, **environment: Path) -> tuple[Path, int]:
    folder, count = run(python, "-c", SHOW, **environment).split()
    return Path(folder), int(count)


def pip_install(*arguments: object, python: Path | str = sys.executable) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", *arguments)


def run(*command: object, **environment: Path) -> str:
    values = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    values |= {name: str(value) for name, value in environment.items()}
    result = subprocess.run(
        [str(part) for part in command], cwd="/", env=values, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
