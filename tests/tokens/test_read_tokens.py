"""The forms of engines and trainers, laid out as their sources do it, give the same columns."""

from __future__ import annotations

import json

import numpy as np
import pytest

import align
from align.errors import InputsError
from align.tokens.read_tokens import read_tokens

IDS = [5, 6, 7, 8, 9]
VALUES = [None, -1.5, -0.5, -2.0, -0.25]
PROMPT = 3


def logprob(value, rank=1):
    return {"logprob": value, "rank": rank, "decoded_token": "x"}


def prompt_logprobs(ids=IDS, values=VALUES):
    """vLLM: null, then the token itself, then the most likely one."""
    pairs = zip(ids[1:], values[1:], strict=True)
    return [None, *({str(token): logprob(value, 2), "1": logprob(-0.1)} for token, value in pairs)]


def sglang(part):
    return [[value, token, None] for token, value in zip(IDS[part], VALUES[part], strict=True)]


HEAD, TAIL = slice(0, PROMPT), slice(PROMPT, None)
COMPLETION = {"tokens": ["token_id:8", "token_id:9"], "token_logprobs": VALUES[TAIL], "top_logprobs": None}
ECHO = {"tokens": [f"token_id:{token}" for token in IDS], "token_logprobs": VALUES, "text_offset": [0, 1, 2, 3, 4]}
CHAT = [{"token": "a", "logprob": value, "bytes": None, "top_logprobs": []} for value in VALUES[TAIL]]
USAGE = {"prompt_tokens": PROMPT, "completion_tokens": 2}
FORMS = {
    "vLLM completion": {
        "choices": [
            {"text": "", "logprobs": COMPLETION, "prompt_logprobs": prompt_logprobs(IDS[HEAD], VALUES[HEAD]),
             "prompt_token_ids": IDS[HEAD]}
        ],
        "usage": USAGE,
    },
    "echo": {"choices": [{"text": "", "logprobs": ECHO}], "usage": USAGE},
    "echo with prompt_logprobs": {
        "choices": [
            {"text": "", "logprobs": ECHO, "prompt_logprobs": prompt_logprobs(IDS[HEAD], VALUES[HEAD]),
             "prompt_token_ids": IDS[HEAD]}
        ],
        "usage": USAGE,
    },
    "vLLM chat": {
        "choices": [{"message": {"content": "x"}, "logprobs": {"content": CHAT}, "token_ids": IDS[TAIL]}],
        "prompt_logprobs": prompt_logprobs(IDS[HEAD], VALUES[HEAD]),
        "prompt_token_ids": IDS[HEAD],
    },
    "vLLM offline": {
        "prompt_token_ids": IDS[HEAD],
        "prompt_logprobs": prompt_logprobs(IDS[HEAD], VALUES[HEAD]),
        "outputs": [
            {"token_ids": IDS[TAIL], "text": "x",
             "logprobs": [{str(i): logprob(v)} for i, v in zip(IDS[TAIL], VALUES[TAIL], strict=True)]}
        ],
    },
    "SGLang": {
        "text": "x",
        "meta_info": {"input_token_logprobs": sglang(HEAD), "output_token_logprobs": sglang(TAIL), **USAGE,
                      "finish_reason": {"type": "length", "length": 2}},
    },
    "TGI": {
        "generated_text": "x",
        "details": {
            "prefill": [{"id": i, "logprob": v, "text": "x"} for i, v in zip(IDS[HEAD], VALUES[HEAD], strict=True)],
            "tokens": [
                {"id": i, "logprob": v, "text": "x", "special": i == 9}
                for i, v in zip(IDS[TAIL], VALUES[TAIL], strict=True)
            ],
            "finish_reason": "length",
        },
    },
    "plain": {"tokens": IDS, "logprobs": VALUES, "prompt_length": PROMPT},
    "slime": {
        "tokens": IDS, "response_length": 2, "rollout_log_probs": VALUES[TAIL], "response": "x", "status": "completed",
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_form_gives_tokens_values_and_the_length_of_the_prompt(form, tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(FORMS[form])}\n" * 2, encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps([FORMS[form]], indent=1), encoding="utf-8")
    lists, indented = read_tokens(tmp_path / "a.jsonl"), read_tokens(tmp_path / "b.json")
    assert lists.tokens.tolist() == IDS * 2
    assert indented.tokens.tolist() == IDS
    assert lists.prompts.tolist() == [PROMPT] * 2
    wanted = [np.nan if value is None else value for value in VALUES]
    if form == "slime":
        wanted[:PROMPT] = [np.nan] * PROMPT
    assert lists.logprobs.tolist() == pytest.approx(wanted * 2, nan_ok=True)


def test_texts_stand_for_ids_where_an_engine_gives_none_and_do_not_mix_with_ids(tmp_path):
    words = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -9999.0], "top_logprobs": [{"a": -1.0, "c": -0.5}, None]}
    path, ids = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text(json.dumps({"choices": [{"text": "ab", "logprobs": words}]}), encoding="utf-8")
    lists = read_tokens(path)
    assert (lists.tokens < 0).all()
    assert lists.logprobs.tolist() == [-1.0, -np.inf]
    assert lists.mass.tolist() == pytest.approx([np.exp(-1.0) + np.exp(-0.5)])
    ids.write_text(json.dumps({"tokens": [1, 2], "logprobs": [-1, -1]}), encoding="utf-8")
    with pytest.raises(InputsError, match="tokens as texts"):
        align.compare_tokens(path, ids)


def test_columns_of_a_batch_are_cut_by_its_masks(tmp_path):
    ids = np.array([[0, 5, 6, 7, 8, 0], [4, 5, 6, 7, 8, 9]])
    whole = ids > 0
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    values = np.array([[-1.0, -2.0, 0.0], [-1.0, -2.0, -3.0]])
    np.savez(tmp_path / "verl.npz", input_ids=ids, attention_mask=whole, responses=ids[:, 3:], response_mask=mask,
             rollout_log_probs=values)  # fmt: skip
    lists = read_tokens(tmp_path / "verl.npz")
    assert lists.tokens.tolist() == [5, 6, 7, 8, 4, 5, 6, 7, 8, 9]
    assert lists.prompts.tolist() == [2, 3]
    assert lists.logprobs[~np.isnan(lists.logprobs)].tolist() == [-1, -2, -1, -2, -3]


@pytest.mark.frameworks
def test_samples_that_slime_saves_with_torch_are_read_without_running_anything(tmp_path):
    import torch

    sample = {**FORMS["slime"], "metadata": {}, "reward": 1.0, "spec_info": {"spec_verify_ct": 0}}
    torch.save({"rollout_id": 3, "samples": [sample, sample]}, tmp_path / "rollout_3.pt")
    lists = read_tokens(tmp_path / "rollout_3.pt")
    assert (lists.count, lists.prompts.tolist()) == (2, [PROMPT] * 2)


@pytest.mark.frameworks
def test_a_live_model_agrees_with_what_transformers_generated(tmp_path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=32, initializer_range=0.5, eos_token_id=None, pad_token_id=0, **sizes)
    model = LlamaForCausalLM(config).eval()
    prompts = torch.randint(1, 32, (6, 5))
    options = {"do_sample": True, "top_k": 0, "temperature": 0.6, "output_logits": True, "output_scores": True}
    mask = torch.ones_like(prompts)
    made = model.generate(prompts, attention_mask=mask, max_new_tokens=12, return_dict_in_generate=True, **options)
    for name, given in (("plain", made.logits), ("scaled", made.scores)):
        values = model.compute_transition_scores(made.sequences, given, normalize_logits=True)
        np.savez(tmp_path / f"{name}.npz", sequences=made.sequences.numpy(), transition_scores=values.numpy())
    result = align.compare_tokens(tmp_path / "plain.npz", model, dtype="float32")
    assert result.verdict.outcome is align.Outcome.ALIGNED
    assert result.figures.tokens == 6 * 12
    assert [one.how for one in result.repeats] == ["again", "in a batch"]
    (cause,) = align.compare_tokens(tmp_path / "scaled.npz", model).causes
    assert (cause.id, cause.confirmed) == ("temperature", True)
    assert cause.facts["temperature"] == pytest.approx(0.6, rel=1e-3)
