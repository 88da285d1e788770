"""The card of a port: what was compared, with which weights, code and inputs, what came of it, and what was left open.

It is one page to read (Markdown) and one document (JSON) of the same, made from a run folder. Whoever has the same
files runs it again with `align verify`, which says what differs: in words, since measured figures differ by themselves
between machines.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import sha256_of, write_text
from align.core.documents import json_text, kept_sentences
from align.core.verdicts import ShownResult, Verdict
from align.errors import MissingFileError, ReportError
from align.report.blocks import format_shape
from align.report.judged_run import (
    given_weights,
    judged_run,
    made_weights,
    result_of_models,
    run_environment,
    rung_title,
)
from align.report.write_report import code_span, markdown_table, plain
from align.runs.baseline import (
    JUDGED_STATES,
    RunDifference,
    RunRecord,
    compare_with_baseline,
    read_last_run,
    read_record,
    record_run,
)
from align.runs.project_file import read_project
from align.runs.run_folder import RunFolder, as_document, read_document
from align.runs.rung import rungs
from align.words.catalogue import ENGLISH, say, sentence, speaking, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.report.judged_run import JudgedRun, Reader
    from align.runs.project_file import ProjectSide

SIDES = ("reference", "candidate")
KINDS = ("weights", "code", "inputs", "other")


@dataclass(frozen=True, slots=True)
class CardSource:
    """One thing that the verdict rests on: "weights", "code", "inputs" or "other", and whether the run `made` it.

    `name` is a path from the project file, of an array among the inputs its name, dtype and shape.
    """

    kind: str
    name: str
    sha256: str
    made: bool


@dataclass(frozen=True, slots=True)
class Card(ShownResult):
    """The card of a port; `project` is its project file as seen from the card.

    `sides` are what the project file says of both, `environment` the machine and devices of the comparison, `accepted`
    the deviations that are accepted, by layer, with their reasons, `unverified` what the verdict does not rest on, and
    `verify` the command that runs it again.
    """

    result_kind = "card"
    project: str
    sides: Mapping[str, Mapping[str, str]]
    sources: tuple[CardSource, ...]
    environment: Mapping[str, str]
    record: RunRecord
    accepted: Mapping[str, str]
    unverified: tuple[str, ...]
    verify: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CardVerification(ShownResult):
    """A card beside the same run made again here.

    `stated` is the outcome of the card, `differs` all that came out otherwise, better or worse, `files` are those given
    to it and arrays whose content is another, `made` what the run makes itself, and `versions` packages in another
    version. `verdict` is that of the run here.
    """

    result_kind = "verify"
    card: str
    stated: str
    differs: tuple[RunDifference, ...]
    files: tuple[str, ...]
    made: tuple[str, ...]
    versions: tuple[str, ...]
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """0 where the card holds: the same files give the same; else 1."""
        return 1 if self.differs or self.files else 0


def write_card(run_folder: Path, path: Path, read: Reader | None = None) -> tuple[Path, Path]:
    """Write the card of a run folder as `NAME.md`, in the reader's language, and `NAME.json`; return both.

    `read` is by what results are read.
    Raises RunFolderError for a folder without sound results, ReportError for one that no `align run` has written or
    whose project file is not there, and DestinationError.
    """
    files = _card_file(path, ".md"), _card_file(path, ".json")
    read = read or cache(RunFolder(run_folder).read)
    card = make_card(judged_run(run_folder, read), path)
    with speaking() as language:
        told = card if language == ENGLISH else make_card(judged_run(run_folder, read), path)
        text = card_as_markdown(told, files[1].name)
    write_text(files[0], text)
    write_text(files[1], json_text(as_document(card, {})) + "\n")
    return files


def _card_file(path: Path, suffix: str) -> Path:
    """The name that was given, with the suffix in the place of one that a card has, else behind it."""
    return path.with_suffix(suffix) if path.suffix in (".md", ".json") else path.with_name(path.name + suffix)


def make_card(run: JudgedRun, path: Path) -> Card:
    """The card of a run, to be written to a path; sentences are in the language that is spoken."""
    file = Path(run.climb.get("made_from", {}).get("project", {}).get("path", ""))
    if not file.is_file():
        raise ReportError.of("report_usage.no_card", folder=run.folder.path)
    project, base = read_project(file), file.resolve().parent
    last = read_last_run(run.folder) or {"record": {}}
    record = record_run(run.ladder, run.folder, project, last["record"].get("commit", ""))
    sources = {*_given(run, record), *_made(run), *_arrays(run)}
    return Card(
        project=Path(os.path.relpath(file.resolve(), path.resolve().parent)).as_posix(),
        sides={name: _of_side(getattr(project, name), base) for name in SIDES},
        sources=tuple(sorted(sources, key=lambda source: (KINDS.index(source.kind), source.name))),
        environment=run_environment(run),
        record=record,
        accepted={one.layers: one.reason for one in project.allowances.accepted},
        unverified=tuple(dict.fromkeys(_unverified(run))),
        verify=f"align verify {shlex.quote(_card_file(path, '.json').name)}",
        verdict=run.verdict,
    )


def _of_side(side: ProjectSide, base: Path) -> dict[str, str]:
    """What the project file says of a side, with paths as they stand there."""
    given = {field.name: getattr(side, field.name) for field in fields(side)}
    return {name: str(value).replace(f"{base}{os.sep}", "") for name, value in given.items() if value is not None}


def _given(run: JudgedRun, record: RunRecord) -> Iterator[CardSource]:
    weights = given_weights(run, record.files)
    for name, mark in record.files.items():
        kind = "code" if Path(name).suffix == ".py" else "weights" if name in weights else "other"
        yield CardSource(kind, name, mark, False)


def _made(run: JudgedRun) -> Iterator[CardSource]:
    """The weights that the run took from a model, or converted."""
    for name, mark in made_weights(run):
        yield CardSource("weights", name, mark, True)


def _arrays(run: JudgedRun) -> Iterator[CardSource]:
    """The arrays that both models were given."""
    inputs = result_of_models(run).get("inputs") or {}
    for name, facts in inputs.items():
        shape = facts.get("shape")
        shown = f"{name}: {facts.get('dtype', '')}{format_shape(shape) if isinstance(shape, list) else ''}"
        yield CardSource("inputs", shown, str(facts.get("sha256", "")), False)


def _unverified(run: JudgedRun) -> Iterator[str]:
    """What the verdict does not rest on: rungs without a judgement, and what their results say themselves."""
    for rung in run.rungs:
        if rung.state not in JUDGED_STATES:
            yield sentence("card.open_rung", name=rung_title(rung), state=rung.state, reason=rung.reason)
    shown = {rung.name for rung in run.rungs}
    for known in rungs():
        if known.name not in shown and not known.optional:
            yield sentence("card.open_rung", name=known.name, state="not run", reason="")
    for rung in run.rungs:
        verdict = (run.document(rung) or {}).get("verdict") or {}
        for caveat in kept_sentences(verdict, "caveats"):
            yield sentence("card.caveat", name=rung_title(rung), caveat=caveat)


# The page.


def card_as_markdown(card: Card, document: str) -> str:
    """Return a card as Markdown in GitHub's dialect; `document` is the name of the file that holds the same as JSON."""
    outcome = word("outcome", card.verdict.outcome.value)
    command = f"```sh\n{card.verify}\n```"
    parts = [
        f"# {say('card.title', outcome=outcome)}\n\n{plain(card.verdict.reason)}",
        _section("compared", _sides(card)),
        _section("rungs", _rungs(card)),
        _section("at_fault", _findings(card)),
        _section("allowed", _allowed(card)),
        _section("unverified", "\n".join(f"- {plain(text)}" for text in card.unverified)),
        _section("sources", _sources(card)),
        _section("versions", _pairs({**_commit(card), **card.record.versions, **card.environment})),
        _section("commands", f"```sh\n{_commands(card)}\n```"),
        _section("again", f"{say('card.how', document=code_span(document))}\n\n{command}"),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(name: str, text: str) -> str:
    """A heading and what stands below; "" where that is nothing, but for what is worth saying that it is nothing."""
    text = text or (say("card.none") if name in ("allowed", "unverified") else "")
    return f"## {say(f'card.{name}')}\n\n{text}" if text else ""


def _sides(card: Card) -> str:
    names = dict.fromkeys(name for side in card.sides.values() for name in side)
    rows = ([plain(name), *(code_span(card.sides[side].get(name, "")) for side in SIDES)] for name in names)
    return markdown_table(["", *(word("word", side) for side in SIDES)], rows)


def _rungs(card: Card) -> str:
    head = [say(f"ladder_table.{name}") for name in ("rung", "state")]
    rows = (
        [one.name, word("rung_state", one.state), _count(one.compared, one.unit), plain(one.reason)]
        for one in card.record.rungs
    )
    return markdown_table([*head, say("rung.compared"), say("ladder_table.reason")], rows)


def _count(compared: int, unit: str) -> str:
    return say("rung.compared_of", count=compared, unit=word("unit", unit)) if unit else ""


def _findings(card: Card) -> str:
    head = [say("ladder_table.rung"), *(say(f"export.{name}") for name in ("place", "cause", "line", "change"))]
    rows = [
        [rung.name, code_span(one.place), plain(one.cause), code_span(one.line), code_span(one.change)]
        for rung in card.record.rungs
        for one in rung.findings
        if one.place
    ]
    return markdown_table(head, rows) if rows else ""


def _allowed(card: Card) -> str:
    return "\n".join(f"- {code_span(name)}: {plain(str(value))}" for name, value in card.record.allowances.items())


def _sources(card: Card) -> str:
    head = [say(f"card.{name}") for name in ("kind", "name", "hash")]
    rows = [
        [say(f"card.{one.kind}") + (say("card.made") if one.made else ""), code_span(one.name), code_span(one.sha256)]
        for one in card.sources
    ]
    return markdown_table(head, rows) if rows else ""


def _commit(card: Card) -> dict[str, str]:
    """The commit of the port, by its name on the page; {} where it is not known."""
    return {say("page.commit"): card.record.commit} if card.record.commit else {}


def _pairs(facts: Mapping[str, str]) -> str:
    head = [say("sources.name"), say("card.version")]
    return markdown_table(head, ([plain(name), plain(value)] for name, value in facts.items()))


def _commands(card: Card) -> str:
    return "\n".join(dict.fromkeys(command for rung in card.record.rungs for command in rung.commands))


# A card held against the same run, made again.


@dataclass(frozen=True, slots=True)
class StatedCard:
    """What a card says, as far as it is held against a run; `project` is the project file as it lies here."""

    file: Path
    project: Path
    record: RunRecord
    sources: tuple[CardSource, ...]
    outcome: str

    @property
    def rungs(self) -> tuple[str, ...]:
        """The rungs that it says something of."""
        return tuple(rung.name for rung in self.record.rungs if rung.state in JUDGED_STATES)


def read_card(path: Path) -> StatedCard:
    """Read the document of a card, also by the name of its page; raises MissingFileError and RunFolderError."""
    file = path.with_suffix(".json") if path.suffix == ".md" else path
    if not file.is_file():
        raise MissingFileError(file, "card")
    document = read_document(file, "card")
    known = [field.name for field in fields(CardSource)]
    sources = tuple(CardSource(**{name: one[name] for name in known}) for one in document["sources"])
    project = file.resolve().parent / document["project"]
    return StatedCard(file, project, read_record(document["record"]), sources, document["verdict"]["outcome"])


def verify_card(stated: StatedCard, project: Path, run_folder: Path) -> CardVerification:
    """Say what a run, which was made of the project of a card, differs by from what the card says."""
    here = make_card(judged_run(run_folder), stated.file)
    comparison = compare_with_baseline(stated.file, stated.record, here.record, here.verdict)
    base = project.resolve().parent
    files = [name for name, mark in stated.record.files.items() if not _is_file_with(base / name, mark)]
    now = {(source.kind, source.name): source.sha256 for source in here.sources}
    other = [source for source in stated.sources if now.get((source.kind, source.name), source.sha256) != source.sha256]
    arrays = [source.name for source in other if source.kind == "inputs"]
    before, after = stated.record.versions, here.record.versions
    return CardVerification(
        card=str(stated.file),
        stated=stated.outcome,
        differs=(*comparison.new, *comparison.mended),
        files=(*files, *arrays),
        made=tuple(source.name for source in other if source.made),
        versions=tuple(
            sentence("card.other_version", name=name, was=before.get(name, ""), now=after.get(name, ""))
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        ),
        verdict=here.verdict,
    )


def _is_file_with(path: Path, mark: str) -> bool:
    return path.is_file() and sha256_of(path) == mark
