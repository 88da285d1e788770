from __future__ import annotations

import json

from align.cli.main import main
from align.rules.model_families import model_families

SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def net():
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", None, {"weight": np.ones((2, 3))}),))
"""


def test_plugins_lists_every_family(capsys) -> None:
    assert main(["plugins", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows if row["room"] == "families"] == [family.name for family in model_families()]


def test_map_refuses_a_family_that_does_not_exist_and_takes_none_with_auto(tmp_path, capsys) -> None:
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    sides = [f"{tmp_path / 'side.py'}:net"] * 2
    assert main(["map", *sides, "--family", "hf-resnets"]) == 2
    assert "did you mean 'hf-resnet'?" in capsys.readouterr().err
    assert main(["map", *sides, "--family", "auto"]) == 0
