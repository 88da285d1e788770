"""Record anew what the frameworks' profilers write of the trainings in benchmarks/_slow_trainings.py.

    python tests/advice/record_profiles.py [NAME ...]

Run it on a machine that does nothing else: what a profile says depends on the load, and the tests read what stands in
`recorded/`. Each training is one archive there.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import _slow_trainings as trainings

RECORDED = Path(__file__).parent / "recorded"
# Five steps say what ten say, in half of the bytes.
trainings.STEPS = 5
NAMES = {
    "sleep in the loader (trace)": "sleep_in_loader",
    "sleep in the loader (table)": "sleep_in_loader_table",
    "sleep before each batch (log)": "sleep_in_loop_log",
    ".item() in a loop": "items_in_loop",
    "a float64 layer": "float64_layer",
    "decoding in the main process": "decoding_in_main_process",
    "sleep before each batch (align.watch)": "watched_sleeping",
    "changing shapes in graph mode": "changing_shapes",
    "PyNative mode": "pynative_steps",
    "decoding by one worker": "one_worker_decode",
    "a CNN (trace)": "healthy_cnn",
    "an MLP (table)": "healthy_mlp_table",
    "a log with waits": "healthy_log",
    "a graph of MindSpore": "healthy_graph",
    "a training under align.watch": "healthy_watched",
}


def record(case: trainings.Case) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(RECORDED / f"{NAMES[case.name]}.tar.xz", "w:xz") as archive,
    ):
        case.make(Path(folder))
        for path in sorted(Path(folder).rglob("*")):
            if (path.is_file() and path.suffix != ".log") or path.name == "train.log":
                content = path.read_bytes().replace(folder.encode(), b"profile")
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    # A process for each training: what one has warmed up or compiled, the next would not show.
    for name in sys.argv[1:] or NAMES:
        if len(sys.argv) == 2:
            record(next(case for case in [*trainings.PLANTED, *trainings.HEALTHY] if case.name == name))
        else:
            subprocess.run([sys.executable, __file__, name], check=True)
