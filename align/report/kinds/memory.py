"""Memory, shown: what a training step takes by phase and layer, what would lower the peak, and whether it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.blocks import (
    TONES,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    coverage_line,
    findings_blocks,
    format_bytes,
    format_number,
    format_percentage,
    table_columns,
)
from align.report.thresholds import MEMORY_LAYERS_SHOWN
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEGABYTE = 1e6  # format: unit of what is shown
KINDS = ("weights", "gradients", "state", "activations", "temporaries")  # of which a layer has bytes


def memory_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.memory` document; `show_all` lists every layer."""
    blocks: list[Block] = []
    for side in document["sides"]:
        blocks += [_phases(side), _layers(side, show_all), *_lower(side)]
    for growth in document["growth"]:
        blocks += [*_growth(growth)]
    return [*blocks, *findings_blocks(document["findings"]), _closing(document["verdict"])]


def _closing(verdict: dict[str, Any]) -> Lines:
    outcome = word("step_memory_outcome", verdict["outcome"])
    line = say("memory.line", outcome=outcome, reason=verdict["reason"])
    but = [say("verdict.caveats", caveats=listed(verdict["caveats"], "; "))] if verdict["caveats"] else []
    counted = coverage_line(verdict["coverage"], ("reference", "candidate"))
    return Lines("", (line, *but, counted), TONES[verdict["outcome"]])


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / MEGABYTE:,.1f}"


def _phases(side: dict[str, Any]) -> Table:
    names = (*KINDS, "inputs")
    columns = (
        Column(say("step_memory.phase")),
        *(Column(word("memory_kind", name), "number") for name in ("peak", *names)),
    )
    highest = max((phase["peak"] for phase in side["phases"]), default=0)
    rows = tuple(
        Row(
            (word("memory_phase", phase["phase"]), *(_megabytes(phase[name]) for name in ("peak", *names))),
            "open" if phase["peak"] == highest else "plain",
        )
        for phase in side["phases"]
    )
    how = word("memory_how", side["how"])
    title = say("step_memory.phases", label=side["label"], framework=side["framework"], device=side["device"], how=how)
    counted = side["counted"]
    facts = {"counted": format_bytes(counted), "reserved": format_bytes(side["reserved"])} if counted else {}
    return Table(title, columns, rows, say("step_memory.counted", **facts) if facts else "")


def _layers(side: dict[str, Any], show_all: bool) -> Table:
    """Layers in their order; of many only those that keep most."""
    layers = side["layers"]
    by_size = sorted(layers, key=lambda row: -sum(row[name] for name in KINDS))
    chosen = [row["path"] for row in (layers if show_all else by_size[:MEMORY_LAYERS_SHOWN])]
    shown = [row for row in layers if row["path"] in chosen]
    kept = sum(row["activations"] for row in layers)
    rows = tuple(
        Row(
            (
                row["path"] or say("step_memory.outside"),
                row["class_name"],
                *(_megabytes(row[name]) for name in KINDS),
                format_percentage(row["activations"], kept),
            )
        )
        for row in shown
    )
    columns = (
        *table_columns("step_memory.layer:path step_memory.class:words"),
        *(Column(word("memory_kind", name), "number") for name in (*KINDS, "share")),
    )
    hidden = len(layers) - len(shown)
    return Table(
        say("step_memory.layers", label=side["label"]),
        columns,
        rows,
        say("step_memory.hidden", count=hidden) if hidden else "",
    )


def _lower(side: dict[str, Any]) -> Iterator[Block]:
    """What would lower the peak: checkpointing, a smaller batch; and the largest batch that fits."""
    if side["checkpointings"]:
        columns = table_columns(
            "step_memory.modules:path step_memory.class:words step_memory.number:number step_memory.freed:number "
            "step_memory.new_peak:number"
        )
        rows = tuple(
            Row(
                (
                    row["path"],
                    row["class_name"],
                    format_number(row["count"]),
                    _megabytes(row["freed"]),
                    _megabytes(row["peak"]),
                )
            )
            for row in side["checkpointings"]
        )
        yield Table(say("step_memory.checkpointings", label=side["label"]), columns, rows, say("step_memory.how_to"))
    facts = [*_facts(side)]
    if facts:
        yield Facts(say("step_memory.batch", label=side["label"]), tuple(facts))


def _facts(side: dict[str, Any]) -> Iterator[tuple[str, str]]:
    batch, fits = side["batch"], side["fits"]
    if batch:
        how = word("memory_how", batch["how"])
        for size, peak in (("size", "peak"), ("other_size", "other_peak")):
            label = say("step_memory.of_batch", size=batch[size])
            yield label, say("step_memory.takes", peak=batch[peak] / MEGABYTE, how=how)
        each = say("step_memory.each_text", each=batch["per_sample"] / MEGABYTE, fixed=batch["fixed"] / MEGABYTE)
        yield say("step_memory.each"), each
    if fits:
        how = word("memory_how", fits["how"])
        yield (
            say("step_memory.fits", limit=fits["limit"] / MEGABYTE),
            say("step_memory.size", size=fits["size"], how=how),
        )
        if fits["checkpointed_size"]:
            label = say("step_memory.checkpointed", path=fits["path"])
            yield label, say("step_memory.size", size=fits["checkpointed_size"], how=how)


# Growth from step to step.


def _growth(growth: dict[str, Any]) -> Iterator[Block]:
    columns = table_columns(
        "growth.memory:words growth.first:number growth.last:number growth.per_step:number growth.range:words "
        "growth.state:words"
    )
    rows = tuple(map(_series, growth["series"]))
    yield Table(say("growth.title", label=growth["label"], count=len(growth["steps"])), columns, rows)
    if growth["objects"]:
        yield _objects(growth["objects"])


def _series(series: dict[str, Any]) -> Row:
    ends = (_megabytes(series["values"][place]) for place in (0, -1)) if series["values"] else ("", "")
    size = {name: float(series[name]) / MEGABYTE for name in ("per_step", "low", "high")}
    state = say("growth.grows") if series["grows"] else say("growth.steady")
    cells = (
        word("growing_memory", series["memory"]),
        *ends,
        f"{size['per_step']:.3g}",
        say("growth.between", low=size["low"], high=size["high"]),
        state,
    )
    return Row(cells, "bad" if series["grows"] else "plain")


def _objects(objects: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns("growth.object:words growth.place:path growth.each_step:number growth.bytes:number")
    rows = tuple(
        Row(
            (
                row["kind"] or say("growth.of_python"),
                row["place"] or (say("step_memory.outside") if row["bytes_per_step"] else ""),
                format_number(row["per_step"]),
                _megabytes(row["bytes_per_step"]) if row["bytes_per_step"] else "",
            )
        )
        for row in objects
    )
    return Table(say("growth.objects"), columns, rows)


# Memory of a process over time, shown: the growth with its interval, and whether it leaks.


def followed_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - as all kinds
    """Show a `mindalign.followed` document."""
    verdict = document["verdict"]
    outcome = word("memory_outcome", verdict["outcome"])
    closing = Lines("", (say("memory.line", outcome=outcome, reason=verdict["reason"]),), TONES[verdict["outcome"]])
    return [Facts(say("memory.title", pid=document["pid"]), tuple(_facts_of_process(document))), closing]


def _facts_of_process(document: dict[str, Any]) -> list[tuple[str, str]]:
    seconds, trend = document["seconds"], document["trend"]
    spent = seconds[-1] if seconds else 0
    facts = {"processes": document["processes"], "ended": word("memory_end", document["ended"])}
    followed = say("memory.followed_for", seconds=spent, count=len(seconds), **facts)
    shown = [(say("memory.command"), document["command"]), (say("memory.followed"), followed)]
    if trend is None:
        return shown
    ends = {name: format_bytes(round(trend[name])) for name in ("first", "last")}
    sizes = {name: trend[name] / MEGABYTE for name in ("growth", "low", "high", "noise")}
    return [
        *shown,
        (say("memory.resident"), say("memory.from_to", **ends)),
        (say("memory.growth"), say("memory.growth_of", **sizes)),
    ]
