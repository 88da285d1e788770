"""What a comparison could have shown: the inputs that move nothing, outputs at an end, and parameters that stay hidden.

Only what is remarkable gets a line, and one line says how the rest is seen: of a model in order that line is all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_names
from align.report.rendering.blocks import Block, Lines
from align.report.rendering.format_values import as_float, format_number, format_percentage, layer_name
from align.report.thresholds import NAMES_ON_A_LINE
from align.words.catalogue import say
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Sequence


def power_blocks(
    power: dict[str, Any] | None, further: Sequence[dict[str, Any]] = (), *, show_all: bool = False
) -> list[Block]:
    """Show the power of a forward comparison; None says that nobody measured it.

    `further` are the comparisons in other states, of which those that agree are told here.
    """
    if power is None:
        return [Lines(say("power.title"), (say("power.not_measured"),), "open")]
    lines = (*_inputs(power), *_outputs(power["outputs"], show_all), *_parameters(power["parameters"], show_all))
    lines += tuple(_agreed(one, show_all) for one in further if one["outcome"] == "aligned")
    blind = [name for name, factor in power["inputs"].items() if as_float(factor) <= 1.0]
    return [Lines(say("power.title"), lines, "open" if blind or power["unmeasured"] else "plain")]


def _agreed(further: dict[str, Any], show_all: bool) -> str:
    subjects = further["subjects"]
    names = first_few(subjects, len(subjects) if show_all else NAMES_ON_A_LINE)
    return say(f"power.further_{further['kind'].replace(' ', '_')}", count=len(subjects), names=names)


def _inputs(power: dict[str, Any]) -> list[str]:
    moved = [
        say(
            f"power.{'input_moves' if as_float(factor) > 1.0 else 'input_hidden'}",
            name=name,
            factor=format_number(factor),
        )
        for name, factor in power["inputs"].items()
    ]
    return moved + [say("power.unmeasured", name=name, reason=why) for name, why in power["unmeasured"].items()]


def _outputs(outputs: list[dict[str, Any]], show_all: bool) -> list[str]:
    kinds = {
        "constant": [one for one in outputs if one["state"] == "constant"],
        "saturated": [one for one in outputs if one["state"] == "saturated"],
        "unmoved": [one for one in outputs if one["factor"] is not None and as_float(one["factor"]) <= 1.0],
    }
    return [
        say(
            f"power.{kind}",
            count=len(own),
            total=len(outputs),
            names=_listed(map(_named, own), show_all),
        )
        for kind, own in kinds.items()
        if own
    ]


def _named(output: dict[str, Any]) -> str:
    return f"{layer_name(output['module'], output['call'], output['output'])} ({output['class_name']})"


def _parameters(parameters: list[dict[str, Any]], show_all: bool) -> list[str]:
    hidden = sorted(parameters, key=lambda one: -one["blind"] / one["elements"])
    late = sorted(parameters, key=lambda one: -as_float(one["shows_at"] or 0.0))
    orders = {"blind": hidden, "partly blind": hidden, "weakly seen": late, "unknown": late, "neutral": hidden}
    lines = []
    for state, ordered in orders.items():
        if own := [one for one in ordered if one["state"] == state]:
            names = _listed([one["name"] for one in own], show_all)
            lines.append(say(f"power.{state.replace(' ', '_')}", count=len(own), names=names, **_first(own)))
    if seen := [one for one in late if one["state"] in ("seen", "partly blind")]:
        lines.append(say("power.seen", count=len(seen), **_first(seen)))
    return lines


def _first(parameters: list[dict[str, Any]]) -> dict[str, str]:
    """What the worst of them, which stands first, is like."""
    first = parameters[0]
    hidden = format_percentage(first["blind"], first["elements"])
    return {"name": first["name"], "hidden": hidden, "change": _percent(first["shows_at"])}


def _percent(relative: float | str | None) -> str:
    return f"{format_number(100 * as_float(relative), 2)} %"


def _listed(names: Any, show_all: bool) -> str:
    folded = fold_names(names)
    return first_few(folded, len(folded) if show_all else NAMES_ON_A_LINE)
