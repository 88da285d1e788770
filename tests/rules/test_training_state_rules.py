"""The rules for what training leaves beside the weights."""

from __future__ import annotations

import pytest

from align.errors import MappingRuleError
from align.rules import training_rules as module
from align.rules.training_rules import training_state_rules


def test_every_optimizer_has_a_name_and_a_state_of_its_own() -> None:
    rules = training_state_rules()
    assert len({one.id for one in rules.optimizers}) == len(rules.optimizers)
    assert all(one.states or one.reduced for one in rules.optimizers)
    assert len({(one.states, one.reduced) for one in rules.optimizers}) == len(rules.optimizers)


@pytest.mark.parametrize(
    "text", ["[[optimizer", "[numbers]\nnames = []", '[[optimizer]]\nid = "x"\nsome = []\n[numbers]\nnames = []']
)
def test_a_faulty_file_is_refused(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setattr(module, "mappings_folder", lambda: tmp_path)
    (tmp_path / "training_state.toml").write_text(text, encoding="utf-8")
    training_state_rules.cache_clear()
    with pytest.raises(MappingRuleError, match="malformed"):
        training_state_rules()
    training_state_rules.cache_clear()
