"""What the commands that foresee an Ascend chip share: its switches, and the framework that drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.rules.ascend_rules import Driver

SwitchOption = Annotated[
    list[str] | None,
    typer.Option("--switch", metavar="NAME=VALUE", help="A switch of the chip, such as precision_mode=VALUE; repeat."),
]
FrameworkOption = Annotated[
    str,
    typer.Option(
        "--framework", metavar="NAME", help="What will drive the chip: mindspore, torch_npu, or torch on a GPU."
    ),
]


def given_switches(texts: Sequence[str] | None) -> dict[str, str]:
    """Values of switches by name; raises UsageError for a text that is no assignment."""
    from align.errors import UsageError

    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError.of("ascend_usage.no_assignment", text=f"{name}{equals}{value}")
    return {name: value for name, _, value in pairs}


def named_driver(name: str) -> Driver:
    """The framework of this name; raises UsageError for any other."""
    from align.errors import UsageError
    from align.rules.ascend_rules import Driver

    for driver in get_args(Driver):
        if name == driver:
            return driver  # type: ignore[no-any-return]
    raise UsageError.of("ascend_usage.unknown_framework", name=name, known=[*get_args(Driver)])
