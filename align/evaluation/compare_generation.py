"""Two language models on the same prompts: logits of every token, each model's cache, and the tokens that follow.

The reference continues the prompts greedily, without its cache; over that one text all logits are compared, so that an
early difference cannot hide what comes after it; of two decodings the first tokens tell that they choose otherwise.
A model is called as those of transformers are, with `past_key_values` if its signature has it. Any other is made one by
the user's adapter, a function that takes the model and returns `step(ids, cache) -> (logits, cache)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.protocols import silent
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, InputsError, UsageError, UserCodeError
from align.measure.limits import OutputNoise
from align.models.call_model import forward_of, model_caller, noise_unmeasured, widened_side
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import Side, copied_sides, open_sides
from align.models.user_code import find_function, run_user_code
from align.traces.open_trace import TransferredWeights
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap
    from align.core.parameters import Array
    from align.core.protocols import Model, Progress
    from align.core.traces import Limit, Measurement
    from align.core.verdicts import LayerOutcome


STAGES = 4  # no limit: what progress is reported of
Step = Callable[[Any, Any], tuple[Any, Any]]
Adapter = Callable[["Model"], Step]
CACHE = "past_key_values"


def compare_generation(  # noqa: PLR0913 - one parameter an option
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    inputs: Path | str | Mapping[str, Array],
    tokens: int = 16,
    reference_step: str | Adapter | None = None,
    candidate_step: str | Adapter | None = None,
    name_map: NameMap | Path | str | None = None,
    progress: Progress = silent,
) -> GenerationComparison:
    """Compare the logits of each token, cache against no cache, and greedy decoding of two causal language models.

    `inputs` holds one array of token ids, (sequences, tokens) without padding. A model is called with ids, and with
    `past_key_values` if it takes them, and returns logits alone, (logits, cache), or either by name. For others a step
    is a function, or the name of one, that takes the model and returns `step(ids, cache) -> (logits, cache)`. Raises
    InputsError or UserCodeError for prompts, models and steps that cannot be used.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda ids, weight: weight[ids], weights),))
    >>> twins = model("wte", "torch.nn.Embedding"), model("table", "mindspore.nn.Embedding")
    >>> result = compare_generation(*twins, inputs={"ids": np.array([[1, 2]])}, tokens=3)
    >>> result.verdict.outcome.value, len(result.continuations[0])
    ('aligned', 3)
    """
    sides = open_sides(reference, candidate)
    arrays = read_inputs(inputs)
    prompts = _prompts(arrays, tokens)
    weights = TransferredWeights(sides, name_map, arrays)
    decoders = Decoder(sides[0], reference_step), Decoder(sides[1], candidate_step)
    progress("generate", 1, STAGES)
    continuation = decoders[0].greedy(prompts, tokens)
    progress("generate", 2, STAGES)
    text = np.concatenate([prompts, continuation], axis=1)[:, :-1]  # what the last new token leads to, nobody asks
    wide, findings = _wide_logits(sides[0], reference_step, text)
    logits = _read(decoders, text, prompts.shape[1])
    reference_logits = logits["candidate"][0]
    noise = OutputNoise(reference_logits, wide)
    progress("generate", 3, STAGES)
    comparisons = tuple(compare_logits(name, *both, noise) for name, both in logits.items())
    differences = [
        difference
        for name, (_, candidate_logits) in logits.items()
        for difference in first_token_differences(name, continuation, reference_logits, candidate_logits, noise)
    ]
    progress("generate", STAGES, STAGES)
    return GenerationComparison(
        reference=sides[0].label,
        candidate=sides[1].label,
        prompts=(prompts.shape[0], prompts.shape[1]),
        tokens=tokens,
        continuations=tuple(tuple(row) for row in continuation.tolist()),
        token_logprobs=_token_logprobs(np.concatenate([prompts, continuation], axis=1), *logits["candidate"]),
        comparisons=comparisons,
        differences=tuple(differences),
        findings=(
            *copied_sides(*sides),
            *weights.report(sides[1].label),
            *findings,
            *_cache_findings(sides[0].label, comparisons),
        ),
        inputs=describe_inputs(arrays),
        environment={side.reader.name: side.reader.environment() for side in sides},
        verdict=judge_generation(comparisons, differences, prompts.shape[1]),
    )


def _prompts(inputs: Mapping[str, Array], tokens: int) -> Array:
    """The ids; raises InputsError for anything but one array of whole numbers (sequences, tokens)."""
    if tokens < 1:
        raise UsageError.of("evaluation_error.no_tokens", tokens=tokens)
    named = [f"{name} {value.dtype.name}{list(value.shape)}" for name, value in inputs.items()]
    ids = next(iter(inputs.values()))
    if len(inputs) > 1 or ids.dtype.kind not in "iu" or ids.ndim != 2 or not ids.size:
        raise InputsError.of("evaluation_error.no_prompts", inputs=named)
    return ids.astype(np.int64)


def _read(decoders: tuple[Decoder, Decoder], text: Array, prompt: int) -> dict[LogitsOf, tuple[Array, Array]]:
    """Logits over the text, each with those that it is to equal: by cache only of a model that returns one."""
    mine, theirs = (decoder.logits(text) for decoder in decoders)
    if mine.shape != theirs.shape:
        labels = {"reference": decoders[0].side.label, "candidate": decoders[1].side.label}
        sizes = {"own": mine.shape[2], "other": theirs.shape[2]}
        raise InputsError.of("evaluation_error.vocabularies_differ", **labels, **sizes)
    logits: dict[LogitsOf, tuple[Array, Array]] = {"candidate": (mine, theirs)}
    if (cached := decoders[1].cached_logits(text, prompt)) is not None:
        logits["candidate with cache"] = theirs, cached
    if (cached := decoders[0].cached_logits(text, prompt)) is not None:
        logits["reference with cache"] = mine, cached
    return logits


def _token_logprobs(text: Array, reference: Array, candidate: Array) -> tuple[TokenLogprobs, ...]:
    """What both give to the tokens of a text (sequences, tokens); logits are of all tokens but the last."""
    values = []
    for logits in (reference, candidate):
        wide = logits.astype(np.float64)
        chosen = np.take_along_axis(wide, text[:, 1:, None], -1)[..., 0]
        values.append((chosen - np.logaddexp.reduce(wide, axis=-1)).tolist())
    rows = zip(text.tolist(), *values, strict=True)
    return tuple(TokenLogprobs(*map(tuple, row)) for row in rows)


def _wide_logits(side: Side, adapter: str | Adapter | None, text: Array) -> tuple[Array | None, tuple[Finding, ...]]:
    """The reference's logits in float64; if it cannot run so, None and a finding that says why."""
    try:
        return Decoder(widened_side(side), adapter).logits(text), ()
    except CannotRunError as error:
        return None, (noise_unmeasured(side, error),)


def _cache_findings(label: str, comparisons: Sequence[LogitsComparison]) -> Iterator[Finding]:
    """Warn of a reference whose own cache changes what it computes."""
    wrong = [one for one in comparisons if one.logits == "reference with cache" and one.first_divergent is not None]
    if wrong:
        yield Finding("reference-cache", "warning", label, sentence("generate_finding.reference_cache"))


class Decoder:
    """One side that is fed token ids (sequences, tokens); `adapter` is the user's, or its name."""

    def __init__(self, side: Side, adapter: str | Adapter | None) -> None:
        self.side = side
        self._caller = model_caller(side)
        make = find_function(adapter, "adapter file") if isinstance(adapter, str) else adapter
        self._step = _usual_step(side.model) if make is None else self._guarded(partial(make, side.model))

    def logits(self, ids: Array) -> Array:
        """Logits (sequences, tokens, vocabulary) of a text that is fed whole, without cache."""
        with self._caller.evaluating(self.side.model):
            return self._call(ids, None)[0]

    def cached_logits(self, ids: Array, prompt: int) -> Array | None:
        """The same with the first tokens fed whole and the others one by one; None if the model returns no cache."""
        with self._caller.evaluating(self.side.model):
            first, cache = self._call(ids[:, :prompt], None)
            if cache is None:
                return None
            blocks = [first]
            for place in range(prompt, ids.shape[1]):
                logits, cache = self._call(ids[:, place : place + 1], cache)
                blocks.append(logits)
        return np.concatenate(blocks, axis=1)

    def greedy(self, prompts: Array, tokens: int) -> Array:
        """The new tokens (sequences, tokens) of greedy decoding, for each of which the whole text is fed."""
        text = prompts
        with self._caller.evaluating(self.side.model):
            for _ in range(tokens):
                logits, _ = self._call(text, None)
                text = np.concatenate([text, greedy_tokens(logits[:, -1:])], axis=1)
        return text[:, prompts.shape[1] :]

    def _call(self, ids: Array, cache: Any) -> tuple[Array, Any]:
        given = self._caller.as_tensor(np.ascontiguousarray(ids), self.side.model)
        returned = self._guarded(partial(self._step, given, cache), list(ids.shape))
        if not isinstance(returned, tuple) or len(returned) != 2:
            kind = type(returned).__name__
            raise InputsError.of("evaluation_error.step_returns", side=self.side.label, kind=kind)
        logits = self._caller.as_array(returned[0])
        if logits is None or logits.ndim != 3 or logits.shape[:2] != ids.shape:
            got = type(returned[0]).__name__
            if logits is not None:
                got = say("evaluation_error.array", shape=str(list(logits.shape)))
            given = {"side": self.side.label, "returned": got, "shape": str(list(ids.shape))}
            raise InputsError.of("evaluation_error.no_logits", **given)
        return np.array(logits), returned[1]

    def _guarded(self, code: Callable[[], Any], shape: list[int] | None = None) -> Any:
        key = "evaluation_stage.adapter" if shape is None else "evaluation_stage.on_tokens"
        return run_user_code(code, lambda error: UserCodeError(say(key, side=self.side.label, shape=str(shape)), error))


def _usual_step(model: Model) -> Step:
    names = inspect.signature(forward_of(model)).parameters
    wanted = {"use_cache": True} if "use_cache" in names else {}

    def step(ids: Any, cache: Any) -> tuple[Any, Any]:
        returned = model(ids, **{CACHE: cache}, **wanted) if CACHE in names else model(ids)
        logits, more = _taken_apart(returned)
        return logits, more if CACHE in names else None

    return step


def _taken_apart(returned: Any) -> tuple[Any, Any]:
    """The logits and the cache among what a model returned: by name, else the first two."""
    if isinstance(returned, Mapping):
        return returned.get("logits"), returned.get(CACHE)
    if isinstance(returned, (tuple, list)):
        return returned[0], returned[1] if len(returned) > 1 else None
    if hasattr(returned, "logits"):
        return returned.logits, getattr(returned, CACHE, None)
    return returned, None


def compare_logits(logits: LogitsOf, expected: Array, found: Array, noise: OutputNoise) -> LogitsComparison:
    """Compare logits (sequences, positions, vocabulary) at every position."""
    positions = tuple(_compare_position(index, expected, found, noise) for index in range(expected.shape[1]))
    first = next((index for index, one in enumerate(positions) if one.outcome == "not aligned"), None)
    return LogitsComparison(logits, positions, first)


def first_token_differences(
    logits: LogitsOf, continuation: Array, reference: Array, candidate: Array, noise: OutputNoise
) -> Iterator[TokenDifference]:
    """Yield the first new token of each sequence that greedy decoding by `candidate` chooses otherwise.

    `continuation` are the reference's new tokens (sequences, tokens), `reference` and `candidate` logits over its text;
    the last of them choose the new tokens. Up to the first difference both decodings have read the same, so no other
    text is needed.
    """
    before = reference.shape[1] - continuation.shape[1]
    tokens = greedy_tokens(candidate[:, before:])
    for sequence, unlike in enumerate(continuation != tokens):
        if not unlike.any():
            continue
        step = int(unlike.argmax())
        a, b = int(continuation[sequence, step]), int(tokens[sequence, step])
        place = slice(sequence, sequence + 1), slice(before + step, before + step + 1)
        _, limit = noise.limit(reference, candidate, place)
        scores = reference[sequence, before + step]
        margin = float(scores[a]) - float(scores[b])
        tie = margin <= 2 * limit.max_abs
        yield TokenDifference(logits, sequence, step, a, b, margin, limit.max_abs, tie)


def judge_generation(
    comparisons: Sequence[LogitsComparison], differences: Sequence[TokenDifference], prompt: int
) -> Verdict:
    """Aligned if the candidate's logits are within their limits, with its cache too, and no token differs but by a tie.

    What the reference's own cache changes decides nothing about the candidate.
    """
    candidate_comparisons = [comparison for comparison in comparisons if comparison.logits != "reference with cache"]
    positions = [position for comparison in candidate_comparisons for position in comparison.positions]
    compared = sum(position.outcome != "not comparable" for position in positions)
    coverage = Coverage(sentence("generate_unit.logits_of_a_position"), compared, len(positions) - compared)
    wrong = next((comparison for comparison in candidate_comparisons if comparison.first_divergent is not None), None)
    if wrong is not None:
        return Verdict(Outcome.NOT_ALIGNED, _blame(wrong, prompt), coverage)
    lost = [
        difference for difference in differences if not difference.tie and difference.logits != "reference with cache"
    ]
    if lost:
        reason = sentence("generate_verdict.token_differs", step=lost[0].step, sequence=lost[0].sequence)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if compared < len(positions) or not positions:
        return Verdict(Outcome.NOT_COMPARED, sentence("generate_verdict.not_finite"), coverage)
    ties = sum(difference.tie and difference.logits == "candidate" for difference in differences)
    return Verdict(
        Outcome.ALIGNED, sentence("generate_verdict.agree", cached=len(candidate_comparisons) > 1, ties=ties), coverage
    )


def _blame(wrong: LogitsComparison, prompt: int) -> str:
    position = wrong.positions[wrong.first_divergent or 0].position
    step = position + 1 - prompt  # of the token that these logits choose
    token = sentence("generate_place.prompt_token", number=position + 1)
    if step >= 0:
        token = sentence("generate_place.new_token", number=step)
    own = wrong.logits == "candidate"
    return sentence("generate_verdict.logits_differ" if own else "generate_verdict.cache_changes_logits", token=token)


def _compare_position(index: int, expected: Array, found: Array, noise: OutputNoise) -> PositionComparison:
    measurement, limit = noise.limit(expected, found, (slice(None), slice(index, index + 1)))
    alike = 0 if measurement.non_finite_mismatch else measurement.nan_reference + measurement.inf_reference
    if alike == measurement.count:
        return PositionComparison(index, "not comparable", None, None, None)
    factor = smallest_factor(measurement, limit)
    return PositionComparison(index, "aligned" if factor <= 1.0 else "not aligned", measurement, limit, factor)


def greedy_tokens(logits: Array) -> Array:
    """The first of the tokens with the largest logit, for logits (..., vocabulary)."""
    return np.asarray(logits.argmax(-1), np.int64)


# What two language models say of one text: logits of each token, with and without cache, and what follows.

LogitsOf = Literal["candidate", "candidate with cache", "reference with cache"]


@dataclass(frozen=True, slots=True)
class PositionComparison:
    """The logits at one position, of all sequences; `position` counts the tokens of the text from 0.

    `factor` is the multiple of the limit at which they would pass; figures are None where none can be had.
    """

    position: int
    outcome: LayerOutcome
    measurement: Measurement | None
    limit: Limit | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class LogitsComparison:
    """Logits over one text: the candidate's against the reference's, or with cache against those of one model without.

    `first_divergent` is an index into `positions`, None if none is outside its limit.
    """

    logits: LogitsOf
    positions: tuple[PositionComparison, ...]
    first_divergent: int | None


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first token of one sequence that greedy decoding chooses otherwise than the reference without cache.

    `step` counts the new tokens from 0. `margin` is by how much the reference prefers its token; it is a `tie`, in
    which neither is wrong, if that is less than rounding may move two logits by, each by `limit`.
    """

    logits: LogitsOf
    sequence: int
    step: int
    reference: int
    candidate: int
    margin: float
    limit: float
    tie: bool


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A text, prompt and new tokens, with the log-probability that each side gives to each token but the first."""

    tokens: tuple[int, ...]
    reference: tuple[float, ...]
    candidate: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GenerationComparison(ShownResult):
    """Two language models on the same prompts, and `tokens` new tokens that the reference chooses.

    `prompts` is the shape of the prompts, (sequences, tokens); `continuations` are the reference's new tokens.
    """

    result_kind = "generate"
    reference: str
    candidate: str
    prompts: tuple[int, int]
    tokens: int
    continuations: tuple[tuple[int, ...], ...]
    token_logprobs: tuple[TokenLogprobs, ...]
    comparisons: tuple[LogitsComparison, ...]
    differences: tuple[TokenDifference, ...]
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
