"""What a script gives its programs: variables, arrays, quotes, comments and continued lines, without running it."""

from __future__ import annotations

from typing import Any

import pytest

SCRIPT = """#!/bin/bash
# LR=9
export HCCL_CONNECT_TIMEOUT=1800
LR=1e-4
NODES=${NNODES:-2}
WORLD=$((8*$NODES))
TRAIN_ARGS="
    --lr ${LR} \\
    --betas 0.9 0.95 \\
    --fp16

    --seed 42
"
DATA=(
    --data-path "a path/with spaces"   # a comment
    --split 949,50,1
)
DATA+=(--shuffle)
if [[ "$X" == "y" ]]; then echo "--lr 5"; fi
cat <<EOF > config
--lr 7
EOF
torchrun --nproc_per_node 8 --nnodes $NODES train.py $TRAIN_ARGS "${DATA[@]}" \\
    --world $WORLD --load $UNKNOWN model.depth=12 | tee log.txt
"""


def test_a_script_with_all_that_scripts_have(settings: Any) -> None:
    found = settings.read("run.sh", SCRIPT)
    assert found == {
        "environment.HCCL_CONNECT_TIMEOUT": "1800",
        "nproc_per_node": "8",
        "nnodes": "2",
        "lr": "1e-4",
        "betas": ("0.9", "0.95"),
        "fp16": True,
        "seed": "42",
        "data-path": "a path/with spaces",
        "split": "949,50,1",
        "shuffle": True,
        "world": "16",
    }
    places = settings.places("run.sh", SCRIPT)
    assert (places["lr"], places["seed"], places["split"], places["world"]) == (
        "run.sh:8",
        "run.sh:12",
        "run.sh:16",
        "run.sh:24",
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("python t.py --lr=0.1", {"lr": "0.1"}),
        ("LR=0.1 python t.py --lr $LR", {"environment.LR": "0.1", "lr": "0.1"}),
        ("python t.py '--lr 0.1 --wd 0'", {"lr": "0.1", "wd": "0"}),
        ("python t.py lr=0.1 optim.name=adam", {"lr": "0.1", "optim.name": "adam"}),
        ("python t.py --min -1.5", {"min": "-1.5"}),
        ("lr=${1:-'6e-3'}\nsteps=${2:-100}", {"lr": "6e-3", "steps": "100"}),
        ("A=1\nB=${A}2\npython t.py --x $B --y ${C:-$A}", {"x": "12", "y": "1"}),
        ("python t.py --fp16 > logs/$(date).log 2>&1", {"fp16": True}),
        ("python t.py --fp16 2>err --lr 0.1 <in", {"fp16": True, "lr": "0.1"}),
        ("python t.py --load <path> --lr 0.1 >> log", {"load": "<path>", "lr": "0.1"}),
        ("case $1 in\n  --model )\n    shift ;;\nesac\npython t.py --lr 0.1", {"lr": "0.1"}),
    ],
)
def test_options_in_other_forms(settings: Any, line: str, found: dict[str, object]) -> None:
    assert settings.read("run.sh", line) == found
