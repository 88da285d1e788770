"""Two language models on the same prompts: logits of every token, each model's cache, and the tokens that follow.

The reference continues the prompts greedily, without its cache; over that one text all logits are compared, so that an
early difference cannot hide what comes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.progress import silent
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, UsageError
from align.evaluation.generation.compare_logits import (
    LogitsNoise,
    compare_logits,
    first_token_differences,
    judge_generation,
)
from align.evaluation.generation.decoders import Decoder
from align.evaluation.generation_result import GenerationComparison
from align.models.call_model import noise_unmeasured, widened_side
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import Side, copied_sides
from align.models.open_sides import open_sides
from align.traces.transferred_weights import TransferredWeights
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.evaluation.generation.decoders import Adapter
    from align.evaluation.generation_result import LogitsComparison, LogitsOf

STAGES = 4


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
    own = logits["candidate"][0]
    noise = LogitsNoise(own, wide)
    progress("generate", 3, STAGES)
    comparisons = tuple(compare_logits(name, *both, noise) for name, both in logits.items())
    differences = [
        one
        for name, (_, found) in logits.items()
        for one in first_token_differences(name, continuation, own, found, noise)
    ]
    progress("generate", STAGES, STAGES)
    return GenerationComparison(
        reference=sides[0].label,
        candidate=sides[1].label,
        prompts=(prompts.shape[0], prompts.shape[1]),
        tokens=tokens,
        continuations=tuple(tuple(row) for row in continuation.tolist()),
        comparisons=comparisons,
        differences=tuple(differences),
        findings=(
            *copied_sides(*sides),
            *weights.told(sides[1].label),
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
        raise UsageError(f"{tokens} new tokens are none", "give a positive number")
    named = [f"{name} {value.dtype.name}{list(value.shape)}" for name, value in inputs.items()]
    ids = next(iter(inputs.values()))
    if len(inputs) > 1 or ids.dtype.kind not in "iu" or ids.ndim != 2 or not ids.size:
        hint = "give one input of token ids, for example ids=int64[2,8]<1000, without padding"
        raise InputsError(f"the prompts must be one array of whole numbers, not {', '.join(named)}", hint)
    return ids.astype(np.int64)


def _read(decoders: tuple[Decoder, Decoder], text: Array, prompt: int) -> dict[LogitsOf, tuple[Array, Array]]:
    """Logits over the text, each with those that it is to equal: by cache only of a model that returns one."""
    mine, theirs = (decoder.logits(text) for decoder in decoders)
    if mine.shape != theirs.shape:
        said = f"{decoders[0].side.label} has {mine.shape[2]:,} tokens, {decoders[1].side.label} {theirs.shape[2]:,}"
        raise InputsError(f"the vocabularies differ: {said}", "have the larger one leave its padding out")
    logits: dict[LogitsOf, tuple[Array, Array]] = {"candidate": (mine, theirs)}
    if (cached := decoders[1].cached_logits(text, prompt)) is not None:
        logits["candidate with cache"] = theirs, cached
    if (cached := decoders[0].cached_logits(text, prompt)) is not None:
        logits["reference with cache"] = mine, cached
    return logits


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
