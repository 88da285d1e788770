"""What a start costs, as ratios: `import align` and `align --help` against an empty interpreter and NumPy.

The smallest of several runs counts: noise only ever adds. Run it on a quiet machine: `python benchmarks/start_up.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

RUNS = 15
STARTS = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import align": "import align",
    "align --help": "from align.cli.main import main; main(['--help'])",
    "align plugins": "from align.cli.main import main; main(['plugins'])",
}


def main() -> None:
    """Print one line for each start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    fastest = dict.fromkeys(STARTS, float("inf"))
    for _ in range(RUNS):  # side by side, so that a busy moment hits all of them
        fastest = {name: min(best, seconds(STARTS[name])) for name, best in fastest.items()}
    empty, numpy = fastest["nothing"], fastest["import numpy"]
    for name, value in fastest.items():
        print(
            f"{name:16} {value * 1000:6.0f} ms   {value / empty:5.2f} x an empty start   {value / numpy:5.2f} x numpy"
        )


def seconds(code: str) -> float:
    """Wall time of one fresh interpreter that runs the code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
