"""Where the state of an optimizer lies, which parameter is which, and what is refused: no framework is needed."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import CannotRunError, MapError, UsageError
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    from pathlib import Path

    from align.convert.convert_checkpoint import ConversionRecord

SHAPES = {
    "a.weight": (4, 3),
    "a.bias": (4,),
    "norm.weight": (4,),
    "norm.bias": (4,),
    "b.weight": (2, 4),
    "b.bias": (2,),
}
ADAM = {"lr": 0.1, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
ADAM |= {"decoupled_weight_decay": False}
SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False}
LAYER = ("norm=layer-norm",)
NUMBERS = count()


def tensor(value: Any, dtype: str = "float32") -> StoredTensor:
    array = np.array(value, dtype)
    return StoredTensor(f"tensor {next(NUMBERS)}", array.shape, dtype, lambda: array)


def weights(shapes: dict[str, tuple[int, ...]] = SHAPES) -> dict[str, StoredTensor]:
    return {name: tensor(np.full(shape, place)) for place, (name, shape) in enumerate(shapes.items())}


def adam(groups: list[list[str]], **settings: Any) -> dict[str, Any]:
    """The state dict of an Adam that has these parameters; the moments of each hold its place among the weights."""
    names = [name for group in groups for name in group]
    numbers = iter(range(len(names)))
    state = {
        number: {
            "step": tensor(7.0),
            "exp_avg": tensor(np.full(SHAPES[name], place := [*SHAPES].index(name))),
            "exp_avg_sq": tensor(np.full(SHAPES[name], 10 + place)),
        }
        for number, name in enumerate(names)
    }
    listed = [{**ADAM, **settings, "params": [next(numbers) for _ in group]} for group in groups]
    return {"state": state, "param_groups": listed}


def save(path: Path, tree: Any) -> Path:
    with path.open("wb") as stream:
        checkpoint_formats()["torch"].write_tree(stream, tree)
    return path


def convert(source: Path, **options: Any) -> ConversionRecord:
    target = source.parent / "out.ckpt" if source.is_file() else source / "out.ckpt"
    return convert_checkpoint(source, target, layers=LAYER, with_state=True, overwrite=True, **options)


def assert_in_place(path: Path) -> None:
    held = open_checkpoint(path).tensors
    names = {"norm.weight": "norm.gamma", "norm.bias": "norm.beta"}
    for place, name in enumerate(SHAPES):
        for affix, value in (("moment1.", place), ("moment2.", 10 + place)):
            np.testing.assert_array_equal(held[affix + names.get(name, name)].load(), np.full(SHAPES[name], value))


def test_the_state_is_found_wherever_trainers_write_it(tmp_path: Path, assert_each: Any) -> None:
    state = adam([[*SHAPES]])
    schedule = {"last_epoch": 7, "_step_count": 8}
    trees = {
        "plain": {"model": weights(), "optimizer": state, "epoch": 3},
        "lightning": {
            "state_dict": weights(),
            "optimizer_states": [state],
            "lr_schedulers": [schedule],
            "global_step": 7,
        },
        "mmengine": {"meta": {"iter": 7}, "state_dict": weights(), "optimizer": {**state, "base_param_settings": None}},
        "by name": {
            "model": weights(),
            "optim": {
                "state": dict(zip(SHAPES, state["state"].values(), strict=True)),
                "param_groups": [{**ADAM, "params": [*SHAPES]}],
            },
        },
    }

    def check(name: str) -> None:
        record = convert(save(tmp_path / f"{name}.pth", trees[name]))
        assert (record.state.optimizer, record.state.port, record.state.steps) == ("torch.optim.Adam", "nn.Adam", 7)
        assert "NOT CONVERTED" not in "".join(record.warnings)
        assert_in_place(tmp_path / "out.ckpt")
        held = open_checkpoint(tmp_path / "out.ckpt").tensors
        assert (int(held["global_step"].load()[0]), "learning_rate" in held) == (7, name != "lightning")
        np.testing.assert_allclose(held["beta1_power"].load(), 0.9**7, 1e-6)

    assert_each(check, trees)


def test_a_trainers_folder_is_read_with_what_stands_beside_the_weights(tmp_path: Path) -> None:
    save(tmp_path / "pytorch_model.bin", weights())
    save(tmp_path / "optimizer.pt", adam([["a.weight", "b.weight"], ["a.bias", "norm.weight", "norm.bias", "b.bias"]]))
    save(tmp_path / "scheduler.pt", {"last_epoch": 2, "_step_count": 3})
    scale = {"scale": 512.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 100, "_growth_tracker": 5}
    save(tmp_path / "scaler.pt", scale)
    record = convert(tmp_path)
    assert_in_place(tmp_path / "out.ckpt")
    held = open_checkpoint(tmp_path / "out.ckpt").tensors
    numbers = {name: float(held[name].load().reshape(-1)[0]) for name in ("scale_sense", "current_iterator_step")}
    assert (numbers, record.state.schedule) == ({"scale_sense": 512.0, "current_iterator_step": 6.0}, 2)
    assert [line.partition(" ")[0] for line in record.state.lost] == ["the", "the", "the"]
    assert "no other reading fits" in record.state.order
    given = convert(tmp_path / "pytorch_model.bin", state_file=tmp_path / "optimizer.pt")
    assert given.state == record.state


def test_what_does_not_tell_one_order_is_refused_and_a_model_or_training_tells_it(tmp_path: Path) -> None:
    alike = [["a.weight", "norm.weight", "b.weight"], ["a.bias", "norm.bias", "b.bias"]]
    source = save(tmp_path / "net.pth", {"model": weights(), "optimizer": adam(alike)})
    with pytest.raises(
        CannotRunError, match=r"open which weight is which of the 6 parameters .*2 groups.* 3 have"
    ) as error:
        convert(source)
    assert "--source-model" in error.value.hint
    assert not (tmp_path / "out.ckpt").exists()
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    record = convert(source, source_model=f"{tmp_path / 'side.py'}:training")
    assert record.state.groups[0].parameters == ("a.weight", "norm.weight", "b.weight")
    assert_in_place(tmp_path / "out.ckpt")
    with pytest.raises(CannotRunError, match="the saved state is not that of the parameters"):
        convert(source, source_model=f"{tmp_path / 'side.py'}:other")


SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

NAMES = ["a.weight", "a.bias", "norm.weight", "norm.bias", "b.weight", "b.bias"]
SHAPES = [(4, 3), (4,), (4,), (4,), (2, 4), (2,)]

class Model(ArrayModel):
    def named_parameters(self):
        return HELD.items()

class Optimizer:
    def __init__(self, *groups):
        self.param_groups = [{"params": [HELD[name] for name in group], "lr": 0.1} for group in groups]

HELD = {name: np.zeros(shape, np.float32) for name, shape in zip(NAMES, SHAPES)}

def model():
    layers = {"a": "torch.nn.Linear", "norm": "torch.nn.LayerNorm", "b": "torch.nn.Linear"}
    own = {path: {key: HELD[f"{path}.{key}"] for key in ("weight", "bias")} for path in layers}
    return Model(tuple(ArrayLayer(path, kind, print, own[path]) for path, kind in layers.items()))

def training():
    return model(), None, Optimizer(["a.weight", "norm.weight", "b.weight"], ["a.bias", "norm.bias", "b.bias"])

def other():
    return model(), None, Optimizer(["a.weight", "b.weight", "norm.weight"], ["a.bias", "norm.bias", "b.bias"])
"""


def test_frozen_weights_and_buffers_are_no_parameters_where_shapes_say_so(tmp_path: Path) -> None:
    held = {"frozen": tensor(np.ones((9, 9))), **weights(), "mask": tensor(np.ones((5, 5)))}
    convert(save(tmp_path / "net.pth", {"model": held, "optimizer": adam([[*SHAPES]])}))
    assert_in_place(tmp_path / "out.ckpt")
    held = {"a.weight": tensor(np.zeros((4, 3))), "frozen": tensor(np.ones(4))} | weights()
    with pytest.raises(CannotRunError, match="it is open which weight"):
        convert(save(tmp_path / "net.pth", {"model": held, "optimizer": adam([[*SHAPES]])}))
    own = adam([[*SHAPES]], param_names=[*SHAPES])
    convert(save(tmp_path / "net.pth", {"model": held, "optimizer": own}))
    assert_in_place(tmp_path / "out.ckpt")
    lost = adam([[name for name in SHAPES if name != "norm.bias"], ["b.weight"]])
    with pytest.raises(CannotRunError, match=r"no order of the 6 weights fits"):
        convert(save(tmp_path / "net.pth", {"model": weights(), "optimizer": lost}))


def entry(**kept: Any) -> dict[str, Any]:
    return {"state": {0: kept}, "param_groups": [{**ADAM, "params": [0]}]}


REFUSED = {
    "in 8 bits": entry(state1=tensor([1], "uint8"), qmap1=tensor([1.0])),
    "factored moments": entry(exp_avg_sq_row=tensor([1.0])),
    "in one array .base_optimizer_state": {"base_optimizer_state": {}, "zero_stage": 1},
    "in one array .0.": {"state": {0: tensor([1.0])}, "param_groups": [{**ADAM, "params": [0]}]},
    "not known .it keeps exp_avg, exp_avg_diff": entry(exp_avg=tensor([1.0]), exp_avg_diff=tensor([1.0])),
    "has not the form of torch's": {"state": {0: {"step": tensor(np.inf)}}, "param_groups": [{**ADAM, "params": [0]}]},
    "has not the form of torch": {"state": {}, "param_groups": [{"params": [0, 0]}]},
    "there is no state of an optimizer": {"lr": 3},
    "states of several optimizers: optimizer.g, optimizer.d": {"g": entry(), "d": entry()},
}


def test_what_cannot_be_carried_is_named_and_refused(tmp_path: Path, assert_each: Any) -> None:
    def check(reason: str) -> None:
        source = save(tmp_path / "net.pth", {"model": weights(), "optimizer": REFUSED[reason]})
        with pytest.raises(CannotRunError, match=reason) as error:
            convert(source)
        assert error.value.hint
        assert not (tmp_path / "out.ckpt").exists()

    assert_each(check, REFUSED)


def test_the_optimizer_of_the_port_is_asked_for_where_it_is_open(tmp_path: Path, assert_each: Any) -> None:
    state = adam([[*SHAPES]])
    del state["param_groups"][0]["decoupled_weight_decay"]  # as torch wrote it before 2.7
    source = save(tmp_path / "net.pth", {"model": weights(), "optimizer": state})
    faults = {
        None: "does not say whether it is the state of Adam or of AdamW",
        "AdamW": "may be several optimizers",
        "Adan": "no known optimizer",
        "nn.Lamb": "nn.Lamb does not keep what torch.optim.AdamW or torch.optim.Adam does",
    }

    def check(port: str | None) -> None:
        with pytest.raises(UsageError, match=faults[port]):
            convert(source, state_for=port)

    assert_each(check, faults)
    for given, port in (("mindspore.nn.adam", "nn.Adam"), ("mint.optim.AdamW", "mint.AdamW")):
        assert convert(source, state_for=given).state.port == port


def test_what_is_lost_made_and_otherwise_is_said(tmp_path: Path) -> None:
    state = {
        "state": {0: {"momentum_buffer": tensor(np.ones((4, 3)))}},
        "param_groups": [{**SGD, "params": [*range(6)]}],
    }
    state["param_groups"][0] |= {"dampening": 0.5, "nesterov": True}
    source = save(tmp_path / "net.pth", {"model": weights(), "optimizer": state})
    said = convert(source, state_for="nn.Momentum").state
    assert said.lost == (
        "the count of steps: nothing in the source tells it",
        "dampening 0.5: nn.Momentum has no such setting",
    )
    assert said.made == ("moments. of 5 parameters: as the optimizer begins, since the source has none",)
    assert said.differs == ("nn.Momentum leaves nesterov out on a CPU",)
    held = open_checkpoint(tmp_path / "out.ckpt").tensors
    assert (held["moments.a.weight"].load().sum(), held["moments.b.weight"].load().sum()) == (12, 0)
    assert "global_step" not in held
    uneven = adam([[*SHAPES]])
    uneven["state"][5]["step"] = tensor(2.0)
    said = convert(save(tmp_path / "net.pth", {"model": weights(), "optimizer": uneven})).state
    assert "parameters took 2, 7 steps" in said.lost[0]


def test_groups_with_rates_of_their_own_have_them_in_mindspore_too(tmp_path: Path) -> None:
    state = adam([["a.weight", "a.bias", "norm.weight", "norm.bias"], ["b.weight", "b.bias"]])
    state["param_groups"][1]["lr"] = 0.01
    convert(save(tmp_path / "net.pth", {"model": weights(), "optimizer": state}))
    held = open_checkpoint(tmp_path / "out.ckpt").tensors
    rates = {name: float(one.load()) for name, one in held.items() if name.startswith("learning_rate")}
    assert {name: round(rate, 6) for name, rate in rates.items()} == {
        "learning_rate": 0.1, "learning_rate_group_0": 0.1, "learning_rate_group_1": 0.01,
    }  # fmt: skip


def test_the_way_back_needs_an_order_and_says_what_it_makes(tmp_path: Path) -> None:
    save(tmp_path / "net.pth", {"model": weights(), "optimizer": adam([[*SHAPES]])})
    there = convert(tmp_path / "net.pth")
    back = {"layers": LAYER, "with_state": True, "overwrite": True}
    with pytest.raises(UsageError, match="nothing tells in which order"):
        convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "back.pth", **back)
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    side = f"{tmp_path / 'side.py'}:model"
    made = convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "back.pth", target_model=side, **back)
    assert "eps 1e-08" in made.state.made[0]
    assert (made.state.groups[0].settings["betas"], made.state.groups[0].settings["lr"]) == ((0.9, 0.999), 0.1)
    tree = checkpoint_formats()["torch"].read_tree(tmp_path / "back.pth")
    assert [*tree] == ["optimizer", "global_step", "model"]
    for place, kept in enumerate(tree["optimizer"]["state"].values()):
        assert float(kept["step"].load()) == 7
        np.testing.assert_array_equal(kept["exp_avg_sq"].load(), np.full([*SHAPES.values()][place], 10 + place))
    with pytest.raises(UsageError, match="cannot hold torch's state"):
        convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "back.npz", target="torch", **back)
    with pytest.raises(UsageError, match="names of one framework"):
        convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "other.ckpt", with_state=True)
    document = as_document(there, {})
    document["state"]["groups"] = 3
    (tmp_path / "odd.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(MapError, match="groups"):
        convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "b.pth", name_map=tmp_path / "odd.json", with_state=True)


def test_names_that_several_optimizers_of_mindspore_use_are_asked_about(tmp_path: Path) -> None:
    save(tmp_path / "net.pth", {"model": weights(), "optimizer": adam([[*SHAPES]])})
    convert(tmp_path / "net.pth", state_for="mint.Adam")
    (tmp_path / "side.py").write_text(SIDE, encoding="utf-8")
    options = {"layers": LAYER, "target_model": f"{tmp_path / 'side.py'}:model", "overwrite": True}
    with pytest.raises(UsageError, match=r"several optimizers: mint.Adam, mint.AdamW"):
        convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "b.pth", with_state=True, **options)
    record = convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "b.pth", state_for="mint.AdamW", **options)
    assert (record.state.optimizer, record.state.steps) == ("torch.optim.AdamW", 8)


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path: Path) -> None:
    source = save(tmp_path / "net.pth", {"model": weights(), "optimizer": adam([[*SHAPES]])})
    planned = convert(source, dry_run=True)
    assert not (tmp_path / "out.ckpt").exists()
    assert planned.state == convert(source).state
    assert len(planned.state_tensors) == 2 * len(SHAPES) + 4
