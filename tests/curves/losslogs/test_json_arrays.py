"""JSON documents with a loss: arrays of objects, and objects of arrays as a Keras history is one."""

from __future__ import annotations

import json

import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_MEAN
from align.curves.losslogs.tables import JsonArraysFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

JSON_ARRAYS = JsonArraysFormat()

HISTORY = {"loss": [2.5, 2.25, 2.0], "val_loss": [2.75, 2.5, 2.25], "lr": [0.1, 0.1, 0.01]}


def _source(document: object) -> LogSource:
    return LogSource.of_text(json.dumps(document))


@pytest.mark.parametrize("document", [HISTORY, {"params": {"epochs": 3}, "history": HISTORY}])
def test_a_history_holds_means_of_epochs(document: object) -> None:
    assert JSON_ARRAYS.recognizes(_source(document))
    curve = place_on_axis(JSON_ARRAYS.read(_source(document)))
    assert (curve.axis, curve.window) == ("epoch", EPOCH_MEAN)
    assert dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) == {1: 2.5, 2: 2.25, 3: 2.0}


def test_objects_of_an_array_are_rows() -> None:
    rows = [{"iteration": 0, "train_loss": 2.5}, {"iteration": 1, "train_loss": None}, {"iteration": 2}]
    log = JSON_ARRAYS.read(_source({"config": "a", "steps": rows}))
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 2]
    assert str(curve.values.tolist()) == "[2.5, nan]"
    assert "1 loss is null (first: line 1), kept as NaN" in log.notes


@pytest.mark.parametrize(
    "document",
    [
        {"prices": [1, 2, 3], "names": ["a", "b", "c"]},
        {"loss": [2.5, 2.25], "accuracy": [0.1]},
        {"loss": 0.5, "step": 3},
        [{"loss": 2.5}, {"loss": 2.25}],
        [1, 2, 3],
        {"log_history": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}]},
    ],
)
def test_other_documents_are_not_its_log(document: object) -> None:
    assert not JSON_ARRAYS.recognizes(_source(document))
    with pytest.raises(EmptyLogError):
        JSON_ARRAYS.read(_source(document))
