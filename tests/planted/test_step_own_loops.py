"""What loops of the user's own do around models and optimizers: order, what they read of a batch, averages, modes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

SAMPLES, WIDTH = 16, 6


def batch(seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    drawn = {name: generator.standard_normal((SAMPLES, WIDTH)) for name in ("real", "first", "second")}
    drawn["mask"] = (generator.random(SAMPLES) < 0.6).astype(np.float64)
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def game(
    *, swapped: bool = False, entries: tuple[str, str] = ("first", "second"), alone: bool = False, target: float = 0.9
) -> Any:
    """A maker and a judge, which learn from each other, or each by itself."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    pair = nn.ModuleDict({"maker": nn.Linear(WIDTH, WIDTH), "judge": nn.Linear(WIDTH, 1)})
    maker, judge = pair["maker"], pair["judge"]
    updates = {name: torch.optim.SGD(pair[name].parameters(), 0.5, momentum=0.5) for name in pair}

    def towards(score: Any, meant: float) -> Any:
        return torch.square(score - meant).mean()

    def teach_judge(given: Any) -> Any:
        updates["judge"].zero_grad()
        made = given[entries[0]] if alone else maker(given[entries[0]]).detach()
        loss = towards(judge(given["real"]), target) + towards(judge(made), 0.0)
        loss.backward()
        updates["judge"].step()
        return loss

    def teach_maker(given: Any) -> Any:
        updates["maker"].zero_grad()
        made = maker(given[entries[1]])
        loss = torch.square(made).mean() if alone else towards(judge(made), 1.0)
        loss.backward()
        updates["maker"].step()
        return loss

    def step(given: Any) -> Any:
        first, second = (teach_maker, teach_judge) if swapped else (teach_judge, teach_maker)
        return (first(given) + second(given)).detach()

    return align.Training(pair, None, [updates["maker"], updates["judge"]], step)


def masked(*, reads: bool = True) -> Any:
    """A mean over the samples that a mask leaves."""
    import torch

    torch.manual_seed(2)
    model = torch.nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        error = torch.square(model(given["real"]) - 1.0)[:, 0]
        loss = (error * given["mask"]).sum() / given["mask"].sum() if reads else error.mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return align.Training(model, None, optimizer, step)


def averaged(when: str = "behind", share: float = 0.1, *, left: bool = False) -> Any:
    """A model beside an average of its weights."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    live = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    both = nn.ModuleDict({"live": live, "average": deepcopy(live).requires_grad_(False)})
    optimizer = torch.optim.SGD(live[2 if left else slice(None)].parameters(), 0.5)

    def follow() -> None:
        with torch.no_grad():
            for mine, other in zip(both["average"].parameters(), live.parameters(), strict=True):
                mine.lerp_(other, share)

    def step(given: Any) -> Any:
        live.zero_grad()
        loss = torch.square(live(given["real"]) - given["first"]).mean()
        loss.backward()
        if when == "before":
            follow()
        optimizer.step()
        if when == "behind":
            follow()
        return loss.detach()

    return align.Training(both, None, optimizer, step)


def bounded(*, above: float = 0.02, held: bool = True, rate: float = 0.05) -> Any:
    """A model whose bias a step keeps in its range."""
    import torch

    torch.manual_seed(5)
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    signs = torch.tensor([1.0, -1.0] * (WIDTH // 2))

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(given["real"]) * signs).mean()
        loss.backward()
        optimizer.step()
        if held:
            with torch.no_grad():
                model.bias.clamp_(-above, above)
        return loss.detach()

    with torch.no_grad():
        model.bias.zero_()
    return align.Training(model, None, optimizer, step)


def partly(*, by_code: bool = True, times: float = 1.0) -> Any:
    """A body that an optimizer updates, and a head that the loop updates itself, or the optimizer too."""
    import torch
    from torch import nn

    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model[0].parameters() if by_code else model.parameters(), 0.1)

    def step(given: Any) -> Any:
        model.zero_grad()
        loss = torch.square(model(given["real"]) - 1.0).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for one in model[2].parameters() if by_code else ():
                one -= 0.1 * times * one.grad
        return loss.detach()

    return align.Training(model, None, optimizer, step)


def headed(*, fused: bool = False, times: float = 1.0) -> Any:
    """A body that an optimizer updates, and two heads, or one that holds both, that the loop updates itself."""
    import torch
    from torch import nn

    torch.manual_seed(7)
    model = nn.ModuleDict({"body": nn.Linear(WIDTH, WIDTH)})
    heads = {"heads": 2} if fused else {"left": 1, "right": 1}
    model.update({name: nn.Linear(WIDTH, count) for name, count in heads.items()})
    optimizer = torch.optim.SGD(model["body"].parameters(), 0.1)

    def step(given: Any) -> Any:
        model.zero_grad()
        hidden = torch.tanh(model["body"](given["real"]))
        loss = torch.square(torch.cat([model[name](hidden) for name in heads], 1) - 1.0).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for one in (one for name in heads for one in model[name].parameters()):
                one -= 0.1 * times * one.grad
        return loss.detach()

    return align.Training(model, None, optimizer, step)


def normed(*, training: str = "step") -> Any:
    """A model whose mode matters, which its step sets, or whoever builds it, or nobody."""
    import torch
    from torch import nn

    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1))
    model.train(training == "build")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(given: Any) -> Any:
        if training == "step":
            model.train()
        optimizer.zero_grad()
        loss = torch.square(model(given["real"]) - 1.0).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return align.Training(model, None, optimizer, step)


def compared(mine: Any, theirs: Any, *, steps: int = 2) -> Any:
    return align.compare_training_step(mine, theirs, batch=[batch(0), batch(1)], steps=steps)


@pytest.mark.parametrize(
    ("mine", "theirs", "cause", "facts"),
    [
        (game, lambda: game(swapped=True), "updates-in-other-order", {}),
        (
            game,
            lambda: game(entries=("first", "first")),
            "batch-entry-not-read",
            {"entry": "second", "in its place": "first"},
        ),
        (
            game,
            lambda: game(entries=("second", "second")),
            "batch-entry-not-read",
            {"entry": "first", "in its place": "second"},
        ),
        (masked, lambda: masked(reads=False), "batch-entry-not-read", {"entry": "mask", "in its place": "ones"}),
        (averaged, lambda: averaged("before"), "average-before-update", {}),
        (averaged, lambda: averaged(share=0.2), "average-of-weights", {"times the reference's": 2.0}),
        (
            lambda: averaged(share=0.9),
            lambda: averaged(share=0.009),
            "average-of-weights",
            {"times the reference's": 0.01},
        ),
        (averaged, lambda: averaged("never"), "moved-without-gradient", {"only in": "reference"}),
        (averaged, lambda: averaged(left=True), "in-no-optimizer", {}),
        (bounded, lambda: bounded(held=False), "values-bounded", {"only in": "reference", "bound": "-0.02 to 0.02"}),
        (lambda: bounded(held=False), bounded, "values-bounded", {"only in": "candidate", "bound": "-0.02 to 0.02"}),
    ],
)
def test_what_a_loop_does_otherwise_is_the_one_place(
    mine: Callable[[], Any], theirs: Callable[[], Any], cause: str, facts: dict[str, Any]
) -> None:
    result = compared(mine(), theirs())
    sure = "suspected" if facts.get("in its place") in ("ones", "zeros") else "confirmed"
    assert [(one.cause, one.facts, one.sureness) for one in result.culprits] == [(cause, facts, sure)]
    assert result.verdict.exit_code == 1


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (game, game),
        (lambda: game(alone=True), lambda: game(alone=True, swapped=True)),  # neither needs what the other updates
        (lambda: masked(reads=False), lambda: masked(reads=False)),
        (averaged, averaged),
        (lambda: averaged("before"), lambda: averaged("before")),
        (bounded, bounded),
        (partly, lambda: partly(by_code=False)),
        (lambda: partly(by_code=False), partly),
        (partly, partly),
        (normed, lambda: normed(training="build")),
        (lambda: normed(training="build"), normed),
        (lambda: normed(training="none"), lambda: normed(training="none")),
    ],
)
def test_loops_that_do_the_same_are_aligned_and_nobody_is_warned(
    mine: Callable[[], Any], theirs: Callable[[], Any]
) -> None:
    result = compared(mine(), theirs())
    assert (result.culprits, result.verdict.exit_code) == ((), 0)
    assert not [one for one in result.findings if one.severity == "warning"]


@pytest.mark.parametrize("mine", [partly, lambda: partly(by_code=False)])
def test_what_a_loop_updates_beside_an_optimizer_is_compared_by_its_change(mine: Callable[[], Any]) -> None:
    (culprit,) = compared(mine(), partly(times=2.0)).culprits
    assert (culprit.cause, culprit.facts, culprit.sureness) == ("learning-rate", {"factor": 2.0}, "suspected")
    assert sorted(culprit.parameters) == ["2.bias", "2.weight"]


HEADS = """
[names]
"body.weight" = "body.weight"
"body.bias" = "body.bias"
"left.weight" = { to = "heads.weight", op = "part", axis = 0, start = 0, stop = 1, shape = [2, 6] }
"left.bias" = { to = "heads.bias", op = "part", axis = 0, start = 0, stop = 1, shape = [2] }
"right.weight" = { to = "heads.weight", op = "part", axis = 0, start = 1, stop = 2, shape = [2, 6] }
"right.bias" = { to = "heads.bias", op = "part", axis = 0, start = 1, stop = 2, shape = [2] }
"""


def test_pieces_of_a_tensor_that_a_loop_updates_itself_are_compared_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(HEADS)

    def faults(times: float) -> list[tuple[str, Any, tuple[str, ...]]]:
        result = align.compare_training_step(
            headed(),
            headed(fused=True, times=times),
            batch=[batch(0), batch(1)],
            steps=2,
            name_map=tmp_path / "map.toml",
        )
        return [(one.cause, one.facts, tuple(sorted(one.parameters))) for one in result.culprits]

    assert faults(1.0) == []
    assert faults(2.0) == [("learning-rate", {"factor": 2.0}, ("heads.bias", "heads.weight"))]


@pytest.mark.parametrize("mine", ["step", "build"])
def test_a_step_that_leaves_the_model_in_inference_mode_is_told(mine: str) -> None:
    result = compared(normed(training=mine), normed(training="none"))
    (finding,) = (one for one in result.findings if one.severity == "warning")
    assert (finding.code, result.verdict.exit_code) == ("inference-mode", 0)
    assert "train()" in finding.message


def test_an_order_of_updates_that_changes_nothing_hides_no_fault() -> None:
    result = compared(game(alone=True), game(alone=True, swapped=True, target=0.7))
    assert result.culprits
    assert all(one.cause != "updates-in-other-order" for one in result.culprits)


def test_a_model_that_returns_no_losses_in_inference_mode_is_compared_all_the_same() -> None:
    import torch

    class Detector(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return {"loss": torch.square(super().forward(x)).mean()} if self.training else [super().forward(x)]

    def side() -> Any:
        torch.manual_seed(7)
        model = Detector(WIDTH, 2).eval()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(given: Any) -> Any:
            optimizer.zero_grad()
            loss = sum(model(given["real"]).values())
            loss.backward()
            optimizer.step()
            return loss.detach()

        return align.Training(model, None, optimizer, step)

    assert compared(side(), side()).verdict.exit_code == 0


def test_an_entry_that_a_step_hands_on_with_all_others_is_read() -> None:
    import torch

    def side(*, counted: bool) -> Any:
        training = masked()
        model, (optimizer,) = training.model, training.optimizers

        def loss_of(real: Any, mask: Any, **_: Any) -> Any:
            error = torch.square(model(real) - 1.0)[:, 0]
            return (error * mask).sum() / mask.sum() if counted else error.mean()

        def step(given: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(**given)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return align.Training(model, None, optimizer, step)

    causes = [one.cause for one in compared(side(counted=True), side(counted=False)).culprits]
    assert causes
    assert "batch-entry-not-read" not in causes


def test_a_target_that_is_another_in_one_use_of_a_function_is_told_at_that_use() -> None:
    (culprit,) = compared(game(), game(target=1.0)).culprits
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    used = next(number for number, line in enumerate(lines, 1) if "target) + towards" in line)
    assert (culprit.part, culprit.sureness) == ("loss", "confirmed")
    assert culprit.inside is not None
    assert any(line.endswith(f":{used}") for line in culprit.inside.lines)


def test_an_optimizer_of_ones_own_that_counts_its_calls_counts_anew_each_time() -> None:
    import torch

    class Counting(torch.optim.SGD):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.calls = 0

        def step(self, closure: Any = None) -> Any:
            self.calls += 1
            for group in self.param_groups:
                group["lr"] = 0.5 / self.calls
            return super().step(closure)

    def counting(*, swapped: bool) -> Any:
        training = game(swapped=swapped)
        maker, judge = training.optimizers
        maker.__class__ = judge.__class__ = Counting
        maker.calls = judge.calls = 0
        return training

    assert compared(counting(swapped=False), counting(swapped=False)).verdict.exit_code == 0
    causes = [one.cause for one in compared(counting(swapped=False), counting(swapped=True)).culprits]
    assert causes == ["updates-in-other-order"]
