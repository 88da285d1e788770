"""Forms that programs keep their settings in: classes, functions, fields, flags, jobs, references, groups of files."""

from __future__ import annotations

from typing import Any

import pytest

from align.errors import UnreadableSettingsError

PYTHON = [
    ("class Config:\n    lr = 0.1\n    steps = 2**10\nclass Net:\n    width = 3\n", {"lr": 0.1, "steps": 1024}),
    ("class Exp(Base):\n    def __init__(self, depth=3, other=make()):\n        self.lr = 0.1 / 2\n"
     "        self.depth = depth\n        self.net = Net()\n", {"lr": 0.05, "depth": 3}),
    ("def get_config():\n    config = ml_collections.ConfigDict()\n    config.optim = ml_collections.ConfigDict()\n"
     "    config.optim.lr = 0.1\n    return config\n", {"optim.lr": 0.1}),
    ("_C = CN()\n_C.AMP = CN({'ENABLED': False})\n_C.NET = PARTS['a']\nPARTS = {'a': 1}\n",
     {"AMP.ENABLED": False, "NET": "PARTS['a']"}),
    ("parts = edict()\nparts.a = edict()\nparts.a.n = 50\nconfig = edict()\nconfig.extra = parts['a']\n",
     {"extra.n": 50}),
    ("@dataclass\nclass A:\n    lr: float = field(default=0.1)\n    n: list = field(default_factory=lambda: [1, 2])\n",
     {"lr": 0.1, "n": (1, 2)}),
    ("optimizer = L(torch.optim.AdamW)(lr=0.1)\nmodel = build(3)\n",
     {"optimizer._target_": "torch.optim.AdamW", "optimizer.lr": 0.1}),
    ("@click.option('--lr', default=0.1)\ndef main(lr):\n    pass\n", {"lr": 0.1}),
    ("flags.DEFINE_float('lr', 0.1, 'rate')\n", {"lr": 0.1}),
    ("def main(lr: float = 0.1, *, n=2):\n    pass\nfire.Fire(main)\n", {"lr": 0.1, "n": 2}),
    ("p.add_argument('--no_aux', dest='aux', action='store_false')\np.add_argument('-b', '--bs', type=int)\n"
     "p.add_argument('--lr', default=1)\np.set_defaults(lr=2)\n", {"aux": True, "bs": None, "lr": 2}),
    ("from easydict import EasyDict as ed\ntrain = ed({'OptimConfig': {'lr': 1}})\neval_config = ed({'n': 2})\n",
     {"OptimConfig.lr": 1, "eval_config.n": 2}),
    ("opt = nn.Momentum(net.trainable_params(), learning_rate=0.1, momentum=0.9)\nset_seed(7)\n",
     {"optimizer": "Momentum", "learning_rate": 0.1, "momentum": 0.9, "seed": 7}),
    ("opt = nn.Adam(p, beta1=0.8)\nother = nn.Adam(q, beta1=0.7)\nclip_grad_norm_(p, 1.0)\n", {"clip_norm": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), PYTHON)
def test_forms_of_python(settings: Any, code: str, expected: dict[str, Any]) -> None:
    assert settings.read("a.py", code) == expected


def test_a_base_that_is_changed_by_attributes(settings: Any) -> None:
    settings.file("base.py", "optim = dict(lr=0.1, momentum=0.9)\npipeline = [dict(type='Crop', size=3)]\n")
    text = (
        "_base_ = 'base.py'\n_base_.optim.lr = 0.2\n_base_.net = dict(n=1)\nloader = dict(pipeline=_base_.pipeline)\n"
    )
    found = settings.read("top.py", text)
    assert (found["optim.lr"], found["optim.momentum"], found["net.n"], found["loader.pipeline.0.size"]) == (
        0.2,
        0.9,
        1,
        3,
    )


YAML = [
    ("lr: 0.1\nopt: !new:torch.optim.Adam\n    lr: !ref <lr>\nseed: !apply:a.b [1]\nnet: !name:a.Net\n"
     "out: !ref <dir>/x\n",
     {"lr": 0.1, "opt.type": "torch.optim.Adam", "opt.lr": 0.1, "seed": None, "net.type": "a.Net", "out": None}),
    ("a: {rate: 8, list: [1, 2]}\nb: ${a.rate}\nc: ${a.list}\nd: ???\ne: ${oc.env:HOME}\nf: n${a.rate}\n",
     {"a.rate": 8, "a.list": (1, 2), "b": 8, "c": (1, 2), "d": None, "e": None, "f": "n8"}),
    ("a: !Path [x, y]\nb: !own 3\n", {"a": "!Path", "b": "!own"}),
    ("a: ${b}\nb: ${a}\n", {"a": None, "b": None}),
    ("STEPS: (60, 80)\nSIZES: !!python/tuple [1, 2]\nlow: -.inf\n",
     {"STEPS": (60, 80), "SIZES": (1, 2), "low": float("-inf")}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), YAML)
def test_forms_of_yaml(settings: Any, text: str, expected: dict[str, Any]) -> None:
    assert settings.read("a.yaml", text) == expected


def test_files_that_hydra_lists(settings: Any) -> None:
    settings.file("optimizer/sgd.yaml", "lr: 0.1\nmomentum: 0.9\n")
    text = "defaults:\n  - _self_\n  - optimizer: sgd\n  - override hydra/job_logging: none\noptimizer: {lr: 0.2}\n"
    assert settings.read("config.yaml", text) == {"optimizer.lr": 0.2, "optimizer.momentum": 0.9}
    with pytest.raises(UnreadableSettingsError, match="base of itself"):
        settings.read("self.yaml", "defaults: [self]\n")


SHELL = [
    ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --time=9\nsrun python main.py --lr 0.1\n",
     {"nodes": "4", "ntasks-per-node": "8", "lr": "0.1"}),
    ("python train.py --len 512\npython eval.py --len 80\n", {"len": "512"}),
    ("python eval.py --len 80\n", {"len": "80"}),
    (": ${LR:=0.1}\n: ${AMP:=false}\nARGS=\"--lr=$LR\"\n[ \"$AMP\" = true ] && ARGS+=\" --amp\"\npython a.py $ARGS\n",
     {"lr": "0.1"}),
    ("[ \"$1\" = x ] && ARGS=--amp\npython a.py $ARGS --lr 1\n", {"amp": True, "lr": "1"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SHELL)
def test_forms_of_shell_scripts(settings: Any, text: str, expected: dict[str, Any]) -> None:
    assert settings.read("a.sh", text) == expected


def test_other_names_of_an_option_are_its_own(settings: Any) -> None:
    code = settings.file(
        "main.py", "p.add_argument('-b', '--batch_size', default=4)\np.add_argument('-n', '--wide', type=int)\n"
    )
    script = settings.file("run.sh", "python main.py -b 8 -n 3\n")
    from align.hyperparameters.settings_format import read_settings_of

    found = {one.name: one.value for one in read_settings_of(f"{code},{script}").settings}
    assert found == {"batch_size": "8", "wide": "3"}
