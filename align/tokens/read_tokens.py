"""Token lists with their log-probabilities, read from the files that engines and trainers write.

One value a column over all lists, so that a million tokens take a few arrays; a file is read line by line. Layouts are
those of the engines' sources: vLLM `vllm/entrypoints/openai` (completion and chat, `prompt_logprobs`), SGLang
`tokenizer_manager.py` (`meta_info`), text-generation-inference and MindIE's form of it (`details`), slime
`slime/utils/types.py` (`Sample.to_dict`), verl `ray_trainer.py` (`_dump_generations`, columns of a DataProto).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import xxhash

from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.torch_archives import plain_tree
from align.checkpoints.torch_entries import archive_tree
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, parse_json, read_json
from align.core.parameters import StoredTensor
from align.errors import InputsError
from align.tokens.thresholds import MASKED_VALUE, NO_LOG_PROBABILITY, TOP_KEPT
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.core.parameters import Array

NO_RANK = 0  # format: ranks count from 1
NO_TOKEN = np.iinfo(np.int64).min
_MARKED_ID = re.compile(r"token_id[:_](\d+)")
_INFINITE = re.compile(r"(?<=[\s:,\[])-Infinity(?=[\s,\]}])")


@dataclass(frozen=True, slots=True)
class TokenLists:
    """Token lists of one side, one after another.

    `tokens`, `logprobs` and `ranks` are (all tokens,): ids (negative hashes of texts without an id), natural logarithms
    (NaN where none is known, as of a first token), and places in the vocabulary from 1 (0 unknown). List i is
    `starts[i]:starts[i + 1]`; `prompts[i]` of its tokens were given, -1 if nobody knows. `top_places` are the tokens of
    which the file has the most likely ones: `mass` the sum of their probabilities, `top_tokens` and `top_logprobs` the
    first of them, (places, TOP_KEPT). `texts` and `endings` are of each list, "" if unknown.
    """

    label: str
    form: str
    tokens: Array
    logprobs: Array
    ranks: Array
    starts: Array
    prompts: Array
    top_places: Array
    mass: Array
    top_tokens: Array
    top_logprobs: Array
    texts: tuple[str, ...]
    endings: tuple[str, ...]
    special: frozenset[int]

    @property
    def count(self) -> int:
        """The number of lists."""
        return len(self.starts) - 1

    def lengths(self) -> Array:
        """Tokens of each list, (lists,)."""
        return np.diff(self.starts)

    def list_tokens(self, index: int) -> Array:
        """The tokens of one list."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]


@dataclass(slots=True)
class TokenRow:
    """One list as a file has it: `tokens` ids or texts; `logprobs` and `tops` are those of its last tokens."""

    tokens: Sequence[int | str]
    logprobs: Sequence[float | None]
    ranks: Sequence[int | None] = ()
    prompt: int = -1
    text: str = ""
    ending: str = ""
    tops: Sequence[Iterable[tuple[int | str, float]] | None] = ()
    special: Sequence[int] = ()


def read_tokens(source: Path | str, side: str = "reference") -> TokenLists:
    """Read the lists of a file: JSON or JSONL of an engine, `.npz`, or `.pt` of plain values and tensors.

    Of an `align generate` result `side` says whose values are meant. Raises MissingFileError, and InputsError for a
    file of no known form, for fields that are missing, and for values that are no log-probabilities.
    """
    path = existing_file(Path(source), "tokens file")
    builder = _Builder(str(source))
    form = ""
    try:
        for form, row in _rows(path, side):
            builder.add(form, row)
    except _BAD_VALUES as error:
        place = say("tokens_place.list", path=str(source), number=len(builder.lengths))
        reason = f"{type(error).__name__}: {error}"
        raise InputsError.of("tokens_error.other_layout", place=place, form=form, reason=reason) from error
    return builder.lists()


def as_column(values: Array) -> Any:
    """An array in the place of a list: what a row holds is read by index and length."""
    return values


def _rows(path: Path, side: str) -> Iterator[tuple[str, TokenRow]]:
    if path.suffix in (".npz", ".safetensors"):
        columns = {name: tensor.load() for name, tensor in open_checkpoint(path).tensors.items()}
        yield from _rows_of_columns(str(path), columns)
    elif path.suffix in (".pt", ".pth"):
        yield from _rows_of_document(str(path), _torch_values(path), side)
    else:
        for place, document in _documents(path):
            yield from _rows_of_document(place, document, side)


def _torch_values(path: Path) -> Any:
    """What a file of torch's holds, tensors as lists; nothing in it is run."""
    tree, storages, _ = archive_tree(path)
    return _plain(plain_tree(path, tree, storages))


def _plain(value: Any) -> Any:
    if isinstance(value, StoredTensor):
        return value.load()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """The values of a file of JSON, or of each line of a file of lines, with the place of each."""
    try:
        with path.open("rb") as file:
            first = next((line.strip() for line in file if line.strip()), b"")
            several = bool(file.readline(1)) and _is_whole(first)
        if not several:
            yield str(path), _parsed(path.read_bytes()) if _has_infinity(path) else read_json(path)
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    place = say("tokens_place.line", path=str(path), number=number)
                    yield place, _parsed(line)
    except (DocumentFault, OSError) as error:
        raise InputsError.of("tokens_error.unreadable", path=str(path), reason=str(error)) from error


def _is_whole(line: bytes) -> bool:
    """Tell a line that is a document from the first line of one that is written over several."""
    if not line.startswith((b"{", b"[")) or not line.endswith((b"}", b"]")):
        return False
    try:
        json.loads(line)
    except RecursionError:
        return False  # the reader of the whole file says so
    except ValueError:  # such as a NaN that `parse_json` refuses with its place
        return b"\n" not in line and line.count(b"{") == line.count(b"}") > 0
    return True


def _has_infinity(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b"-Infinity" in line for line in file)


def _parsed(raw: bytes) -> Any:
    """A document in which Python wrote infinite log-probabilities as JSON has none."""
    if b"-Infinity" in raw:
        raw = _INFINITE.sub("-9999.0", raw.decode("utf-8", "replace")).encode()
    return parse_json(raw)


# The forms of documents. Each reader returns rows, or None for a document that is not of its form.


def _rows_of_document(place: str, document: Any, side: str) -> Iterator[tuple[str, TokenRow]]:
    if isinstance(document, list):
        for number, inner in enumerate(document):
            yield from _rows_of_document(say("tokens_place.entry", place=place, number=number), inner, side)
        return
    if not isinstance(document, Mapping):
        raise InputsError.of("tokens_error.no_form", place=place, fields=[])
    try:
        for form, read in _FORMS.items():
            rows = read(document, side)
            if rows is not None:
                yield from ((form, row) for row in rows)
                return
    except _BAD_VALUES as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputsError.of("tokens_error.other_layout", place=place, form=form, reason=reason) from error
    except _MissingField as error:
        raise InputsError.of("tokens_error.missing", place=place, form=form, field=error.field) from error
    inside = ("samples", "results", "responses", "data")
    inner = next((document[name] for name in inside if _holds(document, name)), None)
    if inner is None:
        raise InputsError.of("tokens_error.no_form", place=place, fields=[str(name) for name in document])
    yield from _rows_of_document(place, inner, side)


def _holds(document: Mapping[str, Any], name: str) -> bool:
    value = document.get(name)
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


_BAD_VALUES = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RecursionError)


class _MissingField(Exception):  # noqa: N818 - the reason of an error
    def __init__(self, field: str) -> None:
        self.field = field


def _openai(document: Mapping[str, Any], _: str) -> list[TokenRow] | None:
    """A response of /v1/completions or /v1/chat/completions, with vLLM's further fields if there are any."""
    if not isinstance(document.get("choices"), list):
        return None
    usage = document.get("usage") or {}
    single = len(document["choices"]) == 1
    return [_choice(document, choice, usage if single else {}) for choice in document["choices"]]


def _choice(document: Mapping[str, Any], choice: Mapping[str, Any], usage: Mapping[str, Any]) -> TokenRow:
    prompt = choice.get("prompt_logprobs") or document.get("prompt_logprobs")
    prompt_ids = choice.get("prompt_token_ids") or document.get("prompt_token_ids")
    generated = _generated(choice)
    if prompt is None and generated is None and not _text_of(choice):
        raise _MissingField("logprobs")
    head = _prompt_row(prompt, prompt_ids) if prompt else TokenRow(list(prompt_ids or ()), [])
    tail = generated or TokenRow([], [])
    count, completed = (int(usage.get(f"{part}_tokens") or 0) for part in ("prompt", "completion"))
    echoed = count > 0 and len(tail.tokens) == count + completed
    if echoed and prompt is None:
        head = TokenRow([], [])
    elif echoed:
        tail = _last_of(tail, completed)
    length = count if echoed and not head.tokens else len(head.tokens) or (0 if prompt_ids is not None else -1)
    return _joined(head, tail, length, _text_of(choice), str(choice.get("finish_reason") or ""))


def _text_of(choice: Mapping[str, Any]) -> str:
    return str(choice.get("text") or (choice.get("message") or {}).get("content") or "")


def _generated(choice: Mapping[str, Any]) -> TokenRow | None:
    given = choice.get("logprobs")
    if not given:
        return None
    ids = choice.get("token_ids")
    if isinstance(given.get("content"), list):  # the form of chats
        entries = given["content"]
        tokens = [entry["token"] for entry in entries]
        tops = [[(top["token"], top["logprob"]) for top in entry.get("top_logprobs") or ()] for entry in entries]
        return TokenRow(ids or tokens, [entry["logprob"] for entry in entries], tops=[] if ids else tops)
    tokens = given.get("tokens")
    if tokens is None or given.get("token_logprobs") is None:
        raise _MissingField("logprobs.tokens" if tokens is None else "logprobs.token_logprobs")
    tops = [top and [*top.items()] for top in given.get("top_logprobs") or ()]
    same = ids is not None and len(ids) == len(tokens)
    return TokenRow(ids if same and ids else tokens, given["token_logprobs"], tops=[] if same else tops)


def _prompt_row(entries: Sequence[Mapping[str, Any] | None], ids: Sequence[int] | None) -> TokenRow:
    """The `prompt_logprobs` of vLLM: of each token an object by id, the token itself first; null of the first token."""
    keys = [None if entry is None else next(iter(entry)) for entry in entries]
    if ids is not None and len(ids) == len(entries):
        keys = [str(one) for one in ids]
    chosen = [None if entry is None else entry[str(key)] for entry, key in zip(entries, keys, strict=True)]
    first = list(ids[:1]) if ids else []
    tokens = [*(first if keys[0] is None or ids else []), *(int(key) for key in keys[len(first) :] if key is not None)]
    return TokenRow(
        tokens,
        [None if entry is None else entry["logprob"] for entry in chosen][len(chosen) - len(tokens) :],
        [None if entry is None else entry.get("rank") for entry in chosen][len(chosen) - len(tokens) :],
        tops=[_vllm_top(entry) for entry in entries][len(chosen) - len(tokens) :],
    )


def _vllm_top(entry: Mapping[str, Any] | None) -> list[tuple[int, float]] | None:
    return None if entry is None or len(entry) < 2 else [(int(key), one["logprob"]) for key, one in entry.items()]


def _joined(head: TokenRow, tail: TokenRow, prompt: int, text: str, ending: str) -> TokenRow:
    """Prompt and continuation as one list; columns that one of them lacks are filled."""
    parts = (head, tail)
    return TokenRow(
        [*head.tokens, *tail.tokens],
        [value for part in parts for value in _filled(part.logprobs, len(part.tokens))],
        [value for part in parts for value in _filled(part.ranks, len(part.tokens))],
        prompt,
        text,
        ending,
        [value for part in parts for value in _filled(part.tops, len(part.tokens))],
        [*head.special, *tail.special],
    )


def _filled(values: Sequence[Any], count: int) -> list[Any]:
    return [*([None] * (count - len(values))), *values]


def _last_of(row: TokenRow, count: int) -> TokenRow:
    cut = len(row.tokens) - count
    return TokenRow(row.tokens[cut:], row.logprobs[-count:], tops=row.tops[-count:] if row.tops else ())


def _vllm_offline(document: Mapping[str, Any], _: str) -> list[TokenRow] | None:
    """The RequestOutput of vLLM with its fields by name: `outputs` of one request."""
    if not isinstance(document.get("outputs"), list) or "prompt_token_ids" not in document:
        return None
    ids = document["prompt_token_ids"]
    entries = document.get("prompt_logprobs")
    head = _prompt_row(entries, ids) if entries else TokenRow(ids, [])
    return [_joined(head, _sampled(output), len(ids), *_said(output)) for output in document["outputs"]]


def _sampled(output: Mapping[str, Any]) -> TokenRow:
    ids, given = output["token_ids"], output.get("logprobs") or []
    chosen = [entry[str(token)] for token, entry in zip(ids, given, strict=False)]
    return TokenRow(
        ids, [one["logprob"] for one in chosen], [one.get("rank") for one in chosen], tops=[*map(_vllm_top, given)]
    )


def _said(output: Mapping[str, Any]) -> tuple[str, str]:
    return str(output.get("text") or ""), str(output.get("finish_reason") or "")


def _sglang(document: Mapping[str, Any], _: str) -> list[TokenRow] | None:
    """SGLang's /generate: `meta_info` with [log-probability, id, text] of each token of the prompt and the output."""
    about = document.get("meta_info")
    if not isinstance(about, Mapping):
        return None
    if "output_token_logprobs" not in about and "input_token_logprobs" not in about:
        raise _MissingField("meta_info.output_token_logprobs")
    head, tail = (_sglang_part(about, name) for name in ("input", "output"))
    reason = about.get("finish_reason")
    ending = str(reason.get("type", "") if isinstance(reason, Mapping) else reason or "")
    prompt = len(head.tokens) or (0 if about.get("prompt_tokens") == 0 else -1)
    return [_joined(head, tail, prompt, str(document.get("text") or ""), ending)]


def _sglang_part(about: Mapping[str, Any], name: str) -> TokenRow:
    entries = about.get(f"{name}_token_logprobs") or []
    tops = about.get(f"{name}_top_logprobs") or []
    pairs = [None if top is None else [(entry[1], entry[0]) for entry in top] for top in tops]
    return TokenRow([entry[1] for entry in entries], [entry[0] for entry in entries], tops=pairs)


def _details(document: Mapping[str, Any], _: str) -> list[TokenRow] | None:
    """The form of text-generation-inference and of MindIE: `details` with `prefill` and `tokens`."""
    about = document.get("details")
    if not isinstance(about, Mapping):
        return None
    if not isinstance(about.get("tokens"), list):
        raise _MissingField("details.tokens")
    head, tail = (_details_part(about.get(name) or []) for name in ("prefill", "tokens"))
    text, ending = str(document.get("generated_text") or ""), str(about.get("finish_reason") or "")
    return [_joined(head, tail, len(head.tokens) or -1, text, ending)]


def _details_part(entries: Sequence[Mapping[str, Any]]) -> TokenRow:
    ids = [entry["id"][0] if isinstance(entry["id"], list) else entry["id"] for entry in entries]
    special = [token for token, entry in zip(ids, entries, strict=True) if entry.get("special")]
    return TokenRow(ids, [entry.get("logprob") for entry in entries], special=special)


def _generate_result(document: Mapping[str, Any], side: str) -> list[TokenRow] | None:
    """A result of `align generate`: the text that both models read, and what each gives to its tokens."""
    if not str(document.get("schema", "")).startswith("mindalign.generate/"):
        return None
    if not document.get("token_logprobs"):
        raise _MissingField("token_logprobs")
    rows = document["token_logprobs"]
    return [TokenRow(row["tokens"], _read_back(row[side]), prompt=document["prompts"][1]) for row in rows]


def _read_back(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values]


_TOKENS = ("tokens", "token_ids", "input_ids", "sequences", "output_ids", "ids")
_RESPONSES = ("responses", "response_ids", "response_token_ids", "completion_ids")
_LOGPROBS = ("rollout_log_probs", "logprobs", "log_probs", "old_log_probs", "token_logprobs", "transition_scores")
_MASKS = ("attention_mask", "mask")


def _named(document: Mapping[str, Any], _: str) -> list[TokenRow] | None:
    """Fields by name: slime's samples, verl's columns of one row, and the plain form of docs/tokens.md."""
    tokens, response = _first(document, _TOKENS), _first(document, _RESPONSES)
    logprobs = _first(document, _LOGPROBS)
    if "output" in document and "input" in document and tokens is None and logprobs is None:
        return [TokenRow([], [], text=str(document["output"]), ending=str(document.get("finish_reason") or ""))]
    if tokens is None and response is None:
        if logprobs is not None:
            raise _MissingField("tokens")
        return None
    if logprobs is None:
        logprobs = []
    prompt = next((document[name] for name in ("prompt_length", "prompt_tokens") if name in document), None)
    if prompt is None and "response_length" in document and tokens is not None:
        prompt = len(tokens) - int(document["response_length"])
    listed = list(tokens if tokens is not None else response or ())
    if prompt is None and tokens is not None and response is not None:
        prompt = len(tokens) - len(response)
    status = document.get("finish_reason") or document.get("status") or ""
    text = document.get("response") or document.get("text") or ""
    ranks = _listed(document.get("ranks", ()))
    length = -1 if prompt is None else int(prompt)
    return [TokenRow(listed, _listed(logprobs), ranks, length, str(text), str(status))]


def _first(document: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((document[name] for name in names if document.get(name) is not None), None)


def _listed(values: Any) -> list[Any]:
    return [*(values.tolist() if hasattr(values, "tolist") else values)]


_FORMS = {
    "OpenAI": _openai,
    "vLLM": _vllm_offline,
    "SGLang": _sglang,
    "TGI, MindIE": _details,
    "align generate": _generate_result,
    "tokens and log-probabilities": _named,
}


def _rows_of_columns(place: str, columns: Mapping[str, Array]) -> Iterator[tuple[str, TokenRow]]:
    """Arrays by name: flat ones with `lengths`, or (lists, tokens) ones with a mask, as those of verl's batches."""
    tokens, response = _first(columns, _TOKENS), _first(columns, _RESPONSES)
    logprobs = _first(columns, _LOGPROBS)
    if logprobs is None or (tokens is None and response is None):
        missing = "log_probs" if logprobs is None else "tokens"
        raise InputsError.of("tokens_error.missing", place=place, form="NumPy", field=missing)
    if tokens is None:
        tokens = response
    if "lengths" in columns:
        yield from _flat_rows(place, columns, tokens, logprobs)
        return
    if tokens.ndim != 2 or logprobs.ndim != 2 or len(tokens) != len(logprobs):
        shapes = {"tokens": list(tokens.shape), "logprobs": list(logprobs.shape)}
        raise InputsError.of("tokens_error.shapes", place=place, **shapes)
    whole = _first(columns, _MASKS)
    answer = columns.get("response_mask")
    _check_masks(place, tokens, (whole, answer))
    for number, (ids, values) in enumerate(zip(tokens, logprobs, strict=True)):
        kept = np.ones(len(ids), bool) if whole is None else whole[number].astype(bool)
        valued = np.ones(len(values), bool) if answer is None else answer[number].astype(bool)
        if len(values) == len(ids) and answer is None:
            valued = kept
        elif answer is None and whole is not None:
            valued = kept[len(ids) - len(values) :]
        if answer is not None and len(answer[number]) == len(ids):
            kept = kept & (valued | (np.arange(len(ids)) < int(valued.argmax())))
        elif answer is not None and whole is None:
            kept[len(ids) - len(valued) :] &= valued
        count = int(valued.sum())
        prompt = int(kept.sum()) - count if len(values) < len(ids) or answer is not None else -1
        yield "NumPy", TokenRow(as_column(ids[kept]), as_column(values[valued]), prompt=prompt)


def _check_masks(place: str, tokens: Array, masks: Sequence[Array | None]) -> None:
    for mask in masks:
        if mask is not None and (mask.ndim != 2 or len(mask) != len(tokens)):
            shapes = {"tokens": list(tokens.shape), "logprobs": list(mask.shape)}
            raise InputsError.of("tokens_error.shapes", place=place, **shapes)


def _flat_rows(
    place: str, columns: Mapping[str, Array], tokens: Array, logprobs: Array
) -> Iterator[tuple[str, TokenRow]]:
    ends = np.cumsum(columns["lengths"])
    negative = len(ends) and columns["lengths"].min() < 0
    if negative or tokens.shape != logprobs.shape or tokens.ndim != 1 or (ends[-1] if len(ends) else 0) != len(tokens):
        shapes = {"tokens": list(tokens.shape), "logprobs": list(logprobs.shape)}
        raise InputsError.of("tokens_error.shapes", place=place, **shapes)
    prompts, ranks = columns.get("prompt_lengths"), columns.get("ranks")
    start = 0
    for number, end in enumerate(ends.tolist()):
        prompt = -1 if prompts is None else int(prompts[number])
        places = slice(start, end)
        shown = () if ranks is None else as_column(ranks[places])
        yield "NumPy", TokenRow(as_column(tokens[places]), as_column(logprobs[places]), shown, prompt)
        start = end


@dataclass(slots=True)
class _Builder:
    """Gathers rows into columns."""

    label: str
    tokens: array[int] = field(default_factory=lambda: array("q"))
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    ranks: array[int] = field(default_factory=lambda: array("i"))
    mass: array[float] = field(default_factory=lambda: array("d"))
    top_places: array[int] = field(default_factory=lambda: array("q"))
    top_tokens: array[int] = field(default_factory=lambda: array("q"))
    top_logprobs: array[float] = field(default_factory=lambda: array("d"))
    lengths: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    special: set[int] = field(default_factory=set)
    forms: list[str] = field(default_factory=list)

    def add(self, form: str, row: TokenRow) -> None:
        """Add a list; raises InputsError for more values than tokens, and for what is no log-probability or id."""
        number, count = len(self.lengths), len(row.tokens)
        place = say("tokens_place.list", path=self.label, number=number)
        given_values = max(len(row.logprobs), len(row.ranks), len(row.tops))
        if given_values > count:
            raise InputsError.of("tokens_error.counts", place=place, tokens=count, logprobs=given_values)
        values = np.full(count, np.nan)
        given = row.logprobs
        if len(given):
            try:
                values[count - len(given) :] = np.array(given, np.float64)  # None becomes NaN
            except (TypeError, ValueError) as error:
                raise InputsError.of("tokens_error.no_numbers", place=place, reason=str(error)) from error
        self._check(place, values, given)
        start = len(self.tokens)
        self.tokens.frombytes(_ids(row.tokens).tobytes())
        self.logprobs.frombytes(np.where(values <= MASKED_VALUE, -np.inf, values).tobytes())
        ranks = np.zeros(count, np.int32)
        if len(row.ranks):
            ranks[count - len(row.ranks) :] = [NO_RANK if rank is None else rank for rank in row.ranks]
        self.ranks.frombytes(ranks.tobytes())
        self._add_tops(row, start, count)
        self.lengths.append(count)
        self.prompts.append(row.prompt)
        self.texts.append(row.text)
        self.endings.append(row.ending)
        self.special.update(row.special)
        if form not in self.forms:
            self.forms.append(form)

    def _check(self, place: str, values: Array, given: Sequence[float | None]) -> None:
        """Refuse NaN that stands in the file, and values above 0."""
        missing = np.isnan(values[len(values) - len(given) :])
        if missing.any():
            bad = [index for index in np.flatnonzero(missing).tolist() if given[index] is not None]
            if bad:
                where = bad[0] + len(values) - len(given)
                raise InputsError.of("tokens_error.nan", place=place, position=where, count=len(bad))
        if (values > NO_LOG_PROBABILITY).any():
            where = int(np.argmax(values > NO_LOG_PROBABILITY))
            key = "tokens_error.probabilities" if np.nanmin(values) >= 0.0 else "tokens_error.positive"
            raise InputsError.of(key, place=place, position=where, value=float(values[where]))

    def _add_tops(self, row: TokenRow, start: int, count: int) -> None:
        """Keep the mass and the first of the most likely tokens, of places that have two or more."""
        first = start + count - len(row.tops)
        listed = [(place, [*top]) for place, top in enumerate(row.tops, first) if top]
        listed = [(place, top) for place, top in listed if len(top) > 1]
        if not listed:
            return
        sizes = np.array([len(top) for _, top in listed])
        tokens = _ids([token for _, top in listed for token, _ in top])
        values = np.array([value for _, top in listed for _, value in top], np.float64)
        rows, starts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
        order = np.lexsort((-values, rows))
        place = np.arange(len(rows)) - np.repeat(starts, sizes)
        kept = place < TOP_KEPT
        best = np.full((len(sizes), TOP_KEPT), NO_TOKEN), np.full((len(sizes), TOP_KEPT), np.nan)
        for columns, given in zip(best, (tokens, values), strict=True):
            columns[rows[kept], place[kept]] = given[order][kept]
        self.top_places.extend(number for number, _ in listed)
        self.mass.frombytes(np.add.reduceat(np.nan_to_num(np.exp(values)), starts).tobytes())
        self.top_tokens.frombytes(best[0].tobytes())
        self.top_logprobs.frombytes(best[1].tobytes())

    def lists(self) -> TokenLists:
        """All that was added; raises InputsError if that is nothing."""
        if not self.lengths:
            raise InputsError.of("tokens_error.empty", path=self.label)
        return TokenLists(
            label=self.label,
            form=", ".join(self.forms),
            tokens=np.frombuffer(self.tokens, np.int64),
            logprobs=np.frombuffer(self.logprobs, np.float64),
            ranks=np.frombuffer(self.ranks, np.int32),
            starts=np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64),
            prompts=np.array(self.prompts, np.int64),
            top_places=np.frombuffer(self.top_places, np.int64),
            mass=np.frombuffer(self.mass, np.float64),
            top_tokens=np.frombuffer(self.top_tokens, np.int64).reshape(-1, TOP_KEPT),
            top_logprobs=np.frombuffer(self.top_logprobs, np.float64).reshape(-1, TOP_KEPT),
            texts=tuple(self.texts),
            endings=tuple(self.endings),
            special=frozenset(self.special),
        )


def lists_of_rows(label: str, form: str, rows: Iterable[TokenRow]) -> TokenLists:
    """The lists of rows that were made here, as those of a live model."""
    builder = _Builder(label)
    for row in rows:
        builder.add(form, row)
    return builder.lists()


def _ids(tokens: Sequence[int | str] | Array) -> Array:
    if isinstance(tokens, np.ndarray):
        if tokens.dtype.kind not in "iu":
            raise TypeError(f"token ids are {tokens.dtype}, not integers")
        return tokens.astype(np.int64)
    if all(type(token) is int for token in tokens):
        return np.array(tokens, np.int64)
    return np.array([_id(token) for token in tokens], np.int64)


def _id(token: int | str) -> int:
    """An id as it is; a text that vLLM marks as one as the id, any other text as a negative hash."""
    if isinstance(token, (int, np.integer)) and not isinstance(token, bool):
        return int(token)
    if not isinstance(token, str):
        raise InputsError.of("tokens_error.no_token", token=repr(token))
    marked = _MARKED_ID.fullmatch(token)
    return int(marked[1]) if marked else -1 - (xxhash.xxh64_intdigest(token.encode("utf-8", "surrogatepass")) >> 2)


def is_file(source: object) -> TypeGuard[Path | str]:
    """Tell a file of tokens from a model and from `file.py:function`."""
    if isinstance(source, str):
        return ":" not in source or (Path(source).is_file() and Path(source).suffix != ".py")
    return isinstance(source, Path)
