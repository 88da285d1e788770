"""Every rule about tensors that are no weights by themselves hits what it says, and misses what it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.errors import MappingRuleError
from align.rules import training_rules as module
from align.rules.training_rules import part_by_name, stored_weight_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.rules.training_rules import PackedForm, PartForm


def found_in(form: PackedForm, dtypes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, dtype in dtypes.items():
        module_path = name[: len(name) - len(name.rpartition(".")[2])]
        siblings = {
            other[len(module_path) :]: kind
            for other, kind in dtypes.items()
            if other != name and other.startswith(module_path)
        }
        if companions := form.companions(name[len(module_path) :], dtype, siblings):
            found[name] = tuple(module_path + one for one in companions)
    return found


def test_each_form_of_packed_weights_hits_and_misses_its_examples(assert_each: Any) -> None:
    def check(form: PackedForm) -> None:
        assert form.hits
        assert form.misses
        for example in form.hits:
            first = next(iter(example))
            assert found_in(form, example)[first] == tuple(list(example)[1:]), example
        for example in form.misses:
            assert found_in(form, example) == {}, example

    assert_each(check, list(stored_weight_rules().packed))


def test_each_form_of_a_part_fits_its_path_and_no_other(assert_each: Any) -> None:
    def check(form: PartForm) -> None:
        part, whole = form.examples
        assert form.path.search(part)
        assert not form.path.search(whole)
        assert form.path.groups >= 1

    assert_each(check, list(stored_weight_rules().parts))


def test_the_name_alone_tells_only_of_parts_that_are_never_whole(assert_each: Any) -> None:
    def check(path: str, key: str) -> None:
        assert part_by_name(Path(path)) == key

    examples = [
        ("run/global_step5/zero_pp_rank_3_mp_rank_00_model_states.pt", "deepspeed_zero"),
        ("run/global_step5/zero_pp_rank_3_mp_rank_00_optim_states.pt", "optimizer_states"),
        ("run/layer_12-model_01-model_states.pt", "deepspeed_layers"),
        ("model_world_size_4_rank_2.pt", "fsdp_rank"),
        ("run/global_step5/mp_rank_00_model_states.pt", ""),
        ("consolidated.00.pth", ""),
        ("rank_0/net-1_10.ckpt", ""),
        ("model_world_size_1_rank_0.pt", ""),
        ("low_rank_4.pt", ""),
    ]
    assert_each(check, examples)


@pytest.mark.parametrize("text", ["[[packed", "packed = []\npart = [{ id = 'x' }]", "[[part]]\nid = 'x'"])
def test_a_faulty_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(module, "mappings_folder", lambda: tmp_path)
    (tmp_path / "stored_weights.toml").write_text(text, encoding="utf-8")
    with pytest.raises(MappingRuleError, match="malformed"):
        stored_weight_rules.__wrapped__()
