"""Which name becomes which, by each thing that a user can give, in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from align.convert.choose_names import NameRequest, choose_names
from align.convert.plan_conversion import KEPT, plan_conversion, with_counted_steps
from align.core.name_map import Dropped, Fill, NameMap, Pairing
from align.core.parameters import Checkpoint, StoredTensor
from align.errors import InputsError, MapError, MissingFileError, OpenNamesError, UsageError

TORCH = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
MINDSPORE = ("bn.gamma", "bn.beta", "bn.moving_mean", "bn.moving_variance")
NAMES = dict(zip(TORCH, MINDSPORE, strict=False))
MODEL = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def linear(x, weight):
    return x @ weight.T

def model():
    layers = [("emb", "torch.nn.Embedding"), ("head", "torch.nn.Linear"), ("own", "my.Layer")]
    return ArrayModel(tuple(ArrayLayer(path, kind, linear, {"weight": np.ones((3, 3))}) for path, kind in layers))

def with_token():
    token = ArrayLayer("vit", "my.Transformer", linear, {"cls_token": np.ones((1, 1, 3))})
    return ArrayModel((token, *model().layers))

def wider():
    return ArrayModel((*model().layers, ArrayLayer("more", "my.Layer", linear, {"weight": np.ones((3, 3))})))

def port():
    names = {"embedding_table": np.ones((3, 3))}, {"weight": np.ones((3, 3))}
    layers = [("emb", "mindspore.nn.Embedding"), ("head", "mindspore.nn.Dense"), ("own", "my.Layer")]
    return ArrayModel(tuple(
        ArrayLayer(path, kind, linear, names[path != "emb"]) for path, kind in layers
    ))
"""


def checkpoint(names, shape=(3,), framework=None, prefix=""):
    def tensor(name):
        value = np.zeros((), np.int64) if name.endswith("tracked") else np.ones(shape, np.float32)
        return StoredTensor(prefix + name, value.shape, value.dtype.name, lambda: value)

    metadata = {"format": framework} if framework else {}
    return Checkpoint(Path("file"), "npz", {prefix + name: tensor(name) for name in names}, metadata)


def pairs(chosen):
    return {pairing.source: pairing.target for pairing in chosen.name_map.pairings}


def choose(found, destination=None, **said):
    chosen = choose_names(found, NameRequest(**said), destination)
    assert plan_conversion(found.tensors, chosen.name_map, chosen.fills, chosen.ties).problems == ()
    return chosen


@pytest.fixture
def map_file(tmp_path):
    lines = [f'"{source}" = "{target}"' for source, target in NAMES.items()]
    path = tmp_path / "map.toml"
    path.write_text("[names]\n" + "\n".join(lines) + '\n[dropped.source]\n"*tracked" = "counts"\n', encoding="utf-8")
    return path


@pytest.fixture
def record(tmp_path):
    form = {"source_shape": [3], "source_dtype": "float32"}
    tensors = [
        {"source": source, "target": target, "transform": {"op": "identity"}, **form}
        for source, target in NAMES.items()
    ]
    kept = {"dtype": "int64", "shape": [], "data": np.array(7, "<i8").tobytes().hex()}
    document = {"schema": "mindalign.convert/1", "tensors": tensors, "ties": [["bn.gamma", "bn.beta"]]}
    document |= {"dropped": {TORCH[-1]: "counts"}, "dropped_values": {TORCH[-1]: kept}}
    path = tmp_path / "convert.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def models(tmp_path):
    (tmp_path / "models.py").write_text(MODEL, encoding="utf-8")
    return f"{tmp_path / 'models.py'}:model", f"{tmp_path / 'models.py'}:port"


class TestTheFileAlone:
    @pytest.mark.parametrize(
        ("framework", "destination", "target", "becomes", "whose"),
        [
            ("pt", "mindspore", None, "bn.gamma", "mindspore"),
            ("pt", "mindspore", "mint", "bn.weight", "mindspore"),
            ("pt", "torch", None, "bn.weight", "torch"),
            ("pt", None, None, "bn.gamma", "mindspore"),
            ("pt", None, "torch", "bn.weight", "torch"),
            (None, "mindspore", None, "bn.gamma", "mindspore"),
        ],
    )
    def test_torchs_names_go_where_the_destination_and_the_user_say(
        self, framework, destination, target, becomes, whose
    ) -> None:
        chosen = choose(checkpoint(TORCH, framework=framework), destination, target=target)
        assert pairs(chosen)["bn.weight"] == becomes
        assert chosen.framework == whose

    @pytest.mark.parametrize(
        ("destination", "target", "becomes", "whose"),
        [
            ("mindspore", None, "bn.gamma", "mindspore"),
            ("torch", None, "bn.weight", "torch"),
            (None, None, "bn.gamma", "mindspore"),
            (None, "torch", "bn.weight", "torch"),
        ],
    )
    @pytest.mark.parametrize("framework", ["ms", None])
    def test_mindspores_names_stay_or_become_torchs(self, framework, destination, target, becomes, whose) -> None:
        chosen = choose(checkpoint(MINDSPORE, framework=framework), destination, target=target)
        assert pairs(chosen)["bn.gamma"] == becomes
        assert chosen.framework == whose
        told = [line for line in chosen.warnings if line.startswith("the file does not say whose names it has")]
        assert len(told) == (framework is None)

    def test_what_torch_has_beyond_the_file_is_filled_and_said(self) -> None:
        chosen = choose(checkpoint(MINDSPORE, framework="ms"), "torch")
        assert [fill.name for fill in chosen.fills] == ["bn.num_batches_tracked"]
        (warning,) = chosen.warnings
        assert warning.startswith("filled, as the source lacks 1 tensor (a MindSpore file has none; 0 is the default)")

    def test_what_the_file_leaves_open_is_settled_by_the_user(self) -> None:
        found = checkpoint(["conv.weight"], (4, 3, 1, 5), "ms")
        with pytest.raises(OpenNamesError, match="conv-1d, conv-transpose-1d -> weight"):
            choose(found, "torch")
        (pairing,) = choose(found, "torch", layers=("conv=conv-1d",)).name_map.pairings
        assert pairing.transform.output_shape((4, 3, 1, 5)) == (4, 3, 5)

    def test_choices_where_names_stay_are_refused(self) -> None:
        for found, destination in ((checkpoint(TORCH, framework="pt"), "torch"), (checkpoint(MINDSPORE), "mindspore")):
            with pytest.raises(UsageError, match="--layer says nothing of"):
                choose(found, destination, layers=("bn=linear",))


class TestMaps:
    @pytest.mark.parametrize("given", [str, Path])
    def test_a_map_file_is_followed_there_and_back(self, map_file, given) -> None:
        there = choose(checkpoint(TORCH, framework="pt"), "mindspore", name_map=given(map_file))
        assert pairs(there) == NAMES
        assert there.origin == str(map_file)
        back = choose(checkpoint(MINDSPORE, framework="ms"), "torch", name_map=given(map_file))
        assert pairs(back) == {target: source for source, target in NAMES.items()}
        assert [fill.name for fill in back.fills] == ["bn.num_batches_tracked"]
        assert back.origin == f"{map_file}, followed back"

    def test_a_record_brings_back_what_was_dropped_and_what_was_tied(self, record) -> None:
        there = choose(checkpoint(TORCH, framework="pt"), "mindspore", name_map=record)
        assert pairs(there) == NAMES
        back = choose(checkpoint(MINDSPORE, framework="ms"), "torch", name_map=record)
        (fill,) = back.fills
        assert int(fill.value) == 7
        assert back.ties == (("bn.weight", "bn.bias"),)
        assert back.warnings == (
            "filled, as the source lacks 1 tensor (its value was kept in the record): bn.num_batches_tracked",
        )

    @pytest.mark.parametrize(
        ("names", "framework", "target", "whose"),
        [(TORCH, "pt", None, "mindspore"), (TORCH, "pt", "torch", "torch"), (MINDSPORE, "ms", None, "torch")],
    )
    def test_whose_names_a_file_of_either_framework_gets(self, map_file, names, framework, target, whose) -> None:
        chosen = choose(checkpoint(names, framework=framework), None, name_map=map_file, target=target)
        assert chosen.framework == whose

    def test_a_map_of_values_at_hand_goes_both_ways(self) -> None:
        given = NameMap("a", "b", (Pairing("x", "y", "user", 1.0),), (Dropped("z", "source", "r"),))
        assert pairs(choose(checkpoint(["x", "z"]), name_map=given)) == {"x": "y"}
        back = choose(checkpoint(["y"]), name_map=given)
        assert pairs(back) == {"y": "x"}
        assert back.warnings[0].endswith("neither a value nor a default is known: z")

    def test_a_target_that_was_left_out_and_has_a_default_is_filled(self) -> None:
        pairings = tuple(Pairing(target, source, "rule", 1.0) for source, target in NAMES.items())
        given = NameMap("ms", "torch", pairings, (Dropped(TORCH[-1], "target", "no counterpart"),))
        chosen = choose(checkpoint(MINDSPORE, framework="ms"), "torch", name_map=given)
        assert [fill.name for fill in chosen.fills] == ["bn.num_batches_tracked"]
        assert chosen.name_map.dropped == ()

    def test_a_map_that_fits_neither_way_tells_how_many_names_of_each_side_there_are(self, map_file) -> None:
        found = checkpoint([*MINDSPORE[:3], "bn.moving_varianse", "bn.weight"], framework="ms")
        with pytest.raises(MapError) as error:
            choose(found, "torch", name_map=map_file)
        assert "it knows 1 of the 5 names in the file as sources, and 3 as targets" in error.value.message
        text = "\n".join(error.value.faults)
        assert len(error.value.faults) == 3
        assert "unmatched source tensor bn.moving_varianse: no rule leads to it; closest: bn.moving_variance" in text
        assert "unmatched source tensor bn.weight" in text
        assert "bn.moving_variance is in the map, but not in the checkpoint" in text

    def test_a_missing_map_is_an_error(self) -> None:
        with pytest.raises(MissingFileError, match="map file"):
            choose(checkpoint(TORCH), name_map="no.toml")


class TestPrefixes:
    def test_a_prefix_is_stripped_on_request(self) -> None:
        found = checkpoint(TORCH, framework="pt", prefix="module._orig_mod.")
        chosen = choose(found, "mindspore", strip=("module", "_orig_mod."))
        assert pairs(chosen)["module._orig_mod.bn.weight"] == "bn.gamma"
        assert {drop.name for drop in chosen.name_map.dropped} == {"module._orig_mod.bn.num_batches_tracked"}

    def test_where_names_stay_the_prefix_still_goes(self) -> None:
        chosen = choose(checkpoint(["fc.w"], framework="pt", prefix="module."), "torch", strip=("module.",))
        assert pairs(chosen) == {"module.fc.w": "fc.w"}

    def test_a_prefix_that_no_name_has_is_an_error(self) -> None:
        with pytest.raises(UsageError, match=r"no name starts with 'network\.'"):
            choose(checkpoint(TORCH), strip=("network.",))

    @pytest.mark.parametrize("names", [TORCH, MINDSPORE])
    @pytest.mark.parametrize("prefix", ["module.", "module._orig_mod."])
    def test_a_shared_prefix_without_which_a_map_fits_is_taken_off_and_said(
        self, record, map_file, names, prefix
    ) -> None:
        for given in (record, map_file):
            chosen = choose(checkpoint(names, prefix=prefix), name_map=given)
            assert all(name.startswith(prefix) for name in pairs(chosen))
            assert set(pairs(chosen).values()) == set(MINDSPORE if names is TORCH else TORCH[:-1])
            assert f"the names fit only without the prefix {prefix!r}, which all share" in "\n".join(chosen.warnings)

    def test_a_prefix_that_not_all_share_stays_and_the_error_is_that_of_the_names_as_they_are(self, map_file) -> None:
        found = checkpoint(TORCH, prefix="module.")
        found.tensors["extra"] = found.tensors["module.bn.weight"]
        with pytest.raises(MapError, match=r"module\.bn\.weight"):
            choose(found, name_map=map_file)

    @pytest.mark.parametrize(
        "prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module.", "_orig_mod.module."]
    )
    def test_without_a_map_what_a_wrapper_put_in_front_is_taken_off_both_ways_and_said(self, prefix) -> None:
        for names, destination, wanted in ((TORCH, "mindspore", MINDSPORE), (MINDSPORE, "torch", TORCH)):
            chosen = choose(checkpoint(names, prefix=prefix), destination)
            assert set(pairs(chosen).values()) | {fill.name for fill in chosen.fills} == set(wanted)
            assert all(source.startswith(prefix) for source in pairs(chosen))
            assert "what a wrapper added was taken off the names: " in "\n".join(chosen.warnings)

    def test_wrappers_in_the_middle_are_taken_off_but_a_module_of_that_name_is_not(self) -> None:
        names = ["net._fsdp_wrapped_module.fc._checkpoint_wrapped_module.weight", "net.skip.module.weight"]
        chosen = choose(checkpoint(names, (3, 4)), "mindspore", layers=("*=linear",))
        assert set(pairs(chosen).values()) == {"net.fc.weight", "net.skip.module.weight"}

    def test_a_map_fits_without_a_wrapper_in_the_middle(self, tmp_path) -> None:
        path = tmp_path / "map.toml"
        path.write_text('[names]\n"net.fc.w" = "dense.w"\n"net.own" = "own"\n', encoding="utf-8")
        chosen = choose(checkpoint(["net.fc.module.w", "net.own"]), "mindspore", name_map=path)
        assert pairs(chosen) == {"net.fc.module.w": "dense.w", "net.own": "own"}
        assert "which were taken off: module. in 1 name" in chosen.warnings[0]

    def test_names_that_stay_keep_what_a_wrapper_put_there_and_it_is_said(self) -> None:
        chosen = choose(checkpoint(TORCH, framework="pt", prefix="module."), "torch")
        assert all(source == target for source, target in pairs(chosen).items())
        assert "the names keep what a wrapper added (module. in 5 names); --strip" in chosen.warnings[-1]


class TestSteps:
    STATE = ("moments.bn.gamma", "moments.bn.beta")

    def filled(self, steps) -> tuple[int, str]:
        found = checkpoint([*MINDSPORE, *self.STATE])
        if steps is not None:
            found.tensors["global_step"] = StoredTensor("global_step", steps.shape, steps.dtype.name, lambda: steps)
        (fill,) = choose(found, "torch").fills
        assert fill.name == "bn.num_batches_tracked"
        return int(fill.value), fill.reason

    @pytest.mark.parametrize("steps", [np.array([1200], np.int32), np.array(1200)])
    def test_a_counter_of_batches_is_filled_from_the_steps_of_the_file(self, steps) -> None:
        assert self.filled(steps) == (1200, "the global_step of the file is 1200")

    def test_a_value_that_a_record_kept_stays(self) -> None:
        steps = StoredTensor("global_step", (), "int64", lambda: np.array(9))
        kept, default = (Fill("bn.num_batches_tracked", np.array(0), reason) for reason in (KEPT, "0 is the default"))
        found = with_counted_steps([kept, default], {"global_step": steps})
        assert [int(fill.value) for fill in found] == [0, 9]

    @pytest.mark.parametrize("steps", [None, np.array([0], np.int32), np.array([3, 4]), np.array([2.0], np.float32)])
    def test_without_a_count_of_steps_it_is_the_default(self, steps) -> None:
        value, reason = self.filled(steps)
        assert value == 0
        assert "0 is the default" in reason


class TestModels:
    NAMES = ("emb.weight", "head.weight", "own.weight")

    def test_the_classes_of_the_source_model_settle_what_the_file_leaves_open(self, models) -> None:
        found = checkpoint(self.NAMES, (3, 3), "pt")
        with pytest.raises(OpenNamesError):
            choose(found, "mindspore")
        chosen = choose(found, "mindspore", source_model=models[0])
        assert pairs(chosen) == dict(zip(self.NAMES, ("emb.embedding_table", "head.weight", "own.weight"), strict=True))
        assert chosen.origin == f"the model {models[0]}"
        assert chosen.warnings == ("no rule knows Layer, which leaves the names in 1 such layer unchanged: own",)

    def test_a_model_that_holds_a_token_beside_its_layers_is_no_layer(self, models) -> None:
        found = checkpoint(self.NAMES, (3, 3), "pt")
        found.tensors["vit.cls_token"] = StoredTensor("vit.cls_token", (1, 1, 3), "float64", lambda: np.ones((1, 1, 3)))
        chosen = choose(found, "mindspore", source_model=models[0].replace(":model", ":with_token"))
        assert chosen.warnings == ("no rule knows Layer, which leaves the names in 1 such layer unchanged: own",)

    def test_what_two_models_leave_open_has_a_hint_that_fits(self, models) -> None:
        wider = models[1].replace(":port", ":wider")
        with pytest.raises(MapError, match="unmatched") as error:
            choose(checkpoint(self.NAMES, (3, 3), "pt"), source_model=models[0], target_model=wider)
        assert error.value.hint.startswith(f"`align map {models[0]} {wider} --out map.toml` writes what pairs")

    def test_the_user_overrules_the_model(self, models) -> None:
        chosen = choose(checkpoint(self.NAMES, (3, 3), "pt"), source_model=models[0], layers=("own=embedding",))
        assert pairs(chosen)["own.weight"] == "own.embedding_table"

    def test_a_port_leads_back(self, models) -> None:
        found = checkpoint(("emb.embedding_table", "head.weight", "own.weight"), (3, 3), "ms")
        chosen = choose(found, "torch", source_model=models[1])
        assert pairs(chosen)["emb.embedding_table"] == "emb.weight"

    def test_two_models_give_the_whole_map_in_either_direction(self, models) -> None:
        there = choose(checkpoint(self.NAMES, (3, 3), "pt"), source_model=models[0], target_model=models[1])
        assert pairs(there)["emb.weight"] == "emb.embedding_table"
        names = ("emb.embedding_table", "head.weight", "own.weight")
        back = choose(checkpoint(names, (3, 3), "ms"), source_model=models[1], target_model=models[0])
        assert pairs(back)["emb.embedding_table"] == "emb.weight"

    @pytest.mark.parametrize("both", [False, True])
    def test_everything_in_which_file_and_model_differ_is_listed(self, models, both) -> None:
        found = checkpoint(("emb.weight", "heads.weight"), (3, 3), "pt")
        found.tensors["own.weight"] = StoredTensor("own.weight", (3, 1), "float32", lambda: np.ones((3, 1)))
        with pytest.raises(InputsError) as error:
            choose(found, source_model=models[0], target_model=models[1] if both else None)
        for line in ("missing: head.weight [3, 3]", "unexpected: heads.weight", "shape: own.weight is [3, 1]"):
            assert line in error.value.message

    def test_a_prefix_without_which_the_model_fits_is_taken_off_and_said(self, models) -> None:
        chosen = choose(checkpoint(self.NAMES, (3, 3), "pt", "module."), "mindspore", source_model=models[0])
        assert pairs(chosen)["module.emb.weight"] == "emb.embedding_table"
        assert chosen.warnings[0].startswith("the names fit only without the prefix 'module.'")


RESNET = {
    "resnet.embedder.embedder.convolution.weight": "conv1.weight",
    "resnet.encoder.stages.1.layers.11.layer.2.convolution.weight": "layer2.11.conv3.weight",
    "resnet.encoder.stages.3.layers.0.shortcut.convolution.weight": "layer4.0.down_sample.0.weight",
}


class TestFamilies:
    def test_a_family_leads_there_and_back(self) -> None:
        found = checkpoint(RESNET, (4, 4, 1, 1), "pt")
        there = choose(found, "mindspore", family="hf-resnet")
        assert pairs(there) == RESNET
        assert (there.origin, there.warnings) == ("the family hf-resnet", ())
        back = choose(checkpoint(RESNET.values(), (4, 4, 1, 1), "ms"), "torch", family="hf-resnet")
        assert pairs(back) == {new: old for old, new in RESNET.items()}

    def test_every_name_that_the_family_does_not_know_is_listed(self) -> None:
        with pytest.raises(MapError) as error:
            choose(checkpoint([*RESNET, "head.weight", "neck.weight"], framework="pt"), family="hf-resnet")
        assert error.value.faults == (
            "head.weight: the family has no such name", "neck.weight: the family has no such name",
        )  # fmt: skip
        assert "docs/map.md" not in error.value.hint

    def test_a_shared_prefix_is_taken_off_and_said(self) -> None:
        found = checkpoint(RESNET, (4, 4, 1, 1), "pt", "module.")
        chosen = choose(found, "mindspore", family="hf-resnet")
        assert set(pairs(chosen).values()) == set(RESNET.values())
        assert "prefix 'module.'" in chosen.warnings[0]

    def test_a_family_whose_names_these_are_is_suggested_and_not_taken(self) -> None:
        names = ["embed_tokens", *(f"layers.0.{layer}" for layer in ("self_attn.q_proj", "mlp.gate_proj"))]
        with pytest.raises(OpenNamesError) as error:
            choose(checkpoint([f"model.{name}.weight" for name in names], framework="pt"), "mindspore")
        assert (
            "of mindone.transformers, whose layers are those of mint: all names stay: --family hf-llama"
            in error.value.hint
        )
        assert error.value.hint.endswith(
            "--family mf-llama"
        )  # two ports have all these names, and the user knows which
        with pytest.raises(OpenNamesError) as error:
            choose(checkpoint([f"model.{name}.weight" for name in [*names, "neck"]], framework="pt"), "mindspore")
        assert "--family" not in error.value.hint

    def test_where_names_stay_a_family_says_nothing(self) -> None:
        with pytest.raises(UsageError, match="--family says nothing of"):
            choose(checkpoint(RESNET, framework="pt"), "torch", family="hf-resnet")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name_map": "m", "family": "f"}, "--map and --family each decide the names"),
        ({"family": "f", "source_model": "s"}, "--family and --source-model each decide the names"),
        ({"target_model": "t"}, "--target-model needs --source-model"),
        ({"name_map": "m", "target": "nn"}, "--target does not go with a map"),
        ({"name_map": "m", "layers": ("a=b",)}, "--layer does not go with a map"),
        ({"source_model": "s", "target_model": "t", "layers": ("a=b",)}, "--layer does not go with --target-model"),
        ({"family": "f", "target": "mint"}, "--target does not go with --family"),
        ({"family": "f", "layers": ("a=b",)}, "--layer does not go with --family"),
        ({"source_model": "s", "target_model": "t", "target": "torch"}, "--target does not go with --target-model"),
    ],
)
def test_what_does_not_go_together_is_refused(said, words) -> None:
    with pytest.raises(UsageError, match=words):
        choose(checkpoint(TORCH), **said)


@pytest.mark.parametrize(("target", "destination"), [("torch", "mindspore"), ("nn", "torch"), ("mint", "torch")])
@pytest.mark.parametrize("names", [TORCH, MINDSPORE])
def test_a_target_that_contradicts_the_destination_is_refused(names, target, destination) -> None:
    with pytest.raises(UsageError, match=f"--target {target} does not go with a destination"):
        choose(checkpoint(names), destination, target=target)
