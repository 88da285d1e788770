"""A comparison of generation shown: each kind of logits in a row, the positions around the first fault, the tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from align.core.align_sequences import grouped
from align.report.blocks import (
    NONE,
    TONES,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    as_float,
    coverage_line,
    escape_control_characters,
    findings_blocks,
    format_number,
    format_percentage,
    format_ranges,
    table_columns,
    verdict_block,
)
from align.report.judged_run import FAILED
from align.report.thresholds import INDEXES_SHOWN, LIST_LINES, TABLE_ROWS, TOKEN_CHARACTERS, TOKENS_AFTER, TOKENS_BEFORE
from align.words.catalogue import say, word


def generate_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.generate` document; `show_all` gives every position a row."""
    prompt = document["prompts"][1]
    wrong = [one for one in document["comparisons"] if show_all or one["first_divergent"] is not None]
    return [
        _summary(document["comparisons"], prompt),
        *(_positions(one, prompt, show_all=show_all) for one in wrong),
        *_tokens(document["differences"]),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _summary(comparisons: list[dict[str, Any]], prompt: int) -> Table:
    columns = table_columns(
        "generate.logits generate.against generate.positions:number generate.first forward.max_abs:number "
        "forward.factor:number forward.outcome"
    )
    rows = tuple(_comparison(one, prompt) for one in comparisons)
    return Table(say("generate.title"), columns, rows, say("generate.factor_note"))


def _comparison(comparison: dict[str, Any], prompt: int) -> Row:
    measured = [one for one in comparison["positions"] if one["measurement"] is not None]
    largest = max((as_float(one["measurement"]["max_abs"]) for one in measured), default=None)
    factor = max((as_float(one["factor"]) for one in measured), default=None)
    first = comparison["first_divergent"]
    outcome = "not aligned" if first is not None else "aligned" if measured else "not comparable"
    name = comparison["logits"].replace(" ", "_")
    cells = (
        say(f"generate.{name}"),
        say(f"generate.{name}_against"),
        format_number(len(comparison["positions"])),
        NONE if first is None else _place(comparison["positions"][first]["position"], prompt),
        format_number(largest),
        format_number(factor),
        word("outcome", outcome),
    )
    return Row(cells, TONES[outcome])


def _place(position: int, prompt: int) -> str:
    """What the logits at a position are for: they choose the token after it."""
    step = position + 1 - prompt
    return say("generate.prompt", position=position + 1) if step < 0 else say("generate.new", step=step)


def _positions(comparison: dict[str, Any], prompt: int, *, show_all: bool) -> Table:
    first = comparison["first_divergent"] or 0
    shown = (
        comparison["positions"]
        if show_all
        else comparison["positions"][max(0, first - TOKENS_BEFORE) : first + TOKENS_AFTER]
    )
    columns = table_columns(
        "generate.place forward.max_abs:number forward.relative_l2:number generate.limit:number "
        "forward.factor:number forward.outcome"
    )
    name = comparison["logits"].replace(" ", "_")
    return Table(
        say("generate.at", logits=say(f"generate.{name}")), columns, tuple(_position(one, prompt) for one in shown)
    )


def _position(position: dict[str, Any], prompt: int) -> Row:
    measured, limit = position["measurement"] or {}, position["limit"] or {}
    cells = (
        _place(position["position"], prompt),
        format_number(measured.get("max_abs")),
        format_number(measured.get("relative_l2")),
        format_number(limit.get("max_abs")),
        format_number(position["factor"]),
        word("outcome", position["outcome"]),
    )
    return Row(cells, TONES[position["outcome"]])


def _tokens(differences: list[dict[str, Any]]) -> list[Block]:
    if not differences:
        return []
    columns = table_columns(
        "generate.decoding generate.sequence:number generate.step:number word.reference:number "
        "generate.instead:number generate.margin:number generate.limit:number word.note"
    )
    return [Table(say("generate.tokens"), columns, tuple(map(_token, differences)))]


def _token(difference: dict[str, Any]) -> Row:
    name = difference["logits"].replace(" ", "_")
    whole = (str(difference[key]) for key in ("sequence", "step", "reference", "candidate"))
    figures = format_number(difference["margin"]), format_number(difference["limit"])
    note = say("generate.tie" if difference["tie"] else "generate.other")
    return Row((say(f"generate.{name}"), *whole, *figures, note), "plain" if difference["tie"] else "bad")


# A validation shown: the metric of each combination, then the samples on which the models differ.

PARTS = ("model", "weights", "data", "metric")
OWN_WEIGHTS = ("weights-differ", "weights-unknown")


def validate_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.validate` document; `show_all` lists the index of every sample that was kept."""
    outputs = document["outputs"]
    return [
        _combinations(document),
        _outputs(outputs, show_all=show_all),
        *(_worst(outputs["worst"]) if show_all or outputs["flipped"] or as_float(outputs["factor"]) > 1.0 else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _combinations(document: dict[str, Any]) -> Table:
    columns = (
        *(Column(say(f"validate.{part}")) for part in PARTS),
        *table_columns("validate.value:number validate.difference:number validate.agrees"),
    )
    own = {part for row in document["combinations"] for part in row["exchanged"]}
    own |= {"weights"} if any(finding["code"] in OWN_WEIGHTS for finding in document["findings"]) else set()
    rows = tuple(_combination(row, own) for row in document["combinations"])
    title = say("validate.title", metric=document["metrics"][0])
    return Table(title, columns, rows, say("validate.limit_note", limit=format_number(document["limit"])))


def _combination(row: dict[str, Any], unshared: set[str]) -> Row:
    """Whose part each is; a part that both sides share is nobody's."""
    other = "candidate" if row["model"] == "reference" else "reference"
    cells = [word("word", row["model"])]
    for part in PARTS[1:]:
        whose = other if part in row["exchanged"] else row["model"]
        cells.append(word("word", whose) if part in unshared else say("validate.shared"))
    is_reference = row["model"] == "reference" and not row["exchanged"]
    figures = (format_number(row["value"], 6), "" if is_reference else format_number(row["difference"]))
    agrees = "" if is_reference else say("validate.yes" if row["agrees"] else "validate.no")
    return Row((*cells, *figures, agrees), "plain" if is_reference else "good" if row["agrees"] else "bad")


def _outputs(outputs: dict[str, Any], *, show_all: bool) -> Facts:
    measured, limit = outputs["measurement"], outputs["limit"]
    bounds = {"max_abs": format_number(limit["max_abs"]), "rmse": format_number(limit["rmse"])}
    facts = [
        (say("validate.samples"), format_number(outputs["samples"])),
        (say("forward.max_abs_long"), format_number(measured["max_abs"])),
        (say("forward.limit"), say("forward.limit_in_force", source=word("limit_source", limit["source"]), **bounds)),
        (say("forward.smallest_limit"), say("forward.would_pass", factor=format_number(outputs["factor"]))),
        (say("validate.flipped"), _flips(outputs)),
    ]
    if indexes := outputs["indexes"]:
        shown = indexes if show_all else indexes[:INDEXES_SHOWN]
        rest = outputs["flipped"] - len(shown)
        more = say("word.and_more", count=format_number(rest)) if rest else ""
        facts.append((say("validate.indexes"), ", ".join(map(format_number, shown)) + more))
    return Facts(say("validate.outputs"), tuple(facts), "good" if as_float(outputs["factor"]) <= 1.0 else "bad")


def _flips(outputs: dict[str, Any]) -> str:
    part, whole = outputs["flipped"], outputs["samples"]
    text = say(
        "validate.flips", part=format_number(part), whole=format_number(whole), share=format_percentage(part, whole)
    )
    return text + (say("validate.ties", count=format_number(outputs["ties"])) if outputs["ties"] else "")


def _worst(samples: list[dict[str, Any]]) -> list[Block]:
    """The samples that differ most; columns of classes stay empty, and are left out, where there are none."""
    if not samples:
        return []
    columns = table_columns(
        "validate.index:number validate.label:number word.reference:number word.candidate:number "
        "forward.max_abs_long:number validate.margin:number validate.limit:number word.note"
    )
    return [Table(say("validate.worst"), columns, tuple(map(_sample, samples)))]


def _sample(sample: dict[str, Any]) -> Row:
    flipped = sample["margin"] is not None
    keys = ("label", "reference", "candidate")
    classes = tuple(str(sample[key]) if flipped else "" for key in keys)
    lead = tuple(format_number(sample[key]) if flipped else "" for key in ("margin", "limit"))
    note = say("validate.tie" if sample["tie"] else "validate.flip") if flipped else ""
    cells = (format_number(sample["index"]), *classes, format_number(sample["difference"]), *lead, note)
    return Row(cells, "bad" if flipped and not sample["tie"] else "plain")


# A job of many tasks, shown: what departs first, ranks and tensors that do not agree, then the tasks.

_ORDER = (*FAILED, "not aligned", "aligned")


def batch_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.batch` document; `show_all` lists every task and layer."""
    verdict = document["verdict"]
    outcome = verdict["outcome"]
    headline = say("verdict.line", outcome=word("outcome", outcome), reason=verdict["reason"])
    blocks: list[Block | None] = [
        Lines("", (headline,), TONES.get(outcome, "plain")),
        _job(document),
        _groups(document["groups"]),
        _unequal(document["unequal"], show_all=show_all),
        _layers(document, show_all=show_all),
        _failures([one for one in document["tasks"] if one["state"] in FAILED], show_all=show_all),
        _tasks(document["tasks"], show_all=show_all),
        _next(document["next_commands"]),
        Lines("", (coverage_line(verdict["coverage"], ("reference", "candidate")),), "quiet"),
    ]
    return [block for block in blocks if block is not None]


def _job(document: dict[str, Any]) -> Facts:
    tasks = document["tasks"]
    states = [task["state"] for task in tasks]
    counts = [(word("batch_state", state), format_number(states.count(state))) for state in _ORDER if state in states]
    facts = [(say("batch.job"), str(document["job"])), *counts]
    facts += [(say(f"batch.{key}"), format_ranges(document[key])) for key in ("ranks", "steps") if document[key]]
    if reused := sum(task["reused"] for task in tasks):
        facts.append((say("batch.reused"), format_number(reused)))
    return Facts(say("batch.title"), tuple(facts))


def _groups(groups: list[dict[str, Any]]) -> Table | None:
    if not groups:
        return None
    columns = table_columns("batch.ranks batch.layer:path batch.said:words")
    tones = {"odd": "bad", "alike": "bad", "aligned": "good"}
    rows = tuple(
        Row((format_ranges(one["ranks"]), one["layer"] or "", one["reason"]), tones[one["kind"]])  # type: ignore[arg-type]
        for one in groups
    )
    step = groups[0]["step"]
    title = say("batch.groups") if step is None else say("batch.groups_at", step=step)
    return Table(title, columns, rows)


def _unequal(tensors: list[dict[str, Any]], *, show_all: bool) -> Table | None:
    if not tensors:
        return None
    shown = tensors if show_all else tensors[:TABLE_ROWS]
    columns = table_columns(
        "batch.tensor:path batch.side batch.since:number batch.odd_ranks batch.equal_ranks:number batch.known_by:words"
    )
    rows = []
    for one in shown:
        since = "" if one["step"] is None else format_number(one["step"])
        ranks = format_ranges(one["ranks"]), format_number(one["equal"])
        cells = one["name"], word("word", one["side"]), since, *ranks, word("batch_known_by", one["known_by"])
        rows.append(Row(cells, "bad"))
    return Table(say("batch.unequal"), columns, tuple(rows), _more(len(tensors) - len(shown)))


def _layers(document: dict[str, Any], *, show_all: bool) -> Table | None:
    """Layers by how many ranks depart in them."""
    departing = [layer for layer in document["layers"] if show_all or "not aligned" in layer["outcomes"]]
    if not departing:
        return None
    shown = departing if show_all else departing[:TABLE_ROWS]
    columns = table_columns("batch.layer:path batch.odd_ranks batch.worst:number")
    rows = tuple(_layer_row(layer, document["ranks"]) for layer in shown)
    return Table(say("batch.layers"), columns, rows, _more(len(departing) - len(shown)))


def _layer_row(layer: dict[str, Any], ranks: list[int]) -> Row:
    cells = [one for one in zip(ranks, layer["outcomes"], layer["values"], strict=True) if one[1] == "not aligned"]
    depart = [rank for rank, *_ in cells]
    values = [value for *_, value in cells if value is not None]
    worst = format_number(max(values)) if values else ""
    return Row((layer["layer"], format_ranges(depart), worst), "bad" if depart else "good")


def _failures(tasks: list[dict[str, Any]], *, show_all: bool) -> Lines | None:
    """What was not done: tasks of one error and hint are one entry."""
    if not tasks:
        return None
    alike = grouped(((one["state"], one["error"] or one["reason"], one["hint"]), one["id"]) for one in tasks)
    shown = [*alike.items()][: None if show_all else LIST_LINES]
    lines = [_failure(*key, ids=ids) for key, ids in shown]
    hidden = len(tasks) - sum(len(ids) for _, ids in shown)
    return Lines(say("batch.failures"), (*lines, *([_more(hidden)] if hidden else [])), "open")


def _failure(state: str, error: str, hint: str, *, ids: list[str]) -> str:
    return say(
        "batch.failure", id=ids[0], others=len(ids) - 1, state=word("batch_state", state), error=error, hint=hint
    )


def _next(commands: list[str]) -> Lines | None:
    return Lines(say("batch.next"), tuple(commands), commands=True) if commands else None


def _tasks(tasks: list[dict[str, Any]], *, show_all: bool) -> Table | None:
    """The tasks, those that depart first; aligned ones only where all are asked for."""
    ordered = tasks if show_all else [task for task in tasks if task["state"] == "not aligned"]
    if not ordered:
        return None
    shown = ordered if show_all else ordered[:TABLE_ROWS]
    columns = table_columns("batch.task:path batch.state batch.layer:path batch.value:number batch.departing:number")
    rows = tuple(_task_row(task) for task in shown)
    return Table(say("batch.tasks"), columns, rows, _more(len(ordered) - len(shown)))


def _task_row(task: dict[str, Any]) -> Row:
    state = task["state"]
    count = f"{format_number(task['departing'])}/{format_number(task['compared'])}" if task["compared"] else ""
    value = "" if task["value"] is None else format_number(task["value"])
    tone = TONES.get(state, "open")
    return Row((task["id"], word("batch_state", state), task["layer"] or "", value, count), tone)


def _more(hidden: int) -> str:
    return say("batch.more", count=format_number(hidden)) if hidden else ""


# Two data pipelines shown: what differs and why, the fields, the sides, and the first samples that differ.


def data_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.data` document; `show_all` shows all samples that it holds."""
    return [
        *_causes(document["causes"]),
        _sides(document),
        _fields(document),
        *_samples(document["samples"], show_all=show_all),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _causes(causes: list[dict[str, Any]]) -> list[Block]:
    if not causes:
        return []
    lines = tuple(
        say("pipelines.confirmed" if cause["confirmed"] else "pipelines.unconfirmed", cause=cause["message"])
        for cause in causes
    )
    return [Lines(say("pipelines.causes"), lines, "bad")]


def _sides(document: dict[str, Any]) -> Table:
    columns = (Column(""), *table_columns("word.reference:words word.candidate:words"))
    sides = [document[name] for name in ("reference", "candidate")]
    rows = [
        ("label", [side["label"] for side in sides]),
        ("kind", [side["kind"] for side in sides]),
        ("samples", [_samples_read(side) for side in sides]),
        ("batches", [_batches(side) for side in sides]),
        ("repeats", [word("data_repeats", side["repeats"]) for side in sides]),
    ]
    shown = tuple(Row((say(f"pipelines.{name}"), *cells)) for name, cells in rows)
    return Table(say("pipelines.sides"), columns, shown, _order(document["order"]))


def _samples_read(side: dict[str, Any]) -> str:
    return say(
        "pipelines.all_samples" if side["ended"] else "pipelines.first_samples", count=format_number(side["samples"])
    )


def _batches(side: dict[str, Any]) -> str:
    if side["batch_sizes"] is None:
        return say("pipelines.single")
    size, last = side["batch_sizes"]
    length = NONE if side["length"] is None else format_number(side["length"])
    return say("pipelines.of", count=format_number(side["batches"]), size=size, last=last, length=length)


def _order(order: dict[str, Any]) -> str:
    facts = {"by": word("data_by", order["by"]), "order": word("data_order", order["order"])}
    return say("pipelines.paired", count=format_number(order["paired"]), **facts)


def _fields(document: dict[str, Any]) -> Table:
    columns = table_columns(
        "word.reference:path word.candidate:path pipelines.dtype pipelines.shape pipelines.compared:number "
        "pipelines.different:number"
    )
    rows = tuple(map(_field, document["fields"]))
    return Table(say("pipelines.fields"), columns, rows, "" if document["by_name"] else say("pipelines.by_position"))


def _field(row: dict[str, Any]) -> Row:
    unlike = [" / ".join(dict.fromkeys(row[key])) for key in ("dtypes", "shapes")]
    figures = format_number(row["compared"]), format_number(row["different"])
    return Row((row["reference"], row["candidate"], *unlike, *figures), "bad" if row["different"] else "good")


def _samples(samples: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    """Values of the first pairs that differ, of pictures their spans; page and notebook show tokens and pictures."""
    shown = samples if show_all else [pair for pair in samples if pair["reference"] != pair["candidate"]][:LIST_LINES]
    facts = []
    for sample in shown:
        name = say(
            "pipelines.sample", field=sample["field"], reference=sample["index"][0], candidate=sample["index"][1]
        )
        if sample["size"][0]:
            values = say("pipelines.spans", reference=sample["reference_span"], candidate=sample["candidate_span"])
        else:
            values = say("pipelines.values", reference=sample["reference"], candidate=sample["candidate"])
        facts.append((name, values))
    first: list[Block] = [Facts(say("pipelines.first"), tuple(facts))] if facts else []
    if show_all:
        first += [replace(_token_table(sample), folded=place > 0)
                  for place, sample in enumerate(one for one in samples if one["tokens"])]  # fmt: skip
    return first


def _token_table(sample: dict[str, Any]) -> Table:
    """Both rows of tokens beside each other, a pair a line; equal stretches are counted."""
    columns = table_columns(
        "#:number word.reference:number pipelines.word #:number word.candidate:number pipelines.word pipelines.mark"
    )
    rows = []
    for pair in sample["tokens"]:
        if pair["skipped"]:
            rows.append(Row((*[""] * 6, say("pipelines.equal_tokens", count=pair["skipped"])), "quiet"))
        if pair["places"] != [None, None]:
            differs = pair["ids"][0] != pair["ids"][1]
            sides = zip(pair["places"], pair["ids"], pair["words"], strict=True)
            cells = [cell for side in sides for cell in _token_cells(*side)]
            rows.append(Row((*cells, "≠" if differs else ""), "bad" if differs else "plain"))
    title = say("pipelines.tokens", field=sample["field"], reference=sample["index"][0], candidate=sample["index"][1])
    return Table(title, columns, tuple(rows))


def _token_cells(place: int | None, token: int | None, text: str) -> tuple[str, str, str]:
    """Place, id and word; a word of spaces alone in quotes, so that it is seen."""
    is_blank = bool(text) and text.isprintable() and not text.strip()
    shown = escape_control_characters(repr(text) if is_blank else text, TOKEN_CHARACTERS)
    return NONE if place is None else str(place), NONE if token is None else str(token), shown
