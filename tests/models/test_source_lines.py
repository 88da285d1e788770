"""The line that makes a layer and the one that calls it, in files that a user may write."""

from __future__ import annotations

import importlib.util
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from align.models.rebuild_from_settings import called_at
from align.models.source_lines import made_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = '''
class Sequential:
    """What a framework's list of layers is: items by number or name."""

    def __init__(self, *layers, **named):
        listed = layers[0] if len(layers) == 1 and isinstance(layers[0], (list, dict)) else list(layers)
        numbered = listed if isinstance(listed, dict) else {str(n): one for n, one in enumerate(listed)}
        self._modules = {**numbered, **named}

    def __getattr__(self, name):
        if name == "_modules" or name not in self._modules:
            raise AttributeError(name)
        return self._modules[name]

Sequential.__module__ = "torch.nn"

class Layer:
    def __init__(self, size=1):
        self.size = size

class Norm(Layer):
    pass

'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.chdir(tmp_path)

    def load(text: str) -> Any:
        path = tmp_path / "port.py"
        path.write_text(HEAD + dedent(text), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("port_of_the_test", path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "port_of_the_test", loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def line_with(mark: str, path: Path) -> str:
    (number,) = (n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if f"# {mark}" in line)
    return f"port.py:{number}"


CASES = {
    "a statement in __init__": (
        """
        class Net:
            def __init__(self):
                self.norm = Norm()  # made
            def forward(self, x):
                return self.norm(x)  # called
        """,
        "norm",
    ),
    "a base's __init__, a derived forward": (
        """
        class Base:
            def __init__(self):
                self.norm: Layer = Norm()  # made
            def forward(self, x):
                return self.norm(self.norm(x))
        class Net(Base):
            def construct(self, x):
                return self.norm(x)  # called
        """,
        "norm",
    ),
    "another method": (
        """
        class Net:
            def __init__(self):
                self.build(3)
            def build(self, size):
                self.first, self.norm = Layer(), Norm(size)  # made
            def forward(self, x):
                return self.part(x)
            def part(self, x):
                return self.norm(x)  # called
        """,
        "norm",
    ),
    "the branch that calls the live class": (
        """
        class Net:
            def __init__(self):
                if bool():
                    self.norm = Layer()
                else:
                    self.norm = Norm()  # made
            def forward(self, x):
                y = self.norm  # called
                return y(x)
        """,
        "norm",
    ),
    "an item of a list": (
        """
        class Net:
            def __init__(self):
                self.blocks = Sequential(
                    Layer(),
                    Norm(),  # made
                )
            def forward(self, x):
                return self.blocks(x)  # called
        """,
        "blocks.1",
    ),
    "an item called in a loop": (
        """
        class Net:
            def __init__(self):
                self.blocks = Sequential([Norm() for _ in range(3)])  # made
            def forward(self, x):
                for number, block in enumerate(self.blocks):
                    x = block(x)  # called
                return x
        """,
        "blocks.2",
    ),
    "an item called by its number": (
        """
        class Net:
            def __init__(self):
                self.blocks = Sequential(Layer(), *[Layer(), Norm()])  # made
            def forward(self, x):
                return self.blocks[2](x)  # called
        """,
        "blocks.2",
    ),
    "a local list with conditions": (
        """
        class Net:
            def __init__(self):
                layers: list = []
                if bool():
                    layers += [Layer(), Layer()]
                layers.append(Layer())
                layers.extend([Layer(),
                               Layer()])  # made
                self.blocks = Sequential(layers)
            def forward(self, x):
                return self.blocks(x)  # called
        """,
        "blocks.2",
    ),
    "a name in a mapping, inside a list": (
        """
        class Net:
            def __init__(self):
                self.blocks = Sequential(Layer(), Sequential({
                    "first": Layer(),
                    "norm": Norm(),  # made
                }))
            def forward(self, x):
                return self.blocks(x)  # called
        """,
        "blocks.1.norm",
    ),
    "a class made from the framework's list": (
        """
        class Block(Sequential):
            def __init__(self, size):
                layers = [Layer(size)]
                layers.append(Norm(size))  # made
                super().__init__(*layers)
        class Widened(Block):
            def __init__(self):
                super().__init__(8)
        class Net:
            def __init__(self):
                self.block = Widened()
            def forward(self, x):
                return self.block(x)  # called
        """,
        "block.1",
    ),
    "a name made of text": (
        """
        class Net:
            def __init__(self):
                for number in range(3):
                    setattr(self, f"norm{number}", Norm())  # made
            def forward(self, x):
                return self.norm1(x)  # called
        """,
        "norm1",
    ),
    "a method makes the list by a helper": (
        """
        def norm(size):
            return Norm(size)  # made
        class Net:
            def __init__(self):
                self.blocks = self.made(2)
            def made(self, size):
                layers = [Layer(size)]
                layers.append(norm(size=size))
                return Sequential(*layers)
            def forward(self, x):
                return self.blocks(x)  # called
        """,
        "blocks.1",
    ),
    "a helper makes one of two": (
        """
        def layer(normed):
            if normed:
                return Norm()  # made
            return Layer()
        class Net:
            def __init__(self):
                self.norm = layer(True)
            def forward(self, x):
                return self.norm(x)  # called
        """,
        "norm",
    ),
    "a class is handed down under the name of a helper": (
        """
        def layer():
            return Layer()
        class Net:
            def __init__(self, layer=Norm):
                self.norm = layer()  # made
            def forward(self, x):
                return self.norm(x)  # called
        """,
        "norm",
    ),
    "a helper makes the list": (
        """
        def blocks():
            return Sequential(Norm(),
                              Norm())  # made
        class Net:
            def __init__(self):
                self.blocks = blocks()
            def forward(self, x):
                return self.blocks(x)  # called
        """,
        "blocks.1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_lines_that_make_and_call_a_layer_are_found(case: str, module: Any, tmp_path: Path) -> None:
    text, path = CASES[case]
    net = module(text).Net()
    assert made_at(net, path) == line_with("made", tmp_path / "port.py")
    assert called_at(net, path) == line_with("called", tmp_path / "port.py")


LISTS = """
from functools import wraps

def wrapped(function):
    @wraps(function)
    def inner():
        return Sequential(function(), Norm())
    return inner

@wrapped
def decorated():
    return Sequential(Norm())

def pair():
    return Norm(), Layer()

def other():
    return Norm(2)

def first(right):
    if right:
        return other()
    return Norm(1)

class Net:
    def __init__(self):
        self.first = first(True)  # first
        self.branches = self.branched(3)
        self.loop = self.looped(2, last=True)
        self.short = self.looped(1, last=False)
        self.changed = self.emptied()
        self.sums = Sequential(*([Layer()] +  # sums.0
                                 [Norm()] * 2))  # sums.1, sums.2
        self.decorated = decorated()  # decorated
        self.norm, self.layer = pair()  # norm
        self.either = self.chosen(True)

    def branched(self, count):
        blocks = []
        for row in range(count):
            items = []
            for column in range(count):
                if column > row:
                    items.append(Norm())  # branches.0.1
                elif column == row:
                    items.append(Layer())  # branches.0.0, branches.1.1
                else:
                    items.append(Sequential(Norm()))  # branches.2.1
            blocks.append(Sequential(items))  # branches.1
        return Sequential(blocks)  # branches

    def looped(self, count, last):
        layers = [Layer()]  # loop.0, short.0
        for _ in range(count):
            layers += [Norm(),  # loop.1, loop.3, short.1
                       Layer()]  # loop.2, loop.4
        if last:
            layers.extend([Norm()])  # loop.5
        return Sequential(*layers)

    def emptied(self):
        layers = [Layer(), Norm()]
        layers.pop()
        layers.insert(0, Norm())
        return Sequential(*layers)  # changed, changed.0, changed.1

    def chosen(self, right):
        if right:
            layers = [Norm()]
        else:
            layers = [Norm()]
        return Sequential(*layers)  # either.0
"""


def test_an_item_has_its_own_line_only_if_no_other_can_have_made_it(module: Any, tmp_path: Path) -> None:
    net = module(LISTS).Net()
    lines = (tmp_path / "port.py").read_text(encoding="utf-8").splitlines()
    marks = {path: number for number, line in enumerate(lines, 1) for path in line.partition("  # ")[2].split(", ")}
    marks.pop("")
    assert {path: made_at(net, path) for path in marks} == {path: f"port.py:{line}" for path, line in marks.items()}
    assert made_at(net, "decorated.1") == made_at(net, "decorated")


def test_nothing_is_told_without_a_source() -> None:
    space: dict[str, Any] = {}
    exec("class Net:\n    def __init__(self):\n        self.layer = [1]\n    def forward(self): self.layer()", space)
    assert made_at(space["Net"](), "layer") == ""
    assert called_at(space["Net"](), "layer") == ""
    assert made_at(space["Net"](), "absent") == ""
    assert made_at(3, "") == ""


def test_a_class_defined_twice_or_inside_a_function_is_the_live_one(module: Any, tmp_path: Path) -> None:
    loaded = module(
        """
        def build(right):
            class Net:
                def __init__(self):
                    self.norm = Norm(1)
            first = Net
            class Net:
                def __init__(self):
                    self.norm = Norm(2)  # made
            return Net() if right else first()
        """
    )
    assert made_at(loaded.build(True), "norm") == line_with("made", tmp_path / "port.py")
    assert made_at(loaded.build(False), "norm") != line_with("made", tmp_path / "port.py")


@pytest.mark.frameworks
def test_layers_inside_the_frameworks_own_belong_to_the_users_line(module: Any, tmp_path: Path) -> None:
    net = module(
        """
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.TransformerEncoderLayer(8, 2, 16)  # made
            def forward(self, x):
                return self.layer(x)  # called
        """
    ).Net()
    assert made_at(net, "layer.self_attn.out_proj") == line_with("made", tmp_path / "port.py")
    assert called_at(net, "layer.norm1") == line_with("called", tmp_path / "port.py")


@pytest.mark.frameworks
def test_every_layer_of_installed_models_has_both_lines_and_the_files_are_told_from_their_packages() -> None:
    import mindcv
    import transformers

    port = mindcv.create_model("mobilenet_v2_100")
    paths = [path for path, _ in port.cells_and_names() if path]
    assert [path for path in paths if not (made_at(port, path) and called_at(port, path))] == []
    assert made_at(port, "features.5.layers.1").startswith("mindcv/models/mobilenetv2.py:")
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    bert = transformers.BertModel(config)
    modules = [path for path, module in bert.named_modules() if path]
    assert [path for path in modules if not made_at(bert, path)] == []
