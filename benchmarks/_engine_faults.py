"""Engines with one fault each, made of the small Llama of `examples/` and its port to MindSpore, and clean pairs.

The texts are drawn from the model itself, behind random prompts, so that tokens are as likely as an engine's are. A
fault is planted where engines have it: in the tokens, in the logits before the log-probability, in the cache, in the
mask of a batch, in the weights, or in what is written.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import align

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
import tiny_llama  # noqa: E402

LISTS, LONGEST, END, SHARPNESS = 32, 160, 2, 4.0
if TYPE_CHECKING:
    from collections.abc import Callable

Sides = tuple[Any, Any, dict[str, Any]]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A case by name: the cause that is right to name ("" of a clean pair), and what makes both sides."""

    name: str
    cause: str
    make: Callable[[Engine, Path], Sides]


class Engine:
    """The model with its texts: prompts of 12 to 24 tokens, and what it goes on with, which ends with END."""

    def __init__(self) -> None:
        self.model = sharp(tiny_llama.build())
        generator = np.random.default_rng(0)
        torch.manual_seed(0)
        self.prompts = [int(size) for size in generator.integers(12, 25, LISTS)]
        lengths = generator.integers(60, LONGEST, LISTS)
        self.texts = [
            self._drawn(generator.integers(3, tiny_llama.VOCABULARY, prompt), int(length))
            for prompt, length in zip(self.prompts, lengths, strict=True)
        ]
        self.plain = [self.logits(ids) for ids in self.texts]

    def _drawn(self, prompt: np.ndarray, length: int) -> list[int]:
        ids = torch.from_numpy(prompt)[None]
        with torch.no_grad():
            made = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=length - len(prompt) - 1, do_sample=True,
                top_k=0, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        return [*made[0].tolist(), END]

    def logits(self, ids: list[int], model: Any = None, **more: Any) -> torch.Tensor:
        """Logits (tokens, vocabulary) of one text, in float64."""
        with torch.no_grad():
            return (model or self.model)(torch.tensor([ids]), **more).logits[0].double()

    def rows(self, change: Callable[..., torch.Tensor] | None = None, tops: int = 0, texts: Any = None) -> Rows:
        """What an engine writes whose logits are `change(logits, ids, number)`."""
        rows = []
        for number, ids in enumerate(self.texts if texts is None else texts):
            logits = self.plain[number] if texts is None else self.logits(ids)
            values = torch.log_softmax(logits if change is None else change(logits, ids, number), -1)
            rows.append(row(ids, values, self.prompts[number], tops))
        return rows

    def cached(self, call: Callable[[list[int], Any], tuple[torch.Tensor, Any]], count: int = 12) -> Rows:
        """What an engine writes that reads the prompt whole and then token by token; `call` returns logits, cache."""
        rows = []
        for ids, prompt in zip(self.texts[:count], self.prompts[:count], strict=True):
            logits, cache = call(ids[:prompt], None)
            parts = [logits]
            for token in ids[prompt:]:
                logits, cache = call([token], cache)
                parts.append(logits)
            rows.append(row(ids, torch.log_softmax(torch.cat(parts).double(), -1), prompt, 0))
        return rows


def sharp(model: Any) -> Any:
    """The model with larger logits, so that it is as sure of its tokens as a trained one."""
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS / 4)
    return model


def row(ids: list[int], values: torch.Tensor, prompt: int, tops: int) -> dict[str, Any]:
    """One text as a line: vLLM's form with some of the most likely tokens, else the plain one."""
    chosen = values[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    finite = [max(float(value), -9999.0) for value in chosen]
    if not tops:
        return {"tokens": ids, "logprobs": [None, *finite], "prompt_length": prompt}
    best, names = values[:-1].topk(tops)
    entries: list[Any] = [None]
    for token, value, top, name in zip(ids[1:], finite, best.tolist(), names.tolist(), strict=True):
        listed = {str(other): {"logprob": max(one, -9999.0)} for other, one in zip(name, top, strict=True)}
        entries.append({str(token): {"logprob": value}, **listed})
    return {"choices": [{"text": "", "prompt_token_ids": ids, "prompt_logprobs": entries}]}


def files(folder: Path, reference: Rows, candidate: Rows, **options: Any) -> Sides:
    """Both sides written."""
    paths = []
    for name, lines in (("a", reference), ("b", candidate)):
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return paths[0], paths[1], options


def of_logits(change: Callable[..., torch.Tensor], tops: int = 0, **options: Any) -> Callable[[Engine, Path], Sides]:
    """An engine that changes its logits before the log-probability."""
    return lambda engine, folder: files(folder, engine.rows(tops=tops), engine.rows(change, tops), **options)


def of_values(change: Callable[[np.ndarray], np.ndarray], **options: Any) -> Callable[[Engine, Path], Sides]:
    """An engine that changes what it writes, (tokens,) log-probabilities without that of the first token."""

    def make(engine: Engine, folder: Path) -> Sides:
        rows = engine.rows()
        changed = [{**line, "logprobs": [None, *change(np.array(line["logprobs"][1:])).tolist()]} for line in rows]
        return files(folder, rows, changed, **options)

    return make


def of_texts(change: Callable[[list[int], int], list[int]]) -> Callable[[Engine, Path], Sides]:
    """An engine that is given other tokens, and scores these."""

    def make(engine: Engine, folder: Path) -> Sides:
        texts = [change(ids, number) for number, ids in enumerate(engine.texts)]
        return files(folder, engine.rows(), engine.rows(texts=texts))

    return make


def live(change: Callable[..., torch.Tensor] | None) -> Callable[[Engine, Path], Sides]:
    """The file of an engine against the live model."""

    def make(engine: Engine, folder: Path) -> Sides:
        path, _, _ = files(folder, engine.rows(change), [])
        return path, engine.model, {}

    return make


def top_k(logits: torch.Tensor, *_: Any) -> torch.Tensor:
    """The ten most likely tokens alone."""
    least = logits.topk(10, -1).values[:, -1:]
    return torch.where(logits < least, -torch.inf, logits)


def top_p(logits: torch.Tensor, *_: Any) -> torch.Tensor:
    """The most likely tokens that have 0.9 of the probability."""
    ordered, places = logits.sort(-1, descending=True)
    before = torch.softmax(ordered, -1).cumsum(-1) - torch.softmax(ordered, -1)
    return torch.full_like(logits, -torch.inf).scatter(-1, places, torch.where(before > 0.9, -torch.inf, ordered))


def penalty(logits: torch.Tensor, ids: list[int], _: int) -> torch.Tensor:
    """Logits of tokens that stood before, divided or multiplied by 1.5."""
    changed = logits.clone()
    for place in range(len(ids)):
        seen = torch.tensor(sorted(set(ids[: place + 1])))
        values = changed[place, seen]
        changed[place, seen] = torch.where(values > 0, values / 1.5, values * 1.5)
    return changed


def without_end(logits: torch.Tensor, *_: Any) -> torch.Tensor:
    """The end token masked, as `min_tokens` does."""
    changed = logits.clone()
    changed[:, END] = -torch.inf
    return changed


def one_row(logits: torch.Tensor, *_: Any) -> torch.Tensor:
    """A row of the head that is wrong: a token that is never likely."""
    changed = logits.clone()
    changed[:, 11] -= 6.0
    return changed


def window(engine: Engine, folder: Path) -> Sides:
    """An engine that sees 48 tokens back."""

    def change(_: torch.Tensor, ids: list[int], __: int) -> torch.Tensor:
        count = len(ids)
        far = torch.arange(count)[:, None] - torch.arange(count)
        mask = torch.where((far < 0) | (far >= 48), -torch.inf, 0.0)
        return engine.logits(ids, attention_mask=mask[None, None])

    return files(folder, engine.rows(), engine.rows(change))


def padded_batch(engine: Engine, folder: Path) -> Sides:
    """Batches of two lists whose shorter one is padded on the left to 128 tokens, and no mask."""

    def change(logits: torch.Tensor, ids: list[int], _: int) -> torch.Tensor:
        missing = 110 - len(ids)
        return engine.logits([0] * missing + ids)[missing:] if missing > 0 else logits

    return files(folder, engine.rows(), engine.rows(change))


def wrong_slots(engine: Engine, folder: Path) -> Sides:
    """Every eighth request reads the weights of a step before."""
    older = sharp(tiny_llama.build())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in older.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.3 * value.std())

    def change(logits: torch.Tensor, ids: list[int], number: int) -> torch.Tensor:
        return engine.logits(ids, older) if number % 8 == 3 else logits

    return files(folder, engine.rows(), engine.rows(change))


def quantized(engine: Engine, folder: Path) -> Sides:
    """Weights of 5 bits."""
    small = sharp(tiny_llama.build())
    with torch.no_grad():
        for name, value in small.named_parameters():
            if value.ndim == 2:
                scale = value.abs().amax(1, keepdim=True) / 31
                value.copy_((value / scale).round() * scale)
            assert name
    return files(folder, engine.rows(), engine.rows(lambda _, ids, __: engine.logits(ids, small)))


def torch_call(engine: Engine, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The torch model token by token, whose cache is changed whenever it is written."""

    def call(ids: list[int], cache: Any) -> tuple[torch.Tensor, Any]:
        with torch.no_grad():
            made = engine.model(torch.tensor([ids]), past_key_values=cache, use_cache=True)
        for layer in made.past_key_values.layers:
            layer.keys, layer.values = change(layer.keys), change(layer.values)
        return made.logits[0], made.past_key_values

    return call


def coarse(values: torch.Tensor) -> torch.Tensor:
    """Three bits for each head's keys and values."""
    scale = values.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 3
    return (values / scale).round() * scale


def mindspore_call(engine: Engine, folder: Path, shift: int) -> Callable[..., Any]:
    """The port token by token; `shift` is what it miscounts positions by as soon as it reads from its cache."""
    port = ported(engine, folder)
    whole = type(port).places

    class Port(type(port)):  # type: ignore[misc]
        def places(self, before: int, count: int) -> np.ndarray:
            return whole(self, before, count) - shift * (before > 0)

    port.__class__ = Port
    import mindspore

    def call(ids: list[int], cache: Any) -> tuple[torch.Tensor, Any]:
        logits, cache = port(mindspore.Tensor(np.array([ids], np.int32)), cache)
        return torch.from_numpy(logits.asnumpy()[0]), cache

    return call


def ported(engine: Engine, folder: Path) -> Any:
    """The port with the engine's weights."""
    import tiny_llama_port

    torch.save(engine.model.state_dict(), folder / "llama.pth")
    port = tiny_llama_port.build()
    align.convert_checkpoint(folder / "llama.pth", folder / "llama.ckpt", source_model=engine.model, target_model=port)
    return align.open_side(port, folder / "llama.ckpt").model


def cache_in_torch(engine: Engine, folder: Path) -> Sides:
    """A cache of three bits."""
    return files(folder, engine.rows()[:12], engine.cached(torch_call(engine, coarse)))


def cache_in_mindspore(engine: Engine, folder: Path) -> Sides:
    """A port that counts one position too few as soon as it has a cache: rotation of old and new keys differ."""
    return files(folder, engine.rows()[:8], engine.cached(mindspore_call(engine, folder, 3), 8))


class Blocked(torch.nn.Module):
    """A model whose head loses the last block of rows if there are several lists."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids).logits
        if len(input_ids) > 1:
            logits = torch.cat([logits[..., :80], torch.zeros_like(logits[..., 80:])], -1)
        return logits


def blocking(engine: Engine, folder: Path) -> Sides:
    """A kernel that changes its blocking with the batch, on a live side."""
    path, _, _ = files(folder, engine.rows()[:6], [])
    return path, Blocked(engine.model), {}


def repeated_list(engine: Engine, folder: Path) -> Sides:
    """The same lists alone and in a batch, in one file, with a mask that is wrong in the batch."""
    alone = engine.rows()
    batch = engine.rows(lambda logits, *_: logits + torch.sin(torch.arange(logits.shape[-1])) * 0.8)
    return files(folder, alone + alone, alone + batch)


def written_texts(texts: list[str]) -> Callable[[Engine, Path], Sides]:
    """One side with texts, as verl dumps them."""

    def make(_: Engine, folder: Path) -> Sides:
        path = folder / "1.jsonl"
        lines = [{"input": "q", "output": text, "gts": None, "score": 0.0, "step": 1} for text in texts]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path, None, {}

    return make


def looping_tokens(engine: Engine, folder: Path) -> Sides:
    """Generated ids that go round in a circle."""
    rows = engine.rows(texts=[[*ids[:40], *([5, 9, 17] * 20)] for ids in engine.texts])
    path, _, _ = files(folder, rows, [])
    return path, None, {}


def cast(dtype: torch.dtype) -> Callable[[Engine, Path], Sides]:
    """The same engine in another precision."""

    def make(engine: Engine, folder: Path) -> Sides:
        other = sharp(tiny_llama.build()).to(dtype)
        return files(folder, engine.rows(), engine.rows(lambda _, ids, __: engine.logits(ids, other)))

    return make


def batched(engine: Engine, folder: Path) -> Sides:
    """The same engine with eight lists at once, padded on the right."""

    def change(_: torch.Tensor, ids: list[int], __: int) -> torch.Tensor:
        padded = torch.tensor([ids + [0] * (LONGEST - len(ids))] * 8)
        with torch.no_grad():
            return engine.model(padded).logits[3, : len(ids)].double()

    return files(folder, engine.rows(), engine.rows(change), dtype="float32")


def live_port(engine: Engine, folder: Path) -> Sides:
    """The engine's file against its port to MindSpore."""
    path, _, _ = files(folder, engine.rows()[:12], [])
    return path, ported(engine, folder), {"dtype": "float32"}


PROSE = (
    "The port computes what its original computes, within rounding. We looked at each layer, wrote down what differs, "
    "and tried again with other inputs. Nothing else was found, so the comparison ends here, and the result is kept."
)
OTHER, ANSWER = "乱码输出没有意义而且不停", "这是一个正常的回答，没有任何问题，也没有重复的内容。"
PLANTED = (
    Case("other ids in the middle", "other-tokens", of_texts(lambda ids, _: [*ids[:50], 7, 8, *ids[52:]])),
    Case("no beginning of text", "other-template", of_texts(lambda ids, _: [1, 4, 6, *ids[1:]])),
    Case("padding on the left", "other-padding", of_texts(lambda ids, _: [0] * 9 + ids)),
    Case("cut at 64 tokens", "truncated", of_texts(lambda ids, _: ids[:64])),
    Case("temperature 0.7, with tops", "temperature", of_logits(lambda logits, *_: logits / 0.7, 5)),
    Case("temperature 1.5, live model", "temperature", live(lambda logits, *_: logits / 1.5)),
    Case("temperature 0.8, values only", "temperature", of_logits(lambda logits, *_: logits / 0.8)),
    Case("top-k, values only", "top-k", of_logits(top_k)),
    Case("top-k, live model", "top-k", live(top_k)),
    Case("top-k, with tops", "top-k", of_logits(top_k, 10)),
    Case("top-p, values only", "top-k", of_logits(top_p)),
    Case("shifted by one", "shift", of_values(lambda values: np.roll(values, -1))),
    Case("logarithms to base 10", "log-base", of_values(lambda values: values / np.log(10))),
    Case("written in bfloat16, float32 asked", "rounded",
         of_values(lambda values: torch.from_numpy(values).bfloat16().double().numpy(), dtype="float32")),
    Case("cache of three bits (torch)", "cache", cache_in_torch),
    Case("cache positions (MindSpore)", "cache", cache_in_mindspore),
    Case("window of 48", "position", window),
    Case("padding in a batch", "short-lists", padded_batch),
    Case("old weights for some requests", "some-lists", wrong_slots),
    Case("blocking by the batch, live model", "batch", blocking),
    Case("alone and in a batch, in a file", "batch", repeated_list),
    Case("one row of the head", "one-token", of_logits(one_row)),
    Case("end token masked", "end-token", of_logits(without_end)),
    Case("penalty for repetition", "penalty", of_logits(penalty)),
    Case("weights of 5 bits", "precision", quantized),
    Case("garbled: loop of ids", "loop", looping_tokens),
    Case("garbled: loop of words", "loop", written_texts([PROSE, PROSE[:60] + " and then" * 40])),
    Case("garbled: other script", "script-change", written_texts([PROSE, PROSE[:60] + OTHER * 12])),
    Case("garbled: damaged characters", "damaged", written_texts([PROSE[:80] + "\ufffd\ufffd\ufffd" * 4])),
)  # fmt: skip
CLEAN = (
    Case("the same file", "", of_logits(lambda logits, *_: logits)),
    Case("with tops", "", of_logits(lambda logits, *_: logits, 5)),
    Case("bfloat16", "", cast(torch.bfloat16)),
    Case("float16", "", cast(torch.float16)),
    Case("float64", "", cast(torch.float64)),
    Case("a batch of eight", "", batched),
    Case("with a cache (torch)", "",
         lambda engine, folder: files(folder, engine.rows()[:12], engine.cached(torch_call(engine, torch.clone)))),
    Case("with a cache (MindSpore)", "",
         lambda engine, folder: files(folder, engine.rows()[:8], engine.cached(mindspore_call(engine, folder, 0), 8))),
    Case("another order of lists", "", lambda engine, folder: files(folder, engine.rows(), engine.rows()[::-1])),
    Case("live model", "", live(None)),
    Case("live port (MindSpore)", "", live_port),
    Case("prose", "", written_texts([PROSE, PROSE[::-1], ANSWER])),
)  # fmt: skip
