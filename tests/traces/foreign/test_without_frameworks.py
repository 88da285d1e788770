"""Dumps are read, compared and exported in a process where neither framework nor any tool can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
CODE = """
import sys
from importlib.machinery import PathFinder
BLOCKED = ("torch", "mindspore", "transformers", "onnx", "onnxruntime", "polygraphy", "msprobe", "numba", "pandas")

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else PathFinder.find_spec(name, path, target)

sys.meta_path = [Blocked if finder is PathFinder else finder for finder in sys.meta_path]
from pathlib import Path
import align
from align.traces.dumped_side import export_trace
from align.traces.dumped_side import show_dump
data, out = Path(sys.argv[1]), Path(sys.argv[2])
result = align.compare_trace_folders(data / "msprobe" / "torch", data / "msprobe" / "mindspore")
print(result.verdict.outcome.value, result.culprits[0].candidate)
for dump in ("mindspore_dump", "transformers", "debug_mode.log", "polygraphy/polygraphy_runresults_a.json"):
    assert show_dump(data / dump).calls
export_trace(data / "msprobe" / "torch", "msprobe", out / "exported")
assert not set(BLOCKED) & set(sys.modules)
"""


def test_numpy_is_all_that_dumps_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(DATA), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n")[0] == "not aligned layers.2"
