"""Differences planted in one of two equal pipelines are found, named and confirmed; equal pairs are aligned."""

from __future__ import annotations

import numpy as np
import pytest

from align import compare_data
from align.core.verdicts import Outcome
from align.errors import InputsError, UsageError, UserCodeError

COUNT, SIDE, BATCH = 48, 20, 8
GENERATOR = np.random.default_rng(0)
GROUND = np.kron(GENERATOR.random((COUNT, 5, 5, 3)), np.ones((1, 4, 4, 1))) * 200
RAW = np.clip(GROUND + GENERATOR.random((COUNT, SIDE, SIDE, 3)) * 55, 0, 255).astype(np.uint8)
LABELS = GENERATOR.integers(0, 10, COUNT)
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CIFAR = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])
ORDER = np.random.default_rng(2).permutation(COUNT)


def batches(*columns, size=BATCH, names=()):
    made = [tuple(column[start : start + size] for column in columns) for start in range(0, len(columns[0]), size)]
    return [dict(zip(names, batch, strict=True)) for batch in made] if names else made


def normalized(raw=RAW, mean=IMAGENET[0], std=IMAGENET[1], scale=255):
    values = (raw / np.float32(scale) - np.float32(mean)) / np.float32(std)
    return values.transpose(0, 3, 1, 2).astype(np.float32)


PLAIN = normalized()


def named(reference, candidate, **options):
    result = compare_data(reference, candidate, **options)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    return {cause.id for cause in result.causes if cause.confirmed} | {
        finding.code for finding in result.findings if finding.severity == "error"
    }


OF_PICTURES = {
    "values of 0 to 255": (normalized(mean=0, std=1, scale=1), {"normalization"}),
    "constants of CIFAR": (normalized(mean=CIFAR[0], std=CIFAR[1]), {"normalization"}),
    "std of one channel": (normalized(std=[0.229, 0.224, 0.25]), {"channel-scale"}),
    "BGR": (PLAIN[:, ::-1], {"channel-order"}),
    "BGR before the mean": (normalized(RAW[..., ::-1]), {"channel-order", "normalization"}),
    "channels last": (PLAIN.transpose(0, 2, 3, 1), {"layout"}),
    "flipped": (PLAIN[..., ::-1], {"flip"}),
    "flipped, with constants of CIFAR": (normalized(mean=CIFAR[0], std=CIFAR[1])[..., ::-1], {"flip", "normalization"}),
    "float16": (PLAIN.astype(np.float16).astype(np.float32), {"rounding"}),
    "cut": (np.clip(PLAIN, -1, 1), {"clip"}),
    "window": (np.pad(PLAIN, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")[:, :, 0:SIDE, 1 : SIDE + 1], {"crop"}),
    "padded": (np.pad(PLAIN, ((0, 0), (0, 0), (2, 2), (2, 2))), {"padding-size"}),
}


@pytest.mark.parametrize("name", OF_PICTURES)
def test_a_change_of_pictures_is_named_and_confirmed(name):
    changed, right = OF_PICTURES[name]
    assert named(batches(PLAIN, LABELS), batches(changed, LABELS)) == right


def test_padding_before_the_mean_is_told_from_padding_behind_it():
    width = ((0, 0), (2, 2), (2, 2), (0, 0))
    behind = np.pad(PLAIN, ((0, 0), (0, 0), (2, 2), (2, 2)))
    assert named(batches(behind, LABELS), batches(normalized(np.pad(RAW, width)), LABELS)) == {"padding-value"}


def test_a_grey_level_is_told_as_such_with_its_size():
    other = np.clip(RAW.astype(int) + GENERATOR.integers(-1, 2, RAW.shape), 0, 255).astype(np.uint8)
    (cause,) = compare_data(batches(RAW, LABELS), batches(other, LABELS)).causes
    assert (cause.id, cause.facts["levels"]) == ("grey-levels", 1.0)


def test_samples_that_are_flipped_at_random_are_told():
    some = PLAIN.copy()
    some[::2] = some[::2, :, :, ::-1]
    assert named(batches(PLAIN, LABELS), batches(some, LABELS)) == {"random-flip"}


def test_methods_of_resizing_are_told_by_the_pictures_before_them():
    from PIL import Image

    def resized(method):
        return np.stack([np.asarray(Image.fromarray(raw).resize((12, 12), method)) for raw in RAW])

    sides = batches(resized(Image.BILINEAR), LABELS), batches(resized(Image.NEAREST), LABELS)
    (suspicion,) = compare_data(*sides).causes
    assert (suspicion.id, suspicion.confirmed) == ("resize-suspected", False)
    (cause,) = compare_data(*sides, raw=batches(RAW, LABELS)).causes
    assert cause.confirmed
    assert cause.facts == {"reference": "bilinear, antialias", "candidate": "nearest (centre)"}


OF_LABELS = {
    "from 1": (LABELS + 1, {"label-offset"}),
    "other numbers": ((LABELS * 3 + 1) % 10, {"label-map"}),
    "one-hot": (np.eye(10)[LABELS], {"one-hot"}),
    "smoothed": (np.eye(10)[LABELS] * 0.9 + 0.01, {"one-hot", "label-smoothing"}),
    "of other samples": (np.roll(LABELS, 3), {"label-order"}),
}


@pytest.mark.parametrize("name", OF_LABELS)
def test_a_change_of_labels_is_named_and_confirmed(name):
    changed, right = OF_LABELS[name]
    assert named(batches(PLAIN, LABELS), batches(PLAIN, changed)) == right


def test_labels_that_are_no_class_are_named():
    result = compare_data(batches(PLAIN, LABELS), batches(PLAIN, LABELS), classes=9)
    assert [finding.code for finding in result.findings] == ["labels-outside"] * 2
    assert compare_data(batches(PLAIN, LABELS), batches(PLAIN, LABELS), classes=10).findings == ()


TEXTS = [GENERATOR.integers(5, 90, GENERATOR.integers(6, 16)) for _ in range(COUNT)]


def tokens(
    texts=None, *, length=20, first=(), last=(), side="right", pad=0, ignored=-100, mask=lambda m: m, places=None
):
    rows, masks, labels = (np.full((COUNT, length), value) for value in (pad, 0, ignored))
    for number, text in enumerate(TEXTS if texts is None else texts):
        row = np.r_[list(first), text[: length - len(first) - len(last)], list(last)].astype(int)
        place = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
        rows[number, place], masks[number, place], labels[number, place] = row, 1, row
    positions = np.broadcast_to(np.arange(length), masks.shape) if places is None else places(masks)
    return batches(
        rows, mask(masks), labels, positions, names=("input_ids", "attention_mask", "labels", "position_ids")
    )


def shifted(made):
    moved = [{**batch, "labels": np.roll(batch["labels"], -1, 1)} for batch in made]
    for batch in moved:
        batch["labels"][:, -1] = -100
    return moved


SMALL = np.arange(100)
SMALL[40:60] += 20
OF_TOKENS = {
    "start token": (tokens(first=(1,)), {"special-tokens"}),
    "end token": (tokens(last=(2,)), {"special-tokens"}),
    "padded on the left": (tokens(side="left"), {"padding-side"}),
    "start token, padded on the left": (tokens(first=(1,), side="left"), {"special-tokens", "padding-side"}),
    "padded with another id": (tokens(pad=4), {"padding-id"}),
    "padded to another length": (tokens(length=24), {"padded-length"}),
    "cut": (tokens(length=10), {"truncation"}),
    "small letters": (tokens([SMALL[text] for text in TEXTS]), {"merged-tokens"}),
    "ids from 1 on": (tokens([text + 1 for text in TEXTS]), {"id-offset"}),
    "mask turned round": (tokens(mask=lambda m: 1 - m), {"inverted-mask"}),
    "mask to be added": (tokens(mask=lambda m: np.where(m == 1, 0.0, -1e9)), {"mask-values"}),
    "padding counts in the loss": (tokens(ignored=0), {"ignored-id"}),
    "labels are shifted": (shifted(tokens()), {"token-shift"}),
    "positions from 1": (tokens(places=lambda m: np.broadcast_to(np.arange(20) + 1, m.shape)), {"position-start"}),
}


@pytest.mark.parametrize("name", OF_TOKENS)
def test_a_change_of_tokens_is_named_and_confirmed(name):
    changed, right = OF_TOKENS[name]
    assert named(tokens(), changed) == right


def test_tokens_of_another_tokenizer_are_shown_where_they_first_differ():
    other = [text.copy() for text in TEXTS]
    other[2][3] = 95
    (cause, _) = compare_data(tokens(), tokens(other)).causes
    assert (cause.id, cause.confirmed, cause.facts["sample"], cause.facts["place"]) == ("tokens", False, 2, 3)


TABLE = (GENERATOR.normal(size=(COUNT, 12)) * GENERATOR.uniform(0.5, 20, 12)).astype(np.float32)
Z = ((TABLE - TABLE.mean(0)) / TABLE.std(0)).astype(np.float32)
HOLES = np.where(GENERATOR.random(TABLE.shape) < 0.1, np.float32(np.nan), TABLE)
OF_TABLES = {
    "other statistics": (Z, ((TABLE - TABLE[:24].mean(0)) / TABLE[:24].std(0)).astype(np.float32), {"column-scale"}),
    "columns exchanged": (Z, Z[:, [1, 0, *range(2, 12)]], {"column-order"}),
    "logarithm": (np.abs(TABLE), np.log1p(np.abs(TABLE)), {"function"}),
    "gaps filled": (HOLES, np.nan_to_num(HOLES), {"missing-values"}),
    "whole numbers": (TABLE, np.round(TABLE), {"rounding"}),
}


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_change_of_tables_is_named_and_confirmed(name):
    one, two, right = OF_TABLES[name]
    assert named(batches(one, LABELS), batches(two, LABELS)) == right


OF_ORDER = {
    "another order": (batches(Z[ORDER], LABELS[ORDER]), {"order-differs"}),
    "another order and scale": (batches((Z * 3)[ORDER], LABELS[ORDER]), {"order-differs", "scale"}),
    "every second": (batches(Z[1::2], LABELS[1::2]), {"sharded"}),
    "the second half": (batches(Z[24:], LABELS[24:]), {"sharded"}),
    "missing": (batches(Z[:43], LABELS[:43]), {"missing-samples"}),
    "repeated": (batches(np.r_[Z, Z[:3]], np.r_[LABELS, LABELS[:3]]), {"extra-samples"}),
    "larger batches": (batches(Z, LABELS, size=16), {"batch-size"}),
}


@pytest.mark.parametrize("name", OF_ORDER)
def test_order_lengths_and_batches_are_named(name):
    changed, right = OF_ORDER[name]
    assert named(batches(Z, LABELS), changed) == right


def test_the_last_batch_is_dropped_or_filled_up():
    whole = batches(Z[:45], LABELS[:45])
    assert named(whole, batches(Z[:40], LABELS[:40])) == {"last-batch"}
    filled = batches(np.r_[Z[:45], Z[:3]], np.r_[LABELS[:45], LABELS[:3]])
    assert named(whole, filled) == {"last-batch"}


def test_another_order_is_no_difference_where_it_is_allowed():
    result = compare_data(batches(Z, LABELS), batches(Z[ORDER], LABELS[ORDER]), any_order=True)
    assert (result.verdict.outcome, result.order.order, result.order.by) == (Outcome.ALIGNED, "other", "values")


EQUAL = {
    "rounding": (Z, ((Z * 3 + 1) / np.float32(3) - np.float32(1 / 3)).astype(np.float32)),
    "float64": (Z, Z.astype(np.float64)),
    "gaps": (HOLES, HOLES.copy()),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_pipelines_are_aligned(name):
    one, two = EQUAL[name]
    result = compare_data(batches(one, LABELS), batches(two, LABELS.astype(np.int32)))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.causes == ()
    assert {finding.severity for finding in result.findings} <= {"note"}


def test_fields_are_paired_by_name_else_by_position():
    by_place = [tuple(batch.values()) for batch in tokens()]
    assert compare_data(tokens(), tokens()).by_name
    result = compare_data(tokens(), by_place)
    assert (result.by_name, result.verdict.outcome) == (False, Outcome.ALIGNED)
    short = [{name: batch[name] for name in ("labels", "input_ids")} for batch in tokens()]
    result = compare_data(tokens(), short)
    assert [row.reference for row in result.fields] == ["labels", "input_ids"]
    assert [finding.code for finding in result.findings] == ["lone-fields"]


def test_words_and_ragged_rows_are_compared():
    ragged = [{"x": [np.arange(3), np.arange(5)], "y": ["a", "b"]}]
    assert compare_data(ragged, ragged).verdict.outcome is Outcome.ALIGNED
    other = [{"x": [np.arange(3), np.arange(5) * 2], "y": ["a", "c"]}]
    assert {cause.id for cause in compare_data(ragged, other).causes} == {"tokens", "other-words"}


class Drawn:
    """Batches that are other ones at each reading, by a generator of its own."""

    def __init__(self, seed, width):
        self.generator, self.width = np.random.default_rng(seed), width

    def __iter__(self):
        for images, labels in batches(PLAIN, LABELS):
            yield images * (1 + self.width * self.generator.uniform(-1, 1, (len(images), 1, 1, 1))), labels


def test_random_values_are_never_equal_by_luck():
    same = compare_data(Drawn(0, 0.2), Drawn(0, 0.2))
    assert same.verdict.outcome is Outcome.ALIGNED  # the same draws
    other = compare_data(Drawn(0, 0.2), Drawn(1, 0.2))
    assert (other.verdict.outcome, other.causes[0].id) == (Outcome.NOT_COMPARED, "draws-untold")
    wider = compare_data(Drawn(0, 0.01), Drawn(1, 0.9))
    assert (wider.verdict.outcome, wider.causes[0].id) == (Outcome.NOT_ALIGNED, "draws-differ")
    assert named(batches(PLAIN, LABELS), Drawn(1, 0.2)) == {"augmentation"}


class Shuffled:
    """The same batches in an order that is drawn at each reading; the first order is that of the samples."""

    def __init__(self):
        self.orders = iter([np.arange(COUNT), ORDER, ORDER])

    def __iter__(self):
        order = next(self.orders)
        return iter(batches(Z[order], LABELS[order]))


def test_a_side_that_shuffles_only_later_epochs_is_named():
    assert named(batches(Z, LABELS), Shuffled()) == {"later-epochs-differ"}


class Endless:
    def __iter__(self):
        while True:
            yield from batches(Z, LABELS)


def test_batches_without_an_end_end_with_the_limit():
    result = compare_data(Endless(), Endless(), batches=3)
    assert (result.reference.batches, result.reference.ended, result.reference.length) == (3, False, None)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert "only the first batches" in result.verdict.caveats[0]


def failing():
    yield from batches(Z, LABELS)[:2]
    raise ValueError("the disk is gone")


def test_what_cannot_be_read_ends_in_one_message():
    plain = batches(Z, LABELS)
    with pytest.raises(InputsError, match="gives no sample"):
        compare_data(plain, [])
    with pytest.raises(UsageError, match="only once"):
        compare_data(plain, iter(plain))
    with pytest.raises(UserCodeError, match="the disk is gone"):
        compare_data(plain, failing)
    with pytest.raises(InputsError, match="no batches can be read"):
        compare_data(plain, lambda: 3)
    with pytest.raises(InputsError, match="unlike numbers of samples"):
        compare_data(plain, [(Z[:3], LABELS[:4])])
    with pytest.raises(InputsError, match="without an axis of samples"):
        compare_data(plain, [(Z[:3], np.float32(1))])
    with pytest.raises(InputsError, match="has the fields"):
        compare_data(plain, [{"x": Z[:3]}, {"y": Z[:3]}])


def test_no_common_sample_is_not_compared():
    other = np.random.default_rng(8).normal(size=Z.shape).astype(np.float32)
    result = compare_data([(batch[0],) for batch in batches(Z)], [(batch[0],) for batch in batches(other)])
    assert (result.verdict.outcome, result.order.order) == (Outcome.NOT_COMPARED, "unknown")


class WithShape(list):
    """Batches of a library whose datasets have a shape, as those of Hugging Face do."""

    shape = (COUNT, 2)


def test_a_dataset_with_a_shape_is_read_and_an_array_is_none():
    batched = WithShape(batches(Z, LABELS))
    assert compare_data(batched, batched).verdict.outcome is Outcome.ALIGNED
    with pytest.raises(InputsError, match="no batches can be read"):
        compare_data(batched, lambda: Z)
