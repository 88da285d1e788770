"""What a document keeps of its sentences makes each of them anew, of a faulty comparison and of its clean twin."""

from __future__ import annotations

import json

import numpy as np
import pytest

import align
from align.core.documents import to_json_data
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.words.catalogue import in_language

X = {"x": np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32)}
WEIGHT = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def model(names, factor=1.0):
    first, second = names
    layers = [
        ArrayLayer(first, "torch.nn.Linear", lambda x, weight: x @ weight.T * factor, {"weight": WEIGHT}),
        ArrayLayer(second, "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),
    ]
    return ArrayModel(tuple(layers))


def origins(document):
    """Each sentence of a document with what stands beside it."""
    for name, value in document.items() if isinstance(document, dict) else ():
        if name.endswith("_from") and name.removesuffix("_from") in document:
            yield from pairs(document[name.removesuffix("_from")], value)
        else:
            yield from origins(value)
    for value in document if isinstance(document, list) else ():
        yield from origins(value)


def pairs(sentences, values):
    if isinstance(sentences, str):
        yield sentences, values
    elif isinstance(sentences, list):
        yield from zip(sentences, values, strict=True)
    else:
        yield from ((sentences[name], value) for name, value in values.items())


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "aligned"), (1.5, "not aligned")])
def test_each_sentence_of_a_comparison_is_made_anew(factor, outcome):
    result = align.compare_forward(model(("fc", "act")), model(("head", "relu"), factor), inputs=X)
    document = json.loads(json.dumps(to_json_data(result), allow_nan=False))
    assert document["verdict"]["outcome"] == outcome
    found = [*origins(document)]
    assert document["verdict"]["reason"] in [text for text, _ in found]
    assert [in_language(origin, "en") for _, origin in found] == [text for text, _ in found]


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "aligned"), (1.05, "not aligned")])
def test_each_sentence_about_two_logs_is_made_anew(factor, outcome, tmp_path):
    losses = [3.0 / (1.0 + 0.02 * step) for step in range(60)]
    (tmp_path / "torch.csv").write_text(
        "step,loss,train_loss,lr\n" + "".join(f"{step},{loss},1,{0.1}\n" for step, loss in enumerate(losses))
    )
    (tmp_path / "port.jsonl").write_text(
        "".join(f'{{"step": {step}, "loss": {loss * factor}, "lr": 0.1}}\n' for step, loss in enumerate(losses, 1))
        + "no object"
    )
    result = align.compare_losses(tmp_path / "torch.csv", tmp_path / "port.jsonl")
    document = json.loads(json.dumps(to_json_data(result), allow_nan=False))
    assert document["verdict"]["outcome"] == outcome
    found = [*origins(document)]
    told = {*document["notes"], *document["candidate"]["notes"], *document["reference"]["notes"]}
    said = {document["verdict"]["reason"], *(one["source"] for one in document["criteria"]), *told} - {""}
    assert len(told) > 3
    assert said <= {text for text, _ in found}
    assert bool(document["next_command"]) is (factor != 1.0)
    assert [in_language(origin, "en") for _, origin in found] == [text for text, _ in found]
