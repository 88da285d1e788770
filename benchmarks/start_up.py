"""What a start costs, as ratios: `import align` and `align --help` against an empty interpreter and NumPy.

The smallest of several runs counts: noise only ever adds. Run it on a quiet machine: `python benchmarks/start_up.py`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RUNS = 15
STARTS = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import align": "import align",
    "align --version": "from align.cli.main import main; main(['--version'])",
    "align --help": "from align.cli.main import main; main(['--help'])",
    "align inspect": "from align.cli.main import main; main(['inspect', 'net.npz'])",
    "align plugins": "from align.cli.main import main; main(['plugins'])",
}


def main() -> None:
    """Print one line for each start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        np.savez(Path("net.npz"), weight=np.ones((3, 4), np.float32))
        fastest = dict.fromkeys(STARTS, float("inf"))
        for _ in range(RUNS):  # side by side, so that a busy moment hits all of them
            fastest = {name: min(best, seconds(STARTS[name])) for name, best in fastest.items()}
    empty, numpy = fastest["nothing"], fastest["import numpy"]
    for name, value in fastest.items():
        print(
            f"{name:16} {value * 1000:6.0f} ms   {value / empty:5.2f} x an empty start   {value / numpy:5.2f} x numpy"
        )


def seconds(code: str) -> float:
    """Processor time of one fresh interpreter that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
